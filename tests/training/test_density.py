"""Densities from data to pictures: a run that is killed, one that is sampled from, and what goes wrong."""

from __future__ import annotations

import itertools
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState
from PIL import Image
from rich.console import Console

from torchs4.cli import main
from torchs4.data import CIFAR10Density, MNISTDensity
from torchs4.models import load_model
from torchs4.recipes.density import unet
from torchs4.training.checkpoints import load_state
from torchs4.training.config import BudgetOptions, OptimizerOptions, TrainingConfig
from torchs4.training.devices import open_accelerator
from torchs4.training.display import Display
from torchs4.training.loop import Trainer, TrainingInterrupted
from torchs4.training.run_folder import RunFolder
from torchs4.training.session import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchs4.training.config import Precision

sys.path.insert(0, str(Path(__file__).parents[1] / "data"))

from official_files import write_cifar, write_mnist

STEPS = 4


def start_or_resume(folder: Path, data_dir: Path, precision: Precision, resume: bool = False) -> Trainer:
    config = TrainingConfig(
        data=CIFAR10Density(mixtures=2, mirror=True, validation_fraction=0.1),
        model=unet(layers=1, features=4, state_size=4, growth=1.0, dropout=0.1),
        optim=OptimizerOptions(optimizer="lamb", lr=0.005, batch_size=5, average=0.5),
        budget=BudgetOptions(epochs=2, max_steps=STEPS),
        precision=precision,
    )
    data, place = config.data.load(data_dir), RunFolder(folder)
    if not resume:
        place.start("density (test)", config, data.task.metrics)
    accelerator = open_accelerator(precision, "cpu")
    trainer = Trainer(config, data, place, Display(Console(quiet=True)), accelerator, math.inf)
    if resume:
        trainer.resume()
    return trainer


@pytest.fixture(params=["float32", "bfloat16"])
def precision(request: pytest.FixtureRequest) -> Iterator[Any]:
    """One of them for a whole test: accelerate keeps a precision for the whole process."""
    AcceleratorState._reset_state()
    yield request.param
    AcceleratorState._reset_state()


def test_a_killed_density_goes_on_bit_for_bit(tmp_path: Path, precision: Precision) -> None:
    write_cifar(tmp_path)
    start_or_resume(tmp_path / "whole", tmp_path, precision).run()
    stopped = start_or_resume(tmp_path / "killed", tmp_path, precision)
    step, calls = stopped._step, itertools.count(1)

    def stopping_step(*arguments: Any) -> Any:
        result = step(*arguments)
        stopped._stop_asked = next(calls) == 2
        return result

    stopped._step = stopping_step  # type: ignore[method-assign]
    with pytest.raises(TrainingInterrupted):
        stopped.run()
    resumed = start_or_resume(tmp_path / "killed", tmp_path, precision, resume=True)
    assert resumed.progress.step == 2
    resumed.run()
    for name in ("last", "best"):
        expected = load_model(tmp_path / "whole" / name).state_dict()
        for key, tensor in load_model(tmp_path / "killed" / name).state_dict().items():
            assert torch.equal(tensor, expected[key]), (name, key)
    moments = [load_state(tmp_path / name / "last")["optimizer"] for name in ("whole", "killed")]
    for one, other in zip(*(state["state"].values() for state in moments), strict=True):
        assert torch.equal(one["mean"], other["mean"])


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A density of digits after two steps."""
    folder = tmp_path_factory.mktemp("density")
    write_mnist(folder)
    config = TrainingConfig(
        data=MNISTDensity(validation_fraction=0.1),
        model=unet(layers=1, features=4, state_size=4, growth=1.0, pools=(4, 7)),
        optim=OptimizerOptions(batch_size=8),
        budget=BudgetOptions(epochs=1),
    )
    run(RunFolder(folder / "run"), config, data_dir=folder, quiet=True)
    return folder / "run"


def test_a_run_tells_bits_per_dimension_of_all_test_pictures(digits_run: Path) -> None:
    summary = json.loads((digits_run / "summary.json").read_text())
    assert summary["test_examples"] == 6
    assert summary["test_bits"] == pytest.approx(summary["test_loss"] / math.log(2))
    assert summary["metrics"][0]["title"] == "bits per dimension"
    assert {"curves.png", "kernels.png"} <= {path.name for path in digits_run.iterdir()}


def test_samples_come_as_one_picture(digits_run: Path, tmp_path: Path, capsys: Any) -> None:
    place = tmp_path / "drawn.png"
    assert main(["sample", str(digits_run), "-n", "3", "--output", str(place), "--seed", "1"]) == 0
    assert "drawn.png: 3 pictures." in capsys.readouterr().out
    with Image.open(place) as image:
        # Two rows of two places, each 28 pixels three times as large, with gaps of four between.
        assert (image.mode, image.size) == ("L", (2 * 88 + 4, 2 * 88 + 4))


def test_completions_show_originals_halves_and_what_was_drawn(
    digits_run: Path, tmp_path: Path, capsys: Any
) -> None:
    given = np.random.default_rng(0).integers(0, 256, (28, 28), np.uint8)
    Image.fromarray(given).save(tmp_path / "given.png")
    place = tmp_path / "completed.png"
    arguments = ["sample", str(digits_run), "--output", str(place), "--rows", "20", "--complete"]
    assert main([*arguments, str(tmp_path / "given.png")]) == 0
    with Image.open(place) as image:
        shown = np.asarray(image)
    # One below the other, three times as large, with gaps of four.
    original, kept, completed = (shown[top : top + 84 : 3, 4:88:3] for top in (4, 92, 180))
    assert np.array_equal(original, given)
    assert np.array_equal(kept[:20], given[:20])
    assert (kept[20:] == 128).all()
    assert np.array_equal(completed[:20], given[:20])
    assert not np.array_equal(completed[20:], given[20:])
    assert main([*arguments, "test"]) == 0
    assert "6 originals, what was kept of them, and completions" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.png", "There is no picture"),
        ("text.png", "is no picture that can be read"),
        ("deep.png", "which go beyond 0 to 255"),
    ],
)
def test_pictures_that_are_none_are_told(
    digits_run: Path, tmp_path: Path, capsys: Any, name: str, message: str
) -> None:
    (tmp_path / "text.png").write_text("not a picture")
    Image.fromarray(np.full((28, 28), 60_000, np.uint16)).save(tmp_path / "deep.png")
    output = str(tmp_path / "out.png")
    assert main(["sample", str(digits_run), "--output", output, "--complete", str(tmp_path / name)]) == 1
    assert message in " ".join(capsys.readouterr().err.split())
    assert not Path(output).exists()


def test_a_larger_picture_is_cut_to_its_middle_and_resized(digits_run: Path, tmp_path: Path) -> None:
    from torchs4.cli.sample import read_picture

    large = np.zeros((100, 300, 3), np.uint8)
    large[:, 100:200] = 200
    Image.fromarray(large).save(tmp_path / "large.png")
    # Near the cut, resizing mixes in a little of what is beyond it.
    assert (read_picture(tmp_path / "large.png", (28, 28, 1))[:, 3:-3] == 200).all()
    assert read_picture(tmp_path / "large.png", (32, 32, 3)).shape == (32, 32, 3)


def test_other_runs_draw_nothing(capsys: Any) -> None:
    assert main(["sample", "digits"]) == 1
    assert "does not draw pictures" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--rows", "3"], "nothing is to be completed"), (["--output", "drawn.jpg"], "call it NAME.png")],
)
def test_samples_refuse_what_they_would_ignore(
    digits_run: Path, options: list[str], message: str, capsys: Any
) -> None:
    assert main(["sample", str(digits_run), "-n", "1", *options]) == 1
    assert message in " ".join(capsys.readouterr().err.split())
