"""Compiled code on disk is never out of date, never compiled twice, and never a reason to stop."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import torchs4
from torchs4.ops.cpu.code_cache import source_digest

# One small operator: a few functions to compile.
SCRIPT = """
import sys, torch
from numba.core import event

compiled = []
class Listener(event.Listener):
    def on_start(self, started):
        compiled.append(started.data["dispatcher"].py_func.__name__)
    def on_end(self, ended):
        pass
event.register("numba:compile", Listener())

from torchs4 import ops
x = torch.arange(24.0).view(3, 8)
y = ops.gated_residual(torch.cat([x, x], dim=-1), torch.zeros(16), x)
assert torch.allclose(y, x + x * x.sigmoid()), y
print(" ".join(compiled))
"""


@pytest.fixture
def package(tmp_path):
    """A copy of the package, without what has been compiled for it."""
    root = Path(torchs4.__file__).parent
    shutil.copytree(root, tmp_path / "torchs4", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "torchs4"


def run(package, *arguments):
    """The names of the functions that a new process has compiled, and what it said."""
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment |= {"PYTHONPATH": str(package.parent), "XDG_CACHE_HOME": str(package.parent / "none")}
    done = subprocess.run(
        [*arguments, sys.executable, "-c", SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr


def code_of(package, pattern="*.nb?"):
    return sorted((package / "ops" / "cpu" / "__pycache__").glob(pattern))


@pytest.mark.slow
def test_a_second_process_compiles_nothing_until_any_file_changes(package):
    first, _ = run(package)
    assert "_forward" in first
    assert run(package) == ([], "")
    with (package / "ops" / "cpu" / "vectors.py").open("a") as file:
        file.write("# An edit, far from what uses it.\n")
    again, _ = run(package)
    assert again == first


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["*.nbi", "*.nbc"])
def test_cut_off_files_are_compiled_anew(package, kind):
    run(package)
    for path in code_of(package, kind):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    again, said = run(package)
    assert again
    assert said == ""
    assert run(package) == ([], "")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("unshare") is None or os.getuid() != 0, reason="needs to mount a folder")
def test_code_that_can_only_be_read_is_used(package):
    run(package)
    folder = package / "ops" / "cpu" / "__pycache__"
    mount = f'mount --bind "{folder}" "{folder}" && mount -o remount,bind,ro "{folder}" && exec "$@"'
    unshare = ["unshare", "--mount", "sh", "-c", mount, "sh"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("may not mount a folder")
    assert run(package, *unshare) == ([], "")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("unshare") is None or os.getuid() != 0, reason="needs to mount a folder")
def test_a_full_disk_is_said_in_one_sentence(package):
    folder = package / "ops" / "cpu" / "__pycache__"
    folder.mkdir()
    mount = f'mount -t tmpfs -o size=4k none "{folder}" && exec "$@"'
    unshare = ["unshare", "--mount", "sh", "-c", mount, "sh"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("may not mount a folder")
    compiled, said = run(package, *unshare)
    assert "_forward" in compiled
    assert said.count("Compiled code could not be kept in") == 1
    assert "set NUMBA_CACHE_DIR" in said


@pytest.mark.slow
def test_a_second_process_waits_for_the_first_instead_of_compiling_too(package):
    environment = {**os.environ, "PYTHONPATH": str(package.parent)}
    environment.pop("NUMBA_CACHE_DIR", None)
    command = [sys.executable, "-c", SCRIPT]
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    compiled = [name for process in both for name in process.communicate()[0].split()]
    assert [process.returncode for process in both] == [0, 0]
    assert "_forward" in compiled
    assert len(compiled) == len(set(compiled))


def test_code_of_another_folder_is_out_of_date_when_its_own_file_changes(tmp_path):
    file = tmp_path / "pictures.py"
    file.write_text("one")
    before = source_digest.__wrapped__(str(file))
    assert before == source_digest.__wrapped__(str(file))
    file.write_text("other")
    assert source_digest.__wrapped__(str(file)) != before
