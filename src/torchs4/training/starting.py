"""Weights that data decide before training begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from torchs4.models import ForecastModel
from torchs4.models.simple_forecasts import LinearForecast, fit_linear

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchs4.data.sequences import SequenceData, Split
    from torchs4.description import Batch
    from torchs4.models import Model

# Windows that overlap almost entirely tell the same: so many are enough, evenly spread.
_MOST_TRAINING, _MOST_VALIDATION, _AT_ONCE = 8000, 1000, 256


def start_from(model: Model, data: SequenceData) -> None:
    """Let a forecaster's linear map begin at the least squares of its training windows, in closed form.

    By steps, the map would be slower to find than what the network beside it learns by heart. The penalty is
    the one that is best on validation windows.
    """
    if not isinstance(model, ForecastModel) or model.linear is None or not model.config.starts_linear:
        return
    config = model.config
    columns = sorted(set(config.continues))
    scale = (
        [1.0] * len(columns)
        if config.input_scaling is None
        else [config.input_scaling.scale[c] for c in columns]
    )

    def error(candidate: LinearForecast) -> float:
        total, scales = 0.0, torch.tensor(scale)
        for batch in _some(data.validation, _MOST_VALIDATION):
            told = candidate(batch.x)[:, -config.horizon :] - batch.y[:, -config.horizon :]
            total += float((told / scales).square().sum())
        return total

    found, _ = fit_linear(_some(data.train, _MOST_TRAINING), error, config.horizon, columns, scale)
    # Several numbers may continue a column: its quantiles begin at the same place.
    copies = config.output_size // len(columns)
    with torch.no_grad():
        model.linear.weight.copy_(found.weight.T.repeat_interleave(copies, dim=0))


def _some(split: Split, most: int) -> Iterator[Batch]:
    rows = np.unique(np.linspace(0, len(split) - 1, min(len(split), most)).astype(np.int64))
    for some in np.array_split(rows, -(-len(rows) // _AT_ONCE)):
        yield split.batch(some)
