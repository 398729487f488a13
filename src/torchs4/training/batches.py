"""The order of examples, and a thread that has the next batches ready before they are asked for."""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from torchs4.data.sequences import Growth, Split
    from torchs4.description import Batch

# Batches that wait in memory: enough to ride out a slow disk for a moment.
_AHEAD = 4

# Batches whose examples are sorted by length together: more of them pad less, but mix less.
_POOL = 32


class Share(NamedTuple):
    """Which part of every batch this process takes: that of its rank, among so many processes."""

    rank: int = 0
    processes: int = 1


def training_rows(
    examples: int, batch_size: int, seed: int, epoch: int, lengths: NDArray[np.int64] | None = None
) -> list[NDArray[np.int64]]:
    """An epoch's batches as row numbers: all examples in an order drawn from seed and epoch, in full batches.

    Examples that do not fill a last batch wait for another epoch's order; fewer than one batch are one batch.
    Given their lengths, a batch holds examples of similar length.
    """
    batch_size = min(batch_size, examples)
    generator = np.random.default_rng([seed, epoch])
    order = generator.permutation(examples)[: examples // batch_size * batch_size]
    if lengths is None:
        return np.split(order, len(order) // batch_size)
    batches = [batch for pool in _pools_by_length(order, batch_size, lengths) for batch in pool]
    return [batches[index] for index in generator.permutation(len(batches))]


def growing_rows(
    growth: Growth, batch_size: int, seed: int, epoch: int, lengths: NDArray[np.int64] | None = None
) -> list[NDArray[np.int64]]:
    """An epoch's batches while examples grow harder: as many as those of the last stage alone.

    Half of what is shown is of the stage that its turn has come to, the other half of all stages up to it,
    so that nothing is forgotten. Later epochs show the last stage alone.
    """
    first_of = np.cumsum((0, *growth.stages))
    last = len(growth.stages) - 1
    order = first_of[last] + np.concatenate(training_rows(growth.stages[last], batch_size, seed, epoch))
    newest = np.minimum((epoch * len(order) + np.arange(len(order))) // growth.every, last)
    growing = newest[newest < last]
    generator = np.random.default_rng([seed, epoch, last])
    stage = np.where(generator.random(len(growing)) < 0.5, growing, generator.integers(0, growing + 1))
    order[: len(growing)] = first_of[stage] + generator.integers(0, np.array(growth.stages)[stage])
    batch_size = min(batch_size, len(order))
    if lengths is None:
        return np.split(order, len(order) // batch_size)
    # Mixed within a pool only: further away examples may be of another stage.
    pools = _pools_by_length(order, batch_size, lengths)
    return [pool[index] for pool in pools for index in generator.permutation(len(pool))]


def _pools_by_length(
    order: NDArray[np.int64], batch_size: int, lengths: NDArray[np.int64]
) -> list[list[NDArray[np.int64]]]:
    """The batches of some successive pools, each of examples of similar length."""
    pools = np.split(order, range(_POOL * batch_size, len(order), _POOL * batch_size))
    return [
        np.split(pool[np.argsort(lengths[pool], kind="stable")], len(pool) // batch_size) for pool in pools
    ]


def evaluation_rows(
    examples: int, batch_size: int, limit: int = 0, lengths: NDArray[np.int64] | None = None
) -> list[NDArray[np.int64]]:
    """All examples in order, or evenly spread ones if there are more than the limit; by length if given."""
    rows = np.arange(examples)
    if 0 < limit < examples:
        # A file may be sorted by class: its first examples would all be alike.
        rows = np.linspace(0, examples - 1, limit).round().astype(np.int64)
    if lengths is not None:
        # The longest first: what does not fit into memory shows at once.
        rows = rows[np.argsort(-lengths[rows], kind="stable")]
    return [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]


def share_of(rows: NDArray[np.int64], share: Share) -> NDArray[np.int64]:
    """The part of a batch that falls to one process; parts differ by one example at most."""
    return rows[share.rank :: share.processes]


class BatchStream:
    """The batches of these rows, loaded ahead by a thread. `waited` is the time that somebody waited for one.

    The generator of batch i is seeded by (seed, epoch, i), so a run that starts in the middle of an epoch
    draws the same augmentation.
    """

    def __init__(
        self,
        split: Split,
        rows: list[NDArray[np.int64]],
        start: int = 0,
        augmentation_seed: tuple[int, int] | None = None,
    ) -> None:
        self.waited = 0.0
        self._split = split
        self._rows = rows
        self._start = start
        self._seed = augmentation_seed
        self._ready: queue.Queue[Batch | BaseException | None] = queue.Queue(_AHEAD)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._load, daemon=True)

    def __iter__(self) -> Iterator[Batch]:
        self._thread.start()
        try:
            while True:
                start = time.perf_counter()
                item = self._ready.get()
                self.waited += time.perf_counter() - start
                if item is None:
                    return
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            self._stopped.set()
            # Room for whatever the thread is about to hand over, so that it can see the end.
            while not self._ready.empty():
                self._ready.get_nowait()
            self._thread.join()

    def _load(self) -> None:
        try:
            for index in range(self._start, len(self._rows)):
                if not self._hand_over(self._split.batch(self._rows[index], self._generator(index))):
                    return
            self._hand_over(None)
        except BaseException as error:  # Whatever it is belongs to the thread that asked for batches.
            self._hand_over(error)

    def _hand_over(self, item: Batch | BaseException | None) -> bool:
        while not self._stopped.is_set():
            try:
                self._ready.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def _generator(self, index: int) -> torch.Generator | None:
        if self._seed is None:
            return None
        seed = np.random.SeedSequence([*self._seed, index]).generate_state(1, np.uint64)[0]
        return torch.Generator().manual_seed(int(seed >> np.uint64(1)))
