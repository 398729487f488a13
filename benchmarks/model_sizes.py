"""How long a training step takes, and what it needs, by width, depth, length, batch and stem.

python benchmarks/model_sizes.py
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from typing import Any

import torch
from harness import THREADS, record, show
from torch.nn import functional as F

from torchs4 import S4BlockConfig, S4Config, SequenceModel, keep_memory, parameter_groups
from torchs4.training.provenance import peak_memory_mb

# Features, layers, length, batch, stem.
SIZES = (
    (32, 4, 1000, 16, ()),
    (64, 4, 1000, 16, ()),
    (128, 4, 1000, 16, ()),
    (256, 4, 1000, 16, ()),
    (64, 2, 1000, 16, ()),
    (64, 8, 1000, 16, ()),
    (64, 4, 1000, 4, ()),
    (64, 4, 1000, 64, ()),
    (64, 4, 250, 16, ()),
    (64, 4, 4000, 16, ()),
    (64, 4, 16000, 16, ()),
    (64, 4, 16000, 16, (4,)),
    (64, 4, 16000, 16, (4, 4)),
)
STEPS = 7


def main() -> None:
    results = []
    for size in SIZES:
        # A process of its own: peak memory is a process's.
        command = [sys.executable, __file__, json.dumps(size)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        results.append(json.loads(output.splitlines()[-1]))
        print(results[-1], flush=True)
    columns = list(results[0])
    show("one training step", columns, [[str(row[column]) for column in columns] for row in results])
    record("model_sizes", {"sizes": results})


def measure(features: int, layers: int, length: int, batch: int, stem: list[int]) -> dict[str, Any]:
    """Median of several steps with AdamW, in a process that keeps its memory, as `s4 train` does."""
    keep_memory()
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    block = S4BlockConfig(layer=S4Config(state_size=32), norm="batch", dropout=0.1, tied_dropout=True)
    model = SequenceModel(output_size=10, features=features, num_layers=layers, block=block, stem=tuple(stem))
    optimizer = torch.optim.AdamW(parameter_groups(model, lr=0.001))
    x, y = torch.randn(batch, length, 1), torch.randint(10, (batch,))
    times = []
    for _ in range(STEPS + 2):
        start = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    return {
        "features": features,
        "layers": layers,
        "length": length,
        "batch": batch,
        "stem": " ".join(map(str, stem)),
        # The first ones compile and prepare.
        "seconds_per_step": round(statistics.median(times[2:]), 4),
        "peak_memory_mb": round(peak_memory_mb()),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(*json.loads(sys.argv[1]))))
    else:
        main()
