"""A sequence model whose blocks form a U-Net over time; made for densities of pictures, good for others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from torchs4.configuration import FROM_DATA, require_at_least, require_whole
from torchs4.layers.block import mixed
from torchs4.layers.signatures import lists_options
from torchs4.models.sequence_model import SequenceModel, SequenceModelConfig
from torchs4.models.unet import UNet
from torchs4.tasks.logistic_mixture import log_probabilities

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor


# Features of a processor's vector; heads of attention divide it, too.
_WIDTH_STEP = 8


# Values of a pixel, and how much of an embedding says which channel it is of.
_VALUES, _CHANNEL_SHARE = 256, 0.5


@dataclass(frozen=True)
class UNetModelConfig(SequenceModelConfig):
    """Options of a UNetModel: those of a SequenceModel, whose layers and features are the finest level's.

    num_layers: blocks of each level on the way down, as many on the way up, and as many in the coarsest.
    pools: how many positions become one at each level: 3 4 4 makes pixels of channels, then 4 and 16 pixels.
    growth: how many times as wide each coarser level is, up to rounding to a multiple of 8.
    feed_forward: how many times as wide the layer inside the feed-forward is that follows each block.
    image: height and width of the pictures, where tokens are their values: 1 + value + 256 · channel, pixel
        by pixel and row by row, after a 0.
    channels: values of each pixel.
    mixtures: a prediction holds so many logistic distributions instead of a number for each value.
    """

    pools: tuple[int, ...] = (3, 4, 4)
    growth: float = 2.0
    feed_forward: int = 2
    image: tuple[int, int] | None = field(default=None, metadata=FROM_DATA)
    channels: int = field(default=1, metadata=FROM_DATA)
    mixtures: int = field(default=0, metadata=FROM_DATA)

    def __post_init__(self) -> None:
        super().__post_init__()
        # Lists, as JSON has them, would make the configuration unhashable.
        object.__setattr__(self, "pools", tuple(self.pools))
        if self.image is not None:
            object.__setattr__(self, "image", tuple(self.image))
        if not self.pools:
            raise ValueError("pools is empty: a U-Net has at least one coarser level, such as pools=(4,).")
        for pool in self.pools:
            require_whole("pools", pool, 1)
        require_at_least("growth", self.growth, 1)
        require_whole("feed_forward", self.feed_forward, 1)
        require_whole("channels", self.channels, 1)
        require_whole("mixtures", self.mixtures, 0)
        if self.stem:
            raise ValueError(
                f"stem is {self.stem}: a U-Net has its own way to make sequences shorter. Leave it out, "
                f"and choose pools."
            )
        if not (self.block.pre_norm and self.block.residual):
            raise ValueError(
                "The blocks of a U-Net normalise before they compute and add to what they got: leave "
                "pre_norm and residual True."
            )

    @property
    def widths(self) -> tuple[int, ...]:
        """Features of each level, the finest first."""
        coarser = (self.features * self.growth**level for level in range(1, len(self.pools) + 1))
        return self.features, *(_WIDTH_STEP * max(1, round(width / _WIDTH_STEP)) for width in coarser)

    def least_weights(self) -> int:
        """How many weights such a model has at least."""
        widths, ways = self.widths, [*[2] * len(self.pools), 1]
        state_size = getattr(self.block.layer, "state_size", 0)
        return self.num_layers * sum(
            way * width * (width * (2 * self.feed_forward + 1) + state_size)
            for way, width in zip(ways, widths, strict=True)
        )


class UNetModel(SequenceModel):
    """Predicts from sequences of real vectors (B, L, input_features) or of tokens (B, L), at several scales.

    `UNetModel(output_size=256, vocabulary_size=769, features=64, num_layers=2, pooling="none")`. It has the
    verbs of a SequenceModel; coarser levels step once in 3, 12 and 48 positions.
    """

    config_class = UNetModelConfig
    config: UNetModelConfig

    @lists_options(UNetModelConfig)
    def __init__(
        self,
        config: UNetModelConfig | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__(config, device=device, dtype=dtype, **options)

    def _build(self, config: UNetModelConfig) -> None:  # type: ignore[override]
        super()._build(config)
        if config.image is not None and isinstance(self.encoder, nn.Embedding):
            _start_alike(self.encoder.weight, config.channels)

    def _build_stack(self, config: UNetModelConfig) -> UNet:
        return UNet(config.widths, config.pools, config.num_layers, config.block, config.feed_forward)

    def _predicted(self, pooled: Tensor) -> Tensor:
        # A number for each value at every position is the largest product of a small model.
        if self.output_scaling is None and type(self.head) is nn.Linear:
            return mixed(self.head, pooled)
        return super()._predicted(pooled)

    def period(self, rate: float = 1.0) -> int:
        """After how many positions a frame of the coarsest level begins again."""
        return int(self.stack.period)

    def value_logits(self, prediction: Float[Tensor, "... O"]) -> Float[Tensor, "... 256"]:
        """Logarithms of how likely each value of a pixel is, up to a constant."""
        return log_probabilities(prediction) if self.config.mixtures else prediction


@torch.no_grad()
def _start_alike(weight: Float[Tensor, "1+256*c H"], channels: int) -> None:
    """Let neighbouring values start with similar embeddings: drawn at random, each had to be learned alone.

    Values are waves over 0 … 255, the long ones strongest; channels add a vector of their own.
    """
    waves = torch.arange(weight.shape[1], dtype=weight.dtype)
    places = (torch.arange(_VALUES, dtype=weight.dtype) + 0.5) / _VALUES
    strength = (1 + waves).rsqrt()
    code = torch.cos(torch.pi * places[:, None] * (1 + waves)) * strength
    code /= code.square().mean().sqrt()
    for channel in range(channels):
        own = _CHANNEL_SHARE * torch.randn(weight.shape[1], dtype=weight.dtype)
        weight[1 + channel * _VALUES : 1 + (channel + 1) * _VALUES] = code + own
