"""S4Forecaster as it comes: errors and coverage on the last fifth of real series.

python benchmarks/forecaster.py

Writes results/forecaster.json.
"""

from __future__ import annotations

import time
from typing import Any

import pandas
import torch
from harness import record, show

from torchs4.data import data_folder
from torchs4.estimators import S4Forecaster

SERIES = {
    "ETTh1, oil temperature, 24 hours": ("ETT-small/ETTh1.csv", "OT", 24),
    "ETTh2, oil temperature, 24 hours": ("ETT-small/ETTh2.csv", "OT", 24),
    "Weather, wet bulb, 24 hours": ("WTH.csv", "WetBulbCelsius", 24),
    "ETTm1, oil temperature, 96 quarters": ("ETT-small/ETTm1.csv", "OT", 96),
}


def main() -> None:
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    for name, (path, target, horizon) in SERIES.items():
        frame = pandas.read_csv(data_folder() / path)
        started = time.monotonic()
        found = S4Forecaster(random_state=0, verbose=0).backtest(
            frame, target=target, horizon=horizon, time="date"
        )
        scores = {key: round(float(value), 4) for key, value in found.scores.loc[target].items()}
        results[name] = {**scores, "windows": found.windows, "seconds": round(time.monotonic() - started, 1)}
        print(name, results[name], flush=True)
    record("forecaster", results)
    columns = ["mae", "last value mae", "coverage 0.8", "coverage 0.95", "seconds"]
    show(
        "last fifth",
        ["series", *columns],
        [[name, *(one[c] for c in columns)] for name, one in results.items()],
    )


if __name__ == "__main__":
    main()
