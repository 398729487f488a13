"""What `torchs4.keep_memory` saves: the same training steps in processes that keep memory and that do not.

python benchmarks/keep_memory.py
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from typing import Any

from harness import THREADS, record, show

SIZES = ((8, 1024, 256), (2, 16384, 256), (16, 16000, 64))
ROUNDS = 3

# Prints the milliseconds of seven training steps.
PROCESS = """
import json, sys, time, torch, torchs4
keeps, batch, length, features, threads = map(int, sys.argv[1:])
if keeps:
    assert torchs4.keep_memory()
torch.set_num_threads(threads)
block = torchs4.S4Block(features)
x, grad = torch.randn(batch, length, features, requires_grad=True), torch.ones(batch, length, features)
times = []
for step in range(10):
    start = time.perf_counter()
    block.zero_grad()
    x.grad = None
    block(x).backward(grad)
    times.append(1e3 * (time.perf_counter() - start))
print(json.dumps(times[3:]))
"""


def steps(keeps: bool, size: tuple[int, int, int]) -> list[float]:
    command = [sys.executable, "-c", PROCESS, *map(str, (int(keeps), *size, THREADS))]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    times: list[float] = json.loads(output)
    return times


def main() -> None:
    results: dict[str, Any] = {}
    rows = []
    for size in SIZES:
        times: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(ROUNDS):
            for keeps in times:
                times[keeps] += steps(keeps, size)
        usual, kept = (statistics.median(times[keeps]) for keeps in (False, True))
        batch, length, features = size
        name = f"B{batch}/L{length}/H{features}"
        results[name] = {"usual_ms": usual, "kept_ms": kept, "ratio": usual / kept, "runs": len(times[True])}
        rows.append([name, usual, kept, usual / kept])
    show("training step of one block", ["size", "usual ms", "memory kept ms", "ratio"], rows)
    record("keep_memory", results)


if __name__ == "__main__":
    main()
