"""Own files, from the path to batches."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from torchs4.configuration import from_plain, to_plain
from torchs4.data import SequenceFiles, fingerprint
from torchs4.tasks import Classification, PositionRegression, Regression

if TYPE_CHECKING:
    from pathlib import Path

    from torchs4.data import SequenceData

X = np.random.default_rng(0).normal(size=(20, 6)).round(4)
LABELS = ["b", "a"] * 10


def write_wide(folder: Path) -> Path:
    rows = [",".join([label, *map(str, x)]) for label, x in zip(LABELS, X, strict=True)]
    path = folder / "wide.csv"
    path.write_text("\n".join(["label,t0,t1,t2,t3,t4,t5", *rows]))
    return path


def write_long(folder: Path) -> Path:
    rows = [f"{row},{time},{X[row, time]},{row % 3}" for time in range(6) for row in range(20) if time <= row]
    path = folder / "long.csv"
    path.write_text("\n".join(["who,when,signal,target", *rows]))
    return path


def write_lines(folder: Path) -> Path:
    path = folder / "own.jsonl"
    path.write_text("\n".join(json.dumps({"x": x, "y": y}) for x, y in zip(X.tolist(), LABELS, strict=True)))
    return path


def write_archive(folder: Path) -> Path:
    np.savez(folder / "own.npz", x=X, y=np.array(LABELS))
    return folder / "own.npz"


def load(path: Path | str, folder: Path, **options: Any) -> SequenceData:
    return SequenceFiles(str(path), **options).load(folder)


@pytest.mark.parametrize("write", [write_wide, write_lines, write_archive])
def test_every_format_gives_the_same_examples(tmp_path: Path, write: Any) -> None:
    pytest.importorskip("pyarrow")
    data = load(write(tmp_path), tmp_path, test_fraction=0.2)
    assert data.task == Classification(("a", "b"))
    assert (data.input.kind, data.input.size, data.input.length) == ("values", 1, 6)
    assert data.test is not None
    assert [len(data.train), len(data.validation), len(data.test)] == [14, 2, 4]
    found = torch.cat(
        [split.batch(np.arange(len(split))).x for split in (data.train, data.validation, data.test)]
    )
    np.testing.assert_allclose(np.sort(found.numpy().ravel()), np.sort(X.ravel()), rtol=1e-6)


def test_the_seed_chooses_what_is_held_out(tmp_path: Path) -> None:
    path = write_archive(tmp_path)
    found = {fingerprint(load(path, tmp_path, seed=seed)) for seed in (0, 0, 1, 2)}
    assert len(found) == 3


def test_long_tables_give_sequences_of_unequal_length(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = write_long(tmp_path)
    data = load(path, tmp_path, id="who", time="when")
    assert data.task == Classification(("0", "1", "2"))
    assert data.input.names == ("signal",)
    assert data.train.lengths is not None
    assert set(data.train.lengths.tolist()) <= {1, 2, 3, 4, 5, 6}
    regression = load(path, tmp_path, id="who", time="when", task="regression")
    assert isinstance(regression.task, Regression)
    assert regression.task.columns == ("target",)
    positions = load(path, tmp_path, id="who", time="when", task="position-regression")
    assert isinstance(positions.task, PositionRegression)
    batch = positions.train.batch(np.arange(3))
    assert batch.y.shape == (3, batch.x.shape[1], 1)


def test_texts_are_read_by_character(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text("\n".join(json.dumps({"text": "ab" * (row + 1), "label": row % 2}) for row in range(10)))
    data = load(path, tmp_path)
    assert (data.input.kind, data.input.names[3:]) == ("tokens", ("a", "b"))


def test_tokens_are_read_as_such(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x=np.arange(1, 13).reshape(4, 3), y=[0, 1, 0, 1])
    assert load(tmp_path / "own.npz", tmp_path, tokens=True).input.size == 13


def test_parts_of_an_archive_are_used_as_they_are(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "own.npz",
        x=X,
        y=LABELS,
        x_test=X[:4],
        y_test=LABELS[:4],
        x_validation=X[:2],
        y_validation=LABELS[:2],
    )
    data = load(tmp_path / "own.npz", tmp_path)
    assert data.test is not None
    assert [len(data.train), len(data.validation), len(data.test)] == [20, 2, 4]
    with pytest.raises(ValueError, match=r"test_fraction is 0\.1, but .* brings examples to test with"):
        load(tmp_path / "own.npz", tmp_path, test_fraction=0.1)


def test_a_folder_of_recordings_has_a_sampling_rate(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    for name in ("yes/a", "yes/b", "no/c", "no/d"):
        path = tmp_path / "words" / f"{name}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, X[:, 0] / 10, 4000)
    data = load(tmp_path / "words", tmp_path)
    assert (data.input.sample_rate, data.input.length) == (4000, 20)
    assert data.task == Classification(("no", "yes"))
    with pytest.raises(ValueError, match=r"tokens is True, but .* is a folder of recordings"):
        load(tmp_path / "words", tmp_path, tokens=True)


def test_a_relative_path_is_looked_for_in_the_data_folder_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    write_archive(tmp_path)
    assert len(load("own.npz", tmp_path).train) == 18
    np.savez("own.npz", x=X[:10], y=LABELS[:10])
    assert len(load("own.npz", tmp_path).train) == 9


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own.xlsx", r"own\.xlsx ends with '\.xlsx'; there are readers for \.csv, "),
        ("own.npy", r"Arrays in \.npy files are for torchs4\.data\.from_arrays"),
        ("own", r"own ends with ''; there are readers for"),
    ],
)
def test_unknown_files_are_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(ValueError, match=message):
        load(tmp_path / name, tmp_path)


def test_absent_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"There is no .*own\.csv, neither here"):
        load("own.csv", tmp_path)
    with pytest.raises(ValueError, match="path is empty; it must name a file"):
        load("", tmp_path)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ['{"x": [1, NaN], "y": 0}', '{"x": [1, 2], "y": 1}'] * 2,
            r"Line 1 of .*own\.jsonl, position 1, .* is nan",
        ),
        (['{"x": [1, 2], "y": 0}', '{"x": [1, "b"], "y": 1}'], r"Line 2 of .* is not a number: 'b'"),
        (['{"x": [1, 2], "y": 0}', '{"x": [1, null], "y": 1}'], r"Line 2 of .* is not a number: None"),
        (['{"x": [1, 2], "y": 0}', '{"x": [], "y": 1}'], r"Line 2 of .* is empty"),
        (['{"x": [1, 2], "y": 0}', '{"x": [[1, 2]], "y": 1}'], r"Line 2 of .* has shape \(1, 2\)"),
        (['{"x": [1, 2], "y": 0}', '{"x": [1, 2], "y": 0}'], "All 2 examples have the class '0'"),
        (['{"x": [1, 2], "y": 0}'], "x has 1 examples; at least 2"),
    ],
)
def test_bad_values_are_named_by_their_line(tmp_path: Path, lines: list[str], message: str) -> None:
    (tmp_path / "own.jsonl").write_text("\n".join(lines))
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "own.jsonl", tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "guess"}, "task is 'guess'"),
        ({"validation_fraction": 0}, "validation fraction is 0"),
        ({"test_fraction": 1}, "test fraction is 1"),
        ({"sample_rate": -1}, "sample_rate is -1"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_bad_options_are_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SequenceFiles("own.csv", **options)


def test_options_survive_json() -> None:
    config = SequenceFiles("own.csv", "regression", values=("a", "b"), sample_rate=100.0)
    plain = json.loads(json.dumps(to_plain(config)))
    assert from_plain(SequenceFiles, plain, "own.json") == config
    assert dataclasses.replace(config, seed=1) != config
