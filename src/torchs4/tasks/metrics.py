"""Numbers that tell how good a model is: what they are called, how they are shown, which way is better."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A number that tells how good a model is.

    name: in files. title: for people. unit: what stands behind it; "%" shows a share as a percentage.
    """

    name: str
    title: str
    unit: str = ""
    higher_is_better: bool = False
    digits: int = 4

    def show(self, value: float) -> str:
        """The number as a person reads it."""
        return self.text(self.shown(value))

    def text(self, shown: float) -> str:
        """A number that is in the metric's unit already."""
        return f"{shown:.{self.digits}f}{' ' if self.unit else ''}{self.unit}"

    def tell(self, value: float) -> str:
        """The number with its name."""
        return f"{self.title} {self.show(value)}"

    def shown(self, value: float) -> float:
        """The number in its unit."""
        return 100 * value if self.unit == "%" else value

    def is_better(self, value: float, than: float | None) -> bool:
        """Whether a value beats another one; whatever is a number beats nothing at all."""
        if math.isnan(value):
            return False
        if than is None or math.isnan(than):
            return True
        return value > than if self.higher_is_better else value < than

    @property
    def label(self) -> str:
        """The name with its unit, for tables and axes."""
        return f"{self.title} in {self.unit}" if self.unit else self.title


ACCURACY = Metric("accuracy", "accuracy", "%", higher_is_better=True, digits=2)
WEIGHTED_ACCURACY = Metric("weighted_accuracy", "weighted accuracy", "%", higher_is_better=True, digits=2)
MSE = Metric("mse", "MSE")
MAE = Metric("mae", "MAE")
# Of values in units of their deviation.
SCALED_MSE = Metric("mse", "scaled MSE")
SCALED_MAE = Metric("mae", "scaled MAE")
# Of quantiles, in the same units.
PINBALL = Metric("pinball", "scaled pinball loss")
PERPLEXITY = Metric("perplexity", "perplexity", digits=3)
