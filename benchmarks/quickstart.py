"""What the README says of the quickstart: accuracy on unseen digits and training time, over three seeds.

python benchmarks/quickstart.py
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch
from harness import THREADS, record, show

from torchs4 import cli


def main() -> None:
    torch.set_num_threads(THREADS)
    results = {}
    for seed in range(3):
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            cli.main(["train", "digits", "--seed", str(seed), "--output", str(run)])
            summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
        names = ("test_accuracy", "best_validation_accuracy", "training_seconds", "input_wait_share")
        results[f"seed{seed}"] = {name: summary[name] for name in names}
    rows = [[seed, *numbers.values()] for seed, numbers in results.items()]
    show("quickstart", ["seed", "test accuracy", "validation accuracy", "seconds", "waiting for data"], rows)
    record("quickstart", results)


if __name__ == "__main__":
    main()
