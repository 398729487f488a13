"""The fast implementation does what the plain one does: outputs, gradients, at odd sizes and odd moments."""

import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from torchs4 import S4, S4D, S4Block, ops
from torchs4.ops import cpu, reference

LENGTHS = [1, 2, 3, 63, 100, 784, 1000, 1023, 4096]
# Features, batch, state size: each value of each list at least once, odd ones together.
SIZES = [(1, 1, 2), (3, 2, 4), (8, 3, 64), (17, 5, 4), (64, 2, 2)]
# Both sum the same numbers in another order; relative to the largest value.
FLOAT64_TOLERANCE = 1e-9
# A float32 kernel is exact to about 1e-7 in either; a transform adds a few rounding errors per stage.
FLOAT32_TOLERANCE = 5e-6


def tolerance(dtype):
    return FLOAT64_TOLERANCE if dtype == torch.float64 else FLOAT32_TOLERANCE


def close(actual, expected, dtype):
    scale = expected.abs().max().clamp(min=1e-30)
    return (actual - expected).abs().max() / scale <= tolerance(dtype)


def modal_system(features, state_size, dtype, **options):
    layer = S4(features, state_size=state_size, **options).to(dtype)
    with torch.no_grad():
        A, P, B, dt = layer._continuous(1.0)
        return [*reference.bilinear(A, P, P, B, dt), layer.C.detach()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", LENGTHS)
def test_kernel_and_its_gradients_match_the_plain_ones(length, dtype):
    torch.manual_seed(length)
    for features, _, state_size in SIZES:
        system = modal_system(features, state_size, dtype)
        expected = reference.modal_kernel(*system, length)
        actual = cpu.modal_kernel(*system, length)
        assert actual.dtype == expected.dtype
        assert close(actual, expected, dtype)
        # One sample depends on b and C alone: the other gradients are rounding noise around zero.
        system_grads = slice(3 if length == 1 else 0, 5)
        grad = torch.randn_like(expected)
        plain = reference.modal_kernel_backward(grad, *system)[system_grads]
        fast = cpu.modal_kernel_backward(grad, *system)[system_grads]
        for a, b in zip(fast, plain, strict=True):
            assert a.shape == b.shape
            assert close(a, b, dtype)


@pytest.mark.parametrize("options", [{"start": "legt"}, {"rank": 3, "channels": 2}, {"channels": 3}])
def test_kernel_matches_at_every_rank_and_channel(options):
    torch.manual_seed(0)
    system = modal_system(5, 8, torch.float64, **options)
    expected = reference.modal_kernel(*system, 100)
    assert close(cpu.modal_kernel(*system, 100), expected, torch.float64)
    grad = torch.randn_like(expected)
    plain = reference.modal_kernel_backward(grad, *system)
    for a, b in zip(cpu.modal_kernel_backward(grad, *system), plain, strict=True):
        assert close(a, b, torch.float64)


@pytest.mark.parametrize("step_size", [1e-5, 1.0])
def test_extreme_step_sizes_stay_within_float32_of_the_float64_kernel(step_size):
    """At Δ = 1 LegS's fastest modes lie at the Nyquist frequency, at 1e-5 all of them next to zero."""
    torch.manual_seed(0)
    system = modal_system(4, 64, torch.float32, min_step_size=step_size, max_step_size=step_size)
    exact = reference.modal_kernel(*[x.double() for x in system], 4096)
    fast = cpu.modal_kernel(*system, 4096)
    assert fast.isfinite().all()
    assert close(fast, exact, torch.float32)
    grads = cpu.modal_kernel_backward(torch.randn_like(fast), *system)
    assert all(grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize("length", LENGTHS)
def test_diagonal_kernel_and_its_gradients_match_the_plain_ones(length):
    torch.manual_seed(length)
    for features, channels, state_size in SIZES:
        layer = S4D(features, state_size=state_size, channels=channels)
        with torch.no_grad():
            A, B, dt = layer._state_matrix(), layer._input_matrix(), layer._step_sizes(1.0)
            system = reference.power_system(A, B, layer.C, dt, "zoh")
        expected = reference.power_kernel(*system, length, torch.float64)
        assert close(cpu.power_kernel(*system, length, torch.float64), expected, torch.float64)
        grad = torch.randn_like(expected)
        plain = reference.power_kernel_backward(grad, *system)
        for a, b in zip(cpu.power_kernel_backward(grad, *system), plain, strict=True):
            assert a.shape == b.shape
            assert close(a, b, torch.float64)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", LENGTHS)
def test_convolution_and_its_gradients_match_the_plain_ones(length, dtype, bidirectional):
    torch.manual_seed(length)
    for features, batch, _ in SIZES:
        u = torch.randn(batch, length, features, dtype=dtype)
        kernel = torch.randn(2, features, length, dtype=dtype)
        backward = torch.randn(2, features, length, dtype=dtype) if bidirectional else None
        skip = torch.randn(2, features, dtype=dtype)
        expected = reference.long_convolution(u, kernel, backward, skip)
        assert close(cpu.long_convolution(u, kernel, backward, skip), expected, dtype)
        grad = torch.randn_like(expected)
        plain = reference.long_convolution_backward(grad, u, kernel, backward, skip)
        fast = cpu.long_convolution_backward(grad, u, kernel, backward, skip)
        for a, b in zip(fast, plain, strict=True):
            assert a.shape == b.shape
            assert close(a, b, dtype)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize(("features", "batch", "state_size"), SIZES)
def test_bilinear_rule_and_its_gradients_match_the_plain_ones(features, batch, state_size, rank):
    torch.manual_seed(rank)
    n = state_size // 2
    A = torch.stack([-torch.rand(features, n) - 0.1, 50 * torch.randn(features, n)], dim=-1).double()
    P, Q = (torch.randn(rank, features, n, 2, dtype=torch.float64) for _ in range(2))
    B, dt = torch.randn(features, n, 2, dtype=torch.float64), torch.rand(features, dtype=torch.float64) + 1e-3
    system = (A, P, Q, B, dt)
    expected = reference.bilinear(*system)
    grads = [torch.randn_like(x) for x in expected]
    actual = [*cpu.bilinear(*system), *cpu.bilinear_backward(grads, *system)]
    for a, b in zip(actual, [*expected, *reference.bilinear_backward(grads, *system)], strict=True):
        assert a.shape == b.shape
        assert close(a, b, torch.float64)


@pytest.mark.parametrize(("features", "batch", "state_size"), SIZES)
def test_step_matches_the_plain_one(features, batch, state_size):
    torch.manual_seed(0)
    for options in ({}, {"start": "legt", "channels": 2}):
        layer = S4(features, state_size=state_size, **options)
        with torch.no_grad():
            system, C = layer._recurrence(1.0)
        u, state = torch.randn(batch, features), torch.randn(batch, features, state_size)
        arguments = (*system, C, layer.D.detach(), u, state)
        for a, b in zip(cpu.modal_step(*arguments), reference.modal_step(*arguments), strict=True):
            assert close(a, b, torch.float32)


def test_non_contiguous_signals_and_kernels_are_read_right():
    u = torch.randn(3, 9, 100).transpose(1, 2)
    kernel = torch.randn(100, 9, 1).permute(2, 1, 0)
    expected = reference.long_convolution(u.contiguous(), kernel.contiguous(), None, None)
    assert close(cpu.long_convolution(u, kernel, None, None), expected, torch.float32)
    grad = torch.randn(1, 100, 3, 9).transpose(1, 2)
    fast = cpu.long_convolution_backward(grad, u, kernel, None, None)
    plain = reference.long_convolution_backward(
        grad.contiguous(), u.contiguous(), kernel.contiguous(), None, None
    )
    assert all(close(a, b, torch.float32) for a, b in zip(fast, plain, strict=True))


@pytest.mark.parametrize("wanted", [{"u"}, {"kernel"}, {"backward"}, {"skip"}, {"u", "backward"}])
def test_gradients_of_any_subset_are_those_of_all(wanted):
    tensors = {
        "u": torch.randn(2, 20, 3),
        "kernel": torch.randn(1, 3, 20),
        "backward": torch.randn(1, 3, 20),
        "skip": torch.randn(1, 3),
    }

    def gradients(names):
        leaves = {n: t.clone().requires_grad_(n in names) for n, t in tensors.items()}
        ops.long_convolution(*leaves.values()).square().sum().backward()
        return {n: leaves[n].grad for n in names}

    everything = gradients(set(tensors))
    for name, grad in gradients(wanted).items():
        torch.testing.assert_close(grad, everything[name])


def test_the_choice_is_visible_and_never_silent(implementation_restored):
    with pytest.raises(ValueError, match="'auto', 'reference', 'cpu', 'portable'"):
        ops.set_implementation("fast")
    for name in ("reference", "cpu", "portable", "auto"):
        ops.set_implementation(name)
        assert ops.get_implementation() == name
    ops.set_implementation("cpu")
    elsewhere = torch.empty(1, 4, 2, device="meta")
    with pytest.raises(ValueError, match=r"'cpu'.*meta"):
        ops.implementation.implementation_for(elsewhere)


@pytest.fixture
def implementation_restored():
    before = ops.get_implementation()
    yield
    ops.set_implementation(before)


def test_implementations_agree_through_a_whole_block(implementation_restored):
    torch.manual_seed(0)
    block = S4Block(9, norm="layer")
    x = torch.randn(3, 200, 9)

    def results(name):
        ops.set_implementation(name)
        block.zero_grad()
        y = block(x)
        y.square().mean().backward()
        return [y.detach(), *(p.grad.clone() for p in block.parameters())]

    expected = results("reference")
    for name in ("cpu", "portable"):
        for a, b in zip(results(name), expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_several_threads_may_call_at_once():
    layer = S4(16, state_size=8)
    inputs = [torch.randn(2, 300, 16) for _ in range(8)]
    expected = [layer(x).detach() for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            for a, b in zip(pool.map(lambda x: layer(x).detach(), inputs), expected, strict=True):
                torch.testing.assert_close(a, b)


def run_python(source, **environment):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(source)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("module", ["torchs4", "torchs4.data", "torchs4.recipes"])
def test_import_is_light(module):
    result = run_python(f"import sys, {module}; assert 'numba' not in sys.modules, 'numba was imported'")
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_forked_data_workers_live_beside_it():
    result = run_python(
        """
        import torch, warnings
        from torch.utils.data import DataLoader
        from torchs4 import S4
        layer = S4(8, state_size=4)
        layer(torch.randn(2, 64, 8)).sum().backward()
        data = torch.randn(64, 64, 8)
        loader = DataLoader(data, batch_size=8, num_workers=2, multiprocessing_context="fork")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for epoch in range(2):
                for batch in loader:
                    layer(batch).sum().backward()
        print("done")
        """
    )
    assert result.stdout.strip() == "done", result.stderr


@pytest.mark.slow
def test_a_read_only_cache_still_works(tmp_path):
    """Compiled code cannot be stored anywhere: everything is compiled anew and works."""
    result = run_python(
        """
        import warnings
        import numba.core.caching as caching
        caching.CacheImpl._locator_classes = []
        # Said once, and no reason to stop.
        warnings.filterwarnings("ignore", message="Compiled code could not be kept")
        import torch
        from torchs4 import S4
        layer = S4(2, state_size=2)
        x = torch.randn(1, 20, 2)
        with torch.no_grad():
            state = layer.initial_state(1)
            assert torch.allclose(layer.step(x[:, 0], state)[0], layer(x)[:, 0], atol=1e-5)
        print("done")
        """
    )
    assert result.stdout.strip() == "done", result.stderr


def test_torch_export_accepts_a_layer():
    layer = S4(3, state_size=4).eval()
    x = torch.randn(2, 50, 3)
    with torch.no_grad():
        exported = torch.export.export(layer, (x,))
        torch.testing.assert_close(exported.module()(x), layer(x))


@pytest.mark.slow
def test_full_graph_compilation_accepts_a_block():
    block = S4Block(4)
    x = torch.randn(2, 60, 4)
    torch.testing.assert_close(
        torch.compile(block, fullgraph=True, backend="aot_eager")(x), block(x), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("bidirectional", [False, True])
def test_registered_operators_pass_opcheck(bidirectional):
    u = torch.randn(2, 10, 3, requires_grad=True)
    kernel = torch.randn(2, 3, 10, requires_grad=True)
    backward = torch.randn(2, 3, 10, requires_grad=True) if bidirectional else None
    skip = torch.randn(2, 3, requires_grad=True) if bidirectional else None
    inputs = (u, kernel, backward, skip)
    torch.library.opcheck(torch.ops.torchs4.long_convolution.default, inputs)
    grad = torch.randn(2, 2, 10, 3)
    arguments = (grad, *(None if x is None else x.detach() for x in inputs))
    torch.library.opcheck(torch.ops.torchs4.long_convolution_backward.default, arguments)
    with torch.no_grad():
        system, C = S4(3, state_size=4)._recurrence(1.0)
    arguments = (*system, C, torch.randn(1, 3), torch.randn(2, 3), torch.randn(2, 3, 4))
    torch.library.opcheck(torch.ops.torchs4.modal_step.default, arguments)
