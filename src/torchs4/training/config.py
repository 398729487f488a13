"""Everything that decides how a training run goes: data, model, optimiser, schedule, budget."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar, get_args

from torchs4.configuration import require_at_least, require_choice, require_probability, require_whole
from torchs4.data import CONFIGS
from torchs4.data.sequences import DataConfig
from torchs4.models import ModelConfig, SequenceModelConfig

ScheduleKind = Literal["cosine", "plateau", "steps", "constant"]
OptimizerKind = Literal["adamw", "lamb"]
Precision = Literal["float32", "bfloat16", "float16"]

Data = TypeVar("Data", bound=DataConfig)

# Products of two such numbers still fit into a float32.
_LARGEST = 1e9


@dataclass(frozen=True)
class OptimizerOptions:
    """The optimiser and its schedule.

    Attributes:
        optimizer: "adamw", or "lamb", whose steps are as long, relative to a weight matrix, as lr says.
        lr: learning rate of everything but the state-space parameters.
        weight_decay: how fast weights that the loss does not hold shrink.
        ssm_lr: highest learning rate of the state-space parameters, which have no weight decay.
        step_size_lr: highest learning rate of the step sizes Δ; by default that of the other state-space
            parameters.
        slow_output: whether the output matrices C count among the state-space parameters, with ssm_lr and
            without decay, as in the paper; the updated results train them like any other weight.
        batch_size: examples per step, over all processes. Those that do not fill a last batch wait for
            another epoch's order.
        similar_lengths: fill a batch with sequences of similar length, so that less is padded and steps are
            faster; the order of examples is a little less random.
        carry_state: read a text in order, every sequence of a batch where the one before it ended, with the
            model's state carried on (truncated backpropagation).
        accumulate: parts into which a step's batch is cut to save memory; the gradient stays the same.
        clip: largest norm of the gradient; 0 does not clip.
        schedule: "cosine" falls to zero along a cosine, "plateau" multiplies by `decay` when validation has
            not improved for `patience` epochs, "steps" does so every `patience` epochs, "constant" stays.
        decay: what "plateau" and "steps" multiply the rate by.
        patience: epochs that "plateau" and "steps" wait.
        warmup_steps: steps during which the rate grows linearly from zero; at most a fifth of the run.
        average: measure and keep an average of the weights over about 1 / (1 - average) steps instead of
            those of the last one; 0.999 is usual, 0 does not average.
    """

    optimizer: OptimizerKind = "adamw"
    lr: float = 0.01
    ssm_lr: float = 1e-3
    step_size_lr: float | None = None
    slow_output: bool = True
    weight_decay: float = 0.05
    batch_size: int = 50
    similar_lengths: bool = False
    carry_state: bool = False
    accumulate: int = 1
    clip: float = 0.0
    schedule: ScheduleKind = "cosine"
    warmup_steps: int = 0
    decay: float = 0.2
    patience: int = 10
    average: float = 0.0

    def __post_init__(self) -> None:
        require_choice("optimizer", self.optimizer, get_args(OptimizerKind))
        require_probability("average", self.average)
        for name in ("lr", "ssm_lr", "step_size_lr", "weight_decay", "clip"):
            if getattr(self, name) is not None:
                _require_between(name, getattr(self, name), 0, _LARGEST)
        _require_between("decay", self.decay, 0, 1)
        require_whole("warmup_steps", self.warmup_steps, 0)
        for name in ("batch_size", "accumulate", "patience"):
            require_whole(name, getattr(self, name), 1)
        require_choice("schedule", self.schedule, get_args(ScheduleKind))
        if self.accumulate > self.batch_size:
            raise ValueError(
                f"accumulate is {self.accumulate}, but a batch has only {self.batch_size} examples to cut up."
            )


@dataclass(frozen=True)
class BudgetOptions:
    """How long to train, and how often to look.

    Attributes:
        epochs: passes over the training data.
        max_steps: end after so many steps even so; 0 does not. The schedule is made for the steps that are
            taken.
        validation_examples: of the validation split, measured after each epoch; 0 takes all of them.
        evaluate_every: also measure on validation after so many steps; 0 only after each epoch.
        early_stop: end when validation has not improved for so many epochs; 0 never does.
        max_minutes: end after so many minutes of training and measuring; 0 does not. A cosine has then fallen
            to zero, however many steps were taken; where a run ends depends on the machine.
    """

    epochs: int = 10
    max_steps: int = 0
    validation_examples: int = 0
    evaluate_every: int = 0
    early_stop: int = 0
    max_minutes: float = 0.0

    def __post_init__(self) -> None:
        require_whole("epochs", self.epochs, 1)
        _require_between("max_minutes", self.max_minutes, 0, _LARGEST)
        for name in ("max_steps", "validation_examples", "evaluate_every", "early_stop"):
            require_whole(name, getattr(self, name), 0)


@dataclass(frozen=True)
class TrainingConfig(Generic[Data]):
    """A whole training run.

    Attributes:
        seed: of the starting weights, of the order of the examples and of everything random about them.
        precision: "float32"; "bfloat16" for the mixing layers, or "float16" on devices without it, with a
            loss that is scaled to fit; state spaces always run in full precision.
    """

    data: Data = field(metadata={"choices": {kind.__name__: kind for kind in CONFIGS}})
    model: ModelConfig = field(default_factory=SequenceModelConfig)
    optim: OptimizerOptions = field(default_factory=OptimizerOptions)
    budget: BudgetOptions = field(default_factory=BudgetOptions)
    seed: int = 0
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        require_whole("seed", self.seed, 0)
        require_choice("precision", self.precision, get_args(Precision))


def _require_between(name: str, value: float, minimum: float, maximum: float) -> None:
    require_at_least(name, value, minimum)
    if value > maximum:
        raise ValueError(f"{name} is {value!r}; it must be at most {maximum:g}.")
