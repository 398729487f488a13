"""What is remembered of the weights is never older than the weights."""

from __future__ import annotations

import copy
import functools
import pickle
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from torchs4 import LSSL, S4, S4D, BlockStack, LSSLConfig, S4Block, S4BlockConfig, S4Config, S4DConfig
from torchs4.layers.weight_cache import WeightCache

KINDS = {"s4": S4, "s4d": S4D, "lssl": LSSL}
every_kind = pytest.mark.parametrize("kind", list(KINDS))


def build(kind: str, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return KINDS[kind](3, state_size=8)


def evaluate(layer: Any, rate: float = 1.0) -> list[torch.Tensor]:
    """Everything that goes through the cache: forward, kernel, prefill and step."""
    dtype = layer.D.dtype
    x = torch.randn(2, 9, 3, generator=torch.Generator().manual_seed(5)).to(dtype)
    with torch.no_grad():
        chunk, state = layer.prefill(x, rate=rate)
        y_t, next_state = layer.step(x[:, 0], state, rate=rate)
        return [layer(x, rate=rate), layer.kernel(9, rate), chunk, state, y_t, next_state]


def evaluate_fresh(layer: Any, rate: float = 1.0) -> list[torch.Tensor]:
    """The same with a new module, which remembers nothing."""
    twin = type(layer)(3, layer.config).to(layer.D.dtype)
    twin.load_state_dict(layer.state_dict())
    return evaluate(twin, rate)


def assert_up_to_date(layer: Any, rate: float = 1.0) -> None:
    for remembered, fresh in zip(evaluate(layer, rate), evaluate_fresh(layer, rate), strict=True):
        assert remembered.dtype == fresh.dtype
        assert torch.equal(remembered, fresh)


@every_kind
def test_an_optimiser_step_is_noticed(kind: str) -> None:
    layer = build(kind)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    x = torch.randn(2, 9, 3)
    for _ in range(3):
        before = evaluate(layer)
        layer(x).square().mean().backward()
        optimizer.step()
        assert not torch.equal(evaluate(layer)[0], before[0])
        assert_up_to_date(layer)


@every_kind
def test_a_copy_into_data_is_noticed(kind: str) -> None:
    layer, other = build(kind), build(kind, seed=1)
    # One weight at a time: each of them must be watched.
    for name, parameter in layer.ssm_parameters().items():
        evaluate(layer)
        parameter.data.copy_(other.ssm_parameters()[name].data + 0.1)
        assert_up_to_date(layer)


@every_kind
def test_a_change_of_the_skip_is_noticed(kind: str) -> None:
    layer = build(kind)
    evaluate(layer)
    layer.D.data.mul_(3)
    assert_up_to_date(layer)


@every_kind
def test_a_loaded_state_dict_is_noticed(kind: str) -> None:
    layer = build(kind)
    evaluate(layer)
    layer.load_state_dict(build(kind, seed=1).state_dict())
    assert_up_to_date(layer)


@every_kind
def test_an_assigned_state_dict_is_noticed(kind: str) -> None:
    layer = build(kind)
    evaluate(layer)
    layer.load_state_dict(build(kind, seed=1).state_dict(), assign=True)
    assert_up_to_date(layer)


@every_kind
def test_a_new_parameter_object_is_noticed(kind: str) -> None:
    layer = build(kind)
    evaluate(layer)
    layer.C = torch.nn.Parameter(layer.C.detach() * 2)
    assert_up_to_date(layer)


@every_kind
def test_another_dtype_is_noticed(kind: str) -> None:
    layer = build(kind)
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float64):
        evaluate(layer)
        layer.to(dtype)
        assert_up_to_date(layer)


@every_kind
def test_another_rate_is_noticed(kind: str) -> None:
    layer = build(kind)
    for rate in (1.0, 0.5, 2.0, 1.0):
        assert_up_to_date(layer, rate)
    with torch.no_grad():
        for rate in (1.0, 0.5, 2.0, 1.0):
            assert torch.equal(layer.kernel(9, rate), build(kind).kernel(9, rate))


@every_kind
def test_another_length_is_noticed(kind: str) -> None:
    layer = build(kind)
    with torch.no_grad():
        for length in (5, 70, 1, 5):
            assert torch.equal(layer.kernel(length), build(kind).kernel(length))
            x = torch.ones(1, length, 3)
            assert torch.equal(layer.prefill(x)[0], build(kind).prefill(x)[0])


@every_kind
def test_swapped_parameters_are_noticed(kind: str) -> None:
    layer, other = build(kind), build(kind, seed=1)
    x = torch.randn(2, 9, 3)
    with torch.no_grad():
        layer(x)
        swapped = torch.func.functional_call(layer, dict(other.named_parameters()), (x,))
        assert torch.equal(swapped, other(x))
        assert torch.equal(layer(x), build(kind)(x))


@every_kind
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_flow_after_any_mode_without_them(kind: str, mode: Any) -> None:
    layer = build(kind)
    x = torch.randn(2, 9, 3)
    with mode():
        expected = layer(x), layer.prefill(x)[0], layer.step(x[:, 0], layer.initial_state(2))[0]
    received = layer(x), layer.prefill(x)[0], layer.step(x[:, 0], layer.initial_state(2))[0]
    for with_grad, without in zip(received, expected, strict=True):
        # Without gradients a step is fused: another order of the same sums.
        torch.testing.assert_close(with_grad, without, rtol=1e-5, atol=1e-6)
        layer.zero_grad()
        with_grad.square().sum().backward()
        for name, parameter in layer.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name


@every_kind
def test_inference_mode_after_no_grad_and_back(kind: str) -> None:
    layer = build(kind)
    for mode in (torch.no_grad, torch.inference_mode, torch.no_grad):
        with mode():
            assert torch.equal(layer.kernel(9), build(kind).kernel(9))


@every_kind
def test_a_kernel_remembered_in_inference_mode_can_be_used_with_gradients(kind: str) -> None:
    layer, weights = build(kind), torch.ones(9, requires_grad=True)
    with torch.inference_mode():
        layer.kernel(9)
    with torch.no_grad():
        remembered = layer.kernel(9)
    (remembered * weights).sum().backward()
    assert torch.equal(weights.grad, remembered.sum((0, 1)))


@every_kind
def test_a_kernel_with_gradients_equals_one_without(kind: str) -> None:
    layer = build(kind)
    with torch.no_grad():
        without = layer.kernel(70)
    assert layer.kernel(70).requires_grad
    assert torch.equal(layer.kernel(70), without)


@every_kind
def test_writing_into_a_kernel_does_not_change_the_layer(kind: str) -> None:
    layer = build(kind)
    with torch.no_grad():
        layer.kernel(9).zero_()
        assert torch.equal(layer.kernel(9), build(kind).kernel(9))


@every_kind
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_used_layer_can_be_copied_and_pickled(kind: str, mode: Any) -> None:
    layer = build(kind)
    with mode():
        evaluate(layer)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        twin.C.data.mul_(2)
        assert_up_to_date(twin)
    assert_up_to_date(layer)


@every_kind
def test_nothing_remembered_enters_the_state_dict(kind: str) -> None:
    layer = build(kind)
    names = set(layer.state_dict())
    evaluate(layer)
    assert set(layer.state_dict()) == names == {*layer.ssm_parameters(), "D"}


def test_a_block_steps_with_its_newest_weights() -> None:
    torch.manual_seed(0)
    block = S4Block(3, layer=S4Config(state_size=8))
    optimizer = torch.optim.SGD(block.parameters(), lr=0.1)
    x = torch.randn(2, 9, 3)
    for _ in range(2):
        with torch.no_grad():
            state, outputs = block.initial_state(2), []
            for position in range(9):
                y_t, state = block.step(x[:, position], state)
                outputs.append(y_t)
            # Recurrence and convolution round differently: a few float32 digits.
            torch.testing.assert_close(torch.stack(outputs, 1), block(x), rtol=0, atol=1e-5)
        block(x).square().mean().backward()
        optimizer.step()


def test_a_value_is_computed_once_while_nothing_changes() -> None:
    cache, weights, calls = WeightCache(), [torch.ones(3)], []

    def compute() -> int:
        calls.append(1)
        return len(calls)

    with torch.no_grad():
        assert [cache.get("slot", 1, weights, compute) for _ in range(3)] == [1, 1, 1]
        assert cache.get("slot", 2, weights, compute) == 2
        assert cache.get("other", 2, weights, compute) == 3
        assert cache.get("slot", 2, weights, compute) == 2
        weights[0].data.add_(1)
        assert cache.get("slot", 2, weights, compute) == 4
        assert cache.get("other", 2, weights, compute) == 5


def test_alternating_keys_are_computed_once_each() -> None:
    cache, weights, calls = WeightCache(), [torch.ones(3)], []

    def compute(key: float) -> float:
        calls.append(key)
        return key

    with torch.no_grad():
        for _ in range(3):
            for key in (1.0, 2.0, 0.5):
                assert cache.get("slot", key, weights, lambda key=key: compute(key)) == key
    assert calls == [1.0, 2.0, 0.5]


def test_no_more_than_a_few_values_are_kept_the_latest_used_among_them() -> None:
    cache, weights, calls = WeightCache(), [torch.ones(3)], []
    values = {key: torch.empty(1) for key in range(100)}
    with torch.no_grad():
        for key in values:
            cache.get("slot", key, weights, lambda key=key: values[key])
            assert cache.get("slot", 0, weights, lambda: values[0]) is values[0]
        assert cache.get("slot", 0, weights, lambda: calls.append(1)) is values[0]
    alive = [weakref.ref(values.pop(key)) for key in list(values)]
    assert 2 <= sum(reference() is not None for reference in alive) <= 8


def test_a_slow_value_is_not_taken_for_one_of_newer_weights() -> None:
    cache, old, new = WeightCache(), [torch.zeros(1)], [torch.ones(1)]

    def compute() -> float:
        # Meanwhile another thread comes with other weights.
        assert cache.get("slot", 1, new, lambda: 1.0) == 1.0
        return 0.0

    with torch.no_grad():
        assert cache.get("slot", 1, old, compute) == 0.0
        assert cache.get("slot", 1, new, lambda: 2.0) == 1.0
        assert cache.get("slot", 1, old, lambda: 3.0) == 3.0


THREADS = 8


def in_threads(jobs: list[Any]) -> list[Any]:
    """What the jobs return, all started at the same moment."""
    barrier = threading.Barrier(THREADS)

    def run(job: Any) -> Any:
        barrier.wait()
        return job()

    with ThreadPoolExecutor(THREADS) as pool:
        return [future.result() for future in [pool.submit(run, job) for job in jobs]]


@pytest.mark.parametrize(
    "layer", [S4Config(state_size=16), S4DConfig(state_size=16), LSSLConfig(state_size=8)]
)
def test_threads_with_their_own_rates_and_lengths_do_not_disturb_one_another(layer: Any) -> None:
    torch.manual_seed(0)
    stack = BlockStack(8, 2, S4BlockConfig(layer=layer)).eval()

    def use(number: int) -> list[torch.Tensor]:
        rate, length = (1.0, 0.5, 2.0)[number % 3], 20 + 3 * (number % 5)
        x = torch.randn(2, length, 8, generator=torch.Generator().manual_seed(number))
        results = []
        with torch.inference_mode():
            for _ in range(5):
                y, state = stack.prefill(x, rate=rate)
                results += [y, stack(x, rate=rate)]
                for x_t in x.unbind(1):
                    y_t, state = stack.step(x_t, state, rate=rate)
                    results.append(y_t)
        return results

    expected = [use(number) for number in range(THREADS)]
    for _ in range(3):
        received = in_threads([functools.partial(use, number) for number in range(THREADS)])
        for together, alone in zip(received, expected, strict=True):
            assert all(map(torch.equal, together, alone))


def test_nothing_is_remembered_while_gradients_are_on() -> None:
    cache, weights, calls = WeightCache(), [torch.ones(3)], []
    for _ in range(3):
        cache.get("slot", 1, weights, lambda: calls.append(1))
    assert len(calls) == 3
