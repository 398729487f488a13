import pytest
import torch
from oracle import normal
from torch.autograd import gradcheck

from torchs4 import S4Block, ops
from torchs4.ops import cpu, reference

# Of numbers near one: some roundings in a row.
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-14}

_AUTOCAST = torch.bfloat16, torch.float32, torch.float32


def make_inputs(features, dtype=torch.float64):
    mixed = (5 * normal(3, 4, 2 * features, seed=1)).to(dtype)
    # Gates that are wide open or shut, beyond what exp can express.
    mixed[0, 0], mixed[0, 1] = 800, -800
    return mixed, normal(2 * features, seed=2).to(dtype), normal(3, 4, features, seed=3).to(dtype)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("features", [1, 3, 8, 17, 64])
def test_gates_and_their_gradients_match_the_plain_ones(features, dtype, scaled):
    mixed, bias, residual = make_inputs(features, dtype)
    grad = normal(*residual.shape, seed=4).to(dtype)
    scale = normal(3, features, seed=5).to(dtype) if scaled else None
    exact = [x.double() for x in (mixed, bias, residual, grad)]
    exact_scale = scale.double() if scaled else None
    actual = [
        cpu.gated_residual(mixed, bias, residual, scale),
        *cpu.gated_residual_backward(grad, mixed, bias, scale),
    ]
    expected = [
        reference.gated_residual(*exact[:3], exact_scale),
        *reference.gated_residual_backward(exact[3], *exact[:2], exact_scale),
    ]
    for a, b in zip(actual, expected, strict=True):
        assert a.dtype == dtype
        assert a.shape == b.shape
        assert (a - b).abs().max() <= TOLERANCE[dtype] * (1 + b.abs().max())


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("features", [1, 3, 8, 17, 64])
def test_what_a_product_gives_under_autocast_is_read_as_it_is(features, scaled):
    # More rows than one task has, and a product that was turned over.
    mixed, bias, residual = (x.float() for x in make_inputs(features))
    mixed, residual = mixed.repeat(1, 50, 1).bfloat16().mT.contiguous().mT, residual.repeat(1, 50, 1)
    grad = normal(*residual.shape, seed=4).float()
    scale = normal(3, features, seed=5).float() if scaled else None
    y = cpu.gated_residual(mixed, bias, residual, scale)
    assert y.dtype == torch.float32
    wide = mixed.float()
    assert torch.equal(y, cpu.gated_residual(wide, bias, residual, scale))
    actual = cpu.gated_residual_backward(grad, mixed, bias, scale)
    expected = cpu.gated_residual_backward(grad, wide, bias, scale)
    plain = reference.gated_residual_backward(grad, mixed, bias, scale)
    assert [x.dtype for x in actual] == [x.dtype for x in plain] == [torch.bfloat16, torch.float32]
    assert torch.equal(actual[0], expected[0].bfloat16())
    assert torch.equal(actual[1], expected[1])


def test_numbers_are_narrowed_to_the_nearest_and_nan_stays_nan():
    # The gradient of an open gate is the gradient that came: narrowed, it is what PyTorch makes of it.
    # Ties, the largest number, which rounds to infinity, and NaN with all bits set.
    odd = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 3.4028235e38, -0.0, 1e-40, 1.5, 2**-133])
    odd = torch.cat([odd, torch.tensor([0x7FFFFFFF, -1], dtype=torch.int32).view(torch.float32)])
    for grad in (odd, odd.repeat(8)):
        mixed = torch.cat([torch.zeros(len(grad)), torch.full((len(grad),), 100.0)]).bfloat16()
        found, _ = cpu.gated_residual_backward(grad[None], mixed[None], torch.zeros(2 * len(grad)))
        torch.testing.assert_close(found[0, : len(grad)], grad.bfloat16(), rtol=0, atol=0, equal_nan=True)


def test_a_model_under_autocast_takes_the_compiled_gates(monkeypatch):
    block = S4Block(8)
    x = torch.randn(2, 40, 8)
    taken = []
    compiled = cpu.gated_residual
    monkeypatch.setattr(
        cpu, "gated_residual", lambda mixed, *rest: taken.append(mixed.dtype) or compiled(mixed, *rest)
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = block(x)
        y.sum().backward()
    assert taken == [torch.bfloat16]
    assert y.dtype == block.mixing.weight.grad.dtype == torch.float32
    torch.testing.assert_close(y, block(x), rtol=2e-2, atol=2e-2)


def test_plain_gates_are_a_glu_with_residual():
    mixed, bias, residual = make_inputs(5)
    value, gate = (mixed + bias).split(5, dim=-1)
    torch.testing.assert_close(
        reference.gated_residual(mixed, bias, residual), residual + value / (1 + torch.exp(-gate))
    )


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("features", [2, 9])
def test_gates_have_right_gradients(features):
    inputs = tuple(
        x[-1:].requires_grad_() if x.ndim > 1 else x.requires_grad_() for x in make_inputs(features)
    )
    assert gradcheck(ops.gated_residual, inputs)
    scale = normal(1, features, seed=6)
    assert gradcheck(lambda *tensors: ops.gated_residual(*tensors, scale), inputs)


def test_gates_keep_the_rules_for_operators():
    mixed, bias, residual = make_inputs(9)
    inputs = tuple(x.requires_grad_() for x in (mixed, bias, residual))
    backward = torch.ops.torchs4.gated_residual_backward.default
    for scale in (None, normal(3, 9, seed=5)):
        torch.library.opcheck(torch.ops.torchs4.gated_residual.default, (*inputs, scale))
        torch.library.opcheck(backward, (residual.detach(), mixed.detach(), bias.detach(), scale))
    mixed, bias, residual = (x.detach().to(t) for x, t in zip(inputs, _AUTOCAST, strict=True))
    asked = tuple(x.clone().requires_grad_() for x in (mixed, bias, residual))
    torch.library.opcheck(torch.ops.torchs4.gated_residual.default, (*asked, None))
    torch.library.opcheck(backward, (residual, mixed, bias, None))


@pytest.mark.parametrize("features", [3, 8])
def test_what_is_not_a_number_shows(features):
    mixed, bias, residual = make_inputs(features)
    mixed[1, 2, features] = torch.nan
    y = ops.gated_residual(mixed, bias, residual)
    assert y[1, 2, 0].isnan()
    assert y.isnan().sum() == 1


def test_gates_read_strided_inputs():
    mixed, bias, residual = make_inputs(9)
    strided = mixed.transpose(0, 1).contiguous().transpose(0, 1)
    assert torch.equal(ops.gated_residual(strided, bias, residual), ops.gated_residual(mixed, bias, residual))


def test_gates_refuse_wrong_shapes():
    mixed, bias, residual = make_inputs(3)
    with pytest.raises(ValueError, match=r"^mixed has shape \(3, 4, 5\); expected \(3, 4, 6\)"):
        ops.gated_residual(mixed[..., :5], bias, residual)
    with pytest.raises(ValueError, match=r"^bias has shape \(5,\); expected \(6,\)"):
        ops.gated_residual(mixed, bias[:5], residual)
    with pytest.raises(ValueError, match=r"^scale has shape \(3, 2\); expected \(3, 3\)"):
        ops.gated_residual(mixed, bias, residual, normal(3, 2))


def test_a_block_without_dropout_equals_one_whose_dropout_is_asleep():
    """The first goes through the fused gates; so does the second, whose training twin does not."""
    torch.manual_seed(0)
    block = S4Block(9, dropout=0.5).double()
    x = normal(2, 30, 9)
    asleep = block.eval()(x)
    unfused = x + torch.nn.functional.glu(block.mixing(torch.nn.functional.gelu(block.layer(block.norm(x)))))
    torch.testing.assert_close(asleep, unfused)


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("mixed_dtype", [torch.bfloat16, torch.float16])
def test_half_precision_beside_full_gives_full(mixed_dtype):
    mixed, bias, residual = make_inputs(8, torch.float32)
    y = ops.gated_residual(mixed.to(mixed_dtype), bias, residual)
    assert y.dtype == torch.float32


@pytest.mark.parametrize("residual", [True, False])
def test_tied_dropout_drops_whole_features_of_a_sequence(residual):
    torch.manual_seed(0)
    block = S4Block(40, norm="none", dropout=0.4, tied_dropout=True, residual=residual).double().train()
    x = normal(5, 30, 40)
    change = block(x) - x if residual else block(x)
    dropped = change == 0
    # Each feature of a sequence is dropped everywhere or nowhere.
    assert (dropped.all(1) == dropped.any(1)).all()
    # Of 200 features 80 ± 7.
    assert 50 < dropped.all(1).sum() < 110


def test_tied_dropout_is_the_same_with_and_without_fused_gates():
    torch.manual_seed(0)
    block = S4Block(9, dropout=0.5, tied_dropout=True).double().train()
    x = normal(4, 30, 9)
    torch.manual_seed(1)
    fused = block(x)
    torch.manual_seed(1)
    mixed = block.mixing(block.dropout(torch.nn.functional.gelu(block.layer(block.norm(x)))))
    torch.testing.assert_close(fused, x + block.dropout(torch.nn.functional.glu(mixed)))


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_scales_of_another_type_are_read_as_what_they_are(dtype):
    mixed, bias, residual = (
        normal(2, 3, 16).float(),
        normal(16, seed=1).float(),
        normal(2, 3, 8, seed=2).float(),
    )
    scale = torch.tensor([[0.0] * 8, [2.0] * 8], dtype=dtype)
    expected = ops.reference.gated_residual(mixed, bias, residual, scale.float())
    torch.testing.assert_close(ops.gated_residual(mixed, bias, residual, scale), expected)
