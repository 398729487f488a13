"""State-space layers, norms and blocks as ONNX nodes: no Fourier transform, no complex number, no loop.

Axes: B batch, T samples of a chunk, H features, N state size, M output channels.
In the graph of one step, inputs are (B, H); in that of a chunk, (B, T, H).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from torchs4.layers.block import S4Block
from torchs4.layers.lssl import LSSL
from torchs4.layers.modal_layer import ModalLayer
from torchs4.layers.norms import ScalarLayerNorm, SequenceBatchNorm, SequenceLayerNorm, SequenceNorm
from torchs4.layers.s4 import S4
from torchs4.layers.s4d import S4D

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Float

    from torchs4.inference.onnx_graph import Graph
    from torchs4.layers.ssm_layer import SSMLayer

_LAYERS = (S4, S4D, LSSL)


def require_exportable(number: int, block: nn.Module) -> None:
    """A block must be made of what has a form in ONNX here."""
    if type(block) is not S4Block:
        raise ValueError(f"Block {number} is a {type(block).__name__}, which has no ONNX form here.")
    if type(block.layer) not in _LAYERS:
        raise ValueError(
            f"Block {number} holds a layer of the kind {type(block.layer).__name__}: only S4, S4D and LSSL "
            f"have the small matrix products that a chunk is exported as."
        )
    if type(block.mixing) is not (nn.Identity if block.config.mixing == "none" else nn.Linear):
        raise ValueError(
            f"The mixing of block {number} is a {type(block.mixing).__name__} instead of a Linear. Merge "
            f"adapters into the weights before exporting."
        )


def add_block(
    graph: Graph,
    block: S4Block,
    x: str,
    state: str,
    length: int | None,
    rate: float,
    mix: Callable[[Graph, nn.Linear, str], str],
) -> tuple[str, str]:
    """A block's output and next state.

    length: that of the chunk, None for one step.
    mix: adds the product that mixes the features, `add_linear` or `add_int8_linear`.
    """
    config = block.config
    y = add_norm(graph, block.norm, x) if config.pre_norm else x
    layer: SSMLayer = block.layer
    if length is not None:
        y, state = _add_chunk(graph, layer, y, state, length, rate)
    elif isinstance(layer, ModalLayer):
        y, state = _add_modal_step(graph, layer, y, state, rate)
    else:
        axis = graph.constant([1])
        y, state = _add_chunk(graph, layer, graph.node("Unsqueeze", y, axis), state, 1, rate)
        y = graph.node("Squeeze", y, axis)
    y = _add_activation(graph, config.activation, y)
    if isinstance(block.mixing, nn.Linear):
        y = mix(graph, block.mixing, y)
    if config.mixing == "glu":
        values, gates = graph.nodes("Split", y, outputs=2, axis=-1, num_outputs=2)
        y = graph.node("Mul", values, graph.node("Sigmoid", gates))
    if config.residual:
        y = graph.node("Add", x, y)
    return (y if config.pre_norm else add_norm(graph, block.norm, y)), state


def add_linear(graph: Graph, linear: nn.Linear, x: str) -> str:
    """A linear map, x Wᵀ + b."""
    y = graph.node("MatMul", x, graph.constant(linear.weight.T))
    return y if linear.bias is None else graph.node("Add", y, graph.constant(linear.bias))


def add_int8_linear(graph: Graph, linear: nn.Linear, x: str) -> str:
    """A linear map in whole numbers of eight bits: a scale for each row of W, one for all of x at a time."""
    scale = (linear.weight.abs().amax(dim=1) / 127).clamp(min=torch.finfo(torch.float32).tiny)
    whole = (linear.weight / scale[:, None]).round().T
    narrow, x_scale, zero = graph.nodes("DynamicQuantizeLinear", x, outputs=3)
    weights = graph.constant(whole, np.dtype(np.int8))
    y = graph.cast(graph.node("MatMulInteger", narrow, weights, zero), np.dtype(np.float32))
    y = graph.node("Mul", y, graph.node("Mul", x_scale, graph.constant(scale)))
    return y if linear.bias is None else graph.node("Add", y, graph.constant(linear.bias))


def add_norm(graph: Graph, norm: nn.Module, x: str) -> str:
    """A norm; of a batch norm only a factor and a summand are left."""
    if type(norm) is SequenceNorm:
        return x
    if type(norm) is SequenceLayerNorm and type(inner := norm.norm) is nn.LayerNorm:
        weights = [graph.constant(weight) for weight in (inner.weight, inner.bias) if weight is not None]
        return graph.node("LayerNormalization", x, *weights, axis=-1, epsilon=inner.eps)
    if type(norm) is SequenceBatchNorm and type(batch := norm.norm) is nn.BatchNorm1d:
        mean, variance = batch.running_mean, batch.running_var
        if mean is not None and variance is not None:
            factor = batch.weight / (variance + batch.eps).sqrt()
            scaled = graph.node("Mul", x, graph.constant(factor))
            return graph.node("Add", scaled, graph.constant(batch.bias - mean * factor))
    if type(norm) is ScalarLayerNorm:
        axis = graph.constant([-1])
        centred = graph.node("Sub", x, graph.node("ReduceMean", x, axis))
        square = graph.node("ReduceMean", graph.node("Mul", centred, centred), axis)
        deviation = graph.node("Sqrt", square)
        is_zero = graph.node("Equal", deviation, graph.constant(norm.s.new_zeros(1)))
        divisor = graph.node("Where", is_zero, graph.constant(norm.s.new_ones(1)), deviation)
        gain = graph.node("Div", graph.constant(norm.s), divisor)
        return graph.node("Mul", gain, graph.node("Add", centred, graph.constant(norm.m)))
    raise ValueError(f"A norm is a {type(norm).__name__}, which has no ONNX form here.")


def _add_activation(graph: Graph, name: str, x: str) -> str:
    match name:
        case "gelu":
            return graph.node("Gelu", x)
        case "relu":
            return graph.node("Relu", x)
        case "silu":
            return graph.node("Mul", x, graph.node("Sigmoid", x))
    return x


def _add_modal_step(graph: Graph, layer: ModalLayer, u: str, state: str, rate: float) -> tuple[str, str]:
    """The step x' = a x - p (q x) + b u, y = C x' + D u, with complex products as pairs of real ones."""
    system, C = layer.recurrence(rate)
    last = graph.constant([-1])
    real, imaginary = system.a.unbind(-1)
    zero = torch.zeros_like(imaginary)
    own, next_one, previous = (
        graph.constant(torch.stack(pair, dim=-1).flatten())
        for pair in ((real, real), (-imaginary, zero), (zero, imaginary))
    )
    # A number's partner, real or imaginary, is beside it: moving all by one costs far less than gathering.
    flat = graph.node("Reshape", state, graph.constant([-1, layer.features * layer.state_size]))
    left = graph.node("Pad", flat, graph.constant([0, -1, 0, 1]))
    right = graph.node("Pad", flat, graph.constant([0, 1, 0, -1]))
    turned = graph.node("Add", graph.node("Mul", left, next_one), graph.node("Mul", right, previous))
    new = graph.node("Add", graph.node("Mul", flat, own), turned)
    new = graph.node("Reshape", new, graph.constant([-1, layer.features, layer.state_size]))
    column = graph.node("Unsqueeze", u, last)
    new = graph.node("Add", new, graph.node("Mul", column, graph.constant(system.b)))
    for p, q in zip(system.p, system.q, strict=True):
        seen = graph.node("ReduceSum", graph.node("Mul", state, graph.constant(q)), last, keepdims=1)
        new = graph.node("Sub", new, graph.node("Mul", seen, graph.constant(p)))
    outputs = []
    for row, skip in zip(C, layer.D, strict=True):
        read = graph.node("ReduceSum", graph.node("Mul", new, graph.constant(row)), last, keepdims=0)
        outputs.append(graph.node("Add", read, graph.node("Mul", u, graph.constant(skip))))
    return outputs[0] if len(outputs) == 1 else graph.node("Concat", *outputs, axis=1), new


def _add_chunk(
    graph: Graph, layer: SSMLayer, u: str, state: str, length: int, rate: float
) -> tuple[str, str]:
    """Outputs, and what a chunk adds to the state, by one matrix product per feature."""
    channels, H = layer.channels, layer.features
    rows = graph.node("Transpose", u, perm=[2, 0, 1])
    before = graph.node("Transpose", state, perm=[1, 0, 2])
    both = graph.node("Concat", rows, before, axis=2)
    product = graph.node("MatMul", both, graph.constant(_chunk_matrix(layer, length, rate)))
    sizes = graph.constant([channels * length, layer.state_size])
    y, added = graph.nodes("Split", product, sizes, outputs=2, axis=2)
    # The sum comes last: a slow system keeps its digits.
    new = graph.node("Transpose", graph.node("Add", before, added), perm=[1, 0, 2])
    if channels == 1:
        return graph.node("Transpose", y, perm=[1, 2, 0]), new
    y = graph.node("Reshape", y, graph.constant([H, -1, channels, length]))
    y = graph.node("Transpose", y, perm=[1, 3, 2, 0])
    return graph.node("Reshape", y, graph.constant([-1, length, channels * H])), new


def _chunk_matrix(layer: SSMLayer, length: int, rate: float) -> Float[Tensor, "H T+N M*T+N"]:
    operators = layer.chunk_operators(length, rate)
    lag = torch.arange(length)
    lag = lag[None, :] - lag[:, None]
    response = operators.response.clone()
    response[..., 0] += layer.D
    responses = torch.where(lag >= 0, response[..., lag.clamp(min=0)], 0)
    # (M, H, rows, T) to (H, rows, M·T)
    outputs = torch.cat([responses, operators.sight.mT], dim=2).permute(1, 2, 0, 3).flatten(2)
    states = torch.cat([operators.reach.flip(1), operators.change], dim=1)
    return torch.cat([outputs, states], dim=2)
