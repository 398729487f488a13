"""What the operators ask of a device: arithmetic and bytes, and what four devices need at least for them.

    python benchmarks/device_roofline.py

Counted on tensors without data, operation by operation: PyTorch's counter for products, 5 N log₂ N for
transforms, one for every number that another operation gives; every operation reads its inputs and writes
its outputs. A bound is the larger of arithmetic over the peak in float32 and bytes over bandwidth, as data
sheets state them. No device was measured: real times are longer, by launches among other things.

For streaming, what a step of a layer moves and launches, beside the least that a kernel of one's own could
do: every number read or written once, and two launches, because norm and mixing each need all features of
what comes before them. How long a launch takes is no data-sheet number; the table takes what is given as
LAUNCH_MICROSECONDS, for single operations and for those of a recorded CUDA graph.

Beside them the kernel as public code has it: its Cauchy sums as one tensor, and fused, which reads and writes
only the sums' inputs and outputs.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import torch
from device_sizes import SIZES, Size
from harness import record, show
from naive import naive_dplr_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from torchs4.ops import portable

modal_kernel = import_module("torchs4.ops.portable.modal_kernel")

# PyTorch's counter does not know the one that adds up in place.
flop_registry[torch.ops.aten.baddbmm_] = flop_registry[torch.ops.aten.baddbmm]
# Peak of float32 without tensor cores in Tflop/s, bandwidth in GB/s; data sheets.
DEVICES = {
    "A100 80 GB": (19.5, 2039),
    "H100 SXM": (67.0, 3350),
    "RTX 4090": (82.6, 1008),
    "Apple M3, 10 cores": (3.5, 100),
}
# Assumed, not measured: as people report them for the host's launches, and for the nodes of a graph.
LAUNCH_MICROSECONDS = {"launched one by one": 5.0, "in a CUDA graph": 1.0}
# Per mode and frequency: a reciprocal, and four complex products that are added up. Backward twice that.
FUSED_CAUCHY_FLOPS = 42


class Count(TorchDispatchMode):
    """Arithmetic, bytes and operations of what runs inside."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = self.bytes = self.launches = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        outputs = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
        inputs = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        if function.is_view or not outputs:
            return result
        self.launches += 1
        self.bytes += sum(x.numel() * x.itemsize for x in (*inputs, *outputs))
        packet = function.overloadpacket
        if packet in flop_registry:
            self.flops += flop_registry[packet](*args, **(kwargs or {}), out_val=result)
        elif "fft" in str(packet):
            numbers = max(x.numel() for x in (*inputs, *outputs))
            self.flops += int(
                2.5 * numbers * math.log2(max(max(x.shape[-1] for x in (*inputs, *outputs)), 2))
            )
        else:
            self.flops += sum(x.numel() * (4 if x.is_complex() else 1) for x in outputs)
        return result


def main() -> None:
    results: dict[str, Any] = {}
    for name, size in SIZES.items():
        counts = {
            "kernel": count_kernel(size),
            "convolution": count_convolution(size),
            "kernel, Cauchy sums as one tensor": count_materialised(size),
            "kernel, Cauchy sums fused": count_fused(size),
            "one block's elementwise passes, fused by a compiler": count_passes(size),
            "one streamed step of a layer": count_step(size),
            "one streamed step of a layer, at least": count_least_step(size),
        }
        for count in counts.values():
            count["bound_ms"] = {
                device: 1e3 * max(count["flops"] / (tera * 1e12), count["bytes"] / (giga * 1e9))
                for device, (tera, giga) in DEVICES.items()
            }
        results[name] = {**size._asdict(), "per_layer": counts, "streaming_us": streaming(size, counts)}
        rows = [
            [what, c["flops"] / 1e9, c["bytes"] / 1e9, c["launches"], *c["bound_ms"].values()]
            for what, c in counts.items()
        ]
        columns = ["forward and backward of one layer", "Gflop", "GB", "operations", *DEVICES]
        show(f"{name}: milliseconds at least, none measured", columns, rows)
        print(name, "streaming, microseconds", results[name]["streaming_us"])
    record("device_roofline", results)


def streaming(size: Size, counts: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Microseconds that all layers of a step take on an A100: bytes or launches, whichever takes longer."""
    steps = {"as it is": counts["one streamed step of a layer"]}
    steps["in Triton, at best"] = counts["one streamed step of a layer, at least"]
    return {
        what: {
            name: size.layers * max(1e3 * count["bound_ms"]["A100 80 GB"], cost * count["launches"])
            for name, count in steps.items()
        }
        for what, cost in LAUNCH_MICROSECONDS.items()
    }


def _counted(count: Count) -> dict[str, Any]:
    return {"flops": count.flops, "bytes": count.bytes, "launches": count.launches}


def count_kernel(size: Size) -> dict[str, Any]:
    H, n, M = size.features, size.state_size // 2, 2 if size.bidirectional else 1
    with torch.device("meta"), Count() as count:
        A, B = (torch.empty(H, n, 2, requires_grad=True) for _ in range(2))
        P, dt = torch.empty(1, H, n, 2, requires_grad=True), torch.empty(H, requires_grad=True)
        C = torch.empty(M, H, n, 2)
        system = portable.bilinear(A, P, P, B, dt)
        kernel = modal_kernel.plain_kernel(*(x.detach() for x in system), C, size.length)
        grads = modal_kernel._kernel_backward._init_fn(kernel, *(x.detach() for x in system), C)
        # What rounding left out of an angle is a constant.
        differentiable = [x for x in system if x is not system.turns_rest]
        torch.autograd.backward(differentiable, grads[:-1])
    return _counted(count)


def count_convolution(size: Size) -> dict[str, Any]:
    with torch.device("meta"), Count() as count:
        u, kernel = (
            torch.empty(size.batch, size.length, size.features),
            torch.empty(1, size.features, size.length),
        )
        other, skip = (kernel if size.bidirectional else None), torch.empty(1, size.features)
        y = portable.long_convolution(u, kernel, other, skip)
        portable.long_convolution_backward(y, u, kernel, other, skip)
    return _counted(count)


def count_materialised(size: Size) -> dict[str, Any]:
    H, n, M = size.features, size.state_size // 2, 2 if size.bidirectional else 1
    with torch.device("meta"), Count() as count:
        A, P, B = (torch.empty(n, dtype=torch.complex64, requires_grad=True) for _ in range(3))
        C = torch.empty(H, n, dtype=torch.complex64, requires_grad=True)
        dt = torch.empty(H, requires_grad=True)
        for _ in range(M):
            naive_dplr_kernel(A, P, B, C, dt, size.length).sum().backward()
    return _counted(count)


def count_fused(size: Size) -> dict[str, Any]:
    H, n, M, nodes = size.features, size.state_size // 2, 2 if size.bidirectional else 1, size.length // 2 + 1
    flops = 3 * M * FUSED_CAUCHY_FLOPS * H * n * nodes
    # Four complex sums at every node are written, read for the kernel, and their gradients likewise.
    return {"flops": flops, "bytes": 4 * M * 4 * 8 * H * nodes, "launches": 4 * M}


def count_passes(size: Size) -> dict[str, Any]:
    """Norm, GELU, bias, gates and residual: each reads and writes an activation once, both ways."""
    numbers = size.batch * size.length * size.features
    # Forward: norm 2, GELU 2, gates 2 + 1 + 1. Backward: gates 2 + 1 + 2, GELU 3, norm 3.
    return {"flops": 60 * numbers, "bytes": 4 * 19 * numbers, "launches": 6}


def count_step(size: Size) -> dict[str, Any]:
    H, N = size.features, size.state_size
    with torch.device("meta"), Count() as count:
        state, u = torch.empty(1, H, N), torch.empty(1, H)
        a, row = torch.empty(H, N // 2, 2), torch.empty(1, H, N)
        y, _ = portable.modal_step(a, row, row, row[0], row, torch.empty(1, H), u, state)
        mixed = torch.nn.functional.linear(torch.nn.functional.gelu(y.flatten(1)), torch.empty(2 * H, H))
        portable.gated_residual(mixed, torch.empty(2 * H), u)
    return _counted(count)


def count_least_step(size: Size) -> dict[str, Any]:
    """A system's five rows, its state twice, and the mixing's weights: each once."""
    H, N = size.features, size.state_size
    return {"flops": 14 * H * N + 4 * H * H, "bytes": 4 * (7 * H * N + 2 * H * H + 8 * H), "launches": 2}


if __name__ == "__main__":
    main()
