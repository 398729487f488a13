"""`s4 fit` and `s4 predict`, from every kind of file."""

from __future__ import annotations

import csv
import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas
import pytest
from small import waves

from torchs4 import plots
from torchs4.cli import main
from torchs4.cli.understood import tell_classes
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


def test_columns_of_a_new_table_are_found_by_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = waves(40)
    write_wide(tmp_path / "old.csv", x, y)
    assert run("fit", "old.csv", "--target", "kind", *SMALL, "--output", "model") == 0
    estimator = load_estimator("model")
    names = [f"t{place}" for place in range(40)]
    assert estimator.feature_names_in_.tolist() == names
    frame = pandas.DataFrame(x[:6].astype(np.float32), columns=names)
    expected = [f"{p:.4f}" for p in estimator.predict_proba(frame)[:, 0]]
    with pytest.raises(ValueError, match="feature names"):
        estimator.predict(frame[names[::-1]])
    capsys.readouterr()

    def predicted(new: pandas.DataFrame) -> list[str]:
        new.to_csv("new.csv", index=False)
        assert run("predict", "model", "new.csv", "-o", "out.csv") == 0
        return [row[2] for row in table(tmp_path / "out.csv")[1:]]

    assert predicted(frame[names[::-1]]) == expected
    assert "Not read" not in capsys.readouterr().err
    assert predicted(frame.assign(batch=7.0)[["batch", *names]]) == expected
    assert "Not read, as nothing was learned from it: 'batch'." in capsys.readouterr().err
    frame[names[:-2]].to_csv("short.csv", index=False)
    assert run("predict", "model", "short.csv") == 1
    assert "short.csv has no 't38', 't39', which the model asks for" in capsys.readouterr().err
    # Every second sample has other columns, and says so.
    frame[names[::2]].to_csv("half.csv", index=False)
    assert run("predict", "model", "half.csv", "--rate", 2) == 0


def test_channels_of_a_long_table_are_found_by_their_names(tmp_path: Path) -> None:
    x, y = waves(12)
    frame = pandas.DataFrame(
        {
            "who": np.repeat(np.arange(12), 40),
            "left": x.ravel(),
            "right": x.ravel() ** 2 + 1,
            "kind": np.repeat(y, 40),
        }
    )
    frame.to_csv("long.csv", index=False)
    assert run("fit", "long.csv", "--target", "kind", "--id", "who", *SMALL, "--output", "model") == 0
    assert run("predict", "model", "long.csv", "-o", "one.csv") == 0
    # The other way round, with one more, and longer for some than for others.
    frame[["right", "left", "who"]].assign(more=1.0).to_csv("new.csv", index=False)
    assert run("predict", "model", "new.csv", "-o", "two.csv") == 0
    assert table(tmp_path / "one.csv") == table(tmp_path / "two.csv")
    frame.iloc[:60].to_csv("short.csv", index=False)
    assert run("predict", "model", "short.csv") == 0


def test_what_was_understood_is_told_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, y = waves(30, length=12)
    y = [" fast" if row == 3 else label for row, label in enumerate(y)]
    write_wide(tmp_path / "old.csv", x, y)
    assert run("fit", "old.csv", "--target", "kind", *SMALL, "--output", "model") == 0
    shown = capsys.readouterr().out
    assert "30 sequences of 12 positions, 1 channel." in shown
    fast = y.count("fast")
    assert f"3 classes: ' fast' 1, fast {fast}, slow {29 - fast}." in shown
    np.savez("swapped.npz", x=np.stack([x, x], axis=1), y=y)
    assert run("fit", "swapped.npz", *SMALL, "--output", "other") == 0
    shown = capsys.readouterr().out
    assert "30 sequences of 2 positions, 12 channels." in shown
    assert "x.transpose(0, 2, 1)" in shown


def test_epochs_are_passes_over_the_examples_in_everything_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchs4.training.display._LINE_EVERY", 0.0)
    drawn: list[Any] = []
    draw = plots.plot_curves
    monkeypatch.setattr(plots, "plot_curves", lambda *given: drawn.append(draw(*given)) or drawn[-1])
    x, y = waves(20, length=6)
    np.savez("few.npz", x=x, y=y)
    assert run("fit", "few.npz", *SMALL[:-1], 10, "--output", "model", "--test-fraction", 0) == 0
    shown = capsys.readouterr().out
    assert "epoch 1/10" in shown
    assert "epoch 10/10" in shown
    assert max(int(epoch) for epoch in re.findall(r"^epoch +(\d+) ", shown, re.MULTILINE)) == 10
    # All were learned from: nothing in the picture is called validation.
    titles = [axes.get_title(loc="left") for axes in drawn[0].axes]
    assert titles == [
        f"{what} (solid: training, afterwards, dotted: meanwhile)" for what in ("loss", "accuracy in %")
    ]


def test_many_classes_are_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    tell_classes([f"c{number:02}" for number in range(40) for _ in range(2)])
    assert capsys.readouterr().out.strip().endswith("c11 (2) and 28 more.")
    tell_classes(["saw", "SAW", "sine", "saw", "sine"])
    assert "classes of their own: SAW and saw." in capsys.readouterr().out


def test_a_column_of_row_numbers_is_left_out_with_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = waves(20, length=6)
    frame = pandas.DataFrame(x).assign(kind=y)
    frame.to_csv("index.csv")
    assert run("fit", "index.csv", "--target", "kind", *SMALL, "--output", "model") == 0
    shown = capsys.readouterr().out
    assert "Left out, as it looks like the numbers of the rows: ''." in shown
    assert "20 sequences of 6 positions" in shown
    pandas.read_csv("index.csv").to_csv("again.csv", index=False)
    assert run("fit", "again.csv", "--target", "kind", *SMALL, "--output", "two") == 0
    assert "the numbers of the rows: 'Unnamed: 0'." in capsys.readouterr().out


def test_semicolons_and_decimal_commas_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, _ = waves(20, length=6)
    frame = pandas.DataFrame(x).assign(much=x.mean(1), batch="b")
    frame.to_csv("semi.csv", index=False, sep=";", decimal=",")
    assert run("fit", "semi.csv", "--target", "much", "--ignore", "batch", *SMALL, "--output", "model") == 0
    shown = capsys.readouterr().out
    assert "separated by ';', not by ','" in shown
    assert "regression, because the target holds numbers with decimals" in shown
    assert run("predict", "model", "semi.csv", "-o", "out.csv") == 0
    names = load_estimator("model").feature_names_in_
    expected = load_estimator("model").predict(pandas.DataFrame(x.astype(np.float32), columns=names))
    assert np.allclose([float(row[1]) for row in table(tmp_path / "out.csv")[1:]], expected, rtol=1e-3)


def test_values_are_learned_from_parquet_with_a_row_for_each_position(tmp_path: Path) -> None:
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
    assert "figures of the training are of these themselves" in shown
    assert "On the training examples themselves: accuracy" in shown
    assert "alidation" not in shown


def test_rows_that_look_like_positions_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = waves(20, length=12)
    long = pandas.DataFrame(
        {"who": np.repeat(np.arange(20), 12), "value": x.ravel(), "kind": np.repeat(y, 12)}
    )
    long.to_csv("long.csv", index=False)
    assert run("fit", "long.csv", "--target", "kind", "--kernels", "only", "--output", "rows") == 0
    assert "Rows with the same who always have the same class" in capsys.readouterr().out
    assert run("fit", "long.csv", "--target", "kind", "--id", "who", "--kernels", "only") == 0
    assert "always have the same class" not in capsys.readouterr().out
    pandas.DataFrame((8 * x).round()).assign(kind=y).to_csv("wide.csv", index=False)
    assert run("fit", "wide.csv", "--target", "kind", "--kernels", "only") == 0
    assert "always have the same class" not in capsys.readouterr().out


def test_kernels_alone_are_fit_in_a_moment(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = waves(30)
    pandas.DataFrame(x).assign(label=y).to_csv("waves.csv", index=False)
    assert run("fit", "waves.csv", "--kernels", "only", "--output", "model") == 0
    shown = capsys.readouterr().out
    assert "kernels that are not trained: accuracy" in shown
    assert "epoch" not in shown
    assert "Accuracy 100.0 %" in shown
    assert run("predict", "model", "waves.csv", "-o", "out.csv") == 0


def test_a_folder_of_recordings_is_learned(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    x, y = waves(12, length=60)
    for row, label in enumerate(y):
        (tmp_path / "words" / label).mkdir(parents=True, exist_ok=True)
        soundfile.write(tmp_path / "words" / label / f"{row:02}.wav", 0.1 * x[row], 1000)
    assert run("fit", "words", *SMALL, "--output", "model", "--ensemble", "2") == 0
    fitted = load_estimator("model")
    # Two networks, and the kernels.
    assert len(fitted.members_) == 3
    assert fitted.members_[0].config.sample_rate == 1000
    (tmp_path / "new").mkdir()
    soundfile.write(tmp_path / "new" / "unknown.wav", 0.1 * x[0], 1000)
    assert run("predict", "model", "new", "-o", "out.csv") == 0
    assert table(tmp_path / "out.csv")[1][0] == "unknown.wav"
    # One recording, and one of another rate, which is brought to that of the others.
    assert run("predict", "model", "new/unknown.wav", "-o", "one.csv") == 0
    assert table(tmp_path / "one.csv") == table(tmp_path / "out.csv")
    soundfile.write(tmp_path / "twice.wav", np.repeat(0.1 * x[0], 2), 2000)
    assert run("predict", "model", "twice.wav", "-o", "two.csv") == 0
    assert abs(float(table(tmp_path / "two.csv")[1][2]) - float(table(tmp_path / "one.csv")[1][2])) < 0.05
    assert run("fit", "twice.wav", *SMALL) == 1


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
        ("a,b\n1,2\n", [], "say by --target which one to learn"),
        (",".join([*map(str, range(50)), "kind"]), [], "'19' and 31 more, the last of them 'kind'"),
        ("kind,a,b\nx,1,2\n", ["--target", "kind", "--values", "c"], "'c', which --values asks for"),
        ("kind,id,b\nx,1,2\n", ["--target", "kind"], "by --id; .* leave it out by --ignore"),
        ("when,v,w\n2024-01-01 00:00,1,2\n", ["--target", "v"], "'when' holds dates.*--horizon 24"),
        ("when,v\n1.3.2024,1\n", ["--target", "v"], "'when' holds dates.*--horizon 24"),
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
    assert "There is no folder nothing" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert run("predict", "empty", "new.csv") == 1
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
    layout: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Told before the model is read.
    (tmp_path / "estimator.json").write_text("{}")
    (tmp_path / "data.json").write_text(layout)
    assert run("predict", tmp_path, "new.csv") == 1
    assert message in " ".join(capsys.readouterr().err.split())
