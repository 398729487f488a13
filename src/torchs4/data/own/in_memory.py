"""Your own arrays and lists as a dataset like any other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from torchs4.configuration import require_at_least, require_choice
from torchs4.data.characters import (
    character_numbers,
    count_characters,
    encode_texts,
    frequent_characters,
    token_names,
)
from torchs4.data.own.answers import Answers, TaskName, read_answers
from torchs4.data.own.examples import Examples
from torchs4.data.own.inputs import read_inputs
from torchs4.data.own.moments import Moments
from torchs4.data.own.partition import Partition, divide, require_fractions
from torchs4.data.own.stored import StoredSequences, StoredSplit, UnequalSequences
from torchs4.data.own.survey import survey
from torchs4.data.sequences import SequenceData, offsets_of
from torchs4.description import InputDescription, Scaling
from torchs4.tasks import Classification, PositionRegression, Regression, Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from torchs4.data.progress import Progress


@dataclass(frozen=True)
class Wishes:
    """How examples become a dataset; `from_arrays` says what each means."""

    task: TaskName | None = None
    classes: tuple[Any, ...] | None = None
    tokens: bool = False
    vocabulary_size: int | None = None
    sample_rate: float | None = None
    normalize: bool = True
    validation: float = 0.1
    test: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.task is not None:
            require_choice("task", self.task, get_args(TaskName))
        if self.sample_rate is not None and not self.sample_rate > 0:
            raise ValueError(f"sample_rate is {self.sample_rate}; it must be positive.")
        if self.vocabulary_size is not None and not self.tokens:
            raise ValueError("vocabulary_size belongs to tokens; give tokens=True with it.")
        require_at_least("seed", self.seed, 0)


def from_arrays(
    x: Any,
    y: Any,
    *,
    lengths: Any = None,
    task: TaskName | None = None,
    classes: Sequence[Any] | None = None,
    tokens: bool = False,
    vocabulary_size: int | None = None,
    sample_rate: float | None = None,
    normalize: bool = True,
    validation: float | tuple[Any, Any] = 0.1,
    test: float | tuple[Any, Any] = 0.0,
    seed: int = 0,
) -> SequenceData:
    """A dataset of your own examples: `x` holds sequences, `y` what is asked about them.

    Args:
        x: an array (examples, positions) or (examples, positions, channels), which may lie on disk
            (`np.load(…, mmap_mode="r")` or the path of an .npy file); or a list of sequences of any lengths,
            (positions,) or (positions, channels) each; or a list of texts, read character by character.
        y: a label for each example (whole numbers, texts, anything hashable); or values, (examples,) or
            (examples, k); or values for each position, (examples, positions), (examples, positions, k) or a
            list of such.
        lengths: how many positions of each row of an array are real, when rows are padded at their ends.
        task: "classification", "regression" or "position-regression". Left out, y decides: labels are
            classes, floating-point numbers are values, and values of each position if there are as many as
            positions.
        classes: names of the classes in the order of their numbers. Whole numbers in y then count them from
            0, other labels are looked up among them. Left out, they are the sorted labels.
        tokens: x holds whole numbers that stand for something, from 1 on; 0 is padding at the end of a row.
        vocabulary_size: one more than the largest token there can be; left out, than the largest there is.
        sample_rate: positions per second, where that means something.
        normalize: let the model scale every channel, and values to predict, to mean 0 and deviation 1 of the
            training examples. Batches hold your own units either way.
        validation: which share to hold out to choose the best model by (of each class about that share), or
            a pair (x, y) of other examples.
        test: the same for the examples to measure the best model with at the end; 0 for none.
        seed: of the choice of held-out examples.
    """
    wishes = Wishes(
        task=task,
        classes=None if classes is None else tuple(classes),
        tokens=tokens,
        vocabulary_size=vocabulary_size,
        sample_rate=sample_rate,
        normalize=normalize,
        validation=0.0 if isinstance(validation, tuple | list) else validation,
        test=0.0 if isinstance(test, tuple | list) else test,
        seed=seed,
    )
    given = Examples(x, y, lengths, validation=_pair(validation, "validation"), test=_pair(test, "test"))
    return assemble(given, wishes)


def _pair(part: Any, name: str) -> Examples | None:
    if not isinstance(part, tuple | list):
        return None
    if len(part) != 2:
        raise ValueError(f"{name} has {len(part)} items; expected a fraction or a pair (x, y).")
    return Examples(part[0], part[1], name_of=lambda row: f"{name} example {row}")


def assemble(given: Examples, wishes: Wishes, progress: Progress | None = None) -> SequenceData:
    """Check the examples, hold some out, describe them: what every way to bring own data ends with."""
    require_fractions(
        None if given.validation is not None else wishes.validation,
        None if given.test is not None else wishes.test,
    )
    parts = [part for part in (given, given.validation, given.test) if part is not None]
    inputs = [read_inputs(part, wishes.tokens) for part in parts]
    _require_enough(len(inputs[0]), given, wishes)
    answers = _read_all_answers(parts, inputs, wishes)
    members = divide(
        answers[0].groups,
        0 if given.validation is not None else wishes.validation,
        0 if given.test is not None else wishes.test,
        wishes.seed,
    )
    if all(isinstance(part, list) for part in inputs):
        stored, names = _encode(inputs, members.train)
        size = len(names)
    else:
        stored = [part for part in inputs if isinstance(part, StoredSequences)]
        if len(stored) < len(inputs):
            raise ValueError("Some examples are texts and others are numbers; all must be of one kind.")
        names = () if stored[0].is_tokens else given.channels
        size = _size(stored, wishes.vocabulary_size)
    sample_rate = wishes.sample_rate or given.sample_rate
    moments = _survey(stored, parts, members, names, progress)
    return SequenceData(
        InputDescription(
            "tokens" if stored[0].is_tokens else "values",
            size,
            max(part.longest for part in stored),
            sample_rate=sample_rate if sample_rate is None else float(sample_rate),
            scaling=moments.scaling() if moments is not None and wishes.normalize else None,
            names=names,
        ),
        _task(answers[0], _measure_answers(answers, parts, members, wishes)),
        *_splits(given, stored, answers, members),
    )


def _require_enough(count: int, given: Examples, wishes: Wishes) -> None:
    needed = 1 + (given.validation is None) + (given.test is None and wishes.test > 0)
    if count < needed:
        raise ValueError(
            f"x has {count} examples; at least {needed} are needed, so that training and each part to hold "
            f"out get one."
        )


def _read_all_answers(
    parts: list[Examples], inputs: list[StoredSequences | list[str]], wishes: Wishes
) -> list[Answers]:
    counts = [
        part.counts if isinstance(part, StoredSequences) else np.ones(len(part), np.int64) for part in inputs
    ]
    first = read_answers(parts[0], counts[0], wishes.task, wishes.classes)
    if first.task == "position-regression" and isinstance(inputs[0], list):
        raise ValueError("y has values for each position, but x holds texts: encode them as tokens yourself.")
    if first.task == "classification" and len(np.unique(first.groups)) < 2:
        name = first.names[int(first.groups[0])]
        raise ValueError(
            f"All {len(first.groups)} examples have the class {name!r}; a model needs at least two classes "
            f"to tell apart."
        )
    return [
        first,
        *(
            read_answers(part, count, first.task, known=first)
            for part, count in zip(parts[1:], counts[1:], strict=True)
        ),
    ]


def _encode(inputs: list[Any], train: NDArray[np.int64]) -> tuple[list[StoredSequences], tuple[str, ...]]:
    """Texts as numbers of characters; those that no training text has share one number."""
    vocabulary = frequent_characters(count_characters([inputs[0][row] for row in train]), 1)
    table = character_numbers(vocabulary)
    stored: list[StoredSequences] = []
    for texts in inputs:
        tokens, lengths = encode_texts(texts, table)
        stored.append(UnequalSequences(tokens, offsets_of(lengths)))
    return stored, token_names(vocabulary)


def _survey(
    stored: list[StoredSequences],
    parts: list[Examples],
    members: Partition,
    names: tuple[str, ...],
    progress: Progress | None,
) -> Moments | None:
    """Every value of every part is looked at; only those that are trained on are measured."""
    if stored[0].is_tokens:
        return None
    moments = survey(stored[0], members.train, parts[0], names, progress)
    for part, examples in zip(stored[1:], parts[1:], strict=True):
        survey(part, np.arange(0), examples, names)
    return moments


def _measure_answers(
    answers: list[Answers], parts: list[Examples], members: Partition, wishes: Wishes
) -> Scaling | None:
    first = answers[0]
    if first.task == "classification":
        return None
    if isinstance(first.values, np.ndarray):
        moments: Moments | None = Moments.of(first.values[members.train])
    else:
        found = [
            survey(each.values, members.train if each is first else np.arange(0), _of_y(part), first.names)
            for each, part in zip(answers, parts, strict=True)
            if isinstance(each.values, StoredSequences)
        ]
        moments = found[0]
    return moments.scaling() if moments is not None and wishes.normalize else None


def _of_y(part: Examples) -> Examples:
    return replace(part, name_of=lambda row: f"y of {part.name_of(row)}")


def _size(stored: list[StoredSequences], vocabulary_size: int | None) -> int:
    if not stored[0].is_tokens:
        channels = sorted({part.channels for part in stored})
        if len(channels) > 1:
            raise ValueError(
                f"Parts of the data have {' and '.join(map(str, channels))} channels; all need as many."
            )
        return channels[0]
    # It says how long a table of vectors is, so the largest token counts wherever it stands.
    largest = max(int(block.values.max()) for part in stored for block in part.blocks())
    if vocabulary_size is None:
        return largest + 1
    if largest >= vocabulary_size:
        raise ValueError(
            f"vocabulary_size is {vocabulary_size}, but x holds token {largest}; it must be at least "
            f"{largest + 1}."
        )
    return vocabulary_size


def _task(answers: Answers, scaling: Scaling | None) -> Task:
    if answers.task == "classification":
        return Classification(answers.names)
    if answers.task == "regression":
        return Regression(answers.names, scaling)
    return PositionRegression(answers.names, scaling)


def _splits(
    given: Examples, stored: list[StoredSequences], answers: list[Answers], members: Partition
) -> tuple[StoredSplit, StoredSplit, StoredSplit | None]:
    """Training, validation and test: rows of the first part, or a part that was given for it."""
    own = [
        StoredSplit(x, answer.values, np.arange(len(x)))
        for x, answer in zip(stored[1:], answers[1:], strict=True)
    ]
    held = [StoredSplit(stored[0], answers[0].values, rows) for rows in members]
    validation = own.pop(0) if given.validation is not None else held[1]
    test = own.pop(0) if given.test is not None else held[2]
    return held[0], validation, test if len(test) else None
