"""The implementation for any device on this CPU, beside the compiled one and the plain one.

    python benchmarks/portable_speed.py

Forward and backward, 256 features of 64 states, single precision, one thread, in time of the processor: what
else the machine does takes none of it. With --compiled also a whole block through torch.compile,
which takes minutes to compile. No accelerator was measured.

Beside the times of a chunk pass stands what it could take at least: the arithmetic of its products over what
this processor does in one large product, which nothing made of products can beat.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from harness import interleave, record, show
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from torchs4 import S4, S4D, S4Block, S4Config, ops
from torchs4.ops import portable, reference

if TYPE_CHECKING:
    from collections.abc import Callable

# PyTorch's counter does not know the one that adds up in place.
flop_registry[torch.ops.aten.baddbmm_] = flop_registry[torch.ops.aten.baddbmm]
timed = partial(interleave, clock=time.process_time)
FEATURES, STATE_SIZE, BLOCK = 256, 64, 64
IMPLEMENTATIONS = ("cpu", "portable", "reference")


def under(name: Any, run: Callable[[], Any]) -> Callable[[], Any]:
    def chosen() -> Any:
        ops.set_implementation(name)
        return run()

    return chosen


def kernel_step(layer: Any, length: int) -> None:
    kernel = layer._kernel(length, 1.0)
    torch.autograd.grad(kernel, list(layer.ssm_parameters().values()), torch.ones_like(kernel))


def chunk_step(layer: Any, u: torch.Tensor) -> None:
    operators = layer.chunk_operators(BLOCK, 1.0)
    operators = ops.ChunkOperators(*(x.detach().requires_grad_() for x in operators))
    y, _ = ops.chunk_pass(operators, layer.D, u, layer.initial_state(len(u)))
    torch.autograd.grad(y, list(operators), torch.ones_like(y))


def convolution_step(u: torch.Tensor, kernel: torch.Tensor) -> None:
    y = ops.long_convolution(u, kernel)
    torch.autograd.grad(y, [u, kernel], torch.ones_like(y))


def block_step(block: Callable[[Any], Any], parameters: list[torch.Tensor], x: torch.Tensor) -> None:
    y = block(x)
    torch.autograd.grad(y, parameters, torch.ones_like(y))


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    s4, s4d = S4(FEATURES, state_size=STATE_SIZE), S4D(FEATURES, state_size=STATE_SIZE)
    runs: dict[str, Callable[[], Any]] = {}
    for length in (1024, 16384):
        runs[f"S4 kernel/L{length}"] = partial(kernel_step, s4, length)
        runs[f"S4D kernel/L{length}"] = partial(kernel_step, s4d, length)
    runs["chunk pass/B2/L16384"] = partial(chunk_step, s4, torch.randn(2, 16384, FEATURES))
    u = torch.randn(4, 4096, FEATURES, requires_grad=True)
    runs["convolution/B4/L4096"] = partial(
        convolution_step, u, torch.randn(1, FEATURES, 4096).requires_grad_()
    )
    results: dict[str, Any] = {"processor": processor()}
    rows = []
    for name, run in runs.items():
        times = timed({which: under(which, run) for which in IMPLEMENTATIONS}, repeats=3)
        portable = times["portable"]["median_ms"]
        ratios = {which: times[which]["median_ms"] / portable for which in ("cpu", "reference")}
        results[name] = {
            **times,
            "cpu_over_portable": ratios["cpu"],
            "reference_over_portable": ratios["reference"],
        }
        if name.startswith("chunk pass"):
            results[name]["bounds"] = chunk_bounds(s4, times, results["processor"])
        rows.append(
            [
                name,
                *(times[which]["median_ms"] for which in IMPLEMENTATIONS),
                1 / ratios["cpu"],
                ratios["reference"],
            ]
        )
        print(rows[-1], flush=True)
        record("portable_speed", results)
    if "--compiled" in sys.argv:
        results.update(compiled_block())
    columns = ["what", "cpu ms", "portable ms", "reference ms", "portable / cpu", "reference / portable"]
    show("forward + backward, H 256, N 64, float32", columns, rows)
    record("portable_speed", results)


def processor() -> dict[str, float]:
    """What one thread can do: products in Gflop/s, copies in GB/s of reading and writing."""
    square, half = torch.randn(2048, 2048), torch.empty(2**26)
    many, each = torch.randn(FEATURES, 512, BLOCK), torch.randn(FEATURES, BLOCK, STATE_SIZE)
    runs = {
        "one large product": (lambda: square @ square, 2 * 2048**3 / 1e9),
        "products of a chunk pass": (lambda: many @ each, 2 * many.numel() * STATE_SIZE / 1e9),
        "copy": (lambda: half[: 2**25].copy_(half[2**25 :]), 2 * 2**25 * 4 / 1e9),
    }
    times = timed({name: run for name, (run, _) in runs.items()}, repeats=7)
    return {name: 1e3 * work / times[name]["min_ms"] for name, (_, work) in runs.items()}


def chunk_bounds(layer: Any, times: dict[str, Any], processor: dict[str, float]) -> dict[str, Any]:
    """The arithmetic of both plain passes, and whether a tenth of the reference's time could be reached."""
    with torch.no_grad():
        operators = layer.chunk_operators(BLOCK, 1.0)
    inputs = [*operators, layer.D, torch.empty(2, 16384, FEATURES), layer.initial_state(2)]
    inputs = [x.detach().to("meta").requires_grad_() for x in inputs]
    gflop = {}
    with FlopCounterMode(display=False) as count, torch.no_grad():
        outputs = portable.chunk_pass(*inputs)
        portable.chunk_pass_backward(*outputs, *inputs)
    gflop["portable"] = count.get_total_flops() / 1e9
    with FlopCounterMode(display=False) as count:
        # Forward, and forward again before going backward.
        reference.chunk_pass(*inputs)
        outputs = reference.chunk_pass(*inputs)
        torch.autograd.grad(outputs, inputs, [torch.ones_like(y) for y in outputs])
    gflop["reference"] = count.get_total_flops() / 1e9
    peak, tenth = processor["one large product"], times["reference"]["median_ms"] / 10
    return {
        "gflop": gflop,
        "least_ms": {name: 1e3 * work / peak for name, work in gflop.items()},
        "share_of_peak": {
            name: work / peak / (times[name]["median_ms"] / 1e3) for name, work in gflop.items()
        },
        "a_tenth_of_reference_ms": tenth,
        "gflop_per_second_for_a_tenth": 1e3 * gflop["portable"] / tenth,
    }


def compiled_block() -> dict[str, Any]:
    block, x = S4Block(FEATURES, layer=S4Config(state_size=STATE_SIZE)), torch.randn(8, 1024, FEATURES)
    ops.set_implementation("portable")
    compiled = torch.compile(block, fullgraph=True, dynamic=True)
    parameters = list(block.parameters())
    candidates = {
        "cpu": under("cpu", partial(block_step, block, parameters, x)),
        "portable": under("portable", partial(block_step, block, parameters, x)),
        "portable, compiled": under("portable", partial(block_step, compiled, parameters, x)),
    }
    times = timed(candidates, repeats=7)
    error = (compiled(x) - block(x)).abs().max().item()
    print(times, error)
    return {"block/B8/L1024": {**times, "compiled_differs_by": error}}


if __name__ == "__main__":
    main()
