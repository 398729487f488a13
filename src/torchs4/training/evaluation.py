"""How well a model does on a split."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.nn import functional as F

from torchs4.training.batches import BatchStream, Share, evaluation_rows, share_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from accelerate import Accelerator
    from torch import Tensor, nn

    from torchs4.data.sequences import Batch, Split


class Score(NamedTuple):
    """Mean loss and share of right answers over so many examples."""

    loss: float
    accuracy: float
    examples: int


def classification_loss(model: nn.Module, batch: Batch, rate: float = 1.0) -> tuple[Tensor, Tensor]:
    """The mean cross entropy of a batch, and how many examples of it are classified right."""
    x = batch.x if rate == 1.0 else keep_every(batch.x, rate)
    logits = model(x, lengths=batch.lengths, rate=rate)
    return F.cross_entropy(logits.float(), batch.y), (logits.argmax(-1) == batch.y).sum()


def keep_every(x: Tensor, rate: float) -> Tensor:
    """Every rate-th sample, without a filter: what a slower recording would have caught."""
    step = round(rate)
    if step != rate or step < 1:
        raise ValueError(f"rate is {rate}; leaving out samples needs a whole number, such as 2.")
    return x[:, ::step]


def evaluate(
    model: nn.Module,
    split: Split,
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
    totals = torch.zeros(3, dtype=torch.float64, device=accelerator.device)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            for done, batch in enumerate(BatchStream(split, shares), 1):
                batch = move(batch, accelerator.device)
                if rate != 1.0 and batch.lengths is not None:
                    raise ValueError("Another sampling rate makes sense for signals, not for tokens.")
                with accelerator.autocast():
                    loss, right = classification_loss(model, batch, rate)
                count = len(batch.y)
                totals += torch.stack(
                    [loss.double() * count, right.double(), loss.new_tensor(count).double()]
                )
                if progress is not None:
                    progress(done, len(shares))
    finally:
        model.train(was_training)
    loss_sum, right_sum, examples = accelerator.reduce(totals, reduction="sum").tolist()
    return Score(loss_sum / examples, right_sum / examples, round(examples))


def move(batch: Batch, device: torch.device) -> Batch:
    """The batch on another device."""
    if device.type == "cpu":
        return batch
    lengths = None if batch.lengths is None else batch.lengths.to(device)
    return batch._replace(x=batch.x.to(device), y=batch.y.to(device), lengths=lengths)
