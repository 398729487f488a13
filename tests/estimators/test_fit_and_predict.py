"""`s4 fit` and `s4 predict`, from every kind of file."""

from __future__ import annotations

import csv
import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from small import waves

from torchs4.cli import main
from torchs4.estimators import load_estimator

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ["--features", "4", "--layers", "1", "--epochs", "1"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHS4_DATA", str(tmp_path / "data"))


def write_wide(path: Path, x: Any, y: Any = None) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*([] if y is None else ["kind"]), *(f"t{place}" for place in range(x.shape[1]))])
        for row, values in enumerate(x.tolist()):
            writer.writerow([*([] if y is None else [y[row]]), *values])
    return path


def table(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def run(*arguments: object) -> int:
    return main(list(map(str, arguments)))


def test_a_table_is_learned_and_a_new_one_predicted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = waves(40)
    old = write_wide(tmp_path / "old.csv", x, y)
    assert run("fit", old, "--target", "kind", *SMALL, "--output", "model") == 0
    shown = capsys.readouterr().out
    assert "classification, because the target holds texts" in shown
    assert "8 sequences that took no part in it" in shown
    new = write_wide(tmp_path / "new.csv", x[:5])
    assert run("predict", "model", new, "-o", "out.csv") == 0
    rows = table(tmp_path / "out.csv")
    assert rows[0] == ["sequence", "prediction", "p(fast)", "p(slow)"]
    expected = load_estimator("model").predict(x[:5].astype(np.float32)[:, None])
    assert [row[:2] for row in rows[1:]] == [[str(n), label] for n, label in enumerate(expected, 1)]
    # A column of labels is not read.
    assert run("predict", "model", old) == 0
    assert "fast" in capsys.readouterr().out


def test_values_are_learned_from_parquet_with_a_row_for_each_position(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    x, _ = waves(12)
    frame = pandas.DataFrame(
        {
            "who": np.repeat([f"s{row}" for row in range(12)], 40),
            "when": np.tile(np.arange(40)[::-1], 12),
            "reading": x.ravel(),
            "y": np.repeat(x.mean(1), 40),
        }
    )
    frame.to_parquet(tmp_path / "long.parquet")
    assert run("fit", "long.parquet", "--id", "who", "--time", "when", *SMALL, "--output", "model") == 0
    frame.drop(columns="y").to_parquet(tmp_path / "new.parquet")
    assert run("predict", "model", "new.parquet", "-o", "out.csv") == 0
    rows = table(tmp_path / "out.csv")
    assert rows[0] == ["sequence", "prediction"]
    assert [row[0] for row in rows[1:]] == [f"s{row}" for row in range(12)]
    # Unsorted times were put in order.
    expected = load_estimator("model").predict(x[:, None, ::-1])
    assert np.allclose([float(row[1]) for row in rows[1:]], expected, rtol=1e-3)


def test_archives_and_lines_are_learned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, y = waves(16)
    np.savez(
        tmp_path / "all.npz", x=x, y=y, x_validation=x[:4], y_validation=y[:4], x_test=x[:6], y_test=y[:6]
    )
    assert run("fit", "all.npz", *SMALL, "--output", "one") == 0
    assert "on 6 sequences" in capsys.readouterr().out
    np.savez(tmp_path / "new.npz", x=x[:3])
    assert run("predict", "one", "new.npz", "-o", "one.csv") == 0
    assert len(table(tmp_path / "one.csv")) == 4
    lines = [json.dumps({"x": row[: 20 + n].tolist(), "y": y[n]}) for n, row in enumerate(x)]
    (tmp_path / "all.jsonl").write_text("\n".join(lines))
    assert run("fit", "all.jsonl", *SMALL, "--output", "two", "--test-fraction", "0", "--balanced") == 0
    (tmp_path / "new.jsonl").write_text('{"x": [1, 2, 3]}\n')
    assert run("predict", "two", "new.jsonl", "-o", "two.csv") == 0
    assert len(table(tmp_path / "two.csv")) == 2


def test_classes_that_are_rare_or_were_never_learned_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = waves(16)
    y = [*y[:-1], "odd"]
    np.savez(tmp_path / "all.npz", x=x, y=y, x_test=x[:3], y_test=["new", "newer", y[0]])
    assert run("fit", "all.npz", *SMALL, "--output", "one") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "a single example of odd" in shown
    assert (
        "2 test sequences are of classes that were not learned (new, newer), and count as mistakes" in shown
    )
    assert "what is called validation below are the same ones" in shown


def test_a_folder_of_recordings_is_learned(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    x, y = waves(12, length=60)
    for row, label in enumerate(y):
        (tmp_path / "words" / label).mkdir(parents=True, exist_ok=True)
        soundfile.write(tmp_path / "words" / label / f"{row:02}.wav", 0.1 * x[row], 1000)
    assert run("fit", "words", *SMALL, "--output", "model", "--ensemble", "2") == 0
    fitted = load_estimator("model")
    assert len(fitted.members_) == 2
    assert fitted.members_[0].config.sample_rate == 1000
    (tmp_path / "new").mkdir()
    soundfile.write(tmp_path / "new" / "unknown.wav", 0.1 * x[0], 1000)
    assert run("predict", "model", "new", "-o", "out.csv") == 0
    assert table(tmp_path / "out.csv")[1][0] == "unknown.wav"


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("kind,a,b\nx,1,2\ny,3,4\n", ["--target", "sort"], "has no 'sort'.*There are 'kind', 'a', 'b'"),
        ("kind,a,b\nx,1,2\ny,oops,4\n", ["--target", "kind"], "(?i)line 3 of .*column 'a' holds 'oops'"),
        ("kind,a,b\nx,1,2\ny,,4\n", ["--target", "kind"], "(?i)line 3 of .*column 'a' is empty"),
        ("kind,a,b\nx,1,2\nx,3,4\n", ["--target", "kind", "--test-fraction", "0"], "class 'x'.*at least two"),
        (
            "kind,who,t,a\nx,1,0,1\nx,1,0,2\ny,2,0,1\n",
            ["--target", "kind", "--id", "who", "--time", "t"],
            "have the same time",
        ),
        (
            "kind,a,b\nx,1,2\ny,3,4\n",
            ["--target", "kind", "--task", "regression"],
            "(?i)column 'kind' holds 'x'",
        ),
        ("v,a,b\n1.5,1,2\n2.5,3,4\n", ["--target", "v", "--balanced"], "about classes"),
        ("kind,a,b\nx,1,1\ny,1,1\n", ["--target", "kind", "--test-fraction", "0"], "X is always 1"),
    ],
)
def test_bad_files_are_refused_in_words(
    text: str, options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.csv").write_text(text)
    assert run("fit", "bad.csv", *options, *SMALL) == 1
    assert re.search(message, capsys.readouterr().err)


def test_predicting_with_something_else_is_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("predict", "nothing", "new.csv") == 1
    assert "holds no estimator.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("{", "not readable JSON"),
        ('{"path": "", "values": ' + "[" * 800 + "]" * 800 + "}", "is damaged"),
        ("[" * 100_000, "is damaged"),
        ('{"depth": 3}', "has no field depth"),
    ],
    ids=["cut", "nested", "deeper", "unknown"],
)
def test_a_damaged_layout_is_told(
    layout: str,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The model itself is fine.
    monkeypatch.setattr("torchs4.cli.predict.load_estimator", lambda folder: None)
    (tmp_path / "data.json").write_text(layout)
    assert run("predict", tmp_path, "new.csv") == 1
    assert message in " ".join(capsys.readouterr().err.split())
