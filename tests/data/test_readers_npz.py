from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from torchs4.data.own.readers import Layout, read_npz

if TYPE_CHECKING:
    from pathlib import Path

    from torchs4.data.own.examples import Examples

X, Y = np.arange(12.0).reshape(4, 3), np.array([0, 1, 0, 1])


def read(folder: Path, layout: dict[str, Any] | None = None, **arrays: Any) -> Examples:
    np.savez(folder / "own.npz", **arrays)
    return read_npz(folder / "own.npz", Layout(**layout or {}))


def test_arrays_of_all_parts_are_read(tmp_path: Path) -> None:
    lengths = np.array([1, 2, 3, 3])
    examples = read(
        tmp_path,
        x=X,
        y=Y,
        lengths=lengths,
        x_validation=X + 1,
        y_validation=Y,
        x_test=X + 2,
        y_test=Y,
        note=1,
    )
    np.testing.assert_array_equal(examples.x, X)
    np.testing.assert_array_equal(examples.lengths, lengths)
    assert examples.validation is not None
    assert examples.test is not None
    np.testing.assert_array_equal(examples.validation.x, X + 1)
    np.testing.assert_array_equal(examples.test.x, X + 2)
    assert examples.validation.lengths is None
    assert examples.test.name_of(3) == f"test example 3 of {tmp_path / 'own.npz'}"
    assert examples.name_of(3) == f"example 3 of {tmp_path / 'own.npz'}"


def test_arrays_may_have_other_names(tmp_path: Path) -> None:
    examples = read(
        tmp_path, {"values": ("signal",), "label": "mood"}, signal=X, mood=Y, mood_test=Y, signal_test=X
    )
    np.testing.assert_array_equal(examples.y, Y)
    assert examples.test is not None


@pytest.mark.parametrize(
    ("arrays", "layout", "message"),
    [
        ({"a": X}, {}, r"own\.npz lacks the arrays 'x' and 'y'. There are 'a'"),
        ({"x": X}, {}, r"own\.npz has x but no y; both are needed"),
        ({"x": X, "y": Y, "x_test": X}, {}, "has x_test but no y_test"),
        ({"x": X, "y": Y, "x_val": X}, {}, "has an array 'x_val', which nothing reads"),
        (
            {"x": np.array([[1], [1, 2]], object), "y": Y},
            {},
            r"own\.npz: the array 'x' holds Python objects",
        ),
        ({"x": X, "y": Y}, {"time": "t"}, "time is 't', which means nothing for"),
        ({"x": X, "y": Y}, {"values": ("a", "b")}, "may name one array"),
    ],
)
def test_bad_archives_are_named(
    tmp_path: Path, arrays: dict[str, Any], layout: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        read(tmp_path, layout, **arrays)


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut"])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "own.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"own\.npz is not an archive"):
        read_npz(tmp_path / "own.npz", Layout())


def test_a_damaged_array_is_named(tmp_path: Path) -> None:
    read(tmp_path, x=X, y=Y)
    content = bytearray((tmp_path / "own.npz").read_bytes())
    content[150:158] = b"\xff" * 8
    (tmp_path / "own.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"own\.npz: the array 'x' is damaged"):
        read_npz(tmp_path / "own.npz", Layout())
