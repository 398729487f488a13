"""A run that was interrupted ends with the same weights, bit for bit, as one that was not."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from rich.console import Console

from torchs4.data import BundledDigits
from torchs4.data.sequences import Growth, Split
from torchs4.description import InputDescription
from torchs4.models import load_model
from torchs4.recipes import network
from torchs4.training import loop
from torchs4.training.checkpoints import load_state
from torchs4.training.config import BudgetOptions, OptimizerOptions, TrainingConfig
from torchs4.training.display import Display
from torchs4.training.finish import finish, picture_of_frames
from torchs4.training.loop import (
    Trainer,
    TrainingDivergedError,
    TrainingInterrupted,
    device_random_state,
)
from torchs4.training.run_folder import RunFolder

STEPS = 7


def small_config(**changes: Any) -> TrainingConfig[BundledDigits]:
    values: dict[str, Any] = {
        "data": BundledDigits(cut_short=0.5),
        "model": network(layers=1, features=4, state_size=4, norm="batch", dropout=0.2),
        "optim": OptimizerOptions(lr=0.01, batch_size=12, accumulate=2, warmup_steps=2),
        "budget": BudgetOptions(epochs=3, max_steps=STEPS, validation_examples=20),
    }
    return TrainingConfig(**{**values, **changes})


@pytest.fixture(scope="module")
def cheap_config() -> TrainingConfig[BundledDigits]:
    return small_config()


def make_trainer(
    folder: Path,
    config: TrainingConfig[BundledDigits],
    resume: bool = False,
    digits: int = 36,
    growth: Growth | None = None,
) -> Trainer:
    run = RunFolder(folder)
    data = config.data.load(Path("nowhere"))
    if not resume:
        run.start("digits (test)", config, data.task.metrics)
    train = _First(data.train, digits, growth)
    data = type(data)(data.input, data.task, train, data.validation, data.test)
    trainer = Trainer(config, data, run, Display(Console(quiet=True)), Accelerator(cpu=True), math.inf)
    if resume:
        trainer.resume()
    return trainer


def test_time_ends_a_run(tmp_path: Path) -> None:
    config = small_config(budget=BudgetOptions(epochs=1000, validation_examples=20, max_minutes=0.002))
    trainer = make_trainer(tmp_path / "run", config)
    trainer.run()
    assert 0 < trainer.progress.step < trainer.total_steps
    assert trainer.progress.seconds >= 0.12
    assert trainer.is_over
    assert trainer.progress.best is not None


def test_time_is_counted_with_the_clock_that_is_given(tmp_path: Path) -> None:
    config = small_config(budget=BudgetOptions(epochs=1000, validation_examples=20, max_minutes=10))
    trainer = make_trainer(tmp_path / "run", config)
    minutes = itertools.count()
    trainer.clock = lambda: 60.0 * next(minutes)
    trainer.run()
    assert 0 < trainer.progress.step <= 10
    assert trainer.is_over


class _First(Split):
    """The first examples of a split."""

    def __init__(self, split: Any, count: int, growth: Growth | None = None) -> None:
        self.split, self.count, self.growth = split, count, growth

    def __len__(self) -> int:
        return self.count

    def batch(self, rows: Any, generator: torch.Generator | None = None) -> Any:
        return self.split.batch(rows, generator)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_model(folder).state_dict()


def assert_equal_runs(one: Path, other: Path) -> None:
    for name in ("last", "best"):
        for key, tensor in weights(one / name).items():
            assert torch.equal(tensor, weights(other / name)[key]), f"{name}: {key}"
    states = [load_state(path / "last") for path in (one, other)]
    assert torch.equal(states[0]["random_states"][0], states[1]["random_states"][0])
    records = [RunFolder(path).metrics() for path in (one, other)]
    timed = {"seconds", "input_wait_seconds", "memory_mb"}
    assert [{k: v for k, v in r.items() if k not in timed} for r in records[0]] == [
        {k: v for k, v in r.items() if k not in timed} for r in records[1]
    ]


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory, cheap_config: Any) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    make_trainer(folder, cheap_config).run()
    return folder


@pytest.fixture(scope="module")
def averaged_config() -> TrainingConfig[BundledDigits]:
    return small_config(optim=OptimizerOptions(lr=0.01, batch_size=12, warmup_steps=2, average=0.5))


@pytest.fixture(scope="module")
def averaged_run(tmp_path_factory: pytest.TempPathFactory, averaged_config: Any) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "averaged"
    make_trainer(folder, averaged_config).run()
    return folder


@pytest.mark.parametrize("stop_after", range(1, STEPS))
def test_an_interrupted_run_ends_like_one_that_was_not(
    whole_run: Path, cheap_config: Any, tmp_path: Path, stop_after: int
) -> None:
    interrupt_and_continue(cheap_config, tmp_path / "run", stop_after)
    assert_equal_runs(whole_run, tmp_path / "run")


@pytest.mark.parametrize("stop_after", [1, 3, 5])
def test_an_interrupted_run_with_averaged_weights_ends_like_one_that_was_not(
    averaged_run: Path, averaged_config: Any, tmp_path: Path, stop_after: int
) -> None:
    interrupt_and_continue(averaged_config, tmp_path / "run", stop_after)
    assert_equal_runs(averaged_run, tmp_path / "run")
    averages = [load_state(path / "last")["average"] for path in (averaged_run, tmp_path / "run")]
    for name, tensor in averages[0].items():
        assert torch.equal(tensor, averages[1][name]), name


@pytest.mark.parametrize("stop_after", [1, 3, 5])
def test_an_interrupted_run_whose_examples_grow_ends_like_one_that_was_not(
    cheap_config: Any, tmp_path: Path, stop_after: int
) -> None:
    # Epochs of two steps; the last stage has come after three steps.
    growth = Growth(stages=(6, 6, 24), every=18)
    whole = make_trainer(tmp_path / "whole", cheap_config, growth=growth)
    assert (whole.steps_per_epoch, whole.examples_per_epoch, whole.growing_epochs) == (2, 24, 2)
    stages = [
        np.searchsorted([6, 12], rows, side="right") for epoch in range(3) for rows in whole._rows_of(epoch)
    ]
    assert [set(stage) for stage in (stages[0], *stages[3:])] == [{0}, {2}, {2}, {2}]
    whole.run()
    interrupt_and_continue(cheap_config, tmp_path / "run", stop_after, growth)
    assert_equal_runs(tmp_path / "whole", tmp_path / "run")


def interrupt_and_continue(config: Any, folder: Path, stop_after: int, growth: Growth | None = None) -> None:
    trainer = make_trainer(folder, config, growth=growth)
    step, calls = trainer._step, itertools.count(1)

    def stopping_step(*arguments: Any) -> Any:
        result = step(*arguments)
        if next(calls) == stop_after:
            trainer._stop_asked = True
        return result

    trainer._step = stopping_step  # type: ignore[method-assign]
    with pytest.raises(TrainingInterrupted):
        trainer.run()
    resumed = make_trainer(folder, config, resume=True, growth=growth)
    assert resumed.progress.step == stop_after
    resumed.run()


def test_the_same_seed_gives_the_same_run_and_another_seed_another(
    whole_run: Path, cheap_config: Any, tmp_path: Path
) -> None:
    make_trainer(tmp_path / "again", cheap_config).run()
    assert_equal_runs(whole_run, tmp_path / "again")
    other = type(cheap_config)(**{**vars(cheap_config), "seed": 1})
    make_trainer(tmp_path / "other", other).run()
    assert any(
        not torch.equal(tensor, weights(whole_run / "last")[key])
        for key, tensor in weights(tmp_path / "other" / "last").items()
    )


def test_averaged_weights_are_the_ones_that_are_measured_and_kept(
    tmp_path: Path, averaged_config: Any
) -> None:
    trainer = make_trainer(tmp_path / "run", averaged_config)
    expected = {name: tensor.clone() for name, tensor in trainer.bare_model.state_dict().items()}
    step = trainer._step

    def followed(*arguments: Any) -> Any:
        number, result = trainer.progress.step, step(*arguments)
        decay = min(0.5, (1 + number) / (10 + number))
        for name, tensor in trainer.bare_model.state_dict().items():
            is_count = name.endswith("num_batches_tracked")
            expected[name] = tensor.clone() if is_count else decay * expected[name] + (1 - decay) * tensor
        return result

    trainer._step = followed  # type: ignore[method-assign]
    kept: dict[int, dict[str, torch.Tensor]] = {}
    measure = trainer._measure
    trainer._measure = lambda: (kept.update({trainer.progress.epoch + 1: dict(expected)}), measure())[1]  # type: ignore[method-assign]
    trainer.run()
    best, last = weights(tmp_path / "run" / "best"), weights(tmp_path / "run" / "last")
    for name, tensor in kept[trainer.progress.best_epoch].items():
        torch.testing.assert_close(best[name], tensor)
    for name, tensor in trainer.bare_model.state_dict().items():
        assert torch.equal(last[name], tensor)
    assert not torch.equal(trainer.measured_model.state_dict()["head.weight"], last["head.weight"])


def test_the_random_numbers_of_an_accelerator_continue_too(
    tmp_path: Path, cheap_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[Any] = []
    device = torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda place: torch.arange(16, dtype=torch.uint8))
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, place: states.append((state, place)))
    trainer = make_trainer(tmp_path / "run", cheap_config)
    monkeypatch.setattr(loop, "device_random_state", lambda _: device_random_state(device))
    trainer.save()
    set_there = loop.set_device_random_state
    monkeypatch.setattr(loop, "set_device_random_state", lambda _, state: set_there(device, state))
    make_trainer(tmp_path / "run", cheap_config, resume=True)
    ((state, place),) = states
    assert place == device
    assert torch.equal(state, torch.arange(16, dtype=torch.uint8))


def test_accumulation_does_not_change_the_gradient(tmp_path: Path) -> None:
    results = []
    for parts in (1, 3):
        config = small_config(
            # Neither dropout nor batch statistics, which depend on how a batch is cut.
            model=network(layers=1, features=4, state_size=4),
            optim=OptimizerOptions(lr=0.01, batch_size=12, accumulate=parts),
            budget=BudgetOptions(epochs=1, max_steps=1, validation_examples=10),
        )
        make_trainer(tmp_path / str(parts), config).run()
        results.append(weights(tmp_path / str(parts) / "last"))
    for key, tensor in results[0].items():
        torch.testing.assert_close(tensor, results[1][key], rtol=1e-4, atol=1e-6)


def test_a_loss_that_is_no_number_stops_before_the_weights_change(tmp_path: Path, cheap_config: Any) -> None:
    trainer = make_trainer(tmp_path / "run", cheap_config)
    trainer._step(next(_batches(trainer)), range(12))
    trainer.save()
    good = {key: tensor.clone() for key, tensor in trainer.bare_model.state_dict().items()}
    batch = next(_batches(trainer))
    batch.x[0, 0] = math.nan
    with pytest.raises(TrainingDivergedError, match=r"epoch 1, step 1: the loss is nan.*smaller --optim.lr"):
        trainer._step(batch, range(12))
    parameters = dict(trainer.bare_model.named_parameters())
    assert all(torch.equal(parameters[name], good[name]) for name in parameters)
    assert all(tensor.isfinite().all() for tensor in weights(tmp_path / "run" / "last").values())


def _batches(trainer: Trainer) -> Any:
    rows = torch.arange(12).numpy()
    while True:
        yield trainer.data.train.batch(rows, torch.Generator().manual_seed(0))


def test_a_damaged_checkpoint_is_passed_over(whole_run: Path, cheap_config: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    trainer = make_trainer(folder, cheap_config)
    trainer.checkpoint_seconds = 0.0
    trainer.run()
    damaged = folder / "last" / "model.safetensors"
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    resumed = make_trainer(folder, cheap_config, resume=True)
    assert resumed.progress.step < STEPS
    resumed.run()
    assert_equal_runs(whole_run, folder)


def _lie(folder: Path, name: str, content: bytes) -> None:
    """Change a file of a checkpoint and its checksum."""
    (folder / name).write_bytes(content)
    path = folder / "checksums.json"
    checksums = {**json.loads(path.read_text()), name: hashlib.sha256(content).hexdigest()}
    path.write_text(json.dumps(checksums))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", b"nothing"),
        ("training.safetensors", b"nothing"),
        ("training.json", b"{}"),
        ("training.json", b'{"pairs": []}'),
        ("training.json", b"[]"),
        ("config.json", b'{"format": 1}'),
    ],
)
def test_a_checkpoint_with_lying_checksums_is_passed_over(
    whole_run: Path, cheap_config: Any, tmp_path: Path, name: str, content: bytes
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole_run, folder)
    _lie(folder / "last", name, content)
    resumed = make_trainer(folder, cheap_config, resume=True)
    assert 0 < resumed.progress.step < STEPS
    resumed.run()
    assert_equal_runs(whole_run, folder)
    for version in ("last", "last.previous"):
        _lie(folder / version, name, content)
    with pytest.raises(ValueError, match=r"There is no checkpoint .* is damaged .* none before it"):
        make_trainer(folder, cheap_config, resume=True)


def test_a_run_whose_config_describes_another_network_is_refused(
    whole_run: Path, cheap_config: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole_run, folder)
    other = dataclasses.replace(cheap_config, model=network(layers=3, features=5))
    with pytest.raises(ValueError, match=r"another network than the run's config\.json"):
        make_trainer(folder, other, resume=True)


def test_a_finished_run_can_be_read_by_a_person(tmp_path: Path, cheap_config: Any) -> None:
    trainer = make_trainer(tmp_path / "run", cheap_config)
    data = trainer.data
    trainer.data = type(data)(data.input, data.task, data.train, data.validation, _First(data.test, 30))
    trainer.run()
    summary = finish(trainer)
    written = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert written == json.loads(json.dumps(summary))
    assert written["test_examples"] == 30
    assert written["steps"] == STEPS
    assert 0 <= written["input_wait_share"] < 1
    assert {"command", "commit", "machine", "versions", "date"} <= set(written)
    records = RunFolder(tmp_path / "run").metrics()
    assert written["best_validation_accuracy"] == max(record["validation_accuracy"] for record in records)
    assert [record["step"] for record in records] == [3, 6, 7]
    for name in ("curves.png", "kernels.png"):
        assert (tmp_path / "run" / name).read_bytes().startswith(b"\x89PNG")


def test_kernels_are_pictures_where_rows_are_whole_frames() -> None:
    grey = InputDescription("values", 1, 1024, image=(32, 32))
    assert picture_of_frames(grey, 1) == (32, 32)
    assert picture_of_frames(grey, 4) == (32, 8)
    # A frame that goes on in the next row has no place in a picture.
    assert picture_of_frames(grey, 3) is None
    assert picture_of_frames(InputDescription("tokens", 256, 3072, image=(32, 32), channels=3), 3) == (32, 32)
    assert picture_of_frames(InputDescription("values", 1, 1024), 1) is None


def test_another_number_of_processes_cannot_continue_a_run(whole_run: Path, cheap_config: Any) -> None:
    trainer = make_trainer(whole_run, cheap_config, resume=True)
    trainer.share = trainer.share._replace(processes=2)
    with pytest.raises(ValueError, match="trained by 1 processes, this is 2"):
        trainer.resume()
