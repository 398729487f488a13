from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from torchs4.data.own.readers import Layout, read_csv, read_parquet
from torchs4.data.own.readers.packages import require_package

pyarrow = pytest.importorskip("pyarrow", reason="tables are read with pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

if TYPE_CHECKING:
    from pathlib import Path

    from torchs4.data.own.examples import Examples

WIDE = "label,t0,t1,t2\nup,1,2,3\ndown,4,5.5,6\nup,-7,8e1,9\n"
# Rows of both sequences are mixed, and those of "b" are in the wrong order.
LONG = "id,time,left,right,label\nb,2,1,10,up\na,0,2,20,down\nb,1,3,30,up\na,1,4,40,down\na,2,5,50,down\n"


def read(folder: Path, text: str, name: str = "own.csv", **layout: Any) -> Examples:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_csv(path, Layout(**layout))


def refused(folder: Path, text: str, message: str, **layout: Any) -> None:
    with pytest.raises(ValueError, match=message):
        read(folder, text, **layout)


def test_a_wide_row_is_a_sequence(tmp_path: Path) -> None:
    examples = read(tmp_path, WIDE)
    assert examples.x.tolist() == [[1, 2, 3], [4, 5.5, 6], [-7, 80, 9]]
    assert list(examples.y) == ["up", "down", "up"]
    assert examples.name_of(1) == f"line 3 of {tmp_path / 'own.csv'}"


def test_values_are_read_in_the_order_in_which_they_are_named(tmp_path: Path) -> None:
    assert read(tmp_path, WIDE, values=("t2", "t0")).x.tolist() == [[3, 1], [6, 4], [9, -7]]


def test_a_single_column_holds_texts(tmp_path: Path) -> None:
    examples = read(tmp_path, 'text,label\n"one, two",a\n"over\nlines",b\n\nthree,a\n')
    assert examples.x == ["one, two", "over\nlines", "three"]
    assert [examples.name_of(row).split(" of")[0] for row in range(3)] == ["line 2", "line 4", "line 6"]


def test_tabs_separate_columns_of_tsv_files(tmp_path: Path) -> None:
    assert read(tmp_path, WIDE.replace(",", "\t"), "own.tsv").x.shape == (3, 3)


@pytest.mark.parametrize(
    ("written", "labels"),
    [(["3", "1"], [3, 1]), (["03", "1"], ["03", "1"]), (["a", "1"], ["a", "1"]), (["-2", "1"], [-2, 1])],
)
def test_labels_written_like_whole_numbers_are_numbers(
    tmp_path: Path, written: list[str], labels: list[Any]
) -> None:
    rows = "".join(f"{label},1,2\n" for label in written)
    assert list(read(tmp_path, f"label,a,b\n{rows}").y) == labels


def test_values_to_predict_are_numbers(tmp_path: Path) -> None:
    examples = read(tmp_path, "target,a,b\n1.5,1,2\n2,3,4\n", task="regression")
    assert examples.y.tolist() == [1.5, 2]
    assert examples.columns == ("target",)


def test_a_long_row_is_a_position(tmp_path: Path) -> None:
    examples = read(tmp_path, LONG, id="id", time="time")
    assert [item.tolist() for item in examples.x] == [[[3, 30], [1, 10]], [[2, 20], [4, 40], [5, 50]]]
    assert list(examples.y) == ["up", "down"]
    assert examples.channels == ("left", "right")
    assert examples.name_of(1) == f"sequence 'a' of {tmp_path / 'own.csv'}"


def test_without_a_time_rows_keep_their_order(tmp_path: Path) -> None:
    examples = read(tmp_path, LONG, id="id", values=("left",))
    assert [item[:, 0].tolist() for item in examples.x] == [[1, 3], [2, 4, 5]]


@pytest.mark.parametrize(
    "times",
    [("10", "9", "2"), ("1e1", "9.5", "2"), ("2024-10-01", "2024-09-30 08:00", "2024-09-30 07:59:59")],
)
def test_times_may_be_numbers_or_dates(tmp_path: Path, times: tuple[str, ...]) -> None:
    rows = "".join(f"s,{time},{value},1\n" for value, time in enumerate(times))
    examples = read(tmp_path, f"id,time,v,label\n{rows}", id="id", time="time")
    assert examples.x[0][:, 0].tolist() == [2, 1, 0]


def test_values_of_positions_follow_their_rows(tmp_path: Path) -> None:
    text = "id,time,v,target\nb,2,1,0.1\na,0,2,0.2\nb,1,3,0.3\n"
    examples = read(tmp_path, text, id="id", time="time", task="position-regression")
    assert [item.tolist() for item in examples.y] == [[0.3, 0.1], [0.2]]
    assert [item[:, 0].tolist() for item in examples.x] == [[3, 1], [2]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (WIDE.replace("5.5", "5,5"), r"own\.csv: line 3 has 5 fields; expected 4"),
        (WIDE.replace("4,5.5,6", "4,6"), r"own\.csv: line 3 has 3 fields; expected 4"),
        (WIDE.replace("5.5", "five"), r"Line 3 of .*own\.csv: column 't1' holds 'five'; expected a number"),
        (WIDE.replace("5.5", ""), r"Line 3 of .*own\.csv: column 't1' is empty; expected a number"),
        (WIDE.replace("5.5", "nan"), r"Line 3 of .*own\.csv: column 't1' holds nan; expected a finite"),
        (WIDE.replace("5.5", "1e99"), r"Line 3 of .*: column 't1' holds 1e\+99; expected a finite"),
        (WIDE.replace("down", ""), r"Line 3 of .*own\.csv: column 'label' is empty; expected a label"),
        (WIDE.replace("up,1", "\n\nup,1").replace("5.5", "x"), "Line 5 of .*: column 't1' holds 'x'"),
        ("", r"own\.csv is empty; its first line must name the columns"),
        ("label,a,b\n", r"own\.csv has no rows"),
        ("label\nx\n", "has no columns of values beside 'label'"),
        ("label,a,a\nx,1,2\n", "has two columns 'a'"),
        ("1,2,3\n4,5,6\n", "has no column 'label': say by label=… .* There are '1', '2', '3'"),
        ("class,y,a\n0,1,2\n", "has both 'class' and 'y': say by label=…"),
        (LONG, r"has a column 'id': if each row is a position"),
    ],
)
def test_bad_wide_tables_are_named(tmp_path: Path, text: str, message: str) -> None:
    refused(tmp_path, text, message)


@pytest.mark.parametrize(
    ("text", "layout", "message"),
    [
        (
            LONG.replace("50,down", "50,up"),
            {},
            "sequence 'a' has two labels, 'down' in line 3 .* 'up' in line 6",
        ),
        (LONG.replace("a,0,2", ",0,2"), {}, r"Line 3 of .*: column 'id' is empty"),
        (LONG.replace("a,2,", "a,1,"), {}, r"line 5 of .* and line 6 of .* have the same time, 1"),
        (
            LONG.replace("a,2,", "a,soon,"),
            {},
            "Line 6 of .*: column 'time' holds 'soon'; expected a number or",
        ),
        (LONG.replace(",30,", ",?,"), {}, r"Line 4 of .*: column 'right' holds '\?'; expected a number"),
        (LONG.replace(",30,", ",,"), {}, "Line 4 of .*: column 'right' is empty"),
        (LONG, {"label": "mood"}, "has no 'mood', which label asks for. There are 'id', 'time'"),
        (LONG, {"values": ("up",)}, "has no 'up', which values asks for"),
        (LONG, {"id": "name"}, "has no 'name', which id asks for"),
        (LONG, {"id": ""}, "no column tells which sequence a row"),
        (LONG, {"task": "regression"}, "Line 2 of .*: column 'label' holds 'up'; expected a number"),
    ],
)
def test_bad_long_tables_are_named(tmp_path: Path, text: str, layout: dict[str, Any], message: str) -> None:
    refused(tmp_path, text, message, **{"id": "id", "time": "time"} | layout)


def test_values_of_positions_need_a_long_table(tmp_path: Path) -> None:
    refused(tmp_path, WIDE, "position-regression needs a long table", task="position-regression")


def test_text_in_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_bytes("label,a,b\nü,1,2\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"own\.csv.*(UTF-8|UTF8)"):
        read_csv(path, Layout())


def test_numbers_of_another_kind_far_below_are_read(tmp_path: Path) -> None:
    rows = "a,1,2\n" * 300_000 + "b,1.5,2\n"
    assert read(tmp_path, f"label,t0,t1\n{rows}").x[-1].tolist() == [1.5, 2]


def test_thousands_of_columns_are_read(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(5, 4000)).round(3)
    lines = [",".join(["label", *map(str, range(4000))])]
    lines += [",".join(["a", *map(str, row)]) for row in x]
    np.testing.assert_allclose(read(tmp_path, "\n".join(lines)).x, x, rtol=1e-6)


class TestParquet:
    def write(self, folder: Path, **columns: Any) -> Path:
        parquet.write_table(pyarrow.table(columns), folder / "own.parquet")
        return folder / "own.parquet"

    def test_wide_and_long_tables_are_read_like_csv(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, label=["a", "b"], t0=[1, 2], t1=[0.5, 0.25], __index_level_0__=[0, 1])
        examples = read_parquet(path, Layout())
        assert examples.x.tolist() == [[1, 0.5], [2, 0.25]]
        assert list(examples.y) == ["a", "b"]
        assert examples.name_of(1) == f"row 2 of {path}"
        path = self.write(tmp_path, id=[7, 3, 7], v=[1, 2, 3], label=[True, False, True])
        examples = read_parquet(path, Layout(id="id"))
        assert [item.tolist() for item in examples.x] == [[[1], [3]], [[2]]]
        assert list(examples.y) == [True, False]

    @pytest.mark.parametrize(
        ("column", "message"),
        [
            ([1.0, None], r"Row 2 of .*own\.parquet: column 't1' is empty; expected a number"),
            ([1.0, float("inf")], "Row 2 of .*: column 't1' holds inf"),
            (["1", "x"], "Row 2 of .*: column 't1' holds 'x'"),
            ([[1.0], [2.0]], r"column 't1' holds list<.*>; expected numbers"),
        ],
    )
    def test_bad_columns_are_named(self, tmp_path: Path, column: Any, message: str) -> None:
        path = self.write(tmp_path, label=["a", "b"], t0=[1, 2], t1=column)
        with pytest.raises(ValueError, match=message):
            read_parquet(path, Layout())

    def test_dictionaries_are_labels(self, tmp_path: Path) -> None:
        labels = pyarrow.array(["b", "a", "b"]).dictionary_encode()
        path = self.write(tmp_path, label=labels, t0=[1, 2, 3], t1=[1, 2, 3])
        assert list(read_parquet(path, Layout()).y) == ["b", "a", "b"]

    def test_other_files_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "own.parquet").write_bytes(b"no table at all")
        with pytest.raises(ValueError, match=r"own\.parquet is not a Parquet file, or is damaged"):
            read_parquet(tmp_path / "own.parquet", Layout())


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ModuleNotFoundError, match=r'package pyarrow, .* pip install "torchs4\[data\]"'):
        read(tmp_path, WIDE)
    assert require_package("json", "Nothing") is sys.modules["json"]
