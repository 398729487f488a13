"""Kept memory is there for the next tensor."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

import torchs4

FAULTS = """
import resource, torch, torchs4
if {keeps}:
    assert torchs4.keep_memory()
def touch():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.zeros(2**24).add_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
# Small pieces may settle behind the first ones, until one of them is large enough for all that follow.
print([touch() for _ in range(10)][-1])
"""

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs the GNU C library")


def page_faults(keeps: bool) -> int:
    command = [sys.executable, "-c", FAULTS.format(keeps=keeps)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@glibc
def test_kept_memory_is_not_asked_for_again() -> None:
    # 64 MB are 16,384 pages, fewer where pages are huge.
    assert page_faults(keeps=True) < 10
    assert page_faults(keeps=False) >= 32


def test_it_says_whether_it_could() -> None:
    code = "import torchs4; print(torchs4.keep_memory())"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == str(platform.libc_ver()[0] == "glibc")


def test_other_c_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchs4.memory.ctypes, "CDLL", lambda name: object())
    assert torchs4.keep_memory() is False
