"""Forecasts: each window is read relative to its own level, and a linear map to the horizon helps.

Axes: B windows, T positions of a history, H of a horizon, F numbers that are read, O that are predicted.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor, nn

from torchs4.configuration import FROM_DATA, merge_options, require_choice, require_whole
from torchs4.layers.inputs import require_dtype, require_sequence
from torchs4.layers.placement import drawn_on_cpu
from torchs4.layers.signatures import lists_options
from torchs4.models.pretrained import PretrainedModel
from torchs4.models.scaling import ColumnScaling
from torchs4.models.sequence_model import SequenceModel, SequenceModelConfig

if TYPE_CHECKING:
    from jaxtyping import Float

Level = Literal["last", "mean", "none"]
# A window that hardly moves is not blown up: in units of the deviation over training rows.
_LEAST_DEVIATION = 1e-2


@dataclass(frozen=True)
class ForecastModelConfig(SequenceModelConfig):
    """Options of a ForecastModel: those of the network, and how a window is read.

    level: what is taken away from each column of a window and given back to its forecast: its last value, its
        mean, or nothing. The network is told how much it was.
    rescale: divide by the window's own deviation, too, and multiply the forecast by it.
    linear: beside the network, a linear map from the history to the horizon, one for all columns. With the
        last value as level, training begins at its closed form.
    flip: train on windows upside down as often as not, so that no drift is learned that came but once; not
        where a calendar is read, which says which way is up.
    apart: every predicted column is read for itself, with the same weights, beside what is known of all.
    patch: so many positions are read, and predicted, as one: the network's sequences are so much shorter.
    history, horizon: positions to read, and to predict.
    continues: which column of the input each predicted one is.
    """

    level: Level = "last"
    rescale: bool = False
    linear: bool = True
    flip: bool = False
    apart: bool = False
    patch: int = 1
    history: int = field(default=1, metadata=FROM_DATA)
    horizon: int = field(default=1, metadata=FROM_DATA)
    continues: tuple[int, ...] = field(default=(0,), metadata=FROM_DATA)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("level", self.level, get_args(Level))
        for name in ("patch", "history", "horizon"):
            require_whole(name, getattr(self, name), 1)
        object.__setattr__(self, "continues", tuple(self.continues))
        counts = {self.continues.count(column) for column in self.continues}
        if len(counts) != 1 or not 0 <= min(self.continues) <= max(self.continues) < self.input_features:
            raise ValueError(
                f"continues is {self.continues}; expected columns of the {self.input_features} that an input "
                f"has, counted from 0, each equally often."
            )

    @property
    def starts_linear(self) -> bool:
        """Whether the linear map is found in closed form before training."""
        return self.linear and self.level == "last" and not self.rescale


class ForecastModel(PretrainedModel[ForecastModelConfig]):
    """Predicts the last positions of (B, T + H, F) from the first: (B, T + H, O), where only those count.

    Of the horizon, the columns that are predicted are not looked at, whatever stands there; all others are:
    a calendar's, or what else is known ahead.
    """

    config_class = ForecastModelConfig

    @lists_options(ForecastModelConfig)
    def __init__(
        self,
        config: ForecastModelConfig | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: object,
    ) -> None:
        super().__init__()
        self.config = config = merge_options(ForecastModelConfig, config, options)
        self._columns = sorted(set(config.continues))
        self._others = [place for place in range(config.input_features) if place not in self._columns]
        # Several numbers may continue one column: its quantiles.
        self._per_column = len(config.continues) // len(self._columns)
        together = 1 if config.apart else len(self._columns)
        with drawn_on_cpu(self, device, dtype):
            fields = {
                each.name: getattr(config, each.name) for each in dataclasses.fields(SequenceModelConfig)
            }
            fields |= {
                # A column's value and its level, what is known of all, and whether a position is ahead.
                "input_features": config.patch * (2 * together + len(self._others) + 1),
                "output_size": config.patch * together * self._per_column,
                "pooling": "none",
                "names": (),
                "input_names": (),
                "input_scaling": None,
                "output_scaling": None,
            }
            self.network = SequenceModel(SequenceModelConfig(**fields))
            # The first forecast is the level: both parts begin at nothing.
            for weight in self.network.head.parameters():
                nn.init.zeros_(weight)
            self.linear: nn.Linear | None = None
            if config.linear:
                self.linear = nn.Linear(config.history, config.horizon * self._per_column, bias=False)
                nn.init.zeros_(self.linear.weight)
        self.input_scaling = None if config.input_scaling is None else ColumnScaling(config.input_scaling)
        self.output_scaling = None if config.output_scaling is None else ColumnScaling(config.output_scaling)

    def forward(
        self, x: Float[Tensor, "B T+H F"], lengths: None = None, rate: float = 1.0
    ) -> Float[Tensor, "B T+H O"]:
        """The forecast, in the data's units, behind zeros for the history."""
        config = self.config
        require_sequence(x, config.input_features)
        require_dtype(x, next(self.network.head.parameters()))
        if x.shape[1] != config.history + config.horizon or lengths is not None:
            raise ValueError(
                f"x has {x.shape[1]:,} positions; expected a history of {config.history:,} and a horizon of "
                f"{config.horizon:,}, all of them real."
            )
        if self.input_scaling is not None:
            x = self.input_scaling.to_network(x)
        past = x[:, : config.history, self._columns]
        level, deviation = self._level(past)
        past = (past - level) / deviation
        y = self._read(past, level, x[..., self._others], rate)
        if self.linear is not None:
            drawn = self.linear(past.transpose(1, 2)).unflatten(2, (config.horizon, -1))
            y = y + drawn.transpose(1, 2)
        if self._per_column > 1:
            # Upside down, what was the lowest quantile is the highest.
            y = torch.where(deviation[..., None] < 0, y.flip(-1), y)
        y = (y * deviation[..., None] + level[..., None]).flatten(2)[..., self._order()]
        if self.output_scaling is not None:
            y = self.output_scaling.to_data(y)
        return torch.cat([y.new_zeros(len(y), config.history, y.shape[2]), y], dim=1)

    def _level(self, past: Float[Tensor, "B T c"]) -> tuple[Float[Tensor, "B 1 c"], Float[Tensor, "B 1 c"]]:
        level = torch.zeros_like(past[:, :1])
        if self.config.level == "last":
            level = past[:, -1:]
        elif self.config.level == "mean":
            level = past.mean(1, keepdim=True)
        deviation = torch.ones_like(level)
        if self.config.rescale:
            deviation = past.var(1, keepdim=True, correction=0).add(_LEAST_DEVIATION**2).sqrt()
        if self.config.flip and self.training:
            deviation = deviation * (2 * torch.randint(0, 2, (len(past), 1, 1), device=past.device) - 1)
        return level, deviation

    def _read(
        self, past: Float[Tensor, "B T c"], level: Float[Tensor, "B 1 c"], others: Tensor, rate: float
    ) -> Float[Tensor, "B H c q"]:
        """What the network says about the horizon, for each column."""
        horizon, columns = self.config.horizon, past.shape[2]
        values = nn.functional.pad(past, (0, 0, 0, horizon))
        levels = level.expand_as(values)
        ahead = torch.zeros_like(values[..., :1])
        ahead[:, -horizon:] = 1
        if not self.config.apart:
            y = self._patched(torch.cat([values, levels, others, ahead], dim=-1), rate)
            return y.unflatten(2, (columns, -1))
        own = torch.stack([values, levels], dim=-1).transpose(1, 2)
        shared = torch.cat([others, ahead], dim=-1)[:, None].expand(-1, columns, -1, -1)
        y = self._patched(torch.cat([own, shared], dim=-1).flatten(0, 1), rate)
        return y.unflatten(0, (-1, columns)).transpose(1, 2)

    def _patched(self, x: Float[Tensor, "b T+H f"], rate: float) -> Float[Tensor, "b H o"]:
        """The network's word on the horizon. A patch holds positions of the history or of the horizon."""
        history, horizon, patch = self.config.history, self.config.horizon, self.config.patch
        x = nn.functional.pad(x, (0, 0, -history % patch, -horizon % patch))
        y = self.network(x.unflatten(1, (-1, patch)).flatten(2), rate=rate)
        ahead = -(-horizon // patch)
        y = y[:, -ahead:]
        return y.unflatten(2, (patch, -1)).flatten(1, 2)[:, :horizon]

    def _order(self) -> list[int]:
        """Where each predicted number stands among all numbers of all columns."""
        taken = dict.fromkeys(self._columns, 0)
        places = []
        for column in self.config.continues:
            places.append(self._columns.index(column) * self._per_column + taken[column])
            taken[column] += 1
        return places
