"""One process at a time in a run's folder, and nothing in the way of those that come after a kill."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from torchs4.training.lock import LOCK_FILE, locked
from torchs4.training.run_folder import RunFolder

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("fcntl", reason="this system has no such locks")

HOLD = """
import pathlib, sys, time
from torchs4.training.lock import locked
with locked(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(200)
"""


def test_a_folder_is_held_once_and_free_afterwards(tmp_path: Path) -> None:
    with locked(tmp_path):
        with pytest.raises(ValueError, match=r"Another process is training in .* \(process \d+ on "):
            locked(tmp_path).__enter__()
        assert (tmp_path / LOCK_FILE).is_file()
    assert not list(tmp_path.iterdir())
    with locked(tmp_path):
        pass


def test_what_another_process_holds_is_refused_until_it_is_killed(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(ValueError, match=rf"process {process.pid} on "):
            RunFolder(tmp_path).locked().__enter__()
    finally:
        process.kill()
        process.communicate()
    # The file is still there, as a kill leaves it.
    assert (tmp_path / LOCK_FILE).is_file()
    with RunFolder(tmp_path).locked():
        RunFolder(tmp_path).require_unused()
    assert not (tmp_path / LOCK_FILE).exists()


def test_a_lock_that_was_removed_meanwhile_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchs4.training import lock

    take, times = lock._lock, []

    def late(file: object) -> bool:
        times.append(time.monotonic())
        if len(times) == 1:
            (tmp_path / LOCK_FILE).unlink()
        return take(file)  # type: ignore[arg-type]

    monkeypatch.setattr(lock, "_lock", late)
    with locked(tmp_path):
        assert len(times) == 2
        assert (tmp_path / LOCK_FILE).read_text().startswith("process ")
