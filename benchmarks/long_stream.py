"""Whether a stream of ten million samples stays finite, right and as small as it was.

python benchmarks/long_stream.py [--millions 10]
"""

from __future__ import annotations

import argparse
import gc
import math
import re
import time
from pathlib import Path

import torch
from harness import record, show
from rich.progress import track

from torchs4 import load_model
from torchs4.inference import Stream

# One sample by itself, as a sensor sends it, then as many as a buffer holds: by turns, whatever comes.
SIZES = (1, 7, 64, 1, 300, 1000, 1, 1, 127, 8498)


def resident_mb() -> float:
    """What the process holds now."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=float, default=10)
    total = int(parser.parse_args().millions * 1e6)
    torch.set_num_threads(1)
    model = load_model("digits")
    generator = torch.Generator().manual_seed(0)
    period = torch.rand(sum(SIZES), model.config.input_features, generator=generator)
    stream, points, largest = Stream(model), [], 0.0
    start = time.perf_counter()
    rounds = total // len(period)
    for number in track(range(rounds), "samples"):
        for piece in period.split(list(SIZES)):
            largest = max(largest, float(stream.push(piece).abs().max()))
        if not math.isfinite(largest):
            raise SystemExit(f"The stream is not finite after {stream.positions:,} samples.")
        if number in (rounds // 10, rounds // 2) or number == rounds - 1:
            gc.collect()
            points.append({"samples": stream.positions, "resident_mb": resident_mb()})
    seconds = time.perf_counter() - start
    # The same samples come again and again: after some rounds the prediction hardly moves.
    exact = Stream(load_model("digits").double())
    for piece in (period[None].double().expand(20, -1, -1).flatten(0, 1)).split(100_000):
        exact.push(piece)
    error = float((stream.prediction.double() - exact.prediction).abs().max() / exact.prediction.abs().max())
    show(
        f"a stream of {stream.positions:,} samples in pieces of 1 to {max(SIZES):,}",
        ["samples", "resident MB"],
        [[f"{point['samples']:,}", point["resident_mb"]] for point in points],
    )
    record(
        "long_stream",
        {
            "model": "digits",
            "samples": stream.positions,
            "pieces": list(SIZES),
            "seconds": seconds,
            "largest_logit": largest,
            "memory": points,
            "growth_mb": points[-1]["resident_mb"] - points[0]["resident_mb"],
            "difference_to_float64_after_20_periods": error,
        },
    )


if __name__ == "__main__":
    main()
