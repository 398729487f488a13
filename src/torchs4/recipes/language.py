"""Language: the next character of a text."""

from __future__ import annotations

from torchs4.data import WikiText2
from torchs4.recipes.recipe import Recipe, network
from torchs4.tasks import NextToken
from torchs4.training.config import BudgetOptions, OptimizerOptions, TrainingConfig


def characters_cpu() -> TrainingConfig[WikiText2]:
    return TrainingConfig(
        data=WikiText2(length=512),
        model=network(layers=4, features=192, state_size=32, dropout=0.05, tied_dropout=True),
        optim=OptimizerOptions(
            lr=0.004, ssm_lr=0.002, weight_decay=0.05, batch_size=32, clip=1.0, warmup_steps=200
        ),
        budget=BudgetOptions(epochs=4, evaluate_every=300, validation_examples=200),
    )


RECIPES = (
    Recipe(
        name="characters",
        title="WikiText-2, character by character",
        length=512,
        dataset="wikitext-2",
        metric=NextToken(1, unit="character").metrics[0],
        presets={"cpu": characters_cpu},
    ),
)
