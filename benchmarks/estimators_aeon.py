"""The part of `estimators.py` that aeon measures: MiniRocket, MultiRocket-Hydra and 1-NN with time warping.

Runs in the environment that `estimators_data.py` describes, and adds to results/estimators.json.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from aeon.classification.convolution_based import MiniRocketClassifier, MultiRocketHydraClassifier
from aeon.classification.distance_based import KNeighborsTimeSeriesClassifier

FILE = Path(__file__).parent / "results" / "estimators.json"
# Products of two samples that warping may look at; more would take many minutes.
MOST_WARPED = 1e10
WINDOW = 0.1


def classifier_of(method: str) -> Any:
    if method == "MiniRocket":
        return MiniRocketClassifier(random_state=0, n_jobs=1)
    if method == "MultiRocket-Hydra":
        return MultiRocketHydraClassifier(random_state=0, n_jobs=1)
    return KNeighborsTimeSeriesClassifier(distance="dtw", distance_params={"window": WINDOW}, n_neighbors=1)


def main() -> None:
    folder = Path(sys.argv[1])
    # Some sets, or all of them, small ones first.
    files = sorted(folder.glob("*.npz"), key=lambda path: path.stat().st_size)
    for name in sys.argv[2:] or [path.stem for path in files]:
        for method in ("MiniRocket", "MultiRocket-Hydra", "1-NN DTW"):
            found = (
                json.loads(FILE.read_text()) if FILE.is_file() else {"results": {"sets": {}, "measured": {}}}
            )
            if method in found["results"]["measured"].get(name, {}):
                continue
            with np.load(folder / f"{name}.npz") as data:
                x_train, x_test, y_train, y_test = (
                    data[key] for key in ("x_train", "x_test", "y_train", "y_test")
                )
            longest = max(x_train.shape[2], x_test.shape[2])
            cost = len(x_train) * len(x_test) * longest**2 * WINDOW * x_train.shape[1]
            if method == "1-NN DTW" and cost > MOST_WARPED:
                continue
            x_train, x_test = (
                np.pad(x, ((0, 0), (0, 0), (0, longest - x.shape[2]))).astype(np.float64)
                for x in (x_train, x_test)
            )
            classifier = classifier_of(method)
            # The first call compiles.
            few = np.concatenate([np.flatnonzero(y_train == label)[:2] for label in np.unique(y_train)[:2]])
            classifier_of(method).fit(x_train[few], y_train[few]).predict(x_train[:2])
            start = time.process_time()
            classifier.fit(x_train, y_train)
            fitted = time.process_time()
            accuracy = float((classifier.predict(x_test) == y_test).mean())
            result = {
                "accuracy": accuracy,
                "fit_cpu_seconds": fitted - start,
                "predict_cpu_seconds": time.process_time() - fitted,
                "aeon": version("aeon"),
                "numba": version("numba"),
                "python": platform.python_version(),
            }
            print(name, method, result, flush=True)
            # Somebody else may have added to it meanwhile.
            found = json.loads(FILE.read_text()) if FILE.is_file() else found
            found["results"]["measured"].setdefault(name, {})[method] = result
            FILE.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
