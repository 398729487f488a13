"""Chunks with padding: what the conformance suite does not ask."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from torchs4 import LSTM, S4, S4D, S4Block, S4BlockConfig, S4Config, SequenceModel

LENGTHS = [70, 3, 40]


@pytest.mark.parametrize("build", [lambda: S4(4, state_size=8), lambda: LSTM(4)], ids=["s4", "lstm"])
@pytest.mark.parametrize("filling", [0.0, math.nan])
def test_gradients_are_those_of_each_sequence_alone(build: Any, filling: float) -> None:
    torch.manual_seed(0)
    layer = build().double()
    mask = torch.arange(72) < torch.tensor(LENGTHS)[:, None]
    x = torch.randn(3, 72, 4).double().masked_fill(~mask[..., None], filling)

    def loss(y: torch.Tensor, state: Any) -> torch.Tensor:
        parts = state if isinstance(state, tuple) else (state,)
        return y.square().sum() + sum(part.sin().sum() for part in parts)

    y, state = layer.prefill(x, lengths=LENGTHS)
    together = torch.autograd.grad(loss(y[mask], state), list(layer.parameters()))
    alone = [loss(*layer.prefill(x[i : i + 1, :n])) for i, n in enumerate(LENGTHS)]
    apart = torch.autograd.grad(sum(alone), list(layer.parameters()))
    for actual, expected in zip(together, apart, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9 * float(expected.abs().max()))


def test_batch_norm_that_trains_leaves_padding_out_of_its_statistics() -> None:
    torch.manual_seed(0)
    block = S4Block(4, layer=S4Config(state_size=8), norm="batch").train()
    x = torch.randn(3, 72, 4)
    block.prefill(x, lengths=LENGTHS)
    after = block.norm.norm.running_mean.clone()
    block.norm.norm.reset_running_stats()
    block(x, lengths=LENGTHS)
    torch.testing.assert_close(after, block.norm.norm.running_mean)


def test_hooks_see_padded_chunks_too() -> None:
    block = S4Block(4, layer=S4Config(state_size=8)).eval()
    x = torch.randn(3, 72, 4)
    expected, _ = block.prefill(x, lengths=LENGTHS)
    block.layer.register_forward_hook(lambda module, inputs, output: 2 * output)
    with torch.no_grad():
        assert not torch.allclose(block.prefill(x, lengths=LENGTHS)[0], expected)


@pytest.mark.parametrize("lengths", [[70, 0, 3], [73, 1, 1], [1, 2], [1.0, 2.0, 3.0]])
def test_wrong_lengths_are_refused_in_words(lengths: Any) -> None:
    with pytest.raises(ValueError, match=r"^lengths "):
        S4D(4, state_size=8).prefill(torch.randn(3, 72, 4), lengths=lengths)


def test_a_layer_that_knows_no_lengths_is_named() -> None:
    class Plain(torch.nn.Module):
        causal, output_features = True, 4

        def prefill(self, x: Any, state: Any = None, rate: float = 1.0) -> Any:
            return x, state

    block = S4Block(4, layer=S4Config(state_size=8))
    block.layer = Plain()
    x = torch.randn(3, 72, 4)
    assert block.prefill(x)[0].shape == x.shape
    with pytest.raises(ValueError, match=r"Plain\.prefill takes no lengths: .* equal length together"):
        block.prefill(x, lengths=LENGTHS)


def test_operators_for_padded_chunks_stay_remembered() -> None:
    """Lengths differ from call to call: making operators for each would take longer than the chunks."""
    block = S4BlockConfig(layer=S4Config(state_size=8))
    model = SequenceModel(output_size=2, features=4, num_layers=1, block=block).eval()
    layer = model.stack.blocks[0].layer
    made = []
    make = layer.chunk_operators
    layer.chunk_operators = lambda block, rate: made.append(block) or make(block, rate)
    with torch.no_grad():
        for seed in range(3):
            torch.manual_seed(seed)
            model.prefill(torch.randn(5, 200, 1), lengths=torch.randint(1, 200, (5,)))
    assert sorted(made) == [1, 4, 16, 64]
