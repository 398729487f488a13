"""S4Regressor against ridge regression, the nearest neighbour and a random forest, on real sets.

    python benchmarks/estimators_data.py FOLDER …     # once, in an environment of its own: see there
    python benchmarks/regressors.py FOLDER            # results/regressors.json

Training parts are learned from, test parts measured once, with defaults; the ridge's penalty is chosen by
cross-validation inside the training part. What draws random numbers runs with three seeds. Errors are root
mean squares in units of the test part's deviation: 1 is what its mean would get.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import console, record, show
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import RidgeCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from torchs4.estimators import S4Regressor

SETS = ["CardanoSentiment", "Covid3Month", "Tecator"]
SEEDS = (0, 1, 2)


class Rows:
    """A regressor of rows, for whom channels stand one after the other."""

    def __init__(self, regressor: Any) -> None:
        self.regressor = make_pipeline(StandardScaler(), regressor)

    def fit(self, x: Any, y: Any) -> Rows:
        self.regressor.fit(x.reshape(len(x), -1), y)
        return self

    def predict(self, x: Any) -> Any:
        return self.regressor.predict(x.reshape(len(x), -1))


METHODS: dict[str, Any] = {
    "S4": lambda seed: S4Regressor(random_state=seed, verbose=0),
    "ridge": lambda seed: Rows(RidgeCV(np.logspace(-6, 4, 21))),
    "1-NN": lambda seed: Rows(KNeighborsRegressor(1)),
    "random forest": lambda seed: Rows(RandomForestRegressor(500, random_state=seed)),
}
DRAWN = ("S4", "random forest")


def measure(method: str, data: dict[str, Any]) -> dict[str, Any]:
    errors, seconds = [], []
    for seed in SEEDS if method in DRAWN else SEEDS[:1]:
        started = time.process_time()
        fitted = METHODS[method](seed).fit(data["x_train"], data["y_train"])
        seconds.append(time.process_time() - started)
        wrong = fitted.predict(data["x_test"]) - data["y_test"]
        errors.append(float(np.sqrt(np.square(wrong).mean()) / data["y_test"].std()))
    return {
        "error": statistics.fmean(errors),
        "deviation": statistics.stdev(errors) if len(errors) > 1 else None,
        "errors": errors,
        "fit_cpu_seconds": statistics.median(seconds),
    }


def main() -> None:
    folder = Path(sys.argv[1]) / "regression"
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    for name in SETS:
        with np.load(folder / f"{name}.npz") as arrays:
            data = dict(arrays)
        measured = {method: measure(method, data) for method in METHODS}
        shape = data["x_train"].shape
        found[name] = {
            "train": shape[0],
            "test": len(data["y_test"]),
            "channels": shape[1],
            "length": shape[2],
            "measured": measured,
        }
        console.print(name, {method: round(one["error"], 3) for method, one in measured.items()})
    record("regressors", found)
    rows = [[name, *(one["measured"][m]["error"] for m in METHODS)] for name, one in found.items()]
    show("error in deviations of the test part", ["set", *METHODS], rows)


if __name__ == "__main__":
    main()
