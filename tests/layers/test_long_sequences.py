"""Few long sequences are trained by blocks instead of a kernel: the same outputs, the same gradients."""

import pytest
import torch

from torchs4 import S4, S4D, ops
from torchs4.layers import ssm_layer

# Relative to the largest value of each; measured: 4e-12 and 3e-6 (a gradient sums thousands of positions).
TOLERANCES = {torch.float64: 1e-9, torch.float32: 3e-5}
KINDS = {
    "s4": lambda: S4(3, state_size=8),
    "legt, channels": lambda: S4(3, state_size=8, start="legt", channels=2),
    "s4d": lambda: S4D(3, state_size=8),
}


@pytest.fixture
def blocks_passed(monkeypatch):
    """How many samples went through `ops.chunk_pass`."""
    counts = []
    original = ops.chunk_pass

    def count(operators, skip, u, state):
        counts.append(u.shape[1])
        return original(operators, skip, u, state)

    monkeypatch.setattr(ops, "chunk_pass", count)
    return counts


def outputs_and_gradients(layer, x, **options):
    x = x.clone().requires_grad_()
    layer.zero_grad()
    y = layer(x, **options)
    y.square().sum().backward()
    return [y.detach(), x.grad, *(parameter.grad.clone() for parameter in layer.parameters())]


@pytest.mark.parametrize("dtype", list(TOLERANCES), ids=["float64", "float32"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("batch", "length", "options"),
    [(1, 4096, {}), (1, 4101, {"rate": 0.5}), (2, 8200, {"lengths": [8200, 5000]})],
)
def test_blocks_and_convolution_train_alike(kind, batch, length, options, dtype, blocks_passed, monkeypatch):
    torch.manual_seed(0)
    layer = KINDS[kind]().to(dtype)
    x = torch.randn(batch, length, 3, dtype=dtype)
    by_blocks = outputs_and_gradients(layer, x, **options)
    assert blocks_passed == [length]
    monkeypatch.setattr(ssm_layer, "_FEW", 0)
    by_convolution = outputs_and_gradients(layer, x, **options)
    assert blocks_passed == [length]
    for actual, expected in zip(by_blocks, by_convolution, strict=True):
        assert actual.shape == expected.shape
        assert (actual - expected).abs().max() <= TOLERANCES[dtype] * expected.abs().max()


@pytest.mark.parametrize(
    ("batch", "length", "bidirectional"),
    [(3, 8192, False), (2, 4095, False), (1, 2047, False), (1, 4096, True)],
)
def test_others_are_convolved(batch, length, bidirectional, blocks_passed):
    layer = S4(2, state_size=4, bidirectional=bidirectional)
    layer(torch.randn(batch, length, 2))
    assert not blocks_passed


def test_predictions_are_convolved_with_a_kernel_that_is_remembered(blocks_passed):
    with torch.no_grad():
        S4(2, state_size=4)(torch.randn(1, 4096, 2))
    assert not blocks_passed
