"""What to begin with, by how many examples there are and how long they are; anybody may say otherwise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torchs4.data.augmentation import Augmentation, repeats_for
from torchs4.layers import S4BlockConfig, S4Config
from torchs4.models import SequenceModelConfig
from torchs4.tasks import Classification
from torchs4.training.config import BudgetOptions, OptimizerOptions

if TYPE_CHECKING:
    from torchs4.data.sequences import SequenceData

# Steps between two measurements on validation examples; fewer would spend more time on measuring and saving.
_STEPS_PER_EPOCH = 20
# Steps of a whole training, at least, and passes over the examples, at least.
_STEPS, _PASSES = 1000, 40
# Fewer examples all take part in the training of a smaller network.
_FEW = 500
# Sets of fewer examples are augmented, if classes are asked for.
_SMALL = 2000


@dataclass(frozen=True)
class Plan:
    """How one model is trained; every example is shown `repeats` times in an epoch."""

    model: SequenceModelConfig
    optim: OptimizerOptions
    budget: BudgetOptions
    augmentation: Augmentation
    repeats: int


def usual_plan(data: SequenceData) -> Plan:
    """The plan for such data."""
    examples, length = len(data.train), data.input.length
    batch_size = 16 if examples < 400 else 32
    repeats = repeats_for(examples, batch_size, _STEPS_PER_EPOCH)
    steps_per_epoch = max(1, repeats * examples // batch_size)
    epochs = max(_STEPS // steps_per_epoch, _PASSES // repeats, 1)
    return Plan(
        usual_model(examples, length),
        OptimizerOptions(
            lr=0.005, ssm_lr=0.002, batch_size=batch_size, warmup_steps=50, clip=1.0, average=0.99
        ),
        BudgetOptions(epochs=epochs, early_stop=max(epochs // 3, 1)),
        usual_augmentation() if examples < _SMALL and _may_change(data) else Augmentation(),
        repeats,
    )


def usual_kernels(data: SequenceData) -> bool:
    """Whether kernels that are not trained help: with few examples they know what a training cannot find."""
    return data.input.kind == "values" and len(data.train) < _SMALL


def _may_change(data: SequenceData) -> bool:
    """Whether examples may be shown a little different: a class stays what it is, a value may not."""
    return data.input.kind == "values" and isinstance(data.task, Classification)


def usual_model(examples: int, length: int) -> SequenceModelConfig:
    """A network for so many sequences of such a length."""
    layer = S4Config(
        state_size=32,
        # From what a few samples decide to what the whole sequence does.
        min_step_size=min(0.1, 1 / length),
        max_step_size=0.5,
    )
    block = S4BlockConfig(layer=layer, norm="batch", dropout=0.1, tied_dropout=True)
    return SequenceModelConfig(
        features=64,
        num_layers=2 if examples < _FEW else 4,
        block=block,
        stem=(4, 4) if length >= 8000 else (),
    )


def usual_validation_fraction(examples: int) -> float | None:
    """Which share to hold out; None for sets that are too small to spare any."""
    return None if examples < _FEW else 0.15


def usual_augmentation() -> Augmentation:
    """Changes that leave most signals what they are; half of the examples stay themselves anyhow."""
    return Augmentation(noise=0.05, stretch=0.1, warp=0.1, shift=0.05, share=0.5)


def with_rates(options: OptimizerOptions, learning_rate: float) -> OptimizerOptions:
    """Another learning rate, the state space's in proportion."""
    return replace(options, lr=learning_rate, ssm_lr=options.ssm_lr * learning_rate / options.lr)
