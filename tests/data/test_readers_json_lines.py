from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from torchs4.data.own.readers import Layout, read_json_lines

if TYPE_CHECKING:
    from pathlib import Path

    from torchs4.data.own.examples import Examples


def read(folder: Path, *lines: str, **layout: Any) -> Examples:
    path = folder / "own.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return read_json_lines(path, Layout(**layout))


def test_sequences_and_labels_are_read(tmp_path: Path) -> None:
    examples = read(tmp_path, '{"x": [1, 2.5], "y": "a"}', "", '{"x": [[1, 2]], "y": "b", "more": 1}', "")
    assert examples.x == [[1, 2.5], [[1, 2]]]
    assert examples.y == ["a", "b"]
    assert examples.name_of(1) == f"line 3 of {tmp_path / 'own.jsonl'}"


def test_texts_are_read(tmp_path: Path) -> None:
    examples = read(tmp_path, '{"text": "é", "label": 1}', '{"label": 0, "text": "b"}')
    assert (examples.x, examples.y) == (["é", "b"], [1, 0])


def test_keys_may_be_named(tmp_path: Path) -> None:
    line = '{"x": 0, "y": 0, "signal": [1], "mood": 2}'
    examples = read(tmp_path, line, line, values=("signal",), label="mood")
    assert (examples.x, examples.y, examples.columns) == ([[1], [1]], [2, 2], ("mood",))


GOOD = '{"x": [1], "y": 0}'


@pytest.mark.parametrize(
    ("lines", "layout", "message"),
    [
        (
            [GOOD, '{"x": [1, 2'],
            {},
            r"Line 2 of .*own\.jsonl is not JSON, or is cut short: .* at character 12",
        ),
        ([GOOD, "[1, 2]"], {}, r"Line 2 of .* holds a list; expected an object such as \{"),
        ([GOOD, '{"x": [1]}'], {}, "Line 2 of .* has no 'y'; it has 'x'"),
        ([GOOD, '{"x": [1], "y": null}'], {}, "Line 2 of .* has no 'y'"),
        (["", ""], {}, r"own\.jsonl is empty"),
        (['{"z": [1], "y": 0}'], {}, "Line 1 of .* has 'z', 'y'; expected one of 'x' and 'text'"),
        (['{"x": [1], "text": "a", "y": 0}'], {}, "expected one of 'x' and 'text'"),
        (['{"x": [1], "mood": 0}'], {}, "has no column 'label': say by label=…"),
        ([GOOD], {"label": "mood"}, "Line 1 of .* has no 'mood', which label asks for"),
        ([GOOD], {"values": ("a", "b")}, "may name one key"),
        ([GOOD], {"id": "id"}, "id is 'id', which means nothing for"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, lines: list[str], layout: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(tmp_path, *lines, **layout)


def test_text_in_another_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_bytes('{"text": "ü", "label": 1}'.encode("latin-1"))
    with pytest.raises(ValueError, match=r"own\.jsonl is not UTF-8 text"):
        read_json_lines(tmp_path / "own.jsonl", Layout())
