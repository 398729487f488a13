"""Table 2: one layer forward and backward, LSSL with as many states as the width, S4 with half as many.

    python benchmarks/efficiency_lssl.py --memory     # a fresh process for each cell
    python benchmarks/efficiency_lssl.py --speed      # interleaved; wants an idle machine
    python benchmarks/efficiency_lssl.py              # what is missing of both, then the results

So they have about as many parameters, as in the paper. LSSL is the library's own: its kernel by products of
blocks of powers, without the whole Krylov matrix. At width 512 it would need 10 GB, so a quarter of its
features is measured, with 512 states each, and counts four times: its work is done feature by feature.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from harness import THREADS, Pieces, interleave, keep_for_tables, peak_memory_mb, record, show

from torchs4 import LSSL, S4

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

BATCH, LENGTH = 1, 1024
# Width, how often, and which part of LSSL's features is measured.
SIZES = ((128, 5, 1), (256, 3, 1), (512, 1, 4))


def layer(name: str, width: int, part: int = 1) -> nn.Module:
    return LSSL(width // part, state_size=width) if name == "lssl" else S4(width, state_size=width // 2)


def training_step(module: Any, length: int = LENGTH) -> Callable[[], None]:
    x = torch.randn(BATCH, length, module.features)

    def run() -> None:
        module.zero_grad()
        module(x).square().mean().backward()

    return run


def memory(name: str, width: int, part: int) -> float:
    """How far the peak of a fresh process rises in a step, above what a tiny layer's step needs."""
    return (part if name == "lssl" else 1) * peak_memory_mb(
        f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
from efficiency_lssl import layer, training_step
training_step(layer({name!r}, 8), 64)()
module = layer({name!r}, {width}, {part})
ready = peak()
training_step(module)()
"""
    )


def times(width: int, repeats: int, part: int) -> dict[str, dict[str, float]]:
    steps = {name: training_step(layer(name, width, part)) for name in ("lssl", "s4")}
    if repeats > 1:
        found = interleave(steps, repeats=repeats)
    else:
        # A minute a step: once, with S4's steps behind it.
        found = interleave({"lssl": steps["lssl"]}, repeats=1, warmup=0)
        found |= interleave({"s4": steps["s4"]}, repeats=5)
    for key in ("median_ms", "min_ms", "max_ms"):
        found["lssl"][key] *= part
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--memory", action="store_true", help="only this, no result file")
    parser.add_argument("--speed", action="store_true", help="only this, no result file")
    chosen = parser.parse_args()
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    pieces = Pieces("efficiency_lssl")
    widths: dict[str, Any] = {}
    for width, repeats, part in SIZES:
        found: dict[str, Any] = {}
        if not chosen.speed:
            found["mb"] = {
                name: pieces.measure(f"mb/{width}/{name}", lambda n=name, w=width, p=part: memory(n, w, p))
                for name in ("lssl", "s4")
            }
        if not chosen.memory:
            found["times"] = pieces.measure(f"ms/{width}", lambda w=width, r=repeats, p=part: times(w, r, p))
            found["ms"] = {name: time["median_ms"] for name, time in found["times"].items()}
        widths[str(width)] = found
    if chosen.memory or chosen.speed:
        return
    parameters = {
        width: {name: sum(p.numel() for p in layer(name, int(width)).parameters()) for name in ("lssl", "s4")}
        for width in widths
    }
    claims = {
        f"S4 at width {width}": {
            "times as fast": one["ms"]["lssl"] / one["ms"]["s4"],
            "times less memory": one["mb"]["lssl"] / one["mb"]["s4"],
        }
        for width, one in widths.items()
    }
    about = {"batch": BATCH, "length": LENGTH}
    path = record(
        "efficiency_lssl",
        {**about, "pieces": pieces.about, "widths": widths, "parameters": parameters, "claims": claims},
    )
    short = {width: {kind: one[kind] for kind in ("ms", "mb")} for width, one in widths.items()}
    keep_for_tables("efficiency_lssl", path, {**about, "widths": short})
    rows = [
        [width, *(one[kind][name] for kind in ("ms", "mb") for name in ("lssl", "s4"))]
        for width, one in widths.items()
    ]
    show("one layer", ["width", "LSSL ms", "S4 ms", "LSSL MB", "S4 MB"], rows)
    for claim, value in claims.items():
        print(claim, {name: round(ratio, 1) for name, ratio in value.items()})


if __name__ == "__main__":
    main()
