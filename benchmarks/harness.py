"""Timing side by side, and result files that say where their numbers come from."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from torchs4 import keep_memory
from torchs4.training.provenance import provenance, source_commit

if TYPE_CHECKING:
    from collections.abc import Callable

RESULTS = Path(__file__).parent / "results"
PAGES = RESULTS.parents[1] / "docs"
THREADS = 2
console = Console()


def _read_arguments() -> None:
    """For scripts without options of their own: --help tells what they do, and nothing else is ignored."""
    script = sys.modules["__main__"]
    is_ours = Path(getattr(script, "__file__", None) or "/").parent == RESULTS.parent
    if not is_ours or hasattr(script, "argparse"):
        return
    others = [argument for argument in sys.argv[1:] if argument != "--keep-memory"]
    if others:
        asks = set(others) <= {"-h", "--help"}
        print(script.__doc__ if asks else f"{' '.join(others)}: this script takes --keep-memory alone.")
        sys.exit(0 if asks else 2)


_read_arguments()
# Remembered: a result names the commit that ran, not one that came while it did.
source_commit()

# `python SCRIPT --keep-memory` measures in a process that keeps freed memory, as `s4 train` does. Whatever
# large tensors torchs4 is measured against gains from it too.
KEEPS_MEMORY = "--keep-memory" in sys.argv and keep_memory()


def interleave(
    candidates: dict[str, Callable[[], Any]],
    repeats: int = 7,
    warmup: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, dict[str, float]]:
    """Run the candidates in turn, so that a noisy moment hits all of them; medians in milliseconds.

    clock: time.process_time counts this process alone, which is fair to what runs in one thread.
    """
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for round_index in range(warmup + repeats):
        for name, run in candidates.items():
            start = clock()
            run()
            elapsed = (clock() - start) * 1e3
            if round_index >= warmup:
                times[name].append(elapsed)
    return {
        name: {"median_ms": statistics.median(t), "min_ms": min(t), "max_ms": max(t), "runs": len(t)}
        for name, t in times.items()
    }


def peak_memory_mb(source: str) -> float:
    """How far a snippet's peak memory rises above what it had when it set `ready = peak()`.

    It runs in a fresh interpreter, where `peak()` reads the high-water mark in bytes.
    """
    preamble = (
        "import re\n"
        "def peak():\n"
        "    return int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]) * 1024\n"
        f"import torch; torch.set_num_threads({THREADS})\n"
    )
    command = [sys.executable, "-c", preamble + source + "\nprint((peak() - ready) / 1e6)"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(output.split()[-1])


class Pieces:
    """Numbers that were measured one by one, kept in runs/ as soon as they are: a killed script goes on.

    about: of each, the commit that it was measured at and how busy the machine was.
    """

    def __init__(self, name: str) -> None:
        self.path = RESULTS.parents[1] / "runs" / "pieces" / f"{name}.json"
        self.found: dict[str, Any] = {}
        self.about: dict[str, str] = {}
        if self.path.is_file():
            self.found, self.about = json.loads(self.path.read_text(encoding="utf-8"))

    def measure(self, key: str, measure: Callable[[], Any]) -> Any:
        """What is kept under this key, or what is measured now."""
        if key not in self.found:
            self.found[key] = measure()
            self.about[key] = f"commit {_git('rev-parse', 'HEAD')[:7]}, load {os.getloadavg()[0]:.1f}"
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _replace(self.path, json.dumps([self.found, self.about]))
            print(f"{key}: {self.found[key]}", flush=True)
        return self.found[key]


def keep_for_tables(name: str, path: Path, measured: dict[str, Any]) -> None:
    """Write what comes with the package, for `s4 table`, with where it was measured. path: of the result."""
    described = json.loads(path.read_text(encoding="utf-8"))
    processor, commit = described["machine"]["processor"], described["commit"][:7]
    where = f"{processor}, {described['threads']} threads, commit {commit}"
    kept = RESULTS.parents[1] / "src" / "torchs4" / "recipes" / "measured" / f"{name}.json"
    kept.write_text(json.dumps({"where": where, **measured}, indent=2) + "\n", encoding="utf-8")


def record(name: str, results: dict[str, Any]) -> Path:
    """Write benchmarks/results/NAME.json with command, machine, versions, commit and date."""
    RESULTS.mkdir(exist_ok=True)
    name += "_keep_memory" if KEEPS_MEMORY else ""
    description = {
        **provenance(),
        "keeps_memory": KEEPS_MEMORY,
        "uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no", "--", "../src")),
        "results": results,
    }
    path = RESULTS / f"{name}.json"
    _replace(path, json.dumps(description, indent=2) + "\n")
    console.print(f"Wrote {path}")
    return path


def show(title: str, columns: list[str], rows: list[list[Any]]) -> None:
    """Print a table."""
    table = Table(title=title)
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*(f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row))
    console.print(table)


def renewed(text: str, mark: str, rows: list[list[str]]) -> str:
    """A page whose table between `<!-- mark -->` and `<!-- end of mark -->` is these rows, a header first."""
    begin, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->"
    before, rest = text.split(begin)
    header, *others = rows
    lines = "\n".join("| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *others])
    return f"{before}{begin}{lines}\n{end}{rest.split(end)[1]}"


def _replace(path: Path, text: str) -> None:
    """Write a file in one moment: another process that reads it finds the old one or the new one."""
    new = path.with_suffix(f".{os.getpid()}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def _git(*arguments: str) -> str:
    result = subprocess.run(
        ["git", *arguments], capture_output=True, text=True, cwd=RESULTS.parent, check=False
    )
    return result.stdout.strip()
