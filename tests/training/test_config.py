"""Options of a run that are refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from torchs4.data import BundledDigits
from torchs4.training.config import BudgetOptions, OptimizerOptions, TrainingConfig

REFUSED = [
    (OptimizerOptions, {"lr": -0.1}, "lr is -0.1; it must be at least 0"),
    (OptimizerOptions, {"ssm_lr": math.nan}, "ssm_lr is nan; it must be at least 0"),
    (OptimizerOptions, {"batch_size": 0}, "batch_size is 0; it must be at least 1"),
    (OptimizerOptions, {"patience": 0}, "patience is 0; it must be at least 1"),
    (OptimizerOptions, {"schedule": "linear"}, "schedule is 'linear'; choose one of 'cosine'"),
    (OptimizerOptions, {"accumulate": 5, "batch_size": 4}, "accumulate is 5, but a batch has only 4"),
    (BudgetOptions, {"epochs": 0}, "epochs is 0; it must be at least 1"),
    (BudgetOptions, {"max_steps": -1}, "max_steps is -1; it must be at least 0"),
    (TrainingConfig, {"data": BundledDigits(), "seed": -1}, "seed is -1; it must be at least 0"),
    (TrainingConfig, {"data": BundledDigits(), "precision": "half"}, "precision is 'half'; choose one of"),
]


@pytest.mark.parametrize(
    ("kind", "options", "match"), REFUSED, ids=[f"{kind.__name__}-{'-'.join(o)}" for kind, o, _ in REFUSED]
)
def test_a_bad_value_is_refused_with_what_is_allowed(kind: Any, options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        kind(**options)
