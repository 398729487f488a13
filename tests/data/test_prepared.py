import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from torchs4.data import prepared
from torchs4.data.prepared import prepared_arrays


def some_arrays() -> dict[str, np.ndarray]:
    return {"numbers": np.arange(6, dtype=np.int16).reshape(2, 3), "labels": np.array([1.5, 2.5])}


def refuse_to_build() -> dict[str, np.ndarray]:
    raise AssertionError("built again")


def test_arrays_are_what_was_built_and_lie_on_disk(tmp_path: Path) -> None:
    arrays = prepared_arrays(tmp_path, "set-1", some_arrays)
    assert sorted(arrays) == ["labels", "numbers"]
    for name, expected in some_arrays().items():
        assert isinstance(arrays[name], np.memmap)
        assert arrays[name].dtype == expected.dtype
        np.testing.assert_array_equal(arrays[name], expected)
    assert sorted(path.name for path in (tmp_path / "prepared" / "set-1").iterdir()) == [
        "labels.npy",
        "numbers.npy",
    ]


def test_arrays_are_built_once(tmp_path: Path) -> None:
    prepared_arrays(tmp_path, "set-1", some_arrays)
    again = prepared_arrays(tmp_path, "set-1", refuse_to_build)
    np.testing.assert_array_equal(again["numbers"], some_arrays()["numbers"])


def test_names_keep_sets_apart(tmp_path: Path) -> None:
    prepared_arrays(tmp_path, "set-1", some_arrays)
    other = prepared_arrays(tmp_path, "set-10", lambda: {"numbers": np.zeros(1)})
    assert other["numbers"].tolist() == [0]
    assert prepared_arrays(tmp_path, "set-1", refuse_to_build)["numbers"].size == 6


def test_arrays_cannot_be_written_to(tmp_path: Path) -> None:
    arrays = prepared_arrays(tmp_path, "set-1", some_arrays)
    with pytest.raises(ValueError, match="read-only"):
        arrays["numbers"][0, 0] = 7


def test_folder_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "disk", target_is_directory=True)
    prepared_arrays(tmp_path / "data", "set-1", some_arrays)
    assert prepared_arrays(tmp_path / "disk", "set-1", refuse_to_build)["numbers"].size == 6


def test_failing_build_leaves_nothing_and_may_be_repeated(tmp_path: Path) -> None:
    def fail() -> dict[str, np.ndarray]:
        raise ValueError("damaged file")

    with pytest.raises(ValueError, match="damaged file"):
        prepared_arrays(tmp_path, "set-1", fail)
    assert not list(tmp_path.rglob("*.npy"))
    assert prepared_arrays(tmp_path, "set-1", some_arrays)["numbers"].size == 6


def test_full_disk_is_told_with_the_space_needed_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = np.save

    def save_until_full(path: Path, array: np.ndarray, **options: Any) -> None:
        save(path, array, **options)
        if len(list(path.parent.iterdir())) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np, "save", save_until_full)
    with pytest.raises(OSError, match=r"No space left on device\): they need 16 MB\. Free some space"):
        prepared_arrays(tmp_path, "set-1", lambda: {name: np.zeros(10**6) for name in "ab"})
    assert not (tmp_path / "prepared").exists()
    monkeypatch.undo()
    assert prepared_arrays(tmp_path, "set-1", some_arrays)["numbers"].size == 6


def test_full_disk_as_numpy_tells_it_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def save_partly(*_: Any, **__: Any) -> None:
        raise OSError("1000000 requested and 131056 written")

    monkeypatch.setattr(np, "save", save_partly)
    with pytest.raises(OSError, match=r"\(1000000 requested and 131056 written\): they need"):
        prepared_arrays(tmp_path, "set-1", some_arrays)


@pytest.mark.skipif(os.name != "posix", reason="needs permissions of files")
def test_arrays_are_as_readable_as_the_folder_they_are_in(tmp_path: Path) -> None:
    (tmp_path / "prepared").mkdir()
    (tmp_path / "prepared").chmod(0o755)
    prepared_arrays(tmp_path, "set-1", some_arrays)
    assert (tmp_path / "prepared" / "set-1").stat().st_mode & 0o777 == 0o755


def test_nothing_is_built_for_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="Cannot write to"):
        prepared_arrays(tmp_path / "file", "set-1", refuse_to_build)


def test_interrupted_writing_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(path: Path, *_: Any, **__: Any) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "save", interrupt)
    with pytest.raises(KeyboardInterrupt):
        prepared_arrays(tmp_path, "set-1", some_arrays)
    assert not (tmp_path / "prepared").exists()


def test_arrays_of_objects_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="allow_pickle"):
        prepared_arrays(tmp_path, "set-1", lambda: {"objects": np.array([{}], dtype=object)})
    assert not (tmp_path / "prepared").exists()


def test_what_a_killed_process_left_is_not_taken_for_the_arrays(tmp_path: Path) -> None:
    left = tmp_path / "prepared" / "set-1.unfinished-abc"
    left.mkdir(parents=True)
    (left / "numbers.npy").write_bytes(b"half")
    assert prepared_arrays(tmp_path, "set-1", some_arrays)["numbers"].size == 6


def test_what_a_killed_process_left_days_ago_is_removed(tmp_path: Path) -> None:
    old, recent, other = (
        tmp_path / "prepared" / name
        for name in ("set-1.unfinished-a", "set-1.unfinished-b", "set-2.unfinished-c")
    )
    for folder in (old, recent, other):
        folder.mkdir(parents=True)
        (folder / "numbers.npy").write_bytes(b"half")
    two_days_ago = time.time() - 2 * 24 * 60 * 60
    for folder in (old, other):
        os.utime(folder, (two_days_ago, two_days_ago))
    prepared_arrays(tmp_path, "set-1", some_arrays)
    assert sorted(path.name for path in (tmp_path / "prepared").iterdir()) == ["set-1", "set-1.unfinished-b"]


def test_array_that_was_removed_is_named_with_what_to_do(tmp_path: Path) -> None:
    prepared_arrays(tmp_path, "set-1", some_arrays)
    place = tmp_path / "prepared" / "set-1"
    (place / "labels.npy").unlink()
    arrays = prepared_arrays(tmp_path, "set-1", refuse_to_build)
    assert arrays["numbers"].size == 6
    with pytest.raises(FileNotFoundError, match=r"labels\.npy has been removed") as caught:
        arrays["labels"]
    assert f"Delete the folder {place}" in str(caught.value)


@pytest.mark.parametrize("kept", [0, 5, 70, -1])
def test_damaged_array_is_named_with_what_to_do(tmp_path: Path, kept: int) -> None:
    prepared_arrays(tmp_path, "set-1", some_arrays)
    place = tmp_path / "prepared" / "set-1"
    content = (place / "labels.npy").read_bytes()
    (place / "labels.npy").write_bytes(content[:kept])
    with pytest.raises(ValueError, match=r"labels\.npy is damaged") as caught:
        prepared_arrays(tmp_path, "set-1", refuse_to_build)
    assert f"Delete the folder {place}" in str(caught.value)


def test_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"Cannot write to .*choose a data folder that you may write to"):
        prepared_arrays(tmp_path / "file", "set-1", some_arrays)


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="needs a user whom permissions bind"
)
def test_read_only_folder_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(OSError, match="choose a data folder that you may write to"):
            prepared_arrays(tmp_path, "set-1", some_arrays)
    finally:
        tmp_path.chmod(0o700)


def test_set_that_someone_else_finished_meanwhile_is_taken(tmp_path: Path) -> None:
    def build_late() -> dict[str, np.ndarray]:
        prepared_arrays(tmp_path, "set-1", lambda: {"numbers": np.array([1])})
        return {"numbers": np.array([2])}

    assert prepared_arrays(tmp_path, "set-1", build_late)["numbers"].tolist() == [1]
    assert [path.name for path in (tmp_path / "prepared").iterdir()] == ["set-1"]


# Loads the module by its path: a new process that imports the whole package takes seconds.
_BUILDER = """
import importlib.util, pathlib, sys, time
import numpy as np

spec = importlib.util.spec_from_file_location("prepared", sys.argv[1])
prepared = importlib.util.module_from_spec(spec)
spec.loader.exec_module(prepared)
folder = pathlib.Path(sys.argv[2])

def build():
    (folder / f"building-{sys.argv[3]}").touch()
    while len(list(folder.glob("building-*"))) < 2:
        time.sleep(0.001)
    return {"numbers": np.arange(100_000)}

print(int(prepared.prepared_arrays(folder, "set-1", build)["numbers"].sum()))
"""


def test_two_processes_that_build_at_once_both_get_the_arrays(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _BUILDER, prepared.__file__, str(tmp_path), name],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in "ab"
    ]
    for process in processes:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert int(out) == 99_999 * 50_000
    assert [path.name for path in (tmp_path / "prepared").iterdir()] == ["set-1"]
