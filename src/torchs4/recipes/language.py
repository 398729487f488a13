"""Language: the next word (Table 8 of the paper, D.3.2) or character of a text."""

from __future__ import annotations

from typing import Any

from torchs4.configuration import with_options
from torchs4.data import WikiText
from torchs4.models import LanguageModelConfig
from torchs4.recipes.recipe import Recipe, network
from torchs4.tasks import NextToken
from torchs4.training.config import BudgetOptions, OptimizerOptions, TrainingConfig


def language_network(**options: Any) -> LanguageModelConfig:
    """A language model with these options, wherever they belong."""
    return with_options(LanguageModelConfig(), **options)


def wikitext_103_paper() -> TrainingConfig[WikiText]:
    return TrainingConfig(
        data=WikiText("wikitext-103", length=8192),
        model=language_network(
            layers=32,
            features=1024,
            state_size=64,
            per_feature=True,
            dropout=0.25,
            cutoffs=(20_000, 40_000, 200_000),
        ),
        optim=OptimizerOptions(lr=5e-4, ssm_lr=5e-4, weight_decay=0.1, batch_size=8, warmup_steps=1000),
        # An epoch has about 1,575 steps: as many epochs as 800,000 steps begin.
        budget=BudgetOptions(epochs=510, max_steps=800_000),
    )


def wikitext_2_cpu() -> TrainingConfig[WikiText]:
    return small_model(WikiText("wikitext-2"), cutoffs=(3000, 10_000), budget=BudgetOptions(epochs=12))


def wikitext_103_cpu() -> TrainingConfig[WikiText]:
    # A fifth of an epoch: an hour on two cores.
    budget = BudgetOptions(epochs=1, max_steps=5000, evaluate_every=1000, validation_examples=400)
    return small_model(WikiText("wikitext-103"), cutoffs=(4000, 20_000, 100_000), budget=budget)


def small_model(data: WikiText, cutoffs: tuple[int, ...], budget: BudgetOptions) -> TrainingConfig[WikiText]:
    """The paper's design, at a width that two cores can train."""
    return TrainingConfig(
        data=data,
        model=language_network(layers=4, features=192, state_size=32, dropout=0.2, cutoffs=cutoffs),
        optim=OptimizerOptions(
            lr=0.003, ssm_lr=0.002, weight_decay=0.1, batch_size=16, clip=1.0, warmup_steps=200
        ),
        budget=budget,
    )


def characters_cpu() -> TrainingConfig[WikiText]:
    return TrainingConfig(
        data=WikiText(level="characters", length=512),
        model=network(layers=4, features=192, state_size=32, dropout=0.05, tied_dropout=True),
        optim=OptimizerOptions(
            lr=0.004, ssm_lr=0.002, weight_decay=0.05, batch_size=32, clip=1.0, warmup_steps=200
        ),
        budget=BudgetOptions(epochs=4, evaluate_every=300, validation_examples=200),
    )


_PERPLEXITY = NextToken(1, unit="word").metrics[0]

RECIPES = (
    Recipe(
        name="wikitext-103",
        title="WikiText-103, word by word",
        length=8192,
        dataset="wikitext-103",
        metric=_PERPLEXITY,
        published={"paper": 20.95},
        differs="Trained in float32 unless --precision says otherwise; the paper's was half precision. "
        "Passages are drawn anew in every epoch. `cpu` sees a fifth of the text.",
        presets={"paper": wikitext_103_paper, "cpu": wikitext_103_cpu},
    ),
    Recipe(
        name="wikitext-2",
        title="WikiText-2, word by word",
        length=256,
        dataset="wikitext-2",
        metric=_PERPLEXITY,
        differs="Not in the paper: what two cores can train of its language model.",
        presets={"cpu": wikitext_2_cpu},
    ),
    Recipe(
        name="characters",
        title="WikiText-2, character by character",
        length=512,
        dataset="wikitext-2",
        metric=NextToken(1, unit="character").metrics[0],
        presets={"cpu": characters_cpu},
    ),
)
