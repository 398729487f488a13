"""S4Classifier and its two halves against 1-NN, an LSTM and a small CNN, on real sets, one at a time.

    python benchmarks/estimators_data.py FOLDER …     # once, in an environment of its own: see there
    python benchmarks/estimators.py FOLDER            # what is missing is measured; results/estimators.json
    python benchmarks/estimators_aeon.py FOLDER       # in the environment of the first: MiniRocket and others
    python benchmarks/estimators.py FOLDER --table    # mean ranks, and the table of docs/estimators.md

Training parts are learned from, test parts measured once, with the library's defaults, which were chosen by
cross-validation on training parts. "S4" is S4Classifier as it is: a network, averaged with kernels that are
not trained; "S4 network" and "S4 kernels" are each of the two alone. LSTM and CNN take S4's place in the same
network, with the same examples, augmentation, steps and optimiser; nothing was tuned for them either. Times
are seconds of CPU, on one thread.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import PAGES, RESULTS, console, record, renewed, show
from sklearn.neighbors import KNeighborsClassifier
from torch import nn

from torchs4 import LSTMConfig, register_layer
from torchs4.estimators import S4Classifier
from torchs4.estimators.defaults import usual_model
from torchs4.layers.padding import zero_padding
from torchs4.training.provenance import provenance

# Small ones first.
SETS = ["ItalyPowerDemand", "GunPoint", "Coffee", "ArrowHead", "Trace", "BasicMotions", "JapaneseVowels"]
SETS += [
    "PickupGestureWiimoteZ",
    "OSULeaf",
    "Digits8x8",
    "ACSF1",
    "PigCVP",
    "Watch",
    "PLAID",
    "SpeechCommands",
]
METHODS = ["1-NN", "S4 kernels", "S4", "S4 network", "CNN", "LSTM"]
# Long sets are where networks take minutes: what tests a claim goes first, a queue may end before the last.
LAST = [
    ("CNN", "ACSF1"),
    ("CNN", "PigCVP"),
    ("LSTM", "ACSF1"),
    ("LSTM", "PigCVP"),
    ("CNN", "PLAID"),
    ("LSTM", "PLAID"),
    ("S4 network", "PLAID"),
]
# Measured in another environment.
OTHERS = ["MiniRocket", "MultiRocket-Hydra", "1-NN DTW"]
# In the order of the page, under the names that it uses.
SHOWN = {"S4": "S4Classifier", "S4 network": "its network", "S4 kernels": "its kernels", "CNN": "CNN"}
SHOWN |= {"LSTM": "LSTM", "1-NN": "1-NN", "1-NN DTW": "1-NN DTW", "MiniRocket": "MiniRocket"}
SHOWN |= {"MultiRocket-Hydra": "MultiRocket-Hydra"}
SAID = {"all": "the {} that all of these were measured on", "long": "the {} beyond 2,000 samples"}
FILE = RESULTS / "estimators.json"
PAGE = PAGES / "estimators.md"


class Convolution(nn.Module):
    """A centred convolution over nine positions, as a layer of a block."""

    causal = False

    def __init__(self, features: int) -> None:
        super().__init__()
        self.output_features = features
        self.convolution = nn.Conv1d(features, features, 9, padding=4)

    def forward(self, x: Any, lengths: Any = None, mask: Any = None, rate: float = 1.0) -> Any:
        return self.convolution(zero_padding(x, mask).mT).mT


@register_layer("benchmark-convolution")
@dataclass(frozen=True)
class ConvolutionConfig:
    """A convolution over nine positions."""

    def build(self, features: int) -> Convolution:
        return Convolution(features)


def load(folder: Path, name: str) -> dict[str, Any]:
    with np.load(folder / f"{name}.npz") as arrays:
        data = dict(arrays)
    for part in ("train", "test"):
        pairs = zip(data[f"x_{part}"], data[f"lengths_{part}"], strict=True)
        data[f"list_{part}"] = [x[:, :length] for x, length in pairs]
    return data


def padded(data: dict[str, Any]) -> tuple[Any, Any]:
    """Both parts as flat rows of one length, for a method that knows no other."""
    longest = max(data[f"x_{part}"].shape[2] for part in ("train", "test"))
    rows = []
    for part in ("train", "test"):
        x = data[f"x_{part}"]
        rows.append(np.pad(x, ((0, 0), (0, 0), (0, longest - x.shape[2]))).reshape(len(x), -1))
    return rows[0], rows[1]


def deep(data: dict[str, Any], layer: Any = None, kernels: bool | str = "auto") -> dict[str, Any]:
    x, y = data["list_train"], data["y_train"]
    model = None
    if layer is not None:
        usual = usual_model(len(x), max(one.shape[1] for one in x))
        model = replace(usual, block=replace(usual.block, layer=layer))
    classifier = S4Classifier(model=model, kernels=kernels, random_state=0, verbose=0)
    start = time.process_time()
    classifier.fit(x, y)
    fitted = time.process_time()
    accuracy = classifier.score(data["list_test"], data["y_test"])
    size = sum(weight.numel() for member in classifier.members_ for weight in member.parameters())
    return {
        "accuracy": float(accuracy),
        "fit_cpu_seconds": fitted - start,
        "predict_cpu_seconds": time.process_time() - fitted,
        "parameters": size,
    }


def nearest(data: dict[str, Any]) -> dict[str, Any]:
    x_train, x_test = padded(data)
    start = time.process_time()
    classifier = KNeighborsClassifier(1).fit(x_train, data["y_train"])
    fitted = time.process_time()
    accuracy = classifier.score(x_test, data["y_test"])
    return {
        "accuracy": float(accuracy),
        "fit_cpu_seconds": fitted - start,
        "predict_cpu_seconds": time.process_time() - fitted,
        "parameters": int(x_train.size),
    }


def measure(method: str, data: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "S4":
            return deep(data)
        case "S4 network":
            return deep(data, kernels=False)
        case "S4 kernels":
            return deep(data, kernels="only")
        case "CNN":
            return deep(data, ConvolutionConfig())
        case "LSTM":
            return deep(data, LSTMConfig())
    return nearest(data)


def described(data: dict[str, Any]) -> dict[str, Any]:
    lengths = data["lengths_train"]
    return {
        "train": len(data["y_train"]),
        "test": len(data["y_test"]),
        "channels": int(data["x_train"].shape[1]),
        "shortest": int(lengths.min()),
        "longest": int(lengths.max()),
        "classes": len(np.unique(data["y_train"])),
    }


def results() -> dict[str, Any]:
    return json.loads(FILE.read_text())["results"] if FILE.is_file() else {"sets": {}, "measured": {}}


def ranks(measured: dict[str, Any], sets: list[str]) -> dict[str, float]:
    """Mean rank of every method that was measured on all of these sets; equal accuracies share ranks.

    S4Classifier takes one place, not three with its halves.
    """
    halves = ("S4 network", "S4 kernels")
    names = [
        m
        for m in (*METHODS, *OTHERS)
        if m not in halves and sets and all(m in measured.get(s, {}) for s in sets)
    ]
    sums = dict.fromkeys(names, 0.0)
    for one in sets:
        scores = np.array([measured[one][m]["accuracy"] for m in names])
        for m, score in zip(names, scores, strict=True):
            sums[m] += 1 + (scores > score).sum() + ((scores == score).sum() - 1) / 2
    return {m: total / max(len(sets), 1) for m, total in sums.items()}


def summarise(found: dict[str, Any]) -> dict[str, Any]:
    """Mean ranks over the sets that these methods share; others that were measured on all of them join."""
    measured, known = found["measured"], found["sets"]
    needed = ["S4", "1-NN", "CNN", "LSTM", "MiniRocket"]
    shared = [s for s in SETS if s in known and all(m in measured.get(s, {}) for m in needed)]
    long = [s for s in shared if known[s]["longest"] > 2000]
    found["mean_rank"] = {
        title: {"sets": sets, "ranks": ranks(measured, sets)}
        for title, sets in {"all": shared, "long": long}.items()
    }
    return found


def queue() -> list[tuple[str, str]]:
    """What to measure, the most wanted first."""
    usual = [(method, name) for method in METHODS for name in SETS]
    return [pair for pair in usual if pair not in LAST] + LAST


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    found = results()
    # `--only SET METHOD` measures one of them, so that a queue can decide when.
    only = sys.argv[sys.argv.index("--only") + 1 :][:2] if "--only" in sys.argv else None
    for method, name in [] if "--table" in sys.argv else queue():
        if method in found["measured"].get(name, {}) or (only and only != [name, method]):
            continue
        data = load(folder, name)
        result = {**measure(method, data), "commit": provenance()["commit"]}
        # Somebody else may have added to it meanwhile.
        found = results()
        found["sets"][name] = described(data)
        found["measured"].setdefault(name, {})[method] = result
        record("estimators", summarise(found))
        console.print(f"{name} {method} {result}")
    found = summarise(results())
    record("estimators", found)
    header, *rows = table(found)
    show("Test accuracy in %", header, rows)
    page = renewed(PAGE.read_text(encoding="utf-8"), "benchmarks/estimators.py", [header, *rows])
    PAGE.write_text(page, encoding="utf-8")


def table(found: dict[str, Any]) -> list[list[str]]:
    """A row for each set, one for the time that a fit takes, and one for each group's mean ranks."""
    measured, known = found["measured"], found["sets"]
    sets = [s for s in SETS if s in measured and s in known]
    columns = [m for m in SHOWN if any(m in measured[s] for s in sets)]
    lines = [["set", "examples", "length", *(SHOWN[m] for m in columns)]]
    for s in sets:
        best = max(round(1000 * one["accuracy"]) for one in measured[s].values())
        cells = []
        for m in columns:
            share = measured[s][m]["accuracy"] if m in measured[s] else None
            cell = "" if share is None else f"{100 * share:.1f}"
            cells.append(f"**{cell}**" if share is not None and round(1000 * share) == best else cell)
        lines.append([s, f"{known[s]['train']:,}", f"{known[s]['longest']:,}", *cells])
    seconds = ["seconds of a fit, median of what is there", "", ""]
    for m in columns:
        times = [measured[s][m]["fit_cpu_seconds"] for s in sets if m in measured[s]]
        seconds.append(f"{statistics.median(times):.1f}" if len(times) else "")
    lines.append(seconds)
    for title, group in found["mean_rank"].items():
        if group["sets"]:
            ranked = (f"{group['ranks'][m]:.2f}" if m in group["ranks"] else "" for m in columns)
            lines.append([f"mean rank, {SAID[title].format(len(group['sets']))}", "", "", *ranked])
    return lines


if __name__ == "__main__":
    main()
