"""The implementation for any device: as exact in single precision as it says, and visible to compilers."""

from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace

import pytest
import torch
from oracle import diagonal_parameters, hippo_parameters, normal
from torch.autograd import gradgradcheck

from torchs4 import ops
from torchs4.ops import portable, reference, registered
from torchs4.ops.dtypes import exact_products
from torchs4.ops.portable.convolution import fast_size
from torchs4.ops.portable.pairs import exact_product, exact_sum, rounding_of_multiple

# The package has a function of that name.
modal_kernel = import_module("torchs4.ops.portable.modal_kernel")
STEP_SIZES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
LONGEST = 65_536
# Relative to the largest value of each kernel; measured: 2e-6. We promise 1e-5.
DPLR_TOLERANCE = 5e-6
# Measured: 2e-6.
DIAGONAL_TOLERANCE = 5e-6


@pytest.fixture(autouse=True)
def runs_portable():
    before = ops.get_implementation()
    ops.set_implementation("portable")
    yield
    ops.set_implementation(before)


def error(kernel, exact):
    return ((kernel - exact).abs().amax(-1) / exact.abs().amax(-1)).max().item()


@pytest.mark.parametrize("start", ["legs", "legt", "random"])
@pytest.mark.parametrize("state_size", [64, 128])
def test_single_precision_is_enough_for_65536_samples(start, state_size):
    parameters = hippo_parameters(start, state_size, STEP_SIZES).to(torch.float32)
    exact = parameters.to(torch.float64)
    system = reference.bilinear(*exact[:4], exact.dt)
    expected = reference.modal_kernel(*system, exact.C, LONGEST)
    kernel = ops.dplr_kernel(*parameters, LONGEST)
    assert kernel.dtype == torch.float32
    assert error(kernel, expected) <= DPLR_TOLERANCE


# One sample, fewer than come from the structure, powers of matrices beside it, and several levels of them on
# either side: the last has a level of which only the next one is made.
@pytest.mark.parametrize("rank_start", ["legs", "legt"])
@pytest.mark.parametrize("length", [1, 63, 64, 65, 1000, 5000, 20000])
def test_the_backward_pass_of_a_kernel_is_what_pytorch_finds(length, rank_start):
    A, P, Q, B, C, dt = hippo_parameters(rank_start, 4, (0.01, 0.7), 2)
    system = [x.detach().requires_grad_() for x in (*portable.bilinear(A, P, Q, B, dt), C)]
    expected = modal_kernel.plain_kernel(*system, length)
    kernel = portable.modal_kernel(*system, length)
    torch.testing.assert_close(kernel, expected, rtol=0, atol=0)
    grad = normal(*kernel.shape, seed=3)
    # What rounding left out of an angle is a constant.
    wanted = [x for number, x in enumerate(system) if number != 2]
    found = torch.autograd.grad(kernel, wanted, grad)
    for a, b in zip(found, torch.autograd.grad(expected, wanted, grad), strict=True):
        assert (a - b).abs().max() <= 1e-11 * b.abs().max().clamp(min=1e-3)


@pytest.mark.parametrize("block", [1, 64, 65, 100, 128, 320])
def test_blocks_of_any_size_do_what_the_recurrence_does(block):
    A, P, Q, B, C, dt = hippo_parameters("legs", 8, (0.01, 0.7), 2)
    system = reference.bilinear(A, P, Q, B, dt)
    expected = reference.modal_chunk_operators(*system, C, block)
    found = ops.dplr_chunk_operators(A, P, Q, B, C, dt, block)
    for a, b in zip(found, expected, strict=True):
        assert (a - b).abs().max() <= 1e-11 * b.abs().max()


@pytest.mark.parametrize("method", ["zoh", "bilinear"])
@pytest.mark.parametrize("start", ["legs", "lin", "real"])
def test_diagonal_systems_keep_their_angles_for_65536_samples(start, method):
    A, _, _, B, C, dt = diagonal_parameters(start, 128, STEP_SIZES).to(torch.float32)
    exact = reference.power_system(*(x.double() for x in (A, B, C, dt)), method)
    expected = reference.power_kernel(*exact, LONGEST, torch.float64)
    assert error(ops.diagonal_kernel(A, B, C, dt, LONGEST, method), expected) <= DIAGONAL_TOLERANCE


def test_nothing_is_computed_in_double_precision(monkeypatch):
    parameters = [x.requires_grad_() for x in hippo_parameters("legt", 8, (1e-2, 1e-1)).to(torch.float32)]
    seen = set()

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            for x in torch.utils._pytree.tree_leaves(result):
                if isinstance(x, torch.Tensor):
                    seen.add(x.dtype)
            return result

    A, P, Q, B, C, dt = parameters
    u, state = torch.randn(2, 40, 2), torch.randn(2, 2, 8)
    with Watch():
        for kernel in (
            ops.dplr_kernel(A, P, Q, B, C, dt, 40),
            ops.diagonal_kernel(A, B, C, dt, 40, "zoh"),
            ops.diagonal_kernel(A, B, C, dt, 40, "bilinear"),
        ):
            ops.long_convolution(u, kernel).sum().backward()
        y, _ = ops.chunk_pass(ops.dplr_chunk_operators(A, P, Q, B, C, dt, 8), C[..., 0, 0], u, state)
        y.sum().backward()
        system = ops.discretize_dplr(A, P, Q, B, dt)
        ops.dplr_step(system, ops.output_row(C), C[..., 0, 0], u[:, 0], state)
    assert torch.float32 in seen
    assert not seen & {torch.float64, torch.complex128}


def test_products_and_sums_lose_nothing():
    a, b = normal(1000).float(), 1e3 * normal(1000, seed=1).float()
    product, rest = exact_product(a, b)
    assert torch.equal(product.double() + rest.double(), a.double() * b.double())
    total, rest = exact_sum(a, b)
    assert torch.equal(total.double() + rest.double(), a.double() + b.double())
    for factor in (3, 4095, 4095 * 2**20):
        multiple = (a * factor).double() + rounding_of_multiple(a, factor).double()
        assert torch.equal(multiple, a.double() * factor)


@pytest.mark.parametrize("length", [1, 5, 8])
def test_gradients_can_be_differentiated_again(length):
    A, P, _, B, C, dt = hippo_parameters("legs", 4, (0.1, 0.7))
    inputs = tuple(x.requires_grad_() for x in (A, P, B, C, dt))
    assert gradgradcheck(lambda A, P, B, C, dt: ops.dplr_kernel(A, P, P, B, C, dt, length), inputs)


@pytest.mark.parametrize("rank_start", ["legs", "legt"])
def test_kernels_keep_the_rules_for_operators(rank_start):
    A, P, Q, B, C, dt = hippo_parameters(rank_start, 4, (0.1, 0.7))
    system = [x.requires_grad_() for x in portable.bilinear(A, P, Q, B, dt)]
    torch.library.opcheck(torch.ops.torchs4.portable_kernel.default, (*system, C, 11))
    *modes, weights = portable.power_system(A, B, C, dt, "zoh")
    modes = [x.requires_grad_() for x in modes[:2]] + modes[2:]
    torch.library.opcheck(torch.ops.torchs4.portable_power_kernel.default, (*modes, weights, 11))


def test_sizes_of_transforms_have_small_factors_only():
    for least in range(1, 3000, 7):
        size = fast_size(least)
        assert least <= size <= 1.25 * least + 2
        for factor in (2, 3, 5):
            while size % factor == 0:
                size //= factor
        assert size == 1


def test_features_that_are_convolved_in_groups_are_those_convolved_at_once(monkeypatch):
    u, kernel, other, skip = normal(3, 50, 7), normal(2, 7, 50), normal(2, 7, 50, seed=1), normal(2, 7)
    inputs = [x.requires_grad_() for x in (u, kernel, other, skip)]
    grad = normal(3, 50, 2, 7, seed=2)
    whole = ops.long_convolution(*inputs)
    expected = torch.autograd.grad(whole, inputs, grad)
    monkeypatch.setattr("torchs4.ops.portable.convolution._GROUP_ELEMENTS", 2000)
    grouped = ops.long_convolution(*inputs)
    torch.testing.assert_close(grouped, whole)
    torch.testing.assert_close(torch.autograd.grad(grouped, inputs, grad), expected)


def test_the_backward_pass_of_a_chunk_keeps_its_inputs_alone():
    A, P, Q, B, C, dt = hippo_parameters("legs", 16, (1e-2, 1e-1)).to(torch.float32)
    operators = [x.detach().requires_grad_() for x in ops.dplr_chunk_operators(A, P, Q, B, C, dt, 16)]
    u, state, skip = torch.randn(2, 640, 2, requires_grad=True), torch.zeros(2, 2, 16), torch.zeros(1, 2)
    kept = 0

    def count(x):
        nonlocal kept
        kept += x.numel()
        return x

    with torch.autograd.graph.saved_tensors_hooks(count, lambda x: x):
        y, _ = ops.chunk_pass(ops.ChunkOperators(*operators), skip, u, state)
    assert kept <= sum(x.numel() for x in (*operators, u, state, skip))
    y.sum().backward()
    assert u.grad.isfinite().all()


def test_products_are_exact_on_cuda_whatever_people_allow_for_their_own():
    settings, there = torch.backends.cuda.matmul, torch.empty(1, device="meta")
    before = settings.fp32_precision
    try:
        settings.fp32_precision = "tf32"
        with exact_products(SimpleNamespace(device=torch.device("cuda"))):
            assert settings.fp32_precision == "ieee"
        assert settings.fp32_precision == "tf32"
        with exact_products(there):
            assert settings.fp32_precision == "tf32"
    finally:
        settings.fp32_precision = before


# Where the products of each are made, forward and backward.
@pytest.mark.parametrize(
    ("module", "function"),
    [
        ("modal_kernel", "_factors"),
        ("power_kernel", "_fine_and_coarse"),
        ("chunk_operators", "_operators"),
        ("chunk_pass", "_course"),
    ],
)
def test_every_product_of_a_state_space_is_asked_to_be_exact(module, function, monkeypatch):
    inside, seen = 0, []

    @contextmanager
    def watch(x):
        nonlocal inside
        inside += 1
        yield
        inside -= 1

    for user in ("modal_kernel", "power_kernel", "recomputing"):
        monkeypatch.setattr(import_module(f"torchs4.ops.portable.{user}"), "exact_products", watch)
    monkeypatch.setattr(registered, "exact_products", watch)
    home = import_module(f"torchs4.ops.portable.{module}")
    right = getattr(home, function)

    def asked(*inputs, **options):
        seen.append(inside)
        return right(*inputs, **options)

    monkeypatch.setattr(home, function, asked)
    A, P, Q, B, C, dt = (
        x.requires_grad_() for x in hippo_parameters("legs", 8, (0.01, 0.7)).to(torch.float32)
    )
    operators = ops.dplr_chunk_operators(A, P, Q, B, C, dt, 16)
    u, state = torch.randn(3, 100, 2, requires_grad=True), torch.zeros(3, 2, 8)
    y, _ = ops.chunk_pass(operators, torch.zeros(1, 2), u, state)
    kernels = ops.dplr_kernel(A, P, Q, B, C, dt, 100) + ops.diagonal_kernel(A, B, C, dt, 100)
    (y.sum() + kernels.sum()).backward()
    assert seen == [1, 1]
