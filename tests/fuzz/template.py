"""What people have on disk, made once: a run, a model, an estimator, the state of a stream, data."""

from __future__ import annotations

import tempfile
from contextlib import chdir
from functools import cache
from pathlib import Path

import numpy as np
from calls import run_command

from torchs4.estimators import S4Classifier
from torchs4.inference import Stream
from torchs4.models import SequenceModel, load_model


@cache
def template() -> Path:
    """A folder with all of them."""
    folder = Path(tempfile.mkdtemp(prefix="torchs4-fuzz-"))
    signals = np.random.default_rng(0).normal(size=(24, 20)).astype(np.float32)
    labels = np.arange(24) % 2
    np.savez(folder / "data.npz", x=signals, y=labels, x_test=signals[:6], y_test=labels[:6])
    options = ["--model.features", "4", "--model.layers", "1", "--model.state-size", "4"]
    options += ["--budget.epochs", "2", "--optim.batch-size", "8", "--output", "run"]
    with chdir(folder):
        result = run_command(["train", "--data", "data.npz", "--task", "classification", *options])
    if result.code != 0:
        raise RuntimeError(f"The run to damage failed: {result.said}")
    model = load_model(folder / "run" / "best")
    assert isinstance(model, SequenceModel)
    model.save_pretrained(folder / "model")
    stream = Stream(model)
    stream.push(signals[0][:, None])
    stream.save(folder / "stream.safetensors")
    estimator = S4Classifier(features=4, num_layers=1, state_size=4, epochs=1, verbose=0, random_state=0)
    estimator.fit(signals, labels).save(folder / "estimator")
    return folder
