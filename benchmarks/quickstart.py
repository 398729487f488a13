"""What the README says of the quickstart: accuracy on unseen digits and training time, over three seeds.

python benchmarks/quickstart.py
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from harness import THREADS, record, show

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import quickstart as example

from torchs4.data import load_digits

EPOCHS = 4


def main() -> None:
    torch.set_num_threads(THREADS)
    digits = load_digits()
    results = {}
    for seed in range(3):
        torch.manual_seed(seed)
        model = example.build_model()
        start = time.perf_counter()
        example.train(model, digits, EPOCHS)
        seconds = time.perf_counter() - start
        results[f"seed{seed}"] = {
            "test_accuracy": example.accuracy(model, digits.test),
            "validation_accuracy": example.accuracy(model, digits.validation),
            "training_seconds": seconds,
        }
    rows = [[seed, *numbers.values()] for seed, numbers in results.items()]
    show("quickstart", ["seed", "test accuracy", "validation accuracy", "seconds"], rows)
    record("quickstart", {"epochs": EPOCHS, **results})


if __name__ == "__main__":
    main()
