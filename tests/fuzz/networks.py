"""Random networks on random signals: whole, in chunks, in steps, backwards; against formulas in float64."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from torchs4 import hippo, ops
from torchs4.layers import LSSLConfig, LSTMConfig, S4BlockConfig, S4Config, S4DConfig, TransformerConfig
from torchs4.layers.attention import LinearTransformerConfig, PerformerConfig
from torchs4.layers.block import S4Block
from torchs4.models import BlockStack, SequenceModel, UNetModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from outcome import Outcome

# Of the largest number of what is compared. float64 is compared with another algorithm in float64.
TOLERANCES = {torch.float32: 3e-4, torch.float64: 1e-8, torch.bfloat16: 0.1}
# Gradients that are zero by cancellation are compared with the larger ones of other parameters.
FLOOR = 1e-2
# What is farther off is at the limit of its number format, and no fault, if inputs and weights that are off
# by their last digit would move the exact answer about as far, or if plain PyTorch in that format is about as
# far off. So many times that is allowed: a network rounds more than once.
ALLOWED_ROUNDINGS, ALLOWED_BESIDE_PLAIN = 100.0, 10.0
VOCABULARY_SIZE = 11
_WITH_HEADS = (TransformerConfig, LinearTransformerConfig, PerformerConfig)
LONGEST, STEPS = 600, 60


class Case(NamedTuple):
    """A network and what goes through it."""

    level: str
    network: Any
    x: Tensor
    padding: dict[str, Any]
    rate: float
    training: bool
    real: Tensor
    description: str


def run(number: int, outcome: Outcome) -> None:
    """Try one random case."""
    random = Random(number)
    torch.manual_seed(number)
    torch.set_num_threads(random.choice([1, 2]))
    try:
        case = _draw(random)
    except ValueError as error:
        outcome.refused(str(error))
        return
    outcome.describe(case.description)
    _compare_all(case, random, outcome)


def _draw(random: Random) -> Case:
    level = random.choice(["layer", "block", "stack", "model", "model", "unet"])
    layer = _draw_layer(random)
    features = random.choice([1, 2, 3, 4, 6, 8, 9, 16, 20])
    if isinstance(layer, _WITH_HEADS):
        features = random.choice([4, 8, 12])
    dtype = random.choices(list(TOLERANCES), [6, 3, 1])[0]
    batch, length = random.randint(1, 5), _log_uniform_int(random, 1, LONGEST)
    scale = 10.0 ** random.choice([0, 0, 0, 0, -6, -3, 2, 4])
    tokens, pooled, columns = False, False, features
    if level == "layer":
        network: nn.Module = layer.build(features)
        options: Any = layer
    else:
        # The norm of a single feature is the same whatever it is: nothing would be left to compare.
        features = max(2, features)
        options = _draw_block(random, layer)
        if level == "block":
            network = S4Block(features, options)
        elif level == "stack":
            network = BlockStack(features, random.randint(1, 3), options)
        else:
            tokens = random.random() < 0.3
            columns = random.choice([1, 3])
            pooling = random.choice(["mean", "last", "none"])
            pooled = pooling != "none"
            options = {
                "output_size": random.choice([1, 5]),
                "input_features": columns,
                "vocabulary_size": VOCABULARY_SIZE if tokens else None,
                "features": features,
                "num_layers": random.randint(1, 3),
                "block": options,
                "pooling": pooling,
                "stem": random.choice([(), (), (), (2,), (3, 1), (2, 2)]),
            }
            if level == "unet":
                level = "model"
                # Its blocks add to what they got, and it has its own way to make sequences shorter.
                options |= {"block": replace(options["block"], pre_norm=True, residual=True), "stem": ()}
                options |= {
                    "pools": random.choice([(2,), (3, 2), (1, 4)]),
                    "growth": random.choice([1.0, 1.5]),
                }
                network = UNetModel(**options)
            else:
                network = SequenceModel(**options)
    _disturb(network)
    network = network.to(dtype)
    if tokens:
        x = torch.randint(VOCABULARY_SIZE, (batch, length))
    else:
        x = (scale * torch.randn(batch, length, columns, dtype=torch.float64)).to(dtype)
    x = _laid_out(random, x)
    padding_kind = random.choice(["no", "no", "lengths", "end", "start", "holes"])
    padding, real = _draw_padding(random, padding_kind, batch, length)
    rate = random.choice([1.0, 1.0, 1.0, 2.0, 0.5, 1.5, 0.3])
    training = random.random() < 0.5
    network.train(training)
    description = (
        f"{level} of {features} features, {options!r}\n{dtype}, batch {batch}, length {length}, "
        f"signal scale {scale:g}, strides {x.stride()}, {padding_kind} padding, rate {rate}, "
        f"{'training' if training else 'evaluating'}, {torch.get_num_threads()} threads"
    )
    if pooled and level == "model":
        real = torch.ones(batch, dtype=torch.bool)
    return Case(level, network, x, padding, rate, training, real, description)


def _draw_layer(random: Random) -> Any:
    kinds = {"s4": 6, "s4d": 5, "lssl": 3, "lstm": 1, "transformer": 1, "linear": 1, "performer": 1}
    kind = random.choices(list(kinds), list(kinds.values()))[0]
    bidirectional = random.random() < 0.2
    if kind == "lstm":
        return LSTMConfig(bidirectional=bidirectional)
    if kind == "transformer":
        return TransformerConfig(heads=random.choice([1, 2]), bidirectional=bidirectional)
    if kind == "linear":
        return LinearTransformerConfig(heads=random.choice([1, 2]), bidirectional=bidirectional)
    if kind == "performer":
        return PerformerConfig(heads=random.choice([1, 2]), random_features=8, bidirectional=bidirectional)
    smallest = 10 ** random.uniform(-4.5, -0.5)
    shared = {
        "bidirectional": bidirectional,
        "channels": random.choice([1, 1, 2, 3]),
        "per_feature": random.random() < 0.3,
        "min_step_size": smallest,
        "max_step_size": smallest * 10 ** random.uniform(0, 2),
    }
    if kind == "lssl":
        return LSSLConfig(
            state_size=random.choice([1, 2, 5, 8, 16]),
            start=random.choice(list(hippo.DENSE_STARTS)),
            discretization=random.choice(["bilinear", "zoh"]),
            **shared,
        )
    state_size = random.choice([2, 4, 6, 8, 16, 32, 64])
    if kind == "s4":
        start = random.choice(list(hippo.DPLR_STARTS))
        rank = random.choice([None, None, 2, 3])
        return S4Config(state_size=state_size, start=start, rank=rank, **shared)
    return S4DConfig(
        state_size=state_size,
        start=random.choice(list(hippo.DIAGONAL_STARTS)),
        discretization=random.choice(["bilinear", "zoh"]),
        **shared,
    )


def _draw_block(random: Random, layer: Any) -> S4BlockConfig:
    return S4BlockConfig(
        layer=layer,
        norm=random.choice(["layer", "layer", "batch", "batch", "scalar", "none"]),
        pre_norm=random.random() < 0.7,
        activation=random.choice(["gelu", "gelu", "relu", "silu", "none"]),
        mixing=random.choice(["glu", "glu", "linear"]),
        residual=random.random() < 0.8,
    )


def _disturb(network: nn.Module) -> None:
    """Norms as training leaves them: not the identity."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm1d | nn.LayerNorm):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias)
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)


def _laid_out(random: Random, x: Tensor) -> Tensor:
    """The same numbers, lying in memory in one of several ways."""
    match random.choice(["plain", "turned", "gaps", "within", "odd"]):
        case "turned":
            return x.transpose(0, 1).contiguous().transpose(0, 1)
        case "gaps":
            return torch.stack([x, torch.zeros_like(x)], dim=-1)[..., 0]
        case "within":
            larger = x.new_zeros(x.shape[0] + 2, x.shape[1] + 3, *x.shape[2:])
            larger[1:-1, 2:-1] = x
            return larger[1:-1, 2:-1]
        case "odd":
            # Not at a multiple of a vector's size.
            larger = x.new_zeros(x.numel() + 1)
            larger[1:] = x.flatten()
            return larger[1:].view(x.shape)
    return x


def _draw_padding(random: Random, kind: str, batch: int, length: int) -> tuple[dict[str, Any], Tensor]:
    """Arguments that say which positions count, and which do."""
    places = torch.arange(length).expand(batch, length)
    lengths = [random.randint(1, length) for _ in range(batch)]
    match kind:
        case "lengths":
            return {"lengths": lengths}, places < torch.tensor(lengths)[:, None]
        case "end":
            mask = places < torch.tensor(lengths)[:, None]
        case "start":
            mask = places >= length - torch.tensor(lengths)[:, None]
        case "holes":
            mask = torch.rand(batch, length) < 0.7
            mask[:, random.randrange(length)] = True
        case "no":
            return {}, torch.ones(batch, length, dtype=torch.bool)
    return {"mask": mask}, mask


def _log_uniform_int(random: Random, low: int, high: int) -> int:
    return round(math.exp(random.uniform(math.log(low), math.log(high))))


class Run(NamedTuple):
    """What a network gave, and gradients by name."""

    y: Tensor
    grads: dict[str, Tensor]


def _compare_all(case: Case, random: Random, outcome: Outcome) -> None:
    try:
        actual = _forward_backward(case, case.network, case.x)
    except ValueError as error:
        outcome.refused(str(error))
        return
    exact = _exactly(case, 0.0)
    tolerance = TOLERANCES[next(case.network.parameters()).dtype]
    pairs = {"forward": (actual.y, exact.y)}
    pairs |= {f"gradient of {name}": (grad, exact.grads[name]) for name, grad in actual.grads.items()}
    floor = FLOOR * max((float(g.abs().max()) for g in exact.grads.values()), default=0.0)
    floors = {
        name: floor if name.startswith("gradient") and name != "gradient of x" else 0.0 for name in pairs
    }
    for name, streamed in _streams(case, random, outcome):
        pairs[name], floors[name] = (streamed, exact.y), 0.0
    wrong = {
        name: _distance(a, b, floors[name])
        for name, (a, b) in pairs.items()
        if not _distance(a, b, floors[name]) <= tolerance
    }
    if not wrong:
        return
    moved, plain = _sensitivity(case, exact, floors), _distances(_plainly(case), exact, floors)
    for name, distance in wrong.items():
        # Chunks and steps give what the whole gives.
        key = name if name in moved else "forward"
        what = (
            f"{name} is {distance:.1e} off; a last digit of inputs and weights moves it by {moved[key]:.1e}, "
        )
        what += f"plain PyTorch is {plain[key]:.1e} off"
        if distance <= max(ALLOWED_ROUNDINGS * moved[key], ALLOWED_BESIDE_PLAIN * plain[key]):
            outcome.limit(what)
        else:
            outcome.fault(what)


def _forward_backward(case: Case, network: Any, x: Tensor) -> Run:
    network.zero_grad()
    x = x.detach()
    if x.is_floating_point():
        x.requires_grad_()
    y = network(x, rate=case.rate, **case.padding)
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    weights = torch.where(case.real.view(*case.real.shape, *[1] * (y.dim() - case.real.dim())), weights, 0)
    (y * weights.to(y.dtype)).sum().backward()
    grads = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
    if x.is_floating_point():
        grads["x"] = x.grad
    return Run(y.detach()[case.real], {name: grad.detach().clone() for name, grad in grads.items()})


def _exactly(case: Case, noise: float) -> Run:
    """The same in float64 by the plain formulas; inputs and weights are off by that part of themselves."""
    network = copy.deepcopy(case.network).double()
    x = case.x.detach().clone()
    if x.is_floating_point():
        x = x.double()
        x *= 1 + noise * torch.randn_like(x)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter *= 1 + noise * torch.randn_like(parameter)
    return _by_plain_formulas(case, network, x)


def _plainly(case: Case) -> Run:
    """The same in the case's own precision by the plain formulas."""
    return _by_plain_formulas(case, copy.deepcopy(case.network), case.x)


def _by_plain_formulas(case: Case, network: Any, x: Tensor) -> Run:
    before = ops.get_implementation()
    ops.set_implementation("reference")
    try:
        return _forward_backward(case, network, x)
    finally:
        ops.set_implementation(before)


def _distances(other: Run, exact: Run, floors: dict[str, float]) -> dict[str, float]:
    distances = {"forward": _distance(other.y, exact.y, 0.0)}
    for name, grad in exact.grads.items():
        key = f"gradient of {name}"
        distances[key] = _distance(other.grads[name], grad, floors.get(key, 0.0))
    return distances


def _sensitivity(case: Case, exact: Run, floors: dict[str, float]) -> dict[str, float]:
    """How far the exact answers move when inputs and weights are off by their last digit."""
    epsilon = torch.finfo(next(case.network.parameters()).dtype).eps
    several = [_distances(_exactly(case, epsilon), exact, floors) for _ in range(3)]
    return {name: max(distances[name] for distances in several) for name in several[0]}


def _streams(case: Case, random: Random, outcome: Outcome) -> Iterator[tuple[str, Tensor]]:
    """The outputs in chunks and in steps, where they mean the same as the whole."""
    bidirectional = any(getattr(m, "bidirectional", False) for m in case.network.modules()) or any(
        getattr(getattr(m, "config", None), "bidirectional", False) for m in case.network.modules()
    )
    if bidirectional or case.training or "mask" in case.padding:
        return
    runs: dict[str, Callable[..., Tensor]] = {"in chunks": _in_chunks}
    if not case.padding and case.x.shape[1] <= STEPS:
        runs["in steps"] = _in_steps
    for name, run_through in runs.items():
        try:
            with torch.no_grad() if random.random() < 0.7 else torch.enable_grad():
                yield name, run_through(case, random).detach()[case.real]
        except ValueError as error:
            outcome.refused(f"{name}: {error}")


def _in_chunks(case: Case, random: Random) -> Tensor:
    length = case.x.shape[1]
    if "lengths" in case.padding:
        y, _ = case.network.prefill(case.x, rate=case.rate, **case.padding)
        return y
    cuts = sorted(random.randint(1, length) for _ in range(random.randint(0, 3)))
    state, outputs = None, []
    for start, stop in zip([0, *cuts], [*cuts, length], strict=True):
        if stop > start:
            y, state = case.network.prefill(case.x[:, start:stop], state, rate=case.rate)
            outputs.append(y)
    return outputs[-1] if case.real.dim() == 1 else torch.cat(outputs, dim=1)


def _in_steps(case: Case, random: Random) -> Tensor:
    state, outputs = case.network.initial_state(len(case.x)), []
    for position in range(case.x.shape[1]):
        y, state = case.network.step(case.x[:, position], state, rate=case.rate)
        outputs.append(y)
    return outputs[-1] if case.real.dim() == 1 else torch.stack(outputs, dim=1)


def _distance(actual: Tensor, exact: Tensor, floor: float) -> float:
    """The largest difference, as a part of the largest exact number. NaN stays NaN."""
    if actual.shape != exact.shape:
        return math.inf
    if actual.numel() == 0:
        return 0.0
    actual, exact = actual.double(), exact.double()
    scale = max(float(exact.abs().max()), floor)
    error = float((actual - exact).abs().max())
    return 0.0 if error == 0 else error / scale if scale > 0 else math.inf
