"""How fast models write: images per second (Table 7) and words per second (Table 8), published and here."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from torchs4.tables.measurements import MARK
from torchs4.tables.sheet import Sheet

NAME = "generation"
TITLE = "Generation speed: images and words per second (Tables 7 and 8)"
# On one A100, as large a batch as its memory holds.
PUBLISHED = {
    "Transformer": ("0.32 (1×)", "800 (1×)"),
    "Linear Transformer": ("17.85 (56×)", "-"),
    "PixelCNN++": ("19.19 (59.97×)", "-"),
    "Image Transformer": ("0.54 (1.7×)", "-"),
    "PixelSNAIL": ("0.13 (0.4×)", "-"),
    "S4, base": ("20.84 (65.1×)", "48,000 (60×)"),
    "S4, large": ("3.36 (10.5×)", "-"),
}
# Whose speed the others are measured by: the faster one.
YARDSTICKS = ("Transformer", "GPT-2")
_MEASURED = "generation_speed.json"


def generation_sheet() -> Sheet:
    """Models below one another; what was measured here, at texts of each length."""
    kept = _kept()
    contexts = {} if kept is None else kept["contexts"]
    header = ("model", "images / s", "words / s", *(f"words / s, {int(c):,}" for c in contexts))
    rows = [(model, *cells, *[""] * len(contexts)) for model, cells in PUBLISHED.items()]
    if kept is None:
        note = "Not measured yet: python benchmarks/generation_speed.py"
        return Sheet(TITLE, header, tuple(rows), 0, (note,))
    ours = []
    for model, parameters in kept["parameters"].items():
        cells = [_beside(kept["images"], model), ""]
        for part in contexts.values():
            speeds = {name: cell["words_per_second"] for name, cell in part["models"].items()}
            cells.append(_beside(speeds, model))
        ours.append((f"{model} ({parameters / 1e6:,.0f}M){MARK}", *cells))
    bounds = [
        f"{part['models']['S4']['words_per_second'] / part['transformer_bound']:.3g}× at {int(context):,}"
        for context, part in contexts.items()
        if "S4" in part["models"]
    ]
    note = (
        f"{MARK} measured here ({kept['where']}), memory of the past up to {kept['budget_gb']:g} GB, batches "
        f"up to {kept['largest_batch']}, while texts of so many words are written; published rows on an "
        f"A100. "
        f"Ratios are to the faster of {' and '.join(YARDSTICKS)}. If a Transformer did nothing but read its "
        f"keys and values, at {kept['gigabytes_per_second']:.3g} GB/s, S4 would still write "
        f"{', '.join(bounds)} as fast. If S4 did nothing but multiply by its weights, at "
        f"{kept['gigaflops']:.3g} Gflop/s, it would write {kept['s4_bound']:,.0f} words a second."
    )
    return Sheet(TITLE, header, (*rows, *ours), len(ours), (note,))


def _beside(speeds: dict[str, float], model: str) -> str:
    if model not in speeds:
        return ""
    yardstick = max((speeds[name] for name in YARDSTICKS if name in speeds), default=None)
    speed = f"{speeds[model]:,.3g}" if speeds[model] < 100 else f"{speeds[model]:,.0f}"
    return speed if yardstick is None else f"{speed} ({speeds[model] / yardstick:.3g}×)"


def _kept() -> dict[str, Any] | None:
    path = files("torchs4.recipes") / "measured" / _MEASURED
    if not path.is_file():
        return None
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return kept
