"""S4Regressor against ridge regression, the nearest neighbour and a random forest, on real sets.

    python benchmarks/estimators_data.py FOLDER …     # once, in an environment of its own: see there
    python benchmarks/regressors.py FOLDER            # what is missing; results/regressors.json and the page

Training parts are learned from, test parts measured once, with defaults; the ridge's penalty is chosen by
cross-validation inside the training part. What draws random numbers runs with three seeds. Errors are root
mean squares in units of the test part's deviation: 1 is what its mean would get.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import PAGES, RESULTS, record, renewed, show
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import RidgeCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from torchs4.estimators import S4Regressor
from torchs4.training.provenance import provenance

SETS = ["CardanoSentiment", "Covid3Month", "Tecator"]
SEEDS = (0, 1, 2)
FILE = RESULTS / "regressors.json"
PAGE = PAGES / "estimators.md"


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
    "S4Regressor": lambda seed: S4Regressor(random_state=seed, verbose=0),
    "its network": lambda seed: S4Regressor(kernels=False, random_state=seed, verbose=0),
    "its kernels": lambda seed: S4Regressor(kernels="only", random_state=seed, verbose=0),
    "ridge": lambda seed: Rows(RidgeCV(np.logspace(-6, 4, 21))),
    "1-NN": lambda seed: Rows(KNeighborsRegressor(1)),
    "random forest": lambda seed: Rows(RandomForestRegressor(500, random_state=seed)),
}
DRAWN = ("S4Regressor", "its network", "its kernels", "random forest")


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


def measured_before() -> dict[str, Any]:
    return json.loads(FILE.read_text(encoding="utf-8"))["results"] if FILE.is_file() else {}


def main() -> None:
    folder = Path(sys.argv[1]) / "regression"
    torch.set_num_threads(1)
    found = measured_before()
    for name in SETS:
        with np.load(folder / f"{name}.npz") as arrays:
            data = dict(arrays)
        examples, channels, length = data["x_train"].shape
        described = {"train": examples, "test": len(data["y_test"]), "channels": channels, "length": length}
        one = found.setdefault(name, {**described, "measured": {}})
        for method in METHODS:
            if method not in one["measured"]:
                one["measured"][method] = {**measure(method, data), "commit": provenance()["commit"]}
                record("regressors", found)
    header = ["set", "examples", "length", *METHODS]
    rows = [
        [name, f"{one['train']:,}", f"{one['length']:,}", *(_cell(one["measured"][m]) for m in METHODS)]
        for name, one in found.items()
    ]
    show("error in deviations of the test part", header, rows)
    PAGE.write_text(
        renewed(PAGE.read_text(encoding="utf-8"), "benchmarks/regressors.py", [header, *rows]),
        encoding="utf-8",
    )


def _cell(result: dict[str, Any]) -> str:
    spread = "" if result["deviation"] is None else f" ± {result['deviation']:.2f}"
    return f"{result['error']:.2f}{spread}"


if __name__ == "__main__":
    main()
