"""The training of one network of an estimator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from torchs4.training.display import BriefDisplay, Display
from torchs4.training.loop import TrainingInterrupted
from torchs4.training.session import train

if TYPE_CHECKING:
    from pathlib import Path

    from torchs4.data import SequenceData
    from torchs4.models import ModelConfig
    from torchs4.training.config import BudgetOptions, OptimizerOptions
    from torchs4.training.session import FinishedRun


def train_member(
    model: ModelConfig,
    data: SequenceData,
    folder: Path,
    *,
    optim: OptimizerOptions,
    budget: BudgetOptions,
    seed: int,
    keep: bool,
    verbose: int,
    title: str = "",
) -> FinishedRun:
    """Train, or go on with what the folder holds.

    keep: the folder is somebody's; otherwise it is about to be removed, and needs no checkpoints or pictures.
    verbose, title: what is shown meanwhile, and what to call it.
    """
    display = Display() if verbose > 1 else BriefDisplay(title, quiet=not verbose)
    try:
        # A program's own random numbers are none of ours.
        with torch.random.fork_rng(devices=[]):
            return train(
                model,
                data,
                output=folder,
                resume=keep,
                optim=optim,
                budget=budget,
                seed=seed,
                display=display,
                checkpoint_seconds=120.0 if keep else None,
                pictures=keep,
            )
    except TrainingInterrupted as interrupted:
        kept = f" Fit again with the same data to go on: {folder} holds what is done." if keep else ""
        raise KeyboardInterrupt(f"Stopped.{kept}") from interrupted
