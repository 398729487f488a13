"""The order of examples, and the thread that loads them ahead."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
import torch

from torchs4.data.sequences import Growth, Split
from torchs4.description import Batch
from torchs4.training.batches import (
    BatchStream,
    Share,
    evaluation_rows,
    growing_rows,
    share_of,
    training_rows,
)


class Numbers(Split):
    """Example i is the number i; what a generator draws is added. One row may be broken, all may be slow."""

    def __init__(self, broken: int | None = None, seconds: float = 0.0) -> None:
        self.broken, self.seconds, self.loaded = broken, seconds, 0

    def __len__(self) -> int:
        return 1000

    def batch(self, rows: Any, generator: torch.Generator | None = None) -> Batch:
        time.sleep(self.seconds)
        if self.broken in rows:
            raise OSError(f"row {self.broken} cannot be read")
        self.loaded += 1
        x = torch.from_numpy(rows).double()
        noise = 0.0 if generator is None else torch.rand((), generator=generator).double()
        return Batch(x + noise, torch.zeros(len(rows), dtype=torch.int64), None)


def rows_of(count: int) -> list[Any]:
    return [np.arange(2 * i, 2 * i + 2) for i in range(count)]


def test_an_epoch_holds_every_example_once_in_full_batches() -> None:
    rows = training_rows(20, 5, seed=3, epoch=0)
    assert [len(row) for row in rows] == [5, 5, 5, 5]
    assert sorted(np.concatenate(rows)) == list(range(20))
    assert [len(row) for row in training_rows(23, 5, seed=3, epoch=0)] == [5, 5, 5, 5]
    assert len(set(np.concatenate(training_rows(23, 5, seed=3, epoch=0)))) == 20


def test_the_order_depends_on_seed_and_epoch_and_on_nothing_else() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        return np.concatenate(training_rows(20, 5, seed, epoch)).tolist()

    assert order(3, 1) == order(3, 1)
    assert len({tuple(order(seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}) == 4
    assert order(3, 1) != list(range(20))


def test_batches_of_similar_length_hold_every_example_once_and_pad_less() -> None:
    lengths = np.random.default_rng(0).integers(1, 1000, 403)
    rows = training_rows(403, 4, seed=3, epoch=1, lengths=lengths)
    plain = training_rows(403, 4, seed=3, epoch=1)
    assert [len(row) for row in rows] == [4] * 100
    assert sorted(np.concatenate(rows)) == sorted(np.concatenate(plain))

    def padded(batches: list[Any]) -> int:
        return sum(4 * int(lengths[row].max()) - int(lengths[row].sum()) for row in batches)

    assert padded(rows) < padded(plain) / 5
    # Long and short batches come in turns, not sorted.
    longest = np.array([lengths[row].max() for row in rows])
    assert abs(np.corrcoef(longest, np.arange(100))[0, 1]) < 0.3
    again = training_rows(403, 4, seed=3, epoch=1, lengths=lengths)
    assert all((a == b).all() for a, b in zip(rows, again, strict=True))


GROWTH = Growth(stages=(40, 300, 1000), every=600)


def stages_of(rows: list[Any]) -> list[Any]:
    return [np.searchsorted(np.cumsum(GROWTH.stages), row, side="right") for row in rows]


def test_examples_grow_harder_and_end_with_the_last_stage_alone() -> None:
    first, second, third = (stages_of(growing_rows(GROWTH, 10, seed=3, epoch=epoch)) for epoch in range(3))
    assert len(first) == len(second) == len(third) == 100
    assert set(np.concatenate(first[:60])) == {0}
    # From here on the second stage has come: half of the examples, and half of the others.
    middle = np.concatenate(first[60:] + second[:20])
    assert set(middle) == {0, 1}
    assert 0.65 < middle.mean() < 0.85
    assert set(np.concatenate(second[20:] + third)) == {2}


def test_once_grown_an_epoch_holds_every_example_of_the_last_stage_once() -> None:
    rows = growing_rows(GROWTH, 10, seed=3, epoch=2)
    assert sorted(np.concatenate(rows)) == list(range(340, 1340))
    other = growing_rows(GROWTH, 10, seed=3, epoch=3)
    assert np.concatenate(rows).tolist() != np.concatenate(other).tolist()


def test_growing_batches_depend_on_seed_and_epoch_and_on_nothing_else() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        return np.concatenate(growing_rows(GROWTH, 10, seed, epoch)).tolist()

    assert order(3, 0) == order(3, 0)
    assert order(3, 0) != order(4, 0)


def test_growing_batches_of_similar_length_hold_the_same_examples_and_pad_less() -> None:
    lengths = np.random.default_rng(0).integers(1, 500, sum(GROWTH.stages))
    plain = growing_rows(GROWTH, 10, seed=3, epoch=1)
    similar = growing_rows(GROWTH, 10, seed=3, epoch=1, lengths=lengths)
    assert sorted(np.concatenate(similar)) == sorted(np.concatenate(plain))
    padded = [sum(lengths[row].max() for row in rows) for rows in (plain, similar)]
    assert padded[1] < 0.8 * padded[0]


def test_evaluation_by_length_takes_the_same_examples_longest_first() -> None:
    lengths = np.array([5, 9, 2, 9, 7])
    assert [row.tolist() for row in evaluation_rows(5, 2, lengths=lengths)] == [[1, 3], [4, 0], [2]]
    assert [row.tolist() for row in evaluation_rows(5, 2, 3, lengths)] == [[4, 0], [2]]


def test_fewer_examples_than_a_batch_are_one_batch() -> None:
    (rows,) = training_rows(4, 5, 0, 0)
    assert sorted(rows) == [0, 1, 2, 3]


@pytest.mark.parametrize("limit", [0, 7, 100])
def test_evaluation_takes_all_examples_in_order(limit: int) -> None:
    rows = evaluation_rows(7, 3, limit)
    assert [row.tolist() for row in rows] == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_limited_evaluation_spreads_over_the_split() -> None:
    rows = np.concatenate(evaluation_rows(101, 2, limit=5))
    assert rows.tolist() == [0, 25, 50, 75, 100]


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_shares_are_disjoint_complete_and_even(processes: int) -> None:
    row = np.arange(10, 17)
    shares = [share_of(row, Share(rank, processes)) for rank in range(processes)]
    assert sorted(np.concatenate(shares)) == row.tolist()
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_batches_come_in_order() -> None:
    batches = list(BatchStream(Numbers(), rows_of(20)))
    assert [batch.x.tolist() for batch in batches] == [[2 * i, 2 * i + 1] for i in range(20)]


def test_a_start_in_the_middle_gives_the_same_batches_and_augmentation() -> None:
    whole = [batch.x for batch in BatchStream(Numbers(), rows_of(9), 0, (5, 2))]
    rest = [batch.x for batch in BatchStream(Numbers(), rows_of(9), 4, (5, 2))]
    assert len(rest) == 5
    for one, other in zip(whole[4:], rest, strict=True):
        assert torch.equal(one, other)


def test_augmentation_differs_between_batches_epochs_and_seeds() -> None:
    noises = {
        float((batch.x % 1)[0])
        for seed in ((0, 0), (0, 1), (1, 0))
        for batch in BatchStream(Numbers(), rows_of(4), 0, seed)
    }
    assert len(noises) == 12


def test_an_error_in_the_split_reaches_the_consumer_after_the_batches_before_it() -> None:
    batches = iter(BatchStream(Numbers(broken=7), rows_of(10)))
    assert [next(batches).x.tolist() for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(OSError, match="row 7 cannot be read"):
        next(batches)


def test_breaking_off_early_ends_the_thread() -> None:
    before = threading.active_count()
    split = Numbers()
    for _ in BatchStream(split, rows_of(400)):
        break
    assert threading.active_count() == before
    # A few wait in memory; nobody loads the rest.
    assert split.loaded < 10


def test_time_spent_waiting_is_counted() -> None:
    slow = BatchStream(Numbers(seconds=0.02), rows_of(5))
    assert len(list(slow)) == 5
    assert slow.waited >= 0.08
    fast = BatchStream(Numbers(), rows_of(5))
    for _ in fast:
        time.sleep(0.02)
    assert fast.waited < 0.06
