"""Small files as people have them, written into a data folder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 20


def write_own_lines(folder: Path) -> None:
    lines = [{"text": f"{row} and on" * (1 + row % 4), "label": "ab"[row % 2]} for row in range(COUNT)]
    (folder / "texts.jsonl").write_text("\n".join(map(json.dumps, lines)))


def write_own_tokens(folder: Path) -> None:
    x = np.random.default_rng(0).integers(1, 50, (COUNT, 12))
    x[np.arange(12) > np.arange(COUNT)[:, None]] = 0
    np.savez(folder / "tokens.npz", x=x, y=np.arange(COUNT) % 3)


def write_own_table(folder: Path) -> None:
    pytest.importorskip("pyarrow", reason="tables are read with pyarrow")
    x = np.random.default_rng(0).normal(size=(COUNT, 9, 2)).round(4)
    rows = [
        f"{row},{time},{x[row, time, 0]},{x[row, time, 1]},{row % 2}"
        for time in reversed(range(9))
        for row in range(COUNT)
        if time <= row
    ]
    (folder / "table.csv").write_text("\n".join(["who,when,left,right,label", *rows]))


def write_own_recordings(folder: Path) -> None:
    soundfile = pytest.importorskip("soundfile", reason="recordings are read with soundfile")
    noise = np.random.default_rng(0).uniform(-1, 1, (COUNT, 300))
    for row, samples in enumerate(noise):
        place = folder / "recordings" / "ab"[row % 2]
        place.mkdir(parents=True, exist_ok=True)
        soundfile.write(place / f"{row}.wav", samples, 8000)
