"""One step of a discrete DPLR system: every state is read once and written once.

Axes: B batch, H features, N state size (real and imaginary parts interleaved), R rank, M output channels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from torchs4.ops.cpu.compiling import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


def modal_step(
    a: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor, D: Tensor, u: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """The twin of reference.modal_step."""
    y = torch.empty(state.shape[0], C.shape[0], C.shape[1], dtype=state.dtype)
    new_state = torch.empty(state.shape, dtype=state.dtype)
    D = D.to(state.dtype)
    _step(*[_array(x) for x in (a, p, q, b, C, D, u, state)], y.numpy(), new_state.numpy())
    return y, new_state


def _array(x: Tensor) -> NDArray[Any]:
    return x.detach().contiguous().numpy()


# One thread: a step of a usual layer takes microseconds, less than waking a second thread.
@compiled()
def _step(a, p, q, b, C, D, u, state, y, new_state):
    B, H, N = state.shape
    R, M = p.shape[0], C.shape[0]
    zero = state.dtype.type(0)
    for batch in range(B):
        for h in range(H):
            x, out, turn, push = state[batch, h], new_state[batch, h], a[h], b[h]
            drive = u[batch, h]
            for mode in range(N // 2):
                real, imaginary = x[2 * mode], x[2 * mode + 1]
                out[2 * mode] = turn[mode, 0] * real - turn[mode, 1] * imaginary + push[2 * mode] * drive
                out[2 * mode + 1] = (
                    turn[mode, 1] * real + turn[mode, 0] * imaginary + push[2 * mode + 1] * drive
                )
            for r in range(R):
                feedback = zero
                row, column = q[r, h], p[r, h]
                for i in range(N):
                    feedback += row[i] * x[i]
                for i in range(N):
                    out[i] -= column[i] * feedback
            for m in range(M):
                total = D[m, h] * drive
                row = C[m, h]
                for i in range(N):
                    total += row[i] * out[i]
                y[batch, m, h] = total
