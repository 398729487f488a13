"""Norms that know about padding and about single steps."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from torchs4 import BlockStack, S4Block, S4BlockConfig, S4DConfig, SequenceModel
from torchs4.layers.norms import SequenceBatchNorm, build_norm

# Means and variances of the same numbers, summed in another order, in float64.
FLOAT64_TOLERANCE = 1e-12


@pytest.fixture
def mask() -> torch.Tensor:
    return torch.arange(9) < torch.tensor([9, 4, 1])[:, None]


@pytest.fixture
def x() -> torch.Tensor:
    torch.manual_seed(0)
    return 3 + 2 * torch.randn(3, 9, 4, dtype=torch.float64)


def trained_batch_norm() -> SequenceBatchNorm:
    norm = SequenceBatchNorm(4).double()
    nn.init.uniform_(norm.norm.weight, 0.5, 1.5)
    nn.init.normal_(norm.norm.bias)
    norm.norm.running_mean.normal_()
    norm.norm.running_var.uniform_(0.5, 2.0)
    return norm


def test_batch_norm_statistics_are_those_of_the_real_positions(x: torch.Tensor, mask: torch.Tensor) -> None:
    norm = SequenceBatchNorm(4).double()
    norm(x, mask)
    real = x[mask]
    momentum = norm.norm.momentum
    expected_mean = momentum * real.mean(0)
    expected_variance = (1 - momentum) + momentum * real.var(0, unbiased=True)
    torch.testing.assert_close(norm.norm.running_mean, expected_mean, rtol=FLOAT64_TOLERANCE, atol=0)
    torch.testing.assert_close(norm.norm.running_var, expected_variance, rtol=FLOAT64_TOLERANCE, atol=0)


def test_batch_norm_training_ignores_what_padding_holds(x: torch.Tensor, mask: torch.Tensor) -> None:
    torch.manual_seed(0)
    norm = trained_batch_norm()
    statistics = {name: buffer.clone() for name, buffer in norm.named_buffers()}
    outputs, after = [], []
    for filling in (0.0, 1e6, float("nan")):
        norm.load_state_dict(statistics, strict=False)
        outputs.append(norm(torch.where(mask[..., None], x, filling), mask)[mask])
        after.append({name: buffer.clone() for name, buffer in norm.named_buffers()})
    for output, buffers in zip(outputs[1:], after[1:], strict=True):
        assert torch.equal(output, outputs[0])
        assert all(torch.equal(buffers[name], after[0][name]) for name in buffers)


def test_batch_norm_normalises_the_real_positions(x: torch.Tensor, mask: torch.Tensor) -> None:
    y = SequenceBatchNorm(4).double()(x, mask)[mask]
    torch.testing.assert_close(y.mean(0), torch.zeros(4).double(), rtol=0, atol=FLOAT64_TOLERANCE)
    # BatchNorm adds 1e-5 to a variance of about 4.
    torch.testing.assert_close(y.var(0, unbiased=False), torch.ones(4).double(), rtol=0, atol=1e-4)


def test_masked_batch_norm_equals_the_plain_one_without_padding(x: torch.Tensor) -> None:
    masked, plain = SequenceBatchNorm(4).double(), SequenceBatchNorm(4).double()
    everything = torch.ones(3, 9, dtype=torch.bool)
    torch.testing.assert_close(masked(x, everything), plain(x), rtol=0, atol=FLOAT64_TOLERANCE)
    torch.testing.assert_close(
        masked.norm.running_var, plain.norm.running_var, rtol=FLOAT64_TOLERANCE, atol=0
    )


def test_masked_batch_norm_passes_gradients_to_real_positions_only(
    x: torch.Tensor, mask: torch.Tensor
) -> None:
    x.requires_grad_()
    y = SequenceBatchNorm(4).double()(x, mask)
    y.pow(3).sum().backward()
    assert (x.grad[~mask] == 0).all()
    assert (x.grad[mask] != 0).any()


@pytest.mark.parametrize("real", [0, 1])
def test_batch_norm_refuses_to_train_on_less_than_two_positions(x: torch.Tensor, real: int) -> None:
    mask = torch.zeros(3, 9, dtype=torch.bool)
    mask[0, :real] = True
    with pytest.raises(ValueError, match=f"^{real} positions of the batch are not padding.*norm='layer'"):
        SequenceBatchNorm(4).double()(x, mask)


def test_batch_norm_trains_over_batch_and_length(x: torch.Tensor) -> None:
    y = SequenceBatchNorm(4).double()(x)
    reference = nn.BatchNorm1d(4).double()(x.transpose(1, 2)).transpose(1, 2)
    torch.testing.assert_close(y, reference, rtol=0, atol=FLOAT64_TOLERANCE)


@pytest.mark.parametrize("kind", ["layer", "batch", "none"])
def test_step_normalises_like_the_evaluated_sequence(kind: str, x: torch.Tensor) -> None:
    torch.manual_seed(0)
    norm = trained_batch_norm() if kind == "batch" else build_norm(kind, 4).double()
    norm.eval()
    whole = norm(x)
    for position in range(9):
        torch.testing.assert_close(norm(x[:, position]), whole[:, position], rtol=0, atol=FLOAT64_TOLERANCE)


def test_a_step_leaves_the_statistics_alone(x: torch.Tensor) -> None:
    norm = trained_batch_norm().train()
    before = {name: buffer.clone() for name, buffer in norm.named_buffers()}
    norm(x[:, 0])
    assert all(torch.equal(buffer, before[name]) for name, buffer in norm.named_buffers())


def test_no_norm_is_the_identity_and_has_no_weights(x: torch.Tensor) -> None:
    norm = build_norm("none", 4)
    assert torch.equal(norm(x), x)
    assert not list(norm.parameters())


def model_with_batch_norm() -> SequenceModel:
    block = S4BlockConfig(layer=S4DConfig(state_size=8), norm="batch")
    return SequenceModel(input_features=2, features=4, num_layers=2, block=block)


def test_training_a_padded_batch_updates_every_statistic_as_the_padding_free_one_would() -> None:
    torch.manual_seed(0)
    model = model_with_batch_norm().double().train()
    twin = model_with_batch_norm().double().train()
    twin.load_state_dict(model.state_dict())
    x = torch.randn(3, 9, 2, dtype=torch.float64)
    padded = torch.cat([x, 1e6 * torch.randn(3, 5, 2, dtype=torch.float64)], dim=1)
    y, expected = model(padded, lengths=[9, 9, 9]), twin(x)
    # Two convolutions with FFTs of different lengths.
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-10)
    for (name, buffer), other in zip(model.named_buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(buffer, other, rtol=1e-10, atol=1e-10, msg=name)


@pytest.mark.parametrize("pre_norm", [True, False])
def test_only_pre_norm_stacks_end_with_a_norm(pre_norm: bool) -> None:
    config = S4BlockConfig(layer=S4DConfig(state_size=8), norm="layer", pre_norm=pre_norm)
    stack = BlockStack(4, 2, config)
    assert bool(list(stack.norm.parameters())) == pre_norm


@pytest.mark.parametrize("pre_norm", [True, False])
def test_a_post_norm_block_normalises_its_output_and_a_pre_norm_block_its_input(pre_norm: bool) -> None:
    torch.manual_seed(0)
    block = S4Block(4, layer=S4DConfig(state_size=8), norm="layer", pre_norm=pre_norm)
    y = block(torch.randn(3, 9, 4))
    spread = y.std(dim=-1, unbiased=False)
    # LayerNorm adds 1e-5 to the variance; float32 rounds.
    assert torch.allclose(spread, torch.ones_like(spread), atol=1e-3) != pre_norm


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_batch_norm_in_half_precision_trains_with_padding(
    x: torch.Tensor, mask: torch.Tensor, dtype: torch.dtype
) -> None:
    half, full = SequenceBatchNorm(4).to(dtype), SequenceBatchNorm(4)
    rounded = x.to(dtype)
    y, expected = half(rounded, mask), full(rounded.float(), mask)
    assert y.dtype == half.norm.running_mean.dtype == dtype
    # One rounding of the output, one of the statistics.
    torch.testing.assert_close(y.float()[mask], expected[mask], rtol=0.01, atol=0.01)
    torch.testing.assert_close(half.norm.running_var.float(), full.norm.running_var, rtol=0.01, atol=0.01)
    (y * rounded).sum().backward()
    assert half.norm.weight.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_scalar_norm_of_equal_features_is_finite_and_so_are_its_gradients(dtype: torch.dtype) -> None:
    norm = build_norm("scalar", 2).to(dtype)
    # What bfloat16 makes of two features whose difference is below its last digit.
    x = torch.tensor([[[100.0, 100.0], [1.0, 3.0]]], dtype=dtype, requires_grad=True)
    y = norm(x)
    assert y.tolist() == [[[0.0, 0.0], [-1.0, 1.0]]]
    y.square().sum().backward()
    assert all(grad.isfinite().all() for grad in (x.grad, *(p.grad for p in norm.parameters())))
