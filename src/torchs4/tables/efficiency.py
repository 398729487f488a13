"""Time and memory: Table 2 (against LSSL) and Table 3 (against Transformers), published and measured here."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from torchs4.tables.measurements import MARK
from torchs4.tables.sheet import Sheet

if TYPE_CHECKING:
    from collections.abc import Callable

LSSL, TRANSFORMERS = "efficiency-lssl", "efficiency-transformers"
TITLES = {
    LSSL: "One layer, forward and backward: LSSL and S4 (Table 2)",
    TRANSFORMERS: "Training speed and memory beside a Transformer's (Table 3)",
}
# Table 2: milliseconds, then megabytes, of LSSL and of S4, by width.
PUBLISHED_LSSL = {
    "128": (9.32, 4.77, 222.1, 5.3),
    "256": (20.6, 3.07, 1685.0, 12.6),
    "512": (140.7, 4.75, 13140.0, 33.5),
}
# Table 3: speed and memory relative to the Transformer's, at length 1,024, then at 4,096.
PUBLISHED_TRANSFORMERS = {
    "Transformer": ("1×", "1×", "1×", "1×"),
    "Performer": ("1.23×", "0.43×", "3.79×", "0.086×"),
    "Linear Trans.": ("1.58×", "0.37×", "5.35×", "0.067×"),
    "S4": ("1.58×", "0.43×", "5.19×", "0.091×"),
}
# The one that others are measured by: attention with its matrix written out, as when the paper was written.
YARDSTICK = "Transformer"
_NOT_MEASURED = "Not measured yet: python benchmarks/{}.py"


def lssl_sheet() -> Sheet:
    """Widths below one another."""
    header = ("width", "LSSL ms", "S4 ms", "speed", "LSSL MB", "S4 MB", "memory")
    rows = [_lssl_row(width, *numbers) for width, numbers in PUBLISHED_LSSL.items()]
    kept = _kept("efficiency_lssl")
    if kept is None:
        return Sheet(TITLES[LSSL], header, tuple(rows), 0, (_NOT_MEASURED.format("efficiency_lssl"),))
    ours = [
        _lssl_row(f"{width}{MARK}", *(cell[kind][name] for kind in ("ms", "mb") for name in ("lssl", "s4")))
        for width, cell in kept["widths"].items()
    ]
    note = (
        f"{MARK} measured here ({kept['where']}), batch {kept['batch']}, length {kept['length']:,}. LSSL has "
        f"as many states as the width, S4 half as many. Memory is how far the peak of a fresh process rises "
        f"in a step. At width 512 a quarter of LSSL's features was measured and counts four times."
    )
    return Sheet(TITLES[LSSL], header, (*rows, *ours), len(ours), (note,))


def transformers_sheet() -> Sheet:
    """Models below one another: speed and memory beside the Transformer's, at each length."""
    published = [(model, *cells) for model, cells in PUBLISHED_TRANSFORMERS.items()]
    kept = _kept("efficiency_transformers")
    lengths = ["1024", "4096"]
    if kept is not None:
        # Beside nothing there is no ratio.
        lengths = [length for length, found in kept["lengths"].items() if YARDSTICK in found["ms"]]
    header = ["model", *(f"{what} {int(length):,}" for length in lengths for what in ("speed", "memory"))]
    empty = ("",) * (len(header) - 1)
    rows = []
    for model, *cells in published:
        pairs = {"1024": cells[:2], "4096": cells[2:]}
        rows.append((model, *(cell for length in lengths for cell in pairs.get(length, ["", ""]))))
    if kept is None:
        note = _NOT_MEASURED.format("efficiency_transformers")
        return Sheet(TITLES[TRANSFORMERS], tuple(header), tuple(rows), 0, (note,))
    ours = []
    for model, parameters in kept["parameters"].items():
        cells = list(empty)
        for index, length in enumerate(lengths):
            found = kept["lengths"][length]
            for place, (kind, inverse) in enumerate((("ms", True), ("mb", False))):
                mine, other = found[kind].get(model), found[kind].get(YARDSTICK)
                if mine is not None and other is not None:
                    cells[2 * index + place] = _times(other / mine if inverse else mine / other) + MARK
        ours.append((f"{model} ({parameters / 1000:,.0f}k)", *cells))
    batches = ", ".join(f"{kept['lengths'][length]['batch']} at {int(length):,}" for length in lengths)
    note = (
        f"{MARK} measured here ({kept['where']}), batch {batches}; parameters in brackets. Speed and memory "
        f"are relative to the {YARDSTICK} whose attention matrix is written out, which is run up to "
        f"{kept['budget_mb']:,} MB; longer sequences are in the result file."
    )
    return Sheet(TITLES[TRANSFORMERS], tuple(header), (*rows, *ours), len(ours), (note,))


SHEETS: dict[str, Callable[[], Sheet]] = {LSSL: lssl_sheet, TRANSFORMERS: transformers_sheet}


def _lssl_row(width: str, lssl_ms: float, s4_ms: float, lssl_mb: float, s4_mb: float) -> tuple[str, ...]:
    return (
        width,
        _milliseconds(lssl_ms),
        _milliseconds(s4_ms),
        _times(lssl_ms / s4_ms),
        f"{lssl_mb:,.1f}",
        f"{s4_mb:,.1f}",
        _times(lssl_mb / s4_mb),
    )


def _milliseconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _times(ratio: float) -> str:
    return f"{ratio:.3g}×" if ratio < 100 else f"{ratio:,.0f}×"


def _kept(name: str) -> dict[str, Any] | None:
    """The measurements that come with the package, if any."""
    path = files("torchs4.recipes") / "measured" / f"{name}.json"
    if not path.is_file():
        return None
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return kept
