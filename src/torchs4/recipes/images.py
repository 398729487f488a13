"""Sequential images: pixels one after the other (Table 6 of the paper)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchs4.data import CIFAR10, MNIST, BundledDigits
from torchs4.recipes.recipe import Recipe, network
from torchs4.training.config import BudgetOptions, OptimizerOptions, TrainingConfig

if TYPE_CHECKING:
    from torchs4.data.mnist import PixelOrder


def digits_cpu() -> TrainingConfig[BundledDigits]:
    return TrainingConfig(
        data=BundledDigits(cut_short=0.5),
        # Batch norm learns far faster here than layer norm.
        model=network(layers=2, features=64, state_size=32, norm="batch"),
        # The usual, lower rate for the state-space parameters would not get far in so few steps.
        optim=OptimizerOptions(lr=0.01, ssm_lr=0.01, weight_decay=0.05, batch_size=25, warmup_steps=72),
        budget=BudgetOptions(epochs=4),
    )


def mnist_paper(permutation: PixelOrder) -> TrainingConfig[MNIST]:
    # Table 11 has no row for MNIST; this is its CIFAR-10 row at half the width and a quarter of the epochs.
    return TrainingConfig(
        data=MNIST(permutation=permutation),
        model=network(layers=6, features=512, norm="layer", pre_norm=False, dropout=0.1, mixing="linear"),
        optim=OptimizerOptions(
            lr=0.01, weight_decay=0.01, batch_size=50, schedule="plateau", decay=0.2, patience=20
        ),
        budget=BudgetOptions(epochs=50),
    )


def mnist_modern(permutation: PixelOrder) -> TrainingConfig[MNIST]:
    return TrainingConfig(
        data=MNIST(permutation=permutation),
        model=network(
            layers=6,
            features=512,
            norm="layer",
            pre_norm=False,
            dropout=0.1,
            tied_dropout=True,
            bidirectional=True,
        ),
        optim=OptimizerOptions(
            lr=0.01, slow_output=False, weight_decay=0.05, batch_size=50, schedule="cosine", warmup_steps=1080
        ),
        budget=BudgetOptions(epochs=50),
    )


def mnist_cpu(permutation: PixelOrder, epochs: int, augment: bool) -> TrainingConfig[MNIST]:
    return TrainingConfig(
        data=MNIST(permutation=permutation, augment=augment),
        model=network(layers=4, features=96, state_size=32, norm="batch"),
        optim=OptimizerOptions(
            lr=0.01, ssm_lr=0.004, weight_decay=0.05, batch_size=50, warmup_steps=500, average=0.999
        ),
        budget=BudgetOptions(epochs=epochs, evaluate_every=540, validation_examples=2000),
    )


def cifar_paper(grey: bool) -> TrainingConfig[CIFAR10]:
    if grey:
        model = network(layers=6, features=512, norm="layer", pre_norm=False, dropout=0.2, mixing="linear")
        optim = OptimizerOptions(lr=0.004, weight_decay=0.01, batch_size=50, schedule="plateau", patience=20)
    else:
        model = network(layers=6, features=1024, norm="layer", pre_norm=False, dropout=0.25, mixing="linear")
        optim = OptimizerOptions(lr=0.01, weight_decay=0.01, batch_size=50, schedule="plateau", patience=20)
    # The paper augments sCIFAR (D.3.4), not LRA's grey pictures.
    return TrainingConfig(
        data=CIFAR10(grey=grey, augment=not grey), model=model, optim=optim, budget=BudgetOptions(epochs=200)
    )


def cifar_modern(grey: bool) -> TrainingConfig[CIFAR10]:
    return TrainingConfig(
        data=CIFAR10(grey=grey, augment=not grey),
        model=network(
            layers=6,
            features=512,
            norm="batch" if grey else "layer",
            pre_norm=False,
            dropout=0.1,
            tied_dropout=True,
            bidirectional=True,
        ),
        optim=OptimizerOptions(
            lr=0.01,
            slow_output=False,
            weight_decay=0.05,
            batch_size=50,
            schedule="cosine",
            warmup_steps=18_000 if grey else 900,
        ),
        budget=BudgetOptions(epochs=200),
    )


def cifar_cpu(grey: bool, epochs: int) -> TrainingConfig[CIFAR10]:
    return TrainingConfig(
        data=CIFAR10(grey=grey, augment=True),
        model=network(
            layers=4,
            features=192,
            state_size=32,
            norm="batch",
            # Tied: drawing a number for every position would take a fifth of the time.
            dropout=0.1,
            tied_dropout=True,
            bidirectional=True,
            # Frames of four pixels of a row: far more is learned in the same time than pixel by pixel.
            stem=(4,),
        ),
        optim=OptimizerOptions(
            lr=0.01, ssm_lr=0.004, weight_decay=0.05, batch_size=25, warmup_steps=500, average=0.999
        ),
        budget=BudgetOptions(epochs=epochs),
        precision="bfloat16",
    )


_NO_ROW = "Table 11 has no row for MNIST: `paper` takes that of CIFAR-10 at half the width and fewer epochs."

RECIPES = (
    Recipe(
        name="digits",
        title="5,000 bundled digits, pixel by pixel: the quickstart",
        length=784,
        dataset="(bundled)",
        presets={"cpu": digits_cpu},
    ),
    Recipe(
        name="smnist",
        title="sequential MNIST",
        length=784,
        dataset="mnist",
        published={"paper": 99.63},
        differs=_NO_ROW,
        presets={
            "paper": lambda: mnist_paper("none"),
            "modern": lambda: mnist_modern("none"),
            "cpu": lambda: mnist_cpu("none", epochs=10, augment=True),
        },
    ),
    Recipe(
        name="pmnist",
        title="permuted MNIST (bit reversal)",
        length=784,
        dataset="mnist",
        published={"paper": 98.70},
        differs=_NO_ROW + " Other papers permute at random: --data.permutation random.",
        presets={
            "paper": lambda: mnist_paper("bit_reversal"),
            "modern": lambda: mnist_modern("bit_reversal"),
            "cpu": lambda: mnist_cpu("bit_reversal", epochs=8, augment=False),
        },
    ),
    Recipe(
        name="scifar",
        title="sequential CIFAR-10, RGB",
        length=1024,
        dataset="cifar10",
        published={"paper": 91.13},
        differs="`cpu` reads frames of four pixels.",
        presets={
            "paper": lambda: cifar_paper(grey=False),
            "modern": lambda: cifar_modern(grey=False),
            "cpu": lambda: cifar_cpu(grey=False, epochs=10),
        },
    ),
    Recipe(
        name="lra-image",
        title="LRA Image: CIFAR-10 in grey",
        length=1024,
        dataset="cifar10",
        published={"paper": 87.26, "modern": 88.65},
        differs="`cpu` augments the pictures, which LRA does not, and reads frames of four pixels.",
        presets={
            "paper": lambda: cifar_paper(grey=True),
            "modern": lambda: cifar_modern(grey=True),
            "cpu": lambda: cifar_cpu(grey=True, epochs=15),
        },
    ),
)
