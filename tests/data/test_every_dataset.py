"""What every dataset must do, whatever it holds; a new one joins by a line in CASES."""

from __future__ import annotations

import dataclasses
import inspect
import json
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
import torch
from official_files import (
    write_cifar,
    write_electricity,
    write_ett,
    write_expressions,
    write_mnist,
    write_pairs,
    write_pathfinder,
    write_recordings,
    write_reviews,
    write_series,
    write_text,
    write_weather,
    write_wikitext,
)
from own_files import write_own_lines, write_own_recordings, write_own_table, write_own_tokens

from torchs4 import data as datasets
from torchs4.configuration import from_plain, to_plain
from torchs4.data.sequences import DataConfig, SequenceData, Split
from torchs4.tasks import Regression

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torchs4.description import Batch


class Case(NamedTuple):
    """A dataset, what writes its files into a data folder, and whether loading tells how far it is."""

    config: DataConfig
    write: Callable[[Path], Any]
    reports: bool = False


def write_nothing(folder: Path) -> None:
    """For datasets that are generated or come with the package."""


def placed(config: Any, folder: Path) -> Any:
    """The configuration; one that names a file finds it in the folder."""
    if not hasattr(config, "path"):
        return config
    return dataclasses.replace(config, path=str(folder / config.path))


CASES = {
    "digits": Case(datasets.BundledDigits(), write_nothing),
    "digits-cut-short": Case(datasets.BundledDigits(cut_short=0.5), write_nothing),
    "mnist": Case(datasets.MNIST(), write_mnist),
    "mnist-permuted": Case(datasets.MNIST(permutation="random", permutation_seed=3), write_mnist),
    "cifar10": Case(datasets.CIFAR10(), write_cifar),
    "cifar10-grey-augmented": Case(datasets.CIFAR10(grey=True, augment=True, seed=1), write_cifar),
    "cifar10-density": Case(datasets.CIFAR10Density(validation_fraction=0.1), write_cifar),
    "cifar10-density-mirrored-mixtures": Case(
        datasets.CIFAR10Density(mixtures=3, validation_fraction=0.2, seed=1, mirror=True), write_cifar
    ),
    "mnist-density": Case(datasets.MNISTDensity(validation_fraction=0.1), write_mnist),
    "ett": Case(datasets.ETT(stride=40), write_ett),
    "ett-univariate-calendar": Case(
        datasets.ETT(univariate=True, horizon=48, calendar=True, stride=40), write_ett
    ),
    "weather": Case(datasets.Weather(window=48, stride=7, calendar=True), write_weather),
    "weather-univariate": Case(datasets.Weather(window=48, univariate=True, stride=7), write_weather),
    "electricity": Case(datasets.Electricity(window=24, stride=7), write_electricity),
    "electricity-univariate": Case(
        datasets.Electricity(window=24, univariate=True, calendar=True, stride=7), write_electricity
    ),
    "imdb": Case(datasets.IMDB(min_count=1, validation_fraction=0.3), write_reviews, reports=True),
    "imdb-cut": Case(
        datasets.IMDB(max_length=3, min_count=1, validation_fraction=0.3), write_reviews, reports=True
    ),
    "listops": Case(
        datasets.ListOps(train_size=20, validation_size=3, test_size=4), write_nothing, reports=True
    ),
    "listops-official": Case(datasets.ListOps(source="official"), write_expressions),
    "pathfinder": Case(datasets.Pathfinder(count=20), write_nothing, reports=True),
    "pathfinder-official": Case(datasets.Pathfinder(source="official"), write_pathfinder, reports=True),
    "retrieval": Case(datasets.Retrieval(min_count=1), write_pairs, reports=True),
    "series": Case(datasets.SeriesFile("series.csv", window=10, horizon=3), write_series, reports=True),
    "series-unscaled": Case(
        datasets.SeriesFile(
            "series.csv", ("load",), ("load", "price"), "", 4, 6, 2, calendar=True, normalize=False
        ),
        write_series,
        reports=True,
    ),
    "own-texts": Case(datasets.SequenceFiles("texts.jsonl", test_fraction=0.2), write_own_lines),
    "own-tokens": Case(
        datasets.SequenceFiles("tokens.npz", tokens=True, test_fraction=0.2), write_own_tokens
    ),
    "own-table": Case(
        datasets.SequenceFiles("table.csv", id="who", time="when", test_fraction=0.2),
        write_own_table,
        reports=True,
    ),
    "own-recordings": Case(
        datasets.SequenceFiles("recordings", test_fraction=0.2), write_own_recordings, reports=True
    ),
    "speech-commands": Case(datasets.SpeechCommands(split="official"), write_recordings, reports=True),
    "speech-commands-mfcc": Case(datasets.SpeechCommands(form="mfcc"), write_recordings, reports=True),
    "text": Case(datasets.TextFile("texts", length=20, min_count=2), write_text, reports=True),
    "text-one-file": Case(
        datasets.TextFile("texts/b.txt", 7, 1, validation_fraction=0.2), write_text, reports=True
    ),
    "wikitext-2-characters": Case(
        datasets.WikiText(level="characters", length=16, min_count=2), write_wikitext, reports=True
    ),
    "wikitext-2-words": Case(datasets.WikiText(length=8), write_wikitext, reports=True),
    "wikitext-103-words": Case(
        datasets.WikiText("wikitext-103", length=9),
        lambda folder: write_wikitext(folder, release="wikitext-103"),
        reports=True,
    ),
}
SPLITS = ("train", "validation", "test")

every_case = pytest.mark.parametrize("name", CASES)
every_config = pytest.mark.parametrize("config", datasets.CONFIGS, ids=lambda config: config.__name__)


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], SequenceData]:
    """Every case is written and loaded once."""

    @cache
    def loaded(name: str) -> SequenceData:
        folder = tmp_path_factory.mktemp(name)
        CASES[name].write(folder)
        return placed(CASES[name].config, folder).load(folder)

    return loaded


def some_of(split: Split, seed: int | None = None) -> Batch:
    """Up to 40 examples from all over the split."""
    rows = np.unique(np.linspace(0, len(split) - 1, 40).astype(np.int64))
    return split.batch(rows, None if seed is None else torch.Generator().manual_seed(seed))


def assert_same(some: Batch, others: Batch) -> None:
    for one, other in zip(some, others, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert torch.equal(one, other)


def contents(split: Split, kind: str) -> set[Any]:
    """Each example's inputs, without padding, which depends on the other examples of a batch."""
    x, _, lengths, _ = split.batch(np.arange(len(split)))
    if kind == "values":
        ends = [None] * len(x) if lengths is None else lengths.tolist()
        return {example[:end].numpy().tobytes() for example, end in zip(x, ends, strict=True)}
    documents = x.view(len(x), -1, x.shape[-1])
    return {tuple(tuple(text[text > 0].tolist()) for text in example) for example in documents}


def test_every_dataset_has_a_case() -> None:
    # What a program hands over cannot be loaded.
    assert {type(case.config) for case in CASES.values()} == {*datasets.CONFIGS} - {datasets.GivenData}


@every_case
def test_no_split_is_empty_and_none_shares_an_example(load: Any, name: str) -> None:
    data = load(name)
    parts = [getattr(data, split) for split in SPLITS]
    assert min(map(len, parts)) > 0
    train, validation, test = (contents(part, data.input.kind) for part in parts)
    assert len(train) == len(data.train)
    assert not train & validation
    assert not train & test
    assert not validation & test


@every_case
def test_lengths_of_a_split_are_those_of_its_batches(load: Any, name: str) -> None:
    for split in (getattr(load(name), split) for split in SPLITS):
        batch = split.batch(np.arange(len(split)))
        assert (split.lengths is None) == (batch.lengths is None)
        if batch.lengths is not None:
            assert split.lengths.tolist() == batch.lengths.view(len(split), -1).amax(1).tolist()


@every_case
def test_another_folder_gives_the_same_examples_and_tells_how_far_it_is(
    load: Any, name: str, tmp_path: Path
) -> None:
    config, write, reports = CASES[name]
    write(tmp_path)
    config = placed(config, tmp_path)
    calls: list[tuple[str, int, int]] = []
    again = config.load(tmp_path, lambda *report: calls.append(report))
    once_more = config.load(tmp_path)
    for split in SPLITS:
        expected = some_of(getattr(load(name), split))
        assert_same(some_of(getattr(again, split)), expected)
        assert_same(some_of(getattr(once_more, split)), expected)
    assert bool(calls) == reports
    assert all(what and 0 < done <= total for what, done, total in calls)
    for what in {what for what, _, _ in calls}:
        told = [(done, total) for other, done, total in calls if other == what]
        assert told == sorted(told)
        assert told[-1][0] == told[-1][1]


@every_case
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("seed", [None, 0], ids=["plain", "drawn"])
def test_batches_are_what_the_description_says(load: Any, name: str, split: str, seed: int | None) -> None:
    data = load(name)
    described = data.input
    batch = some_of(getattr(data, split), seed)
    count = len(batch.x)
    leading = (count, described.documents) if described.documents > 1 else (count,)
    if described.kind == "values":
        positions = batch.x.shape[-2]
        assert batch.x.shape == (*leading, positions, described.size)
        assert positions == described.length if batch.lengths is None else positions <= described.length
        assert batch.x.dtype == torch.float32
        assert batch.x.isfinite().all()
    else:
        assert batch.x.shape[:-1] == leading
        assert 0 < batch.x.shape[-1] <= described.length
        assert batch.x.dtype == torch.int64
        # What may be padding is 0; a picture begins with it; of words it is the most frequent one.
        of_words = getattr(data.task, "unit", "") == "word"
        may_be_0 = batch.lengths is not None or described.image is not None or of_words
        assert batch.x.min() >= (0 if may_be_0 else 1)
        assert batch.x.max() < described.size
    if described.image is not None:
        assert described.image[0] * described.image[1] * described.channels == described.length
    if described.scaling is not None:
        assert len(described.scaling.shift) == described.size


@every_case
@pytest.mark.parametrize("split", SPLITS)
def test_batches_ask_what_the_task_says(load: Any, name: str, split: str) -> None:
    task = load(name).task
    batch = some_of(getattr(load(name), split), seed=0)
    leading = batch.x.shape[:2] if task.output.per_position else batch.x.shape[:1]
    if isinstance(task, Regression):
        assert batch.y.shape == (*leading, task.output.size)
        assert batch.y.dtype == torch.float32
        assert batch.y.isfinite().all()
        assert task.scaling is None or len(task.scaling.shift) == task.output.size
    else:
        assert batch.y.shape == leading
        assert batch.y.dtype == torch.int64
        assert batch.y.min() >= 0
        assert batch.y.max() < getattr(task, "vocabulary_size", task.output.size)
    if batch.asked is not None:
        assert batch.asked.shape == leading
        assert batch.asked.dtype == torch.bool
        assert batch.asked.any(1).all()
    assert task.count(batch) >= len(batch.x)
    assert task.sums(torch.zeros(*leading, task.output.size), batch).isfinite().all()


@every_case
@pytest.mark.parametrize("split", SPLITS)
def test_lengths_are_within_bounds_and_padding_is_0(load: Any, name: str, split: str) -> None:
    data = load(name)
    batch = some_of(getattr(data, split), seed=0)
    if batch.lengths is None:
        return
    width = batch.x.shape[batch.lengths.ndim]
    assert batch.lengths.shape == batch.x.shape[: batch.lengths.ndim]
    assert batch.lengths.dtype == torch.int64
    assert batch.lengths.min() >= 0
    assert batch.lengths.max() <= width
    is_padding = torch.arange(width) >= batch.lengths.unsqueeze(-1)
    assert is_padding.any() or batch.lengths.min() == data.input.length
    assert (batch.x[is_padding] == 0).all()
    if data.input.kind == "tokens":
        assert (batch.x[~is_padding] > 0).all()


@every_case
@pytest.mark.parametrize("split", SPLITS)
def test_what_is_random_follows_the_generator(load: Any, name: str, split: str) -> None:
    examples = getattr(load(name), split)
    assert_same(some_of(examples, seed=5), some_of(examples, seed=5))
    assert_same(some_of(examples), some_of(examples))


@every_case
def test_rows_may_come_in_any_order_and_repeat(load: Any, name: str) -> None:
    split = load(name).train
    last = len(split) - 1
    batch = split.batch(np.array([last, 0, last]))
    assert torch.equal(batch.x[0], batch.x[2])
    assert not torch.equal(batch.x[0], batch.x[1])
    assert torch.equal(batch.y[0], batch.y[2])
    for place, row in enumerate((last, 0)):
        alone = split.batch(np.array([row]))
        assert torch.equal(batch.y[place], alone.y[0])


@every_case
def test_configuration_is_frozen_and_its_repr_rebuilds_it(name: str) -> None:
    config = CASES[name].config
    for field in dataclasses.fields(config):  # type: ignore[arg-type]
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(config, field.name, getattr(config, field.name))
    rebuilt = eval(repr(config), {type(config).__name__: type(config)})
    assert rebuilt == config
    assert hash(rebuilt) == hash(config)


@every_case
def test_configuration_comes_back_from_json(name: str) -> None:
    config: Any = CASES[name].config
    assert from_plain(type(config), json.loads(json.dumps(to_plain(config))), "file") == config


@every_config
def test_every_option_is_documented_and_has_a_default(config: type) -> None:
    assert config() == config()
    for field in dataclasses.fields(config):
        assert field.name in inspect.getdoc(config), field.name  # type: ignore[operator]


@every_config
def test_loading_has_one_signature(config: type) -> None:
    assert inspect.signature(config.load) == inspect.signature(DataConfig.load)  # type: ignore[attr-defined]
