"""How long the first training step takes where nothing is compiled yet, and in a second process.

python benchmarks/first_step.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

from harness import THREADS, record, show

# The quickstart's model and a batch of its digits. PyTorch imports its compiler when the first optimiser is
# made, whatever it is for: that is timed by itself.
SCRIPT = f"""
import json, time
from pathlib import Path
import numpy as np
import torch
from torchs4 import recipes
from torchs4.models import build_model
torch.set_num_threads({THREADS})
config = recipes.find("digits").config("cpu")
data = config.data.load(Path("."))
model = build_model(config.model, data.input, data.task.output)
batch = data.train.batch(np.arange(config.optim.batch_size))
def now():
    return {{"seconds": time.perf_counter(), "cpu_seconds": time.process_time()}}
marks = [now()]
optimizer = torch.optim.AdamW(model.parameters())
marks.append(now())
for _ in range(3):
    torch.nn.functional.cross_entropy(model(batch.x), batch.y).backward()
    optimizer.step()
    marks.append(now())
names = ("making_the_optimizer", "first_step", "second_step", "third_step")
times = {{
    clock: {{name: after[clock] - before[clock] for name, before, after in zip(names, marks, marks[1:])}}
    for clock in marks[0]
}}
print(json.dumps(times))
"""


def first_steps(cache: str) -> dict[str, dict[str, float]]:
    """Times by clock, in a process of its own that keeps compiled code in that folder.

    Compiling takes one core. The processor's seconds say how long that is where other programs run beside it.
    """
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    command = [sys.executable, "-c", SCRIPT]
    output = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    times: dict[str, dict[str, float]] = json.loads(output.splitlines()[-1])
    return times


def main() -> None:
    results: dict[str, Any] = {"cold": [], "warm": []}
    for _ in range(3):
        with tempfile.TemporaryDirectory() as cache:
            results["cold"].append(first_steps(cache))
            results["warm"].append(first_steps(cache))
    columns = ["compiled code", "optimiser", "first step", "second", "third"]
    for clock in ("seconds", "cpu_seconds"):
        rows = [[kind, *times[clock].values()] for kind, several in results.items() for times in several]
        show(clock.replace("_", " "), columns, rows)
    # Above the number of cores, the seconds are not those of an idle machine: then look at the processor's.
    record("first_step", {**results, "load_average": os.getloadavg()[0]})


if __name__ == "__main__":
    main()
