"""Which class a sequence belongs to, by scikit-learn's conventions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils import compute_class_weight

from torchs4.estimators.labels import names_of, number_labels
from torchs4.estimators.sequence_estimator import SequenceEstimator
from torchs4.estimators.sequences import read_sequences
from torchs4.tasks import Classification

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from torchs4.data import SequenceData
    from torchs4.data.augmentation import Augmentation
    from torchs4.models import SequenceModelConfig


class S4Classifier(ClassifierMixin, SequenceEstimator):
    """Tells which class a sequence belongs to: `S4Classifier().fit(X, y).predict(X_new)`.

    X: (examples, length), (examples, channels, length), a list of sequences of different lengths, each
        (length,) or (channels, length), or a list of texts, read character by character.
    y: a label for each: numbers, texts, booleans, anything hashable.

    What is None is chosen by how many examples there are and how long they are.

    Attributes:
        class_weight: "balanced", or how much a mistake about each class counts: {label: weight}.
        model: a whole network, `SequenceModelConfig(…)`, instead of the usual one.
        features, num_layers, state_size, dropout: of the network.
        bidirectional: let it see the future, which often helps; it cannot stream or be exported then.
        epochs: passes over the training examples, at most.
        learning_rate, batch_size: of the training.
        ensemble: so many networks, whose probabilities are averaged: better, and as many times slower.
        kernels: average with a network that is not trained, but whose head is solved for, in seconds: "auto"
            for fewer than 2,000 sequences of numbers, True, False, or "only" without any training.
        augment: show examples a little different each time: "auto" for small sets, True, False or an
            `Augmentation(…)` of your own.
        normalize: scale every channel to mean 0 and deviation 1 of the training examples.
        validation_fraction: of the examples, held out to choose the best epoch by; None learns from all of
            them, without early stopping. "auto" holds out 0.15 of 500 examples or more, and learns from all
            of fewer, where every one of them is worth more than a good choice of the epoch.
        early_stopping: end when validation has not improved for a third of the epochs.
        sample_rate: positions per second, kept with the model; at another rate say `predict(X, rate=2)`.
        max_minutes: of training in all; learning rates fall accordingly.
        random_state: same number, same result.
        output: a folder for checkpoints, curves and pictures; an interrupted fit goes on there when called
            again. By default nothing is left behind.
        verbose: 0 shows nothing, 1 a progress line, 2 a line for each epoch.
    """

    def __init__(
        self,
        *,
        class_weight: dict[Any, float] | str | None = None,
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
        super().__init__(
            model=model,
            features=features,
            num_layers=num_layers,
            state_size=state_size,
            dropout=dropout,
            bidirectional=bidirectional,
            epochs=epochs,
            learning_rate=learning_rate,
            batch_size=batch_size,
            ensemble=ensemble,
            kernels=kernels,
            augment=augment,
            normalize=normalize,
            validation_fraction=validation_fraction,
            early_stopping=early_stopping,
            sample_rate=sample_rate,
            max_minutes=max_minutes,
            random_state=random_state,
            output=output,
            verbose=verbose,
        )
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, *, validation: tuple[Any, Any] | None = None) -> Self:
        """Train. `validation`: a pair (X, y) of other examples to choose the best epoch by."""
        x = read_sequences(self, X, reset=True)
        if y is None:
            raise ValueError("S4Classifier requires y to be passed, but the target y is None.")
        classes, codes = number_labels(x, y)
        if len(classes) < 2:
            raise ValueError(
                f"All {len(codes)} examples have the class {classes.tolist()[0]!r}; one class is not enough: "
                f"a model needs at least two to tell apart."
            )
        self.classes_ = classes
        held_out = None
        if validation is not None:
            others = read_sequences(self, validation[0], reset=False)
            held_out = others, self._known(validation[1])
        weights = self._weights(codes)

        def weighted(data: SequenceData) -> SequenceData:
            assert isinstance(data.task, Classification)
            return replace(data, task=replace(data.task, weights=weights))

        return self._fit_members(
            x, codes, held_out, "classification", classes=names_of(classes), adjust=weighted
        )

    def predict(self, X: Any, *, rate: float = 1.0) -> NDArray[Any]:
        """The most probable class of each sequence.

        rate: step size of X relative to training: 2.0 when every second sample is left out.
        """
        probabilities = self.predict_proba(X, rate=rate)
        return self.classes_[probabilities.argmax(axis=1)]

    def predict_proba(self, X: Any, *, rate: float = 1.0) -> NDArray[np.float64]:
        """How probable each class is, (examples, classes), in the order of `classes_`."""
        scores = torch.from_numpy(np.stack(self._outputs(X, rate)))
        return scores.softmax(-1).mean(0).numpy()

    def _known(self, y: Any) -> NDArray[np.int64]:
        """The numbers of the classes of further labels."""
        number = {label: place for place, label in enumerate(self.classes_.tolist())}
        labels = np.asarray(y).tolist() if not isinstance(y, list | tuple) else y
        for row, label in enumerate(labels):
            if label not in number:
                raise ValueError(
                    f"Validation example {row} has the class {label!r}, which no training example has; there "
                    f"are {', '.join(map(repr, number))}."
                )
        return np.array([number[label] for label in labels], np.int64)

    def _weights(self, codes: NDArray[np.int64]) -> tuple[float, ...]:
        if self.class_weight is None:
            return ()
        weight = self.class_weight
        if isinstance(weight, dict):
            number = {label: place for place, label in enumerate(self.classes_.tolist())}
            if strangers := [label for label in weight if label not in number]:
                raise ValueError(
                    f"class_weight names the class {strangers[0]!r}, which no example has; there are "
                    f"{', '.join(map(repr, number))}."
                )
            weight = {number[label]: value for label, value in weight.items()}
        found = compute_class_weight(weight, classes=np.arange(len(self.classes_)), y=codes)
        # A mean of 1 over the examples, so that learning rates mean the same.
        return tuple((found / found[codes].mean()).tolist())
