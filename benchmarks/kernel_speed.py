"""How fast and how small the kernels and the convolution are, against what one would write without them.

    python benchmarks/kernel_speed.py

About fifteen minutes on two cores, most of it spent in the naive kernel at length 16,384.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from harness import THREADS, interleave, peak_memory_mb, record, show
from naive import naive_diagonal_kernel, naive_dplr_kernel, naive_parameters, torch_fft_convolution

from torchs4 import S4, S4D, ops

if TYPE_CHECKING:
    from collections.abc import Callable

FEATURES, STATE_SIZE = 256, 64
# At 16,384 the naive kernel of all features would need more than 20 GB: it runs on a quarter of them, four
# times over, which is the same work.
NAIVE_PARTS = {1024: 1, 4096: 1, 16384: 4}


def train_step(kernel: Callable[[], torch.Tensor], parameters: list[torch.Tensor]) -> Callable[[], None]:
    def run() -> None:
        y = kernel()
        torch.autograd.grad(y, parameters, torch.ones_like(y))

    return run


def naive_step(layer: Any, kernel: Callable[..., torch.Tensor], length: int) -> Callable[[], None]:
    *shared, C, dt = (x.detach() for x in naive_parameters(layer))
    parts = NAIVE_PARTS.get(length, 1)

    def run() -> None:
        for C_part, dt_part in zip(C.chunk(parts), dt.chunk(parts), strict=True):
            leaves = [x.clone().requires_grad_() for x in (*shared, C_part, dt_part)]
            y = kernel(*leaves, length)
            torch.autograd.grad(y, leaves, torch.ones_like(y))

    return run


def diagonal(A: Any, P: Any, B: Any, C: Any, dt: Any, length: int) -> torch.Tensor:
    # P takes part with weight zero so that both naive kernels have the same parameters.
    return naive_diagonal_kernel(A, B + 0 * P, C, dt, length)


def main() -> None:
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    results: dict[str, Any] = {}
    rows = []
    dplr, s4d = S4(FEATURES, state_size=STATE_SIZE), S4D(FEATURES, state_size=STATE_SIZE)
    for name, layer, naive, lengths in (
        ("dplr_kernel", dplr, naive_dplr_kernel, (1024, 4096, 16384)),
        ("diagonal_kernel", s4d, diagonal, (1024, 16384)),
    ):
        for length in lengths:
            parameters = list(layer.ssm_parameters().values())
            times = interleave(
                {
                    "torchs4": train_step(partial(layer._kernel, length, 1.0), parameters),
                    "naive": naive_step(dplr, naive, length),
                }
            )
            rows.append(add(results, f"{name}/L{length}", times, "naive"))
    for length in (784, 1024, 4096, 16384):
        u, kernel = torch.randn(16, length, FEATURES), torch.randn(1, FEATURES, length)
        ours = [u.clone().requires_grad_(), kernel.clone().requires_grad_()]
        theirs = [u.transpose(1, 2).contiguous().requires_grad_(), kernel[0].clone().requires_grad_()]
        times = interleave(
            {
                "torchs4": train_step(partial(ops.long_convolution, *ours), ours),
                "torch.fft": train_step(partial(torch_fft_convolution, *theirs), theirs),
            }
        )
        rows.append(add(results, f"convolution/B16/L{length}", times, "torch.fft"))
    results["dplr_kernel/L16384/peak_memory_mb"] = memory = peak_memory_mb(
        f"""
from torchs4 import S4
layer = S4({FEATURES}, state_size={STATE_SIZE})
layer._kernel(64, 1.0).sum().backward()
grad = torch.ones(1, {FEATURES}, 16384)
ready = peak()
K = layer._kernel(16384, 1.0)
K.backward(grad)
ready += K.numel() * 4
"""
    )
    show("forward + backward, H 256, N 64, float32", ["what", "torchs4 ms", "baseline ms", "ratio"], rows)
    print(f"kernel at 16,384: {memory:.0f} MB above inputs and outputs")
    record("kernel_speed", results)


def add(results: dict[str, Any], name: str, times: dict[str, Any], baseline: str) -> list[Any]:
    ratio = times[baseline]["median_ms"] / times["torchs4"]["median_ms"]
    results[name] = {**times, "ratio": ratio}
    print(f"{name}: {times['torchs4']['median_ms']:.1f} ms, {ratio:.1f}x", flush=True)
    return [name, times["torchs4"]["median_ms"], times[baseline]["median_ms"], ratio]


if __name__ == "__main__":
    main()
