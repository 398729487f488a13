"""A network that is not trained: kernels as they are drawn, and a head that is solved for, in seconds.

Its kernels are those of S4 at many time scales; of what each makes of a sequence, shares of positions above
some thresholds are counted, and a ridge regression reads them. Small sets teach it more than a training does.

Axes: n examples, p shares, o outputs.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import nn

from torchs4.estimators.sharpness import best_factor
from torchs4.layers import S4, S4BlockConfig, S4Config
from torchs4.models import SequenceModel, SequenceModelConfig, build_model
from torchs4.models.pooling import SharePooling
from torchs4.tasks import Classification

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Float
    from numpy.typing import NDArray
    from torch import Tensor

    from torchs4.data import SequenceData
    from torchs4.description import Scaling

# All shares of so many examples fill a gigabyte, and are taken apart in minutes.
MOST_EXAMPLES = 20_000
# Kernels, and numbers of a batch's activations: bounds the memory that long sequences need.
_KERNELS, _AT_ONCE = 800, 1 << 23
# How wide a threshold's ramp is, in deviations of its feature in the example that it is taken from.
_RAMP = 0.1
# Of how many examples thresholds are taken.
_LOOKED_AT = 32
# After so many times the longest sequence, the slowest kernel has nearly forgotten.
_SETTLES = 4
# Deviations from zero to the mean of a column, from which on zero means nothing to it.
_FAR = 3.0
_STRENGTHS = np.logspace(-3, 5, 17)


def kernel_model(length: int) -> SequenceModelConfig:
    """The network for sequences of such a length: S4 alone, with time scales from a few samples to all."""
    layer = S4Config(state_size=16, min_step_size=min(0.1, 1 / length), max_step_size=0.5)
    block = S4BlockConfig(layer=layer, norm="none", activation="none", mixing="none", residual=False)
    return SequenceModelConfig(features=_KERNELS, num_layers=1, block=block, pooling="shares")


class Solved(NamedTuple):
    """A network, and how well it predicts examples that its head was solved without: a metric, and its value.

    Of classes the metric is the accuracy; of values the share of their variance that is explained.
    """

    model: SequenceModel
    metric: str
    left_out: float


@torch.no_grad()
def fit_kernels(
    data: SequenceData, seed: int, progress: Callable[[int, int], None] = lambda done, total: None
) -> Solved:
    """Draw kernels, take thresholds from the training examples, and solve for the head.

    progress: called with how many examples are done, and of how many.
    """
    given = replace(data.input, scaling=_around_zero(data.input.scaling))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build_model(kernel_model(data.input.length), given, data.task.output)
    assert isinstance(model, SequenceModel)
    encoder, head = model.encoder, model.head
    assert isinstance(encoder, nn.Linear)
    assert isinstance(head, nn.Linear)
    model.eval()
    if data.input.size == 1:
        nn.init.ones_(encoder.weight)
    nn.init.zeros_(encoder.bias)
    _balance(model.stack.blocks[0].layer, data.input.length)
    _take_thresholds(model, data, np.random.default_rng(seed))
    pooled, answers = [], []
    at_once = max(1, min(256, _AT_ONCE // (data.input.length * _KERNELS)))
    for start in range(0, len(data.train), at_once):
        batch = data.train.batch(np.arange(start, min(start + at_once, len(data.train))))
        pooled.append(model.pooled(batch.x, lengths=batch.lengths))
        answers.append(batch.y)
        progress(min(start + at_once, len(data.train)), len(data.train))
    shares, y = torch.cat(pooled).double().numpy(), torch.cat(answers).numpy()
    if isinstance(data.task, Classification):
        weights = np.ones(len(y)) if not data.task.weights else np.array(data.task.weights)[y]
        solved = solve_ridge(shares, 2.0 * np.eye(data.task.output.size)[y] - 1, weights)
        sharpness = best_factor(torch.from_numpy(solved.left_out), torch.from_numpy(y))
        metric, left_out = "accuracy", float((solved.left_out.argmax(1) == y).mean())
    else:
        scaling = data.task.output.scaling
        targets = y if scaling is None else (y - np.array(scaling.shift)) / np.array(scaling.scale)
        solved, sharpness = solve_ridge(shares, targets, np.ones(len(y))), 1.0
        unexplained = ((solved.left_out - targets) ** 2).mean() / max(targets.var(0).mean(), 1e-12)
        metric, left_out = "R²", float(1 - unexplained)
    head.weight.copy_(torch.from_numpy(sharpness * solved.weights.T))
    head.bias.copy_(torch.from_numpy(sharpness * solved.bias))
    return Solved(model, metric, left_out)


class Ridge(NamedTuple):
    """weights (p, o), bias (o), and for each example what those fit without it say of it, (n, o)."""

    weights: NDArray[np.float64]
    bias: NDArray[np.float64]
    left_out: NDArray[np.float64]


def solve_ridge(
    shares: Float[NDArray[np.float64], "n p"],
    targets: Float[NDArray[np.float64], "n o"],
    importance: Float[NDArray[np.float64], " n"],
) -> Ridge:
    """Ridge regression on standardised columns, as strong as predicts examples best that it was fit without.

    All strengths, and all examples left out, come from one decomposition.
    """
    total = importance.sum()
    mean = importance @ shares / total
    deviation = np.sqrt(importance @ (shares - mean) ** 2 / total)
    deviation[deviation < 1e-6] = np.inf
    centre = importance @ targets / total
    root = np.sqrt(importance)[:, None]
    u, s, vt = np.linalg.svd(root * (shares - mean) / deviation, full_matrices=False)
    rotated = u.T @ (root * (targets - centre))
    best: tuple[float, float, NDArray[np.float64]] | None = None
    for strength in _STRENGTHS:
        kept = (s**2 / (s**2 + strength))[:, None]
        leverage = importance[:, None] / total + u**2 @ kept
        # What an example adds to its own prediction is taken out of it.
        errors = (root * (targets - centre) - u @ (kept * rotated)) / np.maximum(1 - leverage, 1e-8)
        score = float((errors**2).sum())
        if best is None or score < best[0]:
            best = score, float(strength), targets - errors / root
    assert best is not None
    weights = vt.T @ ((s / (s**2 + best[1]))[:, None] * rotated) / deviation[:, None]
    return Ridge(weights, centre - mean @ weights, best[2])


def _around_zero(scaling: Scaling | None) -> Scaling | None:
    """Scales that leave zero where it is, unless a column is far from it.

    A kernel starts as if zeros had come before. Where signals are of very different strength, moving all by
    their mean would make a step of it that is larger than the weak ones.
    """
    if scaling is None:
        return None
    pairs = zip(scaling.shift, scaling.scale, strict=True)
    return replace(scaling, shift=tuple(one if abs(one) > _FAR * scale else 0.0 for one, scale in pairs))


def _balance(layer: S4, length: int) -> None:
    """Let every kernel sum to zero: it answers to changes, whatever the level of a sequence."""
    layer.D.zero_()
    # What a level that has stood for long enough comes to, in chunks: all of it at once would be long.
    level, state = torch.ones(1, min(length, 1024), layer.features), None
    for _ in range(math.ceil(_SETTLES * length / level.shape[1])):
        settled, state = layer.prefill(level, state)
    layer.D.copy_(-settled[0, -1])


def _take_thresholds(model: SequenceModel, data: SequenceData, generator: np.random.Generator) -> None:
    """Thresholds at levels that training examples reach, with ramps in proportion to what each varies by."""
    pooling = model.pooling
    assert isinstance(pooling, SharePooling)
    chosen = generator.permutation(len(data.train))[:_LOOKED_AT]
    # Levels between 0 and 1 that are spread evenly over features and thresholds.
    golden = (math.sqrt(5) - 1) / 2
    levels = (golden * (1 + np.arange(pooling.levels * _KERNELS))) % 1
    from_example = generator.integers(len(chosen), size=pooling.levels * _KERNELS)
    thresholds, widths = torch.empty(pooling.levels, _KERNELS), torch.empty(pooling.levels, _KERNELS)
    for number, row in enumerate(chosen):
        batch = data.train.batch(np.array([row]))
        output = _activations(model, batch.x, batch.lengths).sort(0).values
        places = np.flatnonzero(from_example == number)
        rows = (levels[places] * (len(output) - 1)).round().astype(int)
        thresholds.view(-1)[places] = output[rows, places % _KERNELS]
        widths.view(-1)[places] = _RAMP * output.std(0, correction=0)[places % _KERNELS]
    pooling.slopes.copy_(1 / widths.clamp(min=1e-6))
    pooling.offsets.copy_(0.5 - pooling.slopes * thresholds)


def _activations(model: SequenceModel, x: Tensor, lengths: Tensor | None) -> Float[Tensor, "L H"]:
    """What the kernels make of one sequence."""
    return model.stack(model._encoded(x if lengths is None else x[:, : int(lengths[0])]))[0]
