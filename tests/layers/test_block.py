"""The block: what stands between its norm and its residual, and the bidirectional layer inside it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from torchs4 import LSSLConfig, S4Block, S4Config, S4DConfig
from torchs4.layers.block import SequenceDropout

LAYER_CONFIGS = {
    "s4": S4Config(state_size=8),
    "s4d": S4DConfig(state_size=8),
    "lssl": LSSLConfig(state_size=8),
}
every_kind = pytest.mark.parametrize("kind", list(LAYER_CONFIGS))
# The same sums in float64, in another order or by an FFT of another length.
FLOAT64_TOLERANCE = 1e-11


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(
        actual, expected, rtol=0, atol=FLOAT64_TOLERANCE * expected.abs().max().item() + FLOAT64_TOLERANCE
    )


@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("mixing", ["glu", "linear"])
def test_a_block_is_its_parts_in_order(pre_norm: bool, residual: bool, mixing: str) -> None:
    torch.manual_seed(0)
    block = S4Block(
        4, layer=LAYER_CONFIGS["s4"], pre_norm=pre_norm, residual=residual, mixing=mixing, dropout=0.5
    )
    block = block.double().eval()
    x = torch.randn(3, 9, 4, dtype=torch.float64)
    y = block.norm(x) if pre_norm else x
    y = block.mixing(F.gelu(block.layer(y)))
    if mixing == "glu":
        y = y[..., :4] * torch.sigmoid(y[..., 4:])
    y = x + y if residual else y
    assert_close(block(x), y if pre_norm else block.norm(y))


@pytest.mark.parametrize(
    ("activation", "function"), [("gelu", F.gelu), ("relu", F.relu), ("silu", F.silu), ("none", lambda x: x)]
)
def test_the_activation_is_the_one_asked_for(activation: str, function: Any) -> None:
    torch.manual_seed(0)
    block = S4Block(
        4, layer=LAYER_CONFIGS["s4d"], norm="none", mixing="linear", residual=False, activation=activation
    ).double()
    x = torch.randn(3, 9, 4, dtype=torch.float64)
    assert_close(block(x), block.mixing(function(block.layer(x))))


def test_a_block_mixes_every_channel_into_every_feature() -> None:
    block = S4Block(4, layer=S4Config(state_size=8, channels=3), mixing="linear")
    assert block.mixing.weight.shape == (4, 12)
    assert block(torch.randn(3, 9, 4)).shape == (3, 9, 4)


def test_tied_dropout_drops_whole_features_of_a_sequence() -> None:
    torch.manual_seed(0)
    y = SequenceDropout(0.5, tied=True)(torch.ones(16, 10, 8))
    dropped = y == 0
    assert torch.equal(dropped.all(dim=1), dropped.any(dim=1))
    # Kept values are scaled so that the mean stays.
    assert set(y.unique().tolist()) == {0.0, 2.0}
    # 128 features of sequences at probability ½: fewer than 32 or more than 96 would be 5 deviations off.
    assert 32 < dropped.all(dim=1).sum() < 96


def test_tied_dropout_chooses_for_each_sequence() -> None:
    torch.manual_seed(0)
    dropped = (SequenceDropout(0.5, tied=True)(torch.ones(16, 10, 8)) == 0).all(dim=1)
    assert not torch.equal(dropped, dropped[:1].expand_as(dropped))


def test_plain_dropout_drops_single_positions() -> None:
    torch.manual_seed(0)
    dropped = SequenceDropout(0.5, tied=False)(torch.ones(16, 40, 8)) == 0
    assert dropped.any(dim=1).all()
    assert not dropped.all(dim=1).any()


@pytest.mark.parametrize("tied", [True, False])
def test_dropout_does_nothing_in_evaluation(tied: bool) -> None:
    x = torch.randn(3, 9, 4)
    assert torch.equal(SequenceDropout(0.5, tied).eval()(x), x)


@pytest.mark.parametrize("tied", [True, False])
def test_a_training_block_drops_and_an_evaluated_one_does_not(tied: bool) -> None:
    torch.manual_seed(0)
    block = S4Block(4, layer=LAYER_CONFIGS["s4d"], dropout=0.5, tied_dropout=tied)
    x = torch.randn(3, 9, 4)
    assert not torch.equal(block(x), block(x))
    block.eval()
    assert torch.equal(block(x), block(x))


def test_tied_dropout_of_a_block_keeps_features_whole() -> None:
    torch.manual_seed(0)
    block = S4Block(
        8,
        layer=LAYER_CONFIGS["s4d"],
        norm="none",
        mixing="linear",
        residual=False,
        dropout=0.5,
        tied_dropout=True,
    )
    dropped = block(torch.randn(5, 9, 8)) == 0
    assert dropped.any()
    assert torch.equal(dropped.all(dim=1), dropped.any(dim=1))


def bidirectional_layer(kind: str, channels: int = 1) -> Any:
    config = type(LAYER_CONFIGS[kind])(state_size=8, channels=channels, bidirectional=True)
    return config.build(3).double()


@every_kind
@pytest.mark.parametrize("channels", [1, 2])
def test_an_impulse_meets_the_forward_kernel_after_it_and_the_backward_kernel_before(
    kind: str, channels: int
) -> None:
    torch.manual_seed(0)
    layer = bidirectional_layer(kind, channels)
    length, position = 12, 5
    x = torch.zeros(1, length, 3, dtype=torch.float64)
    x[:, position] = 1
    y = (layer(x)).detach().view(length, channels, 3)
    kernel = layer.kernel(length).detach()
    assert kernel.shape == (2 * channels, 3, length)
    forward, backward = kernel.movedim(-1, 0).split(channels, dim=1)
    assert_close(y[position + 1 :], forward[1 : length - position])
    assert_close(y[position], forward[0] + layer.D.detach())
    assert_close(y[:position], backward[:position].flip(0))


@every_kind
def test_the_backward_direction_is_a_causal_layer_on_the_reversed_past(kind: str) -> None:
    torch.manual_seed(0)
    layer = bidirectional_layer(kind)
    causal = type(layer)(3, state_size=8).double()
    weights = layer.state_dict()
    x = torch.randn(2, 12, 3, dtype=torch.float64)
    causal.load_state_dict({**weights, "C": weights["C"][:1]})
    from_past = causal(x)
    causal.load_state_dict({**weights, "C": weights["C"][1:], "D": torch.zeros_like(weights["D"])})
    # One position later: a position itself belongs to the forward direction.
    from_future = F.pad(causal(x.flip(1))[:, :-1].flip(1), (0, 0, 0, 1))
    assert_close(layer(x).detach(), (from_past + from_future).detach())


@every_kind
def test_the_backward_kernel_sees_only_the_future(kind: str) -> None:
    torch.manual_seed(0)
    layer = bidirectional_layer(kind)
    with torch.no_grad():
        layer.C[0] = 0
        layer.D.zero_()
    x = torch.randn(2, 12, 3, dtype=torch.float64)
    changed = x.clone()
    changed[:, :7] = torch.randn(2, 7, 3, dtype=torch.float64)
    before, after = layer(x), layer(changed)
    assert_close(after[:, 6:], before[:, 6:])
    assert not torch.allclose(after[:, :6], before[:, :6])


@every_kind
def test_a_bidirectional_layer_reads_one_position(kind: str) -> None:
    torch.manual_seed(0)
    layer = bidirectional_layer(kind)
    x = torch.randn(2, 1, 3, dtype=torch.float64)
    forward = layer.kernel(1)[0, :, 0]
    assert_close(layer(x).detach(), ((forward + layer.D[0]) * x).detach())
