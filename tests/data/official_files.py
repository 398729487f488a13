"""Small files in the formats in which the datasets are published, written to where their readers look."""

from __future__ import annotations

import gzip
import io
import struct
import wave
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pytest

from torchs4.data.speech_commands import SC10_WORDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

MNIST_TRAIN_COUNT, MNIST_TEST_COUNT = 20, 6
MNIST_FILES = [
    f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
]

CIFAR_FILES = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
CIFAR_PER_FILE = 4

# The vocabulary at min_count 2 is "a", "b", "é", numbered from 3 in the order of code points.
TRAIN_REVIEWS = {"neg": ["ab", "bé", "x"], "pos": ["aab", "éa", "b", "a😀"]}
TEST_REVIEWS = {"neg": ["zzzz", ""], "pos": ["abé"]}

# Characters that occur twice in training: b ' x y, and in the order of code points ' b x y.
PAIRS = {
    "train": [("1.0", "b'xy'", "b'yx'"), ("0.0", "b'x'", "b'q'"), ("1", "b''", "b'y'")],
    "eval": [("0.0", "b'xyz'", "b'x'")],
    "test": [("1.0", "b'y'", "b'xyxyxy'"), ("0", "b'x'", "b'y'")],
}

EXPRESSIONS = {
    "train": [("[MAX 2 [MIN 4 7 ] 0 ]", 4), ("[SM 9 [MED 1 2 8 ] 3 ]", 4), ("[MED 3 4 ]", 3)],
    "val": [("[MIN 5 6 ]", 5)],
    "test": [("[MAX 1 9 ]", 9), ("[SM 5 5 ]", 0)],
}

# In the order of their files; two are on the lists.
SPEAKERS = ("a0", "b1", "c2", "d3")
VALIDATION_SPEAKER, TEST_SPEAKER = "b1", "c2"

# 20 months of 30 days, and some hours that the benchmark leaves out.
ETT_COLUMNS = ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")
ETT_ROWS = 20 * 30 * 24 + 5

# Tabs are in the test text alone.
WIKITEXT = {
    "train": " \n = Lobsters = \n \n A lobster is <unk> , they say . \n It has ten legs . \n",
    "valid": " \n = Crabs = \n \n A crab has ten legs too . \n",
    "test": " \n = Prawns = \n \n So has a prawn .\t It swims . \n",
}

# Both are found among copies of the Long Range Arena.
LRA_FOLDERS = ("lra_release", "lra_release/lra_release")


def idx_bytes(numbers: np.ndarray) -> bytes:
    return (
        bytes([0, 0, 8, numbers.ndim]) + struct.pack(f">{numbers.ndim}I", *numbers.shape) + numbers.tobytes()
    )


def mnist_pictures(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 28, 28), dtype=np.uint8)


def write_mnist(folder: Path, packed: bool = True) -> None:
    (folder / "mnist").mkdir(parents=True)
    arrays = [
        mnist_pictures(MNIST_TRAIN_COUNT, 1),
        np.arange(MNIST_TRAIN_COUNT, dtype=np.uint8) % 10,
        mnist_pictures(MNIST_TEST_COUNT, 2),
        np.arange(MNIST_TEST_COUNT, dtype=np.uint8),
    ]
    for name, numbers in zip(MNIST_FILES, arrays, strict=True):
        content = idx_bytes(numbers)
        path = folder / "mnist" / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(content) if packed else content)


def cifar_records(number: int) -> np.ndarray:
    numbers = np.random.default_rng(number).integers(0, 256, (CIFAR_PER_FILE, 3073), dtype=np.uint8)
    numbers[:, 0] %= 10
    return numbers


def write_cifar(folder: Path) -> None:
    (folder / "cifar-10-batches-bin").mkdir(parents=True)
    for number, name in enumerate(CIFAR_FILES):
        cifar_records(number).tofile(folder / "cifar-10-batches-bin" / name)


def write_reviews(
    folder: Path,
    train: Mapping[str, Sequence[str]] = TRAIN_REVIEWS,
    test: Mapping[str, Sequence[str]] = TEST_REVIEWS,
) -> None:
    for part, sides in (("train", train), ("test", test)):
        for side, texts in sides.items():
            place = folder / "aclImdb" / part / side
            place.mkdir(parents=True)
            for number, text in enumerate(texts):
                (place / f"{number}_{9 if side == 'pos' else 2}.txt").write_bytes(text.encode())


def write_pairs(
    folder: Path,
    pairs: Mapping[str, Sequence[tuple[str, str, str]]] = PAIRS,
    release: str = LRA_FOLDERS[0],
) -> Path:
    place = folder / release / "tsv_data"
    place.mkdir(parents=True)
    for part, rows in pairs.items():
        lines = [f"{label}\tP01-{n}\tP02-{n}\t{one}\t{two}\n" for n, (label, one, two) in enumerate(rows)]
        (place / f"new_aan_pairs.{part}.tsv").write_text("".join(lines), encoding="utf-8")
    return place


def write_expressions(
    folder: Path,
    expressions: Mapping[str, Sequence[tuple[str, int]]] = EXPRESSIONS,
    release: str = LRA_FOLDERS[0],
) -> Path:
    place = folder / release / "listops-1000"
    place.mkdir(parents=True)
    for name, lines in expressions.items():
        rows = "".join(f"{_parenthesised(source.split())}\t{target}\n" for source, target in lines)
        (place / f"basic_{name}.tsv").write_text("Source\tTarget\n" + rows)
    return place


def _parenthesised(words: Sequence[str]) -> str:
    """An expression as the release writes it: every argument wrapped in one more pair of parentheses."""
    position = 0

    def node() -> str:
        nonlocal position
        word = words[position]
        position += 1
        if not word.startswith("["):
            return word
        text = word
        while words[position] != "]":
            text = f"( {text} {node()} )"
        position += 1
        return f"( {text} ] )"

    return node()


def png(pixels: np.ndarray) -> bytes:
    Image = pytest.importorskip("PIL.Image", reason="official pictures are read with pillow")
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def pathfinder_pixels(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (32, 32), dtype=np.uint8)


def write_pathfinder(
    folder: Path, release: str = LRA_FOLDERS[0], level: str = "curv_contour_length_14"
) -> Path:
    """Lists 2 and 10, in which numeric and alphabetic order differ, of 10 pictures each."""
    root = folder / release / "pathfinder32" / level
    (root / "metadata").mkdir(parents=True)
    for position, part in enumerate((2, 10)):
        (root / "imgs" / str(part)).mkdir(parents=True)
        lines = []
        for number in range(10):
            total = 10 * position + number
            (root / f"imgs/{part}/sample_{number}.png").write_bytes(png(pathfinder_pixels(total)))
            lines.append(
                f"imgs/{part} sample_{number}.png {number} {int(total % 3 == 0)} 1.0 14 4 2 0.5 1 1\n"
            )
        (root / "metadata" / f"{part}.npy").write_text("".join(lines))
    return root


def write_wav(
    path: Path, samples: np.ndarray, *, channels: int = 1, width: int = 2, rate: int = 16_000
) -> None:
    with wave.open(str(path), "wb") as recording:
        recording.setnchannels(channels)
        recording.setsampwidth(width)
        recording.setframerate(rate)
        recording.writeframes(samples.astype("<i2").tobytes())


def noise(number: int) -> np.ndarray:
    """One second whose first three samples tell the clip's number, whatever was subtracted and divided."""
    samples = np.random.default_rng(number).integers(-3000, 5000, 16_000)
    samples[:3] = number * 100, 0, 10_000
    return samples


def write_recordings(folder: Path) -> Path:
    """Ten words by four speakers, numbered 0 to 39 in the order of the words; clip 4·w + s."""
    root = folder / "SpeechCommands" / "speech_commands_v0.02"
    lists: dict[str, list[str]] = {speaker: [f"bird/{speaker}_nohash_0.wav"] for speaker in SPEAKERS}
    for label, word in enumerate(SC10_WORDS):
        (root / word).mkdir(parents=True)
        for place, speaker in enumerate(SPEAKERS):
            write_wav(root / word / f"{speaker}_nohash_0.wav", noise(4 * label + place))
            lists[speaker].append(f"{word}/{speaker}_nohash_0.wav")
    (root / "validation_list.txt").write_text("\n".join(lists[VALIDATION_SPEAKER]) + "\n")
    (root / "testing_list.txt").write_text("\n".join(lists[TEST_SPEAKER]) + "\n")
    return root


def ett_values(rows: int = ETT_ROWS) -> np.ndarray:
    return np.random.default_rng(3).normal(20, 5, (rows, len(ETT_COLUMNS))).round(3)


def write_ett(folder: Path, name: str = "ETTh1", rows: int = ETT_ROWS) -> Path:
    minutes = 15 if "m" in name else 60
    times = np.datetime64("2016-07-01T00:00:00") + np.arange(rows) * np.timedelta64(minutes, "m")
    path = folder / "ETT-small" / f"{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        f"{str(time).replace('T', ' ')},{','.join(map(str, values))}\n"
        for time, values in zip(times, ett_values(rows), strict=True)
    ]
    path.write_text(f"date,{','.join(ETT_COLUMNS)}\n" + "".join(lines))
    return path


WEATHER_ROWS = 30 * 24


def write_weather(folder: Path, rows: int = WEATHER_ROWS) -> Path:
    """The file of the Informer benchmark, whose months come before its days."""
    hours = [datetime(2010, 1, 1) + timedelta(hours=row) for row in range(rows)]
    values = np.random.default_rng(5).normal(0, 3, (rows, 3)).round(1)
    lines = [
        f"{hour.month}/{hour.day}/{hour.year} {hour.hour}:00,{','.join(map(str, row))}\n"
        for hour, row in zip(hours, values, strict=True)
    ]
    path = folder / "WTH.csv"
    path.write_text("date,Visibility,DryBulbFarenheit,WetBulbCelsius\n" + "".join(lines))
    return path


def write_electricity(folder: Path, rows: int = 500) -> Path:
    """The file of the Informer benchmark with three of its clients."""
    hours = [datetime(2012, 1, 1) + timedelta(hours=row) for row in range(rows)]
    values = np.random.default_rng(6).normal(900, 80, (rows, 3)).round()
    lines = [f"{hour},{','.join(map(str, row))}\n" for hour, row in zip(hours, values, strict=True)]
    path = folder / "ECL.csv"
    path.write_text("date,MT_000,MT_320,MT_001\n" + "".join(lines))
    return path


def write_series(folder: Path) -> Path:
    """A table of somebody's own: 100 quarters of an hour."""
    pytest.importorskip("pyarrow", reason="tables are read with pyarrow")
    values = np.random.default_rng(4).normal((5, 80), (2, 9), (100, 2)).round(2)
    times = np.datetime64("2024-02-28T12:00:00") + np.arange(100) * np.timedelta64(15, "m")
    lines = [f"{time},{load},{price}\n" for time, (load, price) in zip(times, values, strict=True)]
    path = folder / "series.csv"
    path.write_text("time,load,price\n" + "".join(lines))
    return path


def write_text(folder: Path) -> Path:
    """A folder of somebody's own texts, of random letters."""
    letters = np.random.default_rng(5).choice(list("abcdefgh ,é\n"), (2, 300))
    place = folder / "texts"
    place.mkdir(parents=True)
    for name, text in zip(("a.txt", "b.txt"), letters, strict=True):
        (place / name).write_bytes("".join(text).encode())
    return place


def write_wikitext(folder: Path, texts: Mapping[str, str] = WIKITEXT, release: str = "wikitext-2") -> Path:
    place = folder / release
    place.mkdir(parents=True)
    for part, text in texts.items():
        (place / f"wiki.{part}.tokens").write_bytes(text.encode())
    return place
