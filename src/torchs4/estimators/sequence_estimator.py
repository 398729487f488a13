"""What S4Classifier and S4Regressor share: options, training of one model or several, their predictions."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from numbers import Real
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from torchs4.configuration import require_config, require_whole, with_options
from torchs4.data import from_arrays
from torchs4.data.augmentation import Augmentation, AugmentedSplit, repeats_for
from torchs4.estimators.defaults import (
    Plan,
    usual_augmentation,
    usual_kernels,
    usual_plan,
    usual_validation_fraction,
    with_rates,
)
from torchs4.estimators.kernels import MOST_EXAMPLES, fit_kernels
from torchs4.estimators.member import train_member
from torchs4.estimators.sequences import channels_of, read_sequences, require_different
from torchs4.estimators.sharpness import sharpen
from torchs4.estimators.streams import EnsembleStream
from torchs4.inference import Stream, predict
from torchs4.models import SequenceModel, SequenceModelConfig
from torchs4.tasks import Classification
from torchs4.training.display import BriefDisplay, Display

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from torchs4.data import SequenceData
    from torchs4.data.own.answers import TaskName
    from torchs4.estimators.sequences import Sequences

# Numbers of a batch's activations when predicting: bounds the memory that long sequences need.
_AT_ONCE = 1 << 23


class SequenceEstimator(BaseEstimator):
    """Options, training and predictions; subclasses say what is asked."""

    members_: list[SequenceModel]

    def __init__(
        self,
        *,
        model: SequenceModelConfig | None = None,
        features: int | None = None,
        num_layers: int | None = None,
        state_size: int | None = None,
        dropout: float | None = None,
        bidirectional: bool | None = None,
        epochs: int | None = None,
        learning_rate: float | None = None,
        batch_size: int | None = None,
        ensemble: int = 1,
        kernels: bool | str = "auto",
        augment: bool | str | Augmentation = "auto",
        normalize: bool = True,
        validation_fraction: float | str | None = "auto",
        early_stopping: bool = True,
        sample_rate: float | None = None,
        max_minutes: float | None = None,
        random_state: Any = None,
        output: str | Path | None = None,
        verbose: int = 1,
    ) -> None:
        self.model = model
        self.features = features
        self.num_layers = num_layers
        self.state_size = state_size
        self.dropout = dropout
        self.bidirectional = bidirectional
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.ensemble = ensemble
        self.kernels = kernels
        self.augment = augment
        self.normalize = normalize
        self.validation_fraction = validation_fraction
        self.early_stopping = early_stopping
        self.sample_rate = sample_rate
        self.max_minutes = max_minutes
        self.random_state = random_state
        self.output = output
        self.verbose = verbose

    def stream(self, *, rate: float = 1.0, batch_size: int | None = None) -> Stream | EnsembleStream:
        """Samples in as they come, predictions out, with constant memory; channels last, (length, channels).

        rate: step size of the samples relative to training: 2.0 when only every second one comes.
        """
        members = self._members_at(rate)
        streams = [Stream(member, rate=rate, batch_size=batch_size) for member in members]
        return streams[0] if len(streams) == 1 else EnsembleStream(streams)

    def export(self, path: str | Path, **options: Any) -> Path:
        """Write what was fit for machines without PyTorch.

        A path that ends with .onnx becomes one graph for whole sequences: "samples" (examples, length,
        channels) in, "probabilities" or "prediction" out. Any other becomes a folder of graphs for samples
        that come one by one or in chunks, with the options of `export_onnx`; of several networks, one with a
        folder for each (the kernels, if any, last), whose predictions are to be averaged: for classes, the
        softmax of each.
        """
        from torchs4.inference.export import export_onnx
        from torchs4.inference.onnx_file import export_onnx_file

        members = self._members_at(options.get("rate", 1.0))
        if Path(path).suffix == ".onnx":
            return export_onnx_file(members, path, **options)
        if len(members) == 1:
            return export_onnx(members[0], path, **options)
        for number, member in enumerate(members, 1):
            export_onnx(member, Path(path) / f"member-{number}", **options)
        return Path(path)

    def save(self, path: str | Path) -> None:
        """Write a folder that `load` reads: what was fit, and the weights. Nothing is pickled."""
        from torchs4.estimators.saving import save_estimator

        check_is_fitted(self, "members_")
        save_estimator(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The estimator that `save` wrote there."""
        from torchs4.estimators.saving import load_estimator

        loaded = load_estimator(path)
        if not isinstance(loaded, cls):
            name = type(loaded).__name__
            raise ValueError(f"{path} holds a {name}, not a {cls.__name__}. Call {name}.load instead.")
        return loaded

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.target_tags.required = True
        return tags

    def _fit_members(
        self, x: Sequences, y: Any, validation: tuple[Any, Any] | None, task: TaskName, **options: Any
    ) -> Self:
        """Train every member; options are for `from_arrays`, `adjust` for what it makes."""
        adjust: Callable[[SequenceData], SequenceData] = options.pop("adjust", lambda data: data)
        require_whole("ensemble", self.ensemble, 1)
        if len(x) < 2:
            raise ValueError(
                "X has 1 sample; at least 2 are needed, one to learn from and one to validate with."
            )
        require_different(x)
        # A run that is kept can only be continued with the seed that it began with.
        given_state = 0 if self.random_state is None and self.output is not None else self.random_state
        seeds = check_random_state(given_state).randint(2**31 - 1, size=self.ensemble + 1).tolist()
        fraction = 0.0 if validation is not None else self._fraction_held_out(len(x))

        def data_of(seed: int) -> SequenceData:
            data = from_arrays(
                x,
                y,
                task=task,
                sample_rate=self.sample_rate,
                normalize=self.normalize,
                # The epoch that does best on the examples themselves is nearly always a late one.
                validation=(x, y) if fraction is None else fraction if validation is None else validation,
                seed=seed,
                **options,
            )
            return replace(adjust(data), learns_all=fraction is None)

        *network_seeds, kernel_seed = seeds
        for_kernels = data_of(kernel_seed)
        # What cannot be should be said before a training of hours.
        wants_kernels = self._wants_kernels(for_kernels)
        members: list[SequenceModel] = []
        with ExitStack() as held:
            place = Path(self.output or held.enter_context(TemporaryDirectory(prefix="torchs4-")))
            for number, seed in enumerate(network_seeds if self.kernels != "only" else [], 1):
                members.append(self._fit_member(data_of(seed), place / f"training-{number}", number, seed))
        self.n_networks_ = len(members)
        if wants_kernels:
            with Display() if self.verbose > 1 else BriefDisplay(quiet=not self.verbose) as display:
                solved = fit_kernels(for_kernels, kernel_seed, display.counting("kernels"))
                display.say(
                    f"{solved.model.config.features} kernels that are not trained: {solved.metric} "
                    f"{solved.left_out:.3f} on training examples, each left out in its turn"
                )
            members.append(solved.model)
        self.members_ = members
        self.n_channels_ = channels_of(x)
        return self

    def _wants_kernels(self, data: SequenceData) -> bool:
        if self.kernels == "auto":
            return self.model is None and usual_kernels(data)
        if self.kernels not in (True, False, "only"):
            raise ValueError(f'kernels is {self.kernels!r}; expected "auto", True, False or "only".')
        if self.kernels and data.input.kind != "values":
            raise ValueError(
                f"kernels is {self.kernels!r}, but X holds texts, which only a network that is trained can "
                f"read. Leave it out."
            )
        if self.kernels and len(data.train) > MOST_EXAMPLES:
            raise ValueError(
                f"kernels is {self.kernels!r}, but there are {len(data.train):,} examples to learn from: the "
                f"head behind the kernels is solved for from at most {MOST_EXAMPLES:,}. Leave it out."
            )
        return bool(self.kernels)

    def _fraction_held_out(self, examples: int) -> float | None:
        fraction = self.validation_fraction
        if fraction == "auto":
            return usual_validation_fraction(examples)
        if isinstance(fraction, str):
            raise ValueError(f'validation_fraction is {fraction!r}; expected a share, "auto" or None.')
        return fraction

    def _fit_member(self, data: SequenceData, folder: Path, number: int, seed: int) -> SequenceModel:
        plan = self._plan(data)
        if plan.repeats > 1 or plan.augmentation != Augmentation():
            split = AugmentedSplit(data.train, plan.augmentation, plan.repeats, data.input.scaling)
            data = replace(data, train=split)
        run = train_member(
            plan.model,
            data,
            folder,
            optim=plan.optim,
            budget=plan.budget,
            seed=seed,
            keep=self.output is not None,
            verbose=self.verbose,
            title=f"model {number} of {self.ensemble}" if self.ensemble > 1 else "",
        )
        assert isinstance(run.model, SequenceModel)
        if isinstance(data.task, Classification):
            sharpen(run.model, data)
        return run.model

    def _plan(self, data: SequenceData) -> Plan:
        """What suits the data, changed by what was asked for."""
        plan = usual_plan(data)
        model, optim, budget = plan.model, plan.optim, plan.budget
        if self.model is not None:
            require_config("model", self.model, SequenceModelConfig)
            model = self.model
        wishes = {
            "features": self.features,
            "layers": self.num_layers,
            "state_size": self.state_size,
            "dropout": self.dropout,
            "bidirectional": self.bidirectional,
        }
        model = with_options(model, **{name: value for name, value in wishes.items() if value is not None})
        if self.learning_rate is not None:
            if not isinstance(self.learning_rate, Real) or not self.learning_rate > 0:
                raise ValueError(
                    f"learning_rate is {self.learning_rate!r}; expected a positive number such as 0.005."
                )
            optim = with_rates(optim, self.learning_rate)
        repeats = plan.repeats
        if self.batch_size is not None:
            optim = replace(optim, batch_size=self.batch_size)
            repeats = repeats_for(len(data.train), self.batch_size, 1) if self.epochs else repeats
        if self.epochs is not None:
            epochs = self.epochs.item() if isinstance(self.epochs, np.integer) else self.epochs
            require_whole("epochs", epochs, 1)
            # Passes over the examples, as everywhere else: exactly so many.
            repeats = max(count for count in range(1, repeats + 1) if epochs % count == 0)
            rounds = epochs // repeats
            budget = replace(budget, epochs=rounds, early_stop=max(rounds // 3, 1))
        # Examples that are learned from always improve.
        if not self.early_stopping or data.learns_all:
            budget = replace(budget, early_stop=0)
        if self.max_minutes is not None:
            budget = replace(budget, max_minutes=self.max_minutes / self.ensemble)
        return Plan(model, optim, budget, self._augmentation(plan.augmentation), repeats)

    def _augmentation(self, usual: Augmentation) -> Augmentation:
        if isinstance(self.augment, Augmentation):
            return self.augment
        if self.augment == "auto":
            return usual
        if not isinstance(self.augment, bool):
            raise ValueError(f'augment is {self.augment!r}; expected "auto", True, False or Augmentation(…).')
        return usual_augmentation() if self.augment else Augmentation()

    def _members_at(self, rate: float) -> list[SequenceModel]:
        """Those that can read such a rate: thresholds of kernels hold for the one that they were taken at."""
        check_is_fitted(self, "members_")
        if rate == 1 or self.n_networks_ == len(self.members_):
            return self.members_
        if not self.n_networks_:
            raise ValueError(
                f"rate is {rate}, but kernels alone read no other rate than the one that they were fit on. "
                f'Fit with kernels="auto" or kernels=False: networks that are trained do.'
            )
        return self.members_[: self.n_networks_]

    def _outputs(self, X: Any, rate: float) -> list[NDArray[np.float64]]:
        """What each member says about every sequence, (n, outputs)."""
        members = self._members_at(rate)
        x = read_sequences(self, X, reset=False, same_length=rate == 1)
        if channels_of(x) != self.n_channels_:
            raise ValueError(
                f"X has {channels_of(x)} channels, but this {type(self).__name__} was fit on "
                f"{self.n_channels_}. Shapes are (examples, length) or (examples, channels, length)."
            )
        longest = x.longest if hasattr(x, "longest") else max(map(len, x))
        outputs = []
        for member in members:
            at_once = max(1, min(256, _AT_ONCE // (longest * member.config.features)))
            outputs.append(np.stack(predict(member, x, batch_size=at_once, rate=rate)).astype(np.float64))
        return outputs
