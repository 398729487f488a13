"""Densities of pictures: the next value of a pixel (Table 7 of the paper, D.3.1)."""

from __future__ import annotations

from typing import Any

from torchs4.configuration import with_options
from torchs4.data import CIFAR10Density, MNISTDensity
from torchs4.models import UNetModelConfig
from torchs4.recipes.recipe import Recipe
from torchs4.tasks import NextToken
from torchs4.training.config import BudgetOptions, OptimizerOptions, TrainingConfig


def unet(**options: Any) -> UNetModelConfig:
    """A U-Net with these options, wherever they belong."""
    return with_options(UNetModelConfig(), **options)


def cifar_paper(layers: int, features: int, dropout: float) -> TrainingConfig[CIFAR10Density]:
    # Blocks, width, dropout, optimiser and rate are published. Batch, epochs, schedule, weight decay and the
    # growth of the width are not: these are our choice.
    return TrainingConfig(
        data=CIFAR10Density(),
        model=unet(layers=layers, features=features, dropout=dropout, mixing="linear"),
        optim=OptimizerOptions(
            optimizer="lamb",
            lr=0.005,
            weight_decay=0.01,
            batch_size=48,
            warmup_steps=1000,
            clip=1.0,
            average=0.9995,
        ),
        budget=BudgetOptions(epochs=500),
    )


def cifar_cpu() -> TrainingConfig[CIFAR10Density]:
    return TrainingConfig(
        data=CIFAR10Density(),
        # Chosen by short runs of equal time, measured on validation pictures. A narrow finest level leaves
        # time for the level of whole pixels, and a sliding window begins with the row above in sight.
        model=unet(
            layers=1,
            features=32,
            growth=2.5,
            pools=(3, 8),
            state_size=64,
            start="legt",
            min_step_size=0.01,
        ),
        optim=OptimizerOptions(
            lr=0.01,
            ssm_lr=0.01,
            weight_decay=0.01,
            batch_size=16,
            warmup_steps=300,
            clip=1.0,
            average=0.999,
        ),
        budget=BudgetOptions(epochs=6, evaluate_every=1000, validation_examples=200),
        precision="bfloat16",
    )


def mnist_cpu() -> TrainingConfig[MNISTDensity]:
    return TrainingConfig(
        data=MNISTDensity(),
        # Rows of 28 pixels: 4 and 7 divide them.
        model=unet(layers=1, features=64, growth=1.4, pools=(4, 7), state_size=32),
        optim=OptimizerOptions(
            lr=0.01,
            ssm_lr=0.01,
            weight_decay=0.01,
            batch_size=32,
            warmup_steps=300,
            clip=1.0,
            average=0.999,
        ),
        budget=BudgetOptions(epochs=4, evaluate_every=500, validation_examples=300),
    )


METRIC = NextToken(1, unit="dimension").metrics[0]

RECIPES = (
    Recipe(
        name="cifar-density",
        title="CIFAR-10, the density of pictures, value by value",
        length=3072,
        dataset="cifar10",
        metric=METRIC,
        published={"paper": 2.92, "paper-large": 2.85},
        differs="Batch, epochs, schedule, weight decay and the growth of the width were never published: "
        "those of `paper` and `paper-large` are our choice.",
        presets={
            "paper": lambda: cifar_paper(layers=8, features=128, dropout=0.0),
            "paper-large": lambda: cifar_paper(layers=16, features=192, dropout=0.1),
            "cpu": cifar_cpu,
        },
    ),
    Recipe(
        name="mnist-density",
        title="MNIST, the density of digits, value by value",
        length=784,
        dataset="mnist",
        metric=METRIC,
        differs="Not in the paper: the quick one of its kind.",
        presets={"cpu": mnist_cpu},
    ),
)
