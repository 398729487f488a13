import pytest
import torch
from oracle import normal

from torchs4 import ops
from torchs4.ops.reference.contour import fast_transform_length

pytestmark = pytest.mark.usefixtures("implementation")

# Relative to the largest output: a transform of a few thousand samples rounds about ten times in a row.
TOLERANCE = {torch.float64: 1e-13, torch.float32: 1e-5}

LENGTHS = [1, 2, 3, 63, 100, 1024]
# Odd on purpose.
BATCH, FEATURES = 3, 5


def direct_sum(u, kernel, backward_kernel=None):
    """y_t = Σ_{j≤t} k_{t-j} u_j + Σ_{j≥0} k'_j u_{t+1+j}, sample after sample."""
    outputs = []
    for t in range(u.shape[1]):
        y = torch.einsum("bjh,mhj->bmh", u[:, : t + 1], kernel[..., : t + 1].flip(-1))
        if backward_kernel is not None:
            future = u[:, t + 1 :]
            y = y + torch.einsum("bjh,mhj->bmh", future, backward_kernel[..., : future.shape[1]])
        outputs.append(y)
    return torch.stack(outputs, dim=1)


def make_inputs(length, channels=2):
    u = normal(BATCH, length, FEATURES, seed=1)
    kernels = [normal(channels, FEATURES, length, seed=seed) for seed in (2, 3)]
    return u, *kernels


def is_smooth(number):
    for prime in (2, 3, 5):
        while number % prime == 0:
            number //= prime
    return number == 1


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("length", LENGTHS)
def test_convolution_matches_direct_sum(length, channels, both_ways, dtype):
    u, kernel, backward_kernel = (x.to(dtype) for x in make_inputs(length, channels))
    kernels = (kernel, backward_kernel) if both_ways else (kernel,)
    y = ops.long_convolution(u, *kernels)
    expected = direct_sum(u.double(), *(k.double() for k in kernels))
    assert y.dtype == dtype
    assert y.shape == (BATCH, length, channels, FEATURES)
    assert (y - expected).abs().max() <= TOLERANCE[dtype] * expected.abs().max()


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
def test_skip_adds_a_multiple_of_the_signal(length, both_ways):
    u, kernel, backward_kernel = make_inputs(length)
    kernels = (kernel, backward_kernel if both_ways else None)
    skip = normal(2, FEATURES, seed=4)
    expected = ops.long_convolution(u, *kernels) + skip * u[:, :, None]
    y = ops.long_convolution(u, *kernels, skip)
    assert (y - expected).abs().max() <= TOLERANCE[torch.float64] * expected.abs().max()


@pytest.mark.parametrize("length", [1, 2, 100])
def test_convolution_with_an_impulse_returns_the_kernel(length):
    _, kernel, _ = make_inputs(length)
    impulse = torch.zeros(1, length, FEATURES, dtype=torch.float64)
    impulse[:, 0] = 1
    y = ops.long_convolution(impulse, kernel)[0].permute(1, 2, 0)
    assert (y - kernel).abs().max() <= TOLERANCE[torch.float64] * kernel.abs().max()


def test_backward_kernel_sees_the_future_only():
    length, moment = 40, 17
    u, kernel, backward_kernel = make_inputs(length)
    changed = u.clone()
    changed[:, : moment + 1] += 1
    silent = torch.zeros_like(kernel)
    y, y_changed = (ops.long_convolution(signal, silent, backward_kernel) for signal in (u, changed))
    difference = (y - y_changed).abs()
    # The past and the present leave no trace at the moment itself or later.
    assert difference[:, moment:].max() <= TOLERANCE[torch.float64] * y.abs().max()
    assert difference[:, moment - 1].min() > 0.01 * backward_kernel[..., 0].abs().min()


def test_last_value_of_the_backward_kernel_has_nothing_to_read():
    u, kernel, backward_kernel = make_inputs(10)
    other = backward_kernel.clone()
    other[..., -1] += 1
    y, y_other = (ops.long_convolution(u, kernel, k) for k in (backward_kernel, other))
    assert (y - y_other).abs().max() <= TOLERANCE[torch.float64] * y.abs().max()


@pytest.mark.parametrize("signal_dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_convolution_works_in_the_precision_of_the_kernel(signal_dtype):
    u, kernel, _ = make_inputs(63)
    u, kernel = u.to(signal_dtype), kernel.float()
    y = ops.long_convolution(u, kernel)
    expected = direct_sum(u.double(), kernel.double())
    assert y.dtype == torch.float32
    assert (y - expected).abs().max() <= TOLERANCE[torch.float32] * expected.abs().max()


@pytest.mark.parametrize("shape", [(2, FEATURES, 9), (2, FEATURES, 11), (2, 1, 10), (2, FEATURES + 1, 10)])
def test_convolution_refuses_a_kernel_of_the_wrong_shape(shape):
    u, kernel, _ = make_inputs(10)
    with pytest.raises(ValueError, match=r"^kernel has shape .*; expected \(2, 5, 10\)"):
        ops.long_convolution(u, normal(*shape))
    with pytest.raises(ValueError, match=r"^backward_kernel has shape .*; expected \(2, 5, 10\)"):
        ops.long_convolution(u, kernel, normal(*shape))


def test_convolution_refuses_one_channel_fewer_backward_than_forward():
    u, kernel, backward_kernel = make_inputs(10)
    with pytest.raises(ValueError, match=r"^backward_kernel has shape \(1, 5, 10\); expected \(2, 5, 10\)"):
        ops.long_convolution(u, kernel, backward_kernel[:1])


def test_convolution_refuses_a_skip_of_the_wrong_shape():
    u, kernel, _ = make_inputs(10)
    with pytest.raises(ValueError, match=r"^skip has shape \(2, 4\); expected \(2, 5\)"):
        ops.long_convolution(u, kernel, skip=normal(2, 4))


def test_convolution_needs_a_sample():
    u, kernel, _ = make_inputs(0)
    with pytest.raises(ValueError, match="length is 0;"):
        ops.long_convolution(u, kernel)


def test_transform_length_is_the_smallest_even_smooth_number():
    candidates = [number for number in range(2, 2050, 2) if is_smooth(number)]
    for minimum in range(1, 2001):
        expected = next(number for number in candidates if number >= minimum)
        assert fast_transform_length(minimum) == expected
