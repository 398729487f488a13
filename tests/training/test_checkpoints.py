"""Checkpoints: exact, whole at any moment, checked when read, and without pickle."""

from __future__ import annotations

import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from torchs4.training import checkpoints
from torchs4.training.checkpoints import has_any, load_newest, load_state, newest, replace_folder, save_state


def write(text: str) -> Any:
    def fill(folder: Path) -> None:
        (folder / "content.txt").write_text(text)
        (folder / "more.txt").write_text(text * 100)

    return fill


def content(folder: Path) -> str:
    text = (folder / "content.txt").read_text()
    assert (folder / "more.txt").read_text() == text * 100
    return text


def test_a_nested_state_survives(tmp_path: Path) -> None:
    state = {
        "state": {0: {"step": torch.tensor(3.0), "exp_avg": torch.randn(2, 3)}, 1: {}},
        "groups": [{"lr": 0.1, "params": [0, 1], "foreach": None, "fused": False}, []],
        "best": -math.inf,
        "least": math.inf,
        "precise": 0.1 + 0.2,
        "name": "Δ",
        "a/b": torch.tensor(1),
        "a": {"b": torch.tensor(2)},
    }
    save_state(tmp_path, state)
    loaded = load_state(tmp_path)
    assert list(loaded) == list(state)
    assert set(loaded["state"]) == {0, 1}
    assert torch.equal(loaded["state"][0]["exp_avg"], state["state"][0]["exp_avg"])
    assert loaded["state"][0]["step"].shape == ()
    assert loaded["groups"] == state["groups"]
    assert (loaded["best"], loaded["least"]) == (-math.inf, math.inf)
    assert (loaded["precise"], loaded["name"]) == (state["precise"], "Δ")
    assert (int(loaded["a/b"]), int(loaded["a"]["b"])) == (1, 2)


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "bfloat16", "float16", "int64", "uint8", "bool", "complex64"]
)
def test_tensors_keep_type_and_bits(tmp_path: Path, dtype: str) -> None:
    kind = getattr(torch, dtype)
    whole = (3 * torch.randn(4, 6)).abs().to(kind)
    state = {"strided": whole.t()[::2], "view": whole[1], "empty": whole[:0], "scalar": whole[0, 0]}
    save_state(tmp_path, state)
    loaded = load_state(tmp_path)
    for name, tensor in state.items():
        assert loaded[name].dtype == kind
        assert torch.equal(loaded[name], tensor), name


def test_a_state_without_tensors_survives(tmp_path: Path) -> None:
    save_state(tmp_path, {"step": 3})
    assert load_state(tmp_path) == {"step": 3}


def test_nothing_is_pickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("pickle was used")

    for name in ("dump", "dumps", "load", "loads"):
        monkeypatch.setattr(f"pickle.{name}", refuse)
    for name in ("save", "load"):
        monkeypatch.setattr(torch, name, refuse)
    save_state(tmp_path, {"x": torch.ones(2), "y": {1: [None]}})
    assert torch.equal(load_state(tmp_path)["x"], torch.ones(2))
    with pytest.raises(TypeError, match="not JSON serializable"):
        save_state(tmp_path, {"x": object()})


def test_the_version_before_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "last"
    assert not has_any(folder)
    for text in ("one", "two", "three"):
        replace_folder(folder, write(text))
        assert has_any(folder)
    assert content(newest(folder)[0]) == "three"
    assert content(tmp_path / "last.previous") == "two"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last", "last.previous"]


class Killed(BaseException):
    pass


def _kill_at(monkeypatch: pytest.MonkeyPatch, moment: int) -> list[str]:
    """Raise at the moment-th operation on the disk, before it happens; the operations so far."""
    done: list[str] = []

    def counted(name: str, real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if len(done) == moment:
                raise Killed
            done.append(name)
            return real(*arguments, **options)

        return call

    monkeypatch.setattr(os, "replace", counted("replace", os.replace))
    monkeypatch.setattr(shutil, "rmtree", counted("rmtree", shutil.rmtree))
    monkeypatch.setattr(checkpoints, "_settle", counted("settle", checkpoints._settle))
    monkeypatch.setattr(Path, "write_text", counted("write", Path.write_text))
    monkeypatch.setattr(Path, "write_bytes", counted("write", Path.write_bytes))
    monkeypatch.setattr(Path, "mkdir", counted("mkdir", Path.mkdir))
    return done


# More moments than replacing a folder has; the last ones are those of a replacement that is not killed.
@pytest.mark.parametrize("second_kill", [0, 3, 6, 9, 12])
@pytest.mark.parametrize("versions", [1, 2])
def test_whatever_moment_kills_pick_a_whole_version_is_left(
    tmp_path: Path, versions: int, second_kill: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What no power cut threatens needs no waiting for the disk.
    monkeypatch.setattr(os, "fsync", lambda number: None)
    finished = []
    for first_kill in range(14):
        folder = tmp_path / str(first_kill) / "last"
        for version in range(versions):
            replace_folder(folder, write(str(version)))
        least = versions - 1
        for kill, text in ((first_kill, str(versions)), (second_kill, str(versions + 1))):
            with pytest.MonkeyPatch.context() as patch:
                _kill_at(patch, kill)
                try:
                    replace_folder(folder, write(text))
                    finished.append(text)
                    least = int(text)
                except Killed:
                    pass
            place, _ = newest(folder)
            # Never older than what was there before, never a mixture.
            assert int(content(place)) >= least
            least = int(content(place))
        replace_folder(folder, write("whole"))
        assert content(newest(folder)[0]) == "whole"
    assert str(versions) in finished


def test_a_first_version_killed_before_it_took_its_name_survives_the_next_kill(tmp_path: Path) -> None:
    folder = tmp_path / "last"
    replace_folder(folder, write("one"))
    folder.rename(tmp_path / "last.new")

    def killed(new: Path) -> None:
        write("two")(new)
        raise Killed

    with pytest.raises(Killed):
        replace_folder(folder, killed)
    assert content(newest(folder)[0]) == "one"


def test_a_full_disk_leaves_the_old_version(tmp_path: Path) -> None:
    folder = tmp_path / "last"
    replace_folder(folder, write("one"))

    def full(new: Path) -> None:
        write("two")(new)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        replace_folder(folder, full)
    assert newest(folder) == (folder, [])
    assert content(folder) == "one"


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)


DAMAGES = {
    "a flipped bit": lambda folder: _flip(folder / "content.txt"),
    "a cut file": lambda folder: (folder / "more.txt").write_text("tw"),
    "a missing file": lambda folder: (folder / "more.txt").unlink(),
    "cut checksums": lambda folder: (folder / "checksums.json").write_text('{"content'),
    "other checksums": lambda folder: (folder / "checksums.json").write_text("[]"),
    "no checksums": lambda folder: (folder / "checksums.json").write_text("{}"),
    "another file": lambda folder: (folder / "surplus.txt").touch(),
    "checksums that are no table": lambda folder: (folder / "checksums.json").write_text("false"),
    "deep checksums": lambda folder: (folder / "checksums.json").write_text("[" * 100_000),
}


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_a_damaged_version_is_passed_over(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "last"
    replace_folder(folder, write("one"))
    replace_folder(folder, write("two"))
    DAMAGES[damage](folder)
    place, damaged = newest(folder)
    assert content(place) == "one"
    assert damaged == [folder]
    DAMAGES[damage](place)
    with pytest.raises(ValueError, match="is damaged and there is none before it"):
        newest(folder)


def test_a_version_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    """Whoever changes a file and its checksum is not found out before the file is read."""
    folder = tmp_path / "last"
    for text in ("one", "two"):
        replace_folder(folder, write(text))

    def read(place: Path, but: tuple[str, ...]) -> str:
        if content(place) in but:
            raise ValueError(f"not {content(place)}")
        return content(place)

    assert load_newest(folder, lambda place: read(place, ("two",))) == ("one", [folder])
    with pytest.raises(ValueError, match=r"last is damaged \(not two\); .*previous is damaged \(not one\)"):
        load_newest(folder, lambda place: read(place, ("one", "two")))


@pytest.mark.parametrize("name", ["training.safetensors", "training.json"])
@pytest.mark.parametrize("damage", [b"", b'{"pairs": 3}', b'{"tensor": "9"}', b"[" * 100_000, b"\xff\xfe"])
def test_a_damaged_state_is_refused_in_words(tmp_path: Path, name: str, damage: bytes) -> None:
    save_state(tmp_path, {"x": torch.ones(2)})
    (tmp_path / name).write_bytes(damage)
    with pytest.raises(ValueError, match="does not hold a state of training"):
        load_state(tmp_path)


def test_no_version_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"There is no checkpoint .*last yet"):
        newest(tmp_path / "last")


def test_checksums_are_those_of_the_files(tmp_path: Path) -> None:
    replace_folder(tmp_path / "last", write("one"))
    checksums = json.loads((tmp_path / "last" / "checksums.json").read_text())
    assert set(checksums) == {"content.txt", "more.txt"}
