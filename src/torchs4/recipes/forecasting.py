"""Forecasting: the next day of an electricity transformer."""

from __future__ import annotations

from torchs4.data import ETT
from torchs4.recipes.recipe import Recipe, network
from torchs4.tasks import SCALED_MSE
from torchs4.training.config import BudgetOptions, OptimizerOptions, TrainingConfig


def etth1_cpu() -> TrainingConfig[ETT]:
    return TrainingConfig(
        data=ETT(name="ETTh1", window=336, horizon=24, calendar=True),
        model=network(layers=2, features=64, state_size=32, dropout=0.25, tied_dropout=True),
        optim=OptimizerOptions(lr=0.002, ssm_lr=0.001, weight_decay=0.05, batch_size=32, warmup_steps=100),
        budget=BudgetOptions(epochs=10, early_stop=4),
    )


RECIPES = (
    Recipe(
        name="etth1",
        title="ETTh1: the next 24 hours of seven columns",
        length=360,
        dataset="ett",
        metric=SCALED_MSE,
        differs="Two weeks of history and the calendar; errors in units of the training part's deviation.",
        presets={"cpu": etth1_cpu},
    ),
)
