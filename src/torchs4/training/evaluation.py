"""How well a model does on a split."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from torchs4.layers.precision import widest_dtype
from torchs4.training.batches import BatchStream, Share, evaluation_rows, share_of
from torchs4.training.carrying import require_carrying

if TYPE_CHECKING:
    from collections.abc import Callable

    from accelerate import Accelerator
    from torch import nn

    from torchs4.data.sequences import SequenceData, Split
    from torchs4.description import Batch
    from torchs4.tasks import Task


class Score(NamedTuple):
    """The mean loss and the task's metrics over so many examples."""

    loss: float
    metrics: dict[str, float]
    examples: int


def evaluate(
    model: nn.Module,
    split: Split,
    task: Task,
    batch_size: int,
    *,
    accelerator: Accelerator,
    limit: int = 0,
    rate: float = 1.0,
    progress: Callable[[int, int], None] | None = None,
) -> Score:
    """The score on a split, or on `limit` evenly spread examples of it; every process takes a share."""
    share = Share(accelerator.process_index, accelerator.num_processes)
    rows = evaluation_rows(len(split), batch_size, limit, split.lengths)
    shares = [part for part in (share_of(row, share) for row in rows) if len(part)]
    device, answers = accelerator.device, 0
    totals = torch.zeros(task.sum_count, dtype=widest_dtype(device), device=device)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            for done, batch in enumerate(BatchStream(split, shares), 1):
                # Before it moves: a device would have to be waited for.
                answers += task.count(batch)
                batch = move(batch, device)
                if rate != 1.0:
                    batch = task.at_rate(batch, rate)
                with accelerator.autocast():
                    sums = task.sums_of(model, batch, rate)
                totals += sums
                if progress is not None:
                    progress(done, len(shares))
    finally:
        model.train(was_training)
    counted = torch.tensor(answers, device=device)
    in_all, answers = (accelerator.reduce(x, reduction="sum").tolist() for x in (totals, counted))
    means = [total / answers for total in in_all]
    return Score(means[0], task.scores(means), sum(len(row) for row in rows))


def evaluate_unbroken(
    model: nn.Module,
    split: Split,
    task: Task,
    *,
    accelerator: Accelerator,
    progress: Callable[[int, int], None] | None = None,
) -> Score:
    """The score on a text that is read from its beginning to its end, with the model's state carried on.

    Nothing is forgotten where a passage ends, so the model knows more than in passages by themselves. There
    is one text: every process reads all of it.
    """
    ordered = split.in_order()
    if ordered is None:
        raise ValueError(
            "These examples do not follow one another: only a text can be read as one unbroken stream."
        )
    require_carrying(model)
    rows = list(np.arange(len(ordered))[:, None])
    device, answers, state = accelerator.device, 0, None
    totals = torch.zeros(task.sum_count, dtype=widest_dtype(device), device=device)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            for done, batch in enumerate(BatchStream(ordered, rows), 1):
                answers += task.count(batch)
                with accelerator.autocast():
                    sums, state = task.carried_sums(model, move(batch, device), state)
                totals += sums
                if progress is not None:
                    progress(done, len(rows))
    finally:
        model.train(was_training)
    means = [total / answers for total in totals.tolist()]
    return Score(means[0], task.scores(means), len(rows))


def require_same_names(model: Any, data: SequenceData) -> None:
    """Refuse data whose tokens, classes or columns are called otherwise than those of a model."""
    ours, theirs = getattr(model.config, "names", ()), data.task.output.names
    if not ours or not theirs or ours == theirs:
        return
    pairs = enumerate(zip(ours, theirs, strict=False))
    place = next((number for number, (one, other) in pairs if one != other), None)
    told = "" if place is None else f", and number {place} is {theirs[place]!r} instead of {ours[place]!r}"
    raise ValueError(
        f"The data have another vocabulary than the model: {len(theirs):,} names instead of "
        f"{len(ours):,}{told}. Point --data-dir to the data that the model was trained on."
    )


def move(batch: Batch, device: torch.device) -> Batch:
    """The batch on another device."""
    if device.type == "cpu":
        return batch
    return batch.map(lambda tensor: tensor.to(device))
