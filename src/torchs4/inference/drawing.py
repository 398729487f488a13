"""Pictures that a density draws: value by value, each from all before it.

Axes: B pictures, L values of a picture, V values that each may have.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from torchs4.configuration import require_whole
from torchs4.data.density import START, VALUES, picture_tokens
from torchs4.inference.generate import Sampling
from torchs4.inference.samples import require_streaming
from torchs4.models import UNetModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Progress = Callable[[int, int], None]


def draw(
    model: UNetModel,
    count: int,
    *,
    sampling: Sampling | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> NDArray[np.uint8]:
    """New pictures (count, height, width, channels) that a model draws from nothing.

    seed: picture number i is what a single one with seed + i is, as far as rounding allows.
    progress: is told how many values of each picture are drawn, and how many there are.
    """
    require_whole("count", count, 1)
    height, width, channels = picture_shape(model)
    nothing = np.zeros((count, 0, width, channels), np.uint8)
    return _continued(model, nothing, height, sampling or Sampling(), seed, progress)


def complete(
    model: UNetModel,
    pictures: Any,
    rows: int | None = None,
    *,
    sampling: Sampling | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> NDArray[np.uint8]:
    """Pictures (count, height, width, channels) whose first rows are kept and whose others are drawn.

    rows: how many are kept; by default the upper half.
    """
    shape = picture_shape(model)
    pictures = np.asarray(pictures)
    if pictures.shape[1:] != shape or len(pictures) == 0:
        raise ValueError(
            f"Pictures have shape {pictures.shape}; this model draws (count, {', '.join(map(str, shape))}). "
            f"Resize or cut them first."
        )
    rows = shape[0] // 2 if rows is None else rows
    require_whole("rows", rows, 0)
    if rows >= shape[0]:
        raise ValueError(f"rows is {rows}, but a picture has only {shape[0]}: nothing would be left to draw.")
    return _continued(model, pictures[:, :rows], shape[0], sampling or Sampling(), seed, progress)


def picture_shape(model: object) -> tuple[int, int, int]:
    """Height, width and channels of what a model draws; one that draws nothing is refused."""
    require_streaming(model)
    if not isinstance(model, UNetModel) or model.config.image is None:
        raise ValueError(
            f"This {type(model).__name__} does not draw pictures. Models that do come with the package: "
            f"cifar-density and mnist-density."
        )
    return (*model.config.image, model.config.channels)


@torch.inference_mode()
def _continued(
    model: UNetModel,
    begun: NDArray[Any],
    height: int,
    sampling: Sampling,
    seed: int | None,
    progress: Progress | None,
) -> NDArray[np.uint8]:
    count, _, width, channels = begun.shape
    place = next(model.parameters()).device
    total = math.prod((height, width, channels))
    tokens = picture_tokens(begun)
    known = tokens.shape[1]
    first = torch.Generator().seed() if seed is None else seed
    generators = [torch.Generator().manual_seed((first + number) % 2**63) for number in range(count)]
    values = torch.zeros(count, total, dtype=torch.int64)
    values[:, :known] = (tokens - 1) % VALUES
    start = torch.full((count, 1), START)
    prediction, state = model.prefill(torch.cat([start, tokens], dim=1).to(place))
    prediction = prediction[:, -1]
    for position in range(known, total):
        values[:, position] = sampling.draw_each(model.value_logits(prediction), generators)
        if progress is not None:
            progress(position + 1 - known, total - known)
        if position + 1 < total:
            token = 1 + values[:, position] + VALUES * (position % channels)
            prediction, state = model.step(token.to(place), state)
    return values.view(count, height, width, channels).numpy().astype(np.uint8)
