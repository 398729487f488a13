"""Language models in training: losses instead of predictions, a text read in order, runs that are killed."""

from __future__ import annotations

import itertools
import json
import math
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from rich.console import Console

from torchs4 import S4BlockConfig, S4Config, SequenceModel
from torchs4.cli import main
from torchs4.data import BundledDigits, WikiText
from torchs4.models import build_model, load_model
from torchs4.models.states import named_tensors
from torchs4.recipes import network
from torchs4.recipes.language import language_network
from torchs4.training.asked_model import CarryingModel
from torchs4.training.carrying import CarriedStates, carried_rows, require_carrying
from torchs4.training.config import BudgetOptions, OptimizerOptions, TrainingConfig
from torchs4.training.display import Display
from torchs4.training.evaluation import evaluate, evaluate_unbroken
from torchs4.training.loop import Trainer, TrainingInterrupted
from torchs4.training.run_folder import RunFolder

sys.path.insert(0, str(Path(__file__).parents[1] / "data"))

from official_files import write_wikitext

# Two parts of 50 passages of eight words, in two batches' worth of accumulation.
STEPS_PER_EPOCH = 12


def a_text(words: int, seed: int) -> str:
    draws = np.random.default_rng(seed).zipf(1.5, words) % 40
    lines = [" ".join(f"w{number}" for number in line) for line in np.array_split(draws, words // 10)]
    return " \n".join(lines) + " <unk> \n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("words")
    write_wikitext(folder, {part: a_text(350, seed) for seed, part in enumerate(("train", "valid", "test"))})
    return folder


def small_config(**optim: Any) -> TrainingConfig[WikiText]:
    return TrainingConfig(
        data=WikiText(length=8),
        model=language_network(layers=2, features=8, state_size=4, dropout=0.1, cutoffs=(6, 20)),
        optim=OptimizerOptions(lr=0.01, batch_size=4, **optim),
        budget=BudgetOptions(epochs=2, max_steps=STEPS_PER_EPOCH + 3),
    )


def make_trainer(folder: Path, place: Path, config: Any, resume: bool = False) -> Trainer:
    data, run = config.data.load(place), RunFolder(folder)
    if not resume:
        run.start("words (test)", config, data.task.metrics)
    trainer = Trainer(config, data, run, Display(Console(quiet=True)), Accelerator(cpu=True), math.inf)
    if resume:
        trainer.resume()
    return trainer


def stop_after(trainer: Trainer, steps: int) -> None:
    step, calls = trainer._step, itertools.count(1)

    def stopping_step(*arguments: Any) -> Any:
        result = step(*arguments)
        trainer._stop_asked = next(calls) == steps
        return result

    trainer._step = stopping_step  # type: ignore[method-assign]
    with pytest.raises(TrainingInterrupted):
        trainer.run()


# In the first epoch; in the second; one that carries nothing.
@pytest.mark.parametrize(
    ("optim", "stop"),
    [
        ({"carry_state": True, "accumulate": 2}, 5),
        ({"carry_state": True}, STEPS_PER_EPOCH + 1),
        ({}, 4),
    ],
    ids=["carried-in-parts", "carried-second-epoch", "drawn"],
)
def test_a_killed_run_goes_on_bit_for_bit(
    place: Path, tmp_path: Path, optim: dict[str, Any], stop: int
) -> None:
    config = small_config(**optim)
    whole = make_trainer(tmp_path / "whole", place, config)
    assert whole.steps_per_epoch == STEPS_PER_EPOCH
    whole.run()
    stop_after(make_trainer(tmp_path / "killed", place, config), stop)
    resumed = make_trainer(tmp_path / "killed", place, config, resume=True)
    assert resumed.progress.step == stop
    resumed.run()
    for name in ("last", "best"):
        expected = load_model(tmp_path / "whole" / name).state_dict()
        for key, tensor in load_model(tmp_path / "killed" / name).state_dict().items():
            assert torch.equal(tensor, expected[key]), (name, key)
    if config.optim.carry_state:
        for one, other in zip(whole.carried.saved(), resumed.carried.saved(), strict=True):
            assert one.keys() == other.keys()
            assert all(torch.equal(one[name], other[name]) for name in one)


def test_sums_from_losses_are_those_from_predictions(place: Path) -> None:
    config = small_config()
    data = config.data.load(place)
    model: Any = build_model(config.model, data.input, data.task.output).eval()
    for split in (data.train, data.validation):
        # The last passage of validation asks only for what is new.
        batch = split.batch(np.arange(len(split) - 3, len(split)))
        expected = data.task.sums(model(batch.x), batch)
        torch.testing.assert_close(data.task.sums_of(model, batch), expected)
        carried, _ = data.task.carried_sums(model, batch, None)
        torch.testing.assert_close(carried, expected)


@pytest.mark.parametrize("kind", ["language", "sequence-s4", "sequence-lstm"])
def test_a_carried_state_goes_on_without_its_graph(place: Path, kind: str) -> None:
    data = WikiText(length=8).load(place)
    options = {"layers": 2, "features": 8}
    config: Any = language_network(**options, cutoffs=(6,))
    if kind != "language":
        config = network(**options, layer=kind.removeprefix("sequence-"))
    model: Any = build_model(config, data.input, data.task.output).double().eval()
    ordered = data.train.in_order()
    asked, carried = CarryingModel(model, data.task), CarriedStates()
    total = 0.0
    for row in range(4):
        sums, state = asked(ordered.batch(np.array([row])), carried.before(0))
        carried.keep(0, state)
        total += float(sums[0].detach())
        assert not any(tensor.requires_grad for _, tensor in named_tensors(carried.before(0)))
    chunks = [ordered.batch(np.array([row])) for row in range(4)]
    x, y = (torch.cat([getattr(chunk, name) for chunk in chunks], dim=1) for name in ("x", "y"))
    assert total == pytest.approx(float(data.task.sums_of(model, chunks[0]._replace(x=x, y=y)).detach()))


def test_each_sequence_of_a_batch_reads_its_own_part_in_order() -> None:
    rows = np.stack(carried_rows(23, 4))
    assert rows.shape == (5, 4)
    assert (np.diff(rows, axis=0) == 1).all()
    assert rows[0].tolist() == [0, 5, 10, 15]
    assert len(carried_rows(3, 8)) == 1


def test_what_cannot_carry_a_state_is_refused(place: Path, tmp_path: Path) -> None:
    transformer = replace(small_config(carry_state=True), model=network(layers=1, layer="transformer"))
    with pytest.raises(ValueError, match="grows with every token"):
        make_trainer(tmp_path / "run", place, transformer)
    digits = TrainingConfig(data=BundledDigits(), optim=OptimizerOptions(carry_state=True))
    with pytest.raises(ValueError, match="do not follow one another"):
        make_trainer(tmp_path / "digits", place, digits)
    both_ways = SequenceModel(block=S4BlockConfig(layer=S4Config(bidirectional=True)))
    with pytest.raises(ValueError, match="sees the future"):
        require_carrying(both_ways)


def test_one_unbroken_stream_is_one_long_passage(place: Path) -> None:
    config = small_config()
    data = config.data.load(place)
    model: Any = build_model(config.model, data.input, data.task.output).eval()
    accelerator = Accelerator(cpu=True)
    score = evaluate_unbroken(model, data.test, data.task, accelerator=accelerator)
    tokens = torch.from_numpy(np.asarray(data.test._tokens).astype(np.int64))[None]
    expected = float(model.token_losses(tokens[:, :-1], tokens[:, 1:]).detach().mean())
    assert score.loss == pytest.approx(expected, rel=1e-5)
    assert score.metrics["perplexity"] == pytest.approx(math.exp(expected), rel=1e-4)
    # In passages, everything before a passage is forgotten.
    windows = evaluate(model, data.test, data.task, 4, accelerator=accelerator)
    assert abs(windows.loss - score.loss) > 1e-6
    digits = BundledDigits().load(place)
    with pytest.raises(ValueError, match="do not follow one another"):
        evaluate_unbroken(model, digits.test, digits.task, accelerator=accelerator)


SMALL = ["--model.layers", "2", "--model.features", "8", "--model.state-size", "4", "--data.length", "8"]


def test_words_from_training_to_writing(place: Path, tmp_path: Path, capsys: Any) -> None:
    folder, run = tmp_path / "data", str(tmp_path / "run")
    shutil.copytree(place / "wikitext-2", folder / "wikitext-2")
    arguments = ["--data-dir", str(folder), "--output", run, "--budget.max-steps", "3"]
    assert main(["train", "wikitext-2", *arguments, *SMALL]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["metrics"][0]["name"] == "perplexity"
    assert summary["test_perplexity"] == pytest.approx(math.exp(summary["test_loss"]))
    capsys.readouterr()
    assert main(["evaluate", run, "--unbroken"]) == 0
    told = capsys.readouterr().out
    assert f"perplexity {summary['test_perplexity']:.3f}" in told
    assert "In one unbroken stream: perplexity" in told
    assert main(["generate", run, "--prompt", "w1 house", "--length", "5", "--seed", "0"]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("w1 house")
    assert "unknown: house" in told.err
    # The same files with another vocabulary: its words would have other numbers.
    path = folder / "wikitext-2" / "wiki.train.tokens"
    path.write_text(path.read_text().replace("w1", "x1"))
    shutil.rmtree(folder / "prepared")
    assert main(["evaluate", run]) == 1
    assert "another vocabulary than the model" in capsys.readouterr().err
