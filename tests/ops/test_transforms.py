"""PyTorch's ways to differentiate work on layers as they do on PyTorch's own."""

import pytest
import torch
from torch.func import functional_call, grad, hessian, jacrev, jvp, vmap
from torch.utils.checkpoint import checkpoint

from torchs4 import LSSL, S4, S4D, S4Block, S4Config

# PyTorch's own: its forward mode is scripted in places, and a map conjugates one by one.
pytestmark = [
    pytest.mark.usefixtures("implementation"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated"),
    pytest.mark.filterwarnings("ignore:There is a performance drop because we have not yet implemented"),
]

LENGTH, FEATURES = 12, 3
TOLERANCE = {"rtol": 1e-6, "atol": 1e-8}


def build(name):
    torch.manual_seed(0)
    layers = {
        "s4": lambda: S4(FEATURES, state_size=4),
        "s4 both ways": lambda: S4(FEATURES, state_size=4, bidirectional=True, channels=2),
        "s4d": lambda: S4D(FEATURES, state_size=4),
        "lssl": lambda: LSSL(FEATURES, state_size=4),
        "block": lambda: S4Block(FEATURES, layer=S4Config(state_size=4)),
    }
    return layers[name]().double()


LAYERS = ["s4", "s4 both ways", "s4d", "lssl", "block"]
every_layer = pytest.mark.parametrize("name", LAYERS)


def signal(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def forward(layer, x):
    return layer(x)


def prefill(layer, x):
    return layer.prefill(x)[0]


def step(layer, x):
    return layer.step(x[:, 0], layer.initial_state(len(x)))[0]


def layers_and(verbs):
    """Both ways need the whole sequence."""
    return [(name, verb) for name in LAYERS for verb in verbs if name != "s4 both ways" or verb is forward]


def difference(function, x, direction, distance=1e-6):
    with torch.no_grad():
        return (function(x + distance * direction) - function(x - distance * direction)) / (2 * distance)


@pytest.mark.parametrize(("name", "verb"), layers_and([forward, prefill, step]))
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
def test_forward_mode_derivatives_are_right(name, verb, mode):
    layer = build(name)
    x, direction = signal(2, LENGTH, FEATURES), signal(2, LENGTH, FEATURES, seed=2)
    expected = difference(lambda x: verb(layer, x), x, direction)
    assert expected.abs().max() > 1e-3
    with mode():
        _, slope = jvp(lambda x: verb(layer, x), (x,), (direction,))
    torch.testing.assert_close(slope, expected, rtol=1e-5, atol=1e-7)
    with mode(), torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, direction)
        slope = torch.autograd.forward_ad.unpack_dual(verb(layer, dual)).tangent
    torch.testing.assert_close(slope, expected, rtol=1e-5, atol=1e-7)


@every_layer
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
def test_forward_mode_derivatives_for_weights_are_right(name, mode):
    layer, x = build(name), signal(2, LENGTH, FEATURES)
    weights = {key: weight.detach() for key, weight in layer.named_parameters()}
    directions = {key: signal(*weight.shape, seed=3) for key, weight in weights.items()}

    def run(weights):
        return functional_call(layer, weights, (x,))

    def moved(distance):
        return {key: weight + distance * directions[key] for key, weight in weights.items()}

    with mode():
        # What an earlier call remembered must not take the place of the weights.
        layer(x)
        _, slope = jvp(run, (weights,), (directions,))
    with torch.no_grad():
        expected = (run(moved(1e-6)) - run(moved(-1e-6))) / 2e-6
    torch.testing.assert_close(slope, expected, rtol=1e-5, atol=1e-6)


@every_layer
def test_gradients_of_each_sample_equal_those_of_samples_alone(name):
    layer, x = build(name), signal(3, LENGTH, FEATURES)
    weights = {key: weight.detach() for key, weight in layer.named_parameters()}

    def loss(weights, sample):
        return functional_call(layer, weights, (sample[None],)).square().sum()

    together = vmap(grad(loss), in_dims=(None, 0))(weights, x)
    for index, sample in enumerate(x):
        layer.zero_grad()
        layer(sample[None]).square().sum().backward()
        for key, weight in layer.named_parameters():
            torch.testing.assert_close(together[key][index], weight.grad, **TOLERANCE)


@every_layer
def test_a_map_over_inputs_without_gradients_equals_the_batch(name):
    layer, x = build(name), signal(3, LENGTH, FEATURES)
    with torch.no_grad():
        torch.testing.assert_close(vmap(lambda sample: layer(sample[None])[0])(x), layer(x), **TOLERANCE)


@every_layer
def test_jacobians_are_right(name):
    layer, x = build(name), signal(1, LENGTH, FEATURES)
    expected = torch.autograd.functional.jacobian(layer, x)
    torch.testing.assert_close(jacrev(layer)(x), expected, **TOLERANCE)


@every_layer
def test_second_derivatives_of_either_kind_agree(name):
    layer, x = build(name), signal(1, 4, FEATURES)

    def loss(x):
        return layer(x).square().sum() + layer(x).pow(3).sum()

    expected = hessian(loss)(x)
    torch.testing.assert_close(torch.autograd.functional.hessian(loss, x), expected, **TOLERANCE)


@pytest.mark.parametrize(("name", "verb"), layers_and([forward, prefill]))
def test_backward_passes_can_be_differentiated(name, verb):
    layer = build(name)
    names, weights = zip(*layer.named_parameters(), strict=True)

    def run(x, *values):
        replaced = {f"layer.{key}": value for key, value in zip(names, values, strict=True)}
        return functional_call(Verb(layer, verb), replaced, (x,))

    inputs = [signal(2, 5, FEATURES), *(weight.detach().clone() for weight in weights)]
    assert torch.autograd.gradgradcheck(run, [x.requires_grad_() for x in inputs], atol=1e-4, fast_mode=True)


class Verb(torch.nn.Module):
    def __init__(self, layer, verb):
        super().__init__()
        self.layer, self.verb = layer, verb

    def forward(self, x):
        return self.verb(self.layer, x)


@every_layer
def test_checkpointed_layers_have_the_same_gradients(name):
    layer, x = build(name), signal(2, LENGTH, FEATURES).requires_grad_()
    layer(x).square().sum().backward()
    expected = [x.grad, *(weight.grad for weight in layer.parameters())]
    x.grad = None
    layer.zero_grad()
    checkpoint(layer, x, use_reentrant=False).square().sum().backward()
    torch.testing.assert_close([x.grad, *(weight.grad for weight in layer.parameters())], expected)


def test_long_sequences_by_blocks_can_be_checkpointed_and_differentiated_twice():
    layer, x = S4(2, state_size=4).double(), signal(1, 2100, 2).requires_grad_()
    (once,) = torch.autograd.grad(
        checkpoint(layer, x, use_reentrant=False).square().sum(), x, create_graph=True
    )
    assert torch.autograd.grad(once.sum(), x)[0].isfinite().all()
