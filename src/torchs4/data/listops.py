"""ListOps: the value of a long nested expression like [MAX 2 [MIN 4 7 ] [SM 9 3 ] ], one of ten digits.

Expressions are drawn by the rules of the Long Range Arena, or read from its release. MED is the median,
rounded down; SM is the sum modulo 10.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from torchs4.configuration import require_at_least, require_choice
from torchs4.data.listops_parts import draw_parts
from torchs4.data.listops_rules import (
    CLOSE,
    DIGITS,
    FIRST_DIGIT,
    FIRST_OPERATOR,
    MAX_ARGUMENTS,
    OPERATORS,
    VOCABULARY,
    evaluate,
    starts_of,
)
from torchs4.data.location import DatasetMissingError, advise_again, find_in_lra
from torchs4.data.prepared import prepared_arrays
from torchs4.data.sequences import Growth, SequenceData, TokenSplit, offsets_of
from torchs4.description import InputDescription
from torchs4.tasks import Classification

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from torchs4.data.progress import Progress

Source = Literal["generated", "official"]

_MAX_DEPTH = 10
_OPERATOR_PROBABILITY = 0.25
_MIN_ARGUMENTS = 2
# Both ends are excluded.
_SHORTEST, _LONGEST = 500, 2000
# Part of what a seed means: another number here gives other expressions.
_TREES_AT_ONCE = 2000

# Parts up to each of these are a stage of the training, and the longer ones another.
_LONGEST_PARTS = (64, 256)

_OFFICIAL_NAMES = ("basic_train.tsv", "basic_val.tsv", "basic_test.tsv")
_AGAIN = advise_again("lra")


@dataclass(frozen=True)
class ListOps:
    """Options of ListOps.

    Attributes:
        source: "generated" draws distinct expressions by the benchmark's rules; "official" reads its
            release.
        max_length: tokens per input; longer expressions are cut at their end. None exceeds 1,999 tokens.
        train_size, validation_size, test_size: how many expressions to generate. Test and validation
            expressions stay the same when only train_size changes.
        parts: how many expressions inside each training expression are shown first. They have values of their
            own, and teach what operators do. Validation and test expressions are always whole; 0 begins
            with whole ones, too.
        grow_every: examples of each stage: parts of up to 64 tokens, of up to 256, longer ones, and then, to
            the end of the training, whole expressions.
        seed: of the generated expressions, and of the parts.
    """

    source: Source = "generated"
    max_length: int = 2048
    train_size: int = 96_000
    validation_size: int = 2_000
    test_size: int = 2_000
    parts: int = 0
    grow_every: int = 100_000
    seed: int = 0

    def __post_init__(self) -> None:
        require_choice("source", self.source, get_args(Source))
        for name in ("max_length", "train_size", "validation_size", "test_size", "grow_every"):
            require_at_least(name, getattr(self, name), 1)
        for name in ("parts", "seed"):
            require_at_least(name, getattr(self, name), 0)

    def load(self, folder: Path, progress: Progress | None = None) -> SequenceData:
        """Expressions as tokens numbered by `VOCABULARY`; the first load prepares them, once."""
        if self.source == "official":
            name = "listops-official-v1"
            build = partial(_read_official, folder)
        else:
            sizes = (self.train_size, self.validation_size, self.test_size)
            name = f"listops-generated-{'-'.join(map(str, sizes))}-seed{self.seed}-v1"
            build = partial(_generate_splits, sizes, self.seed, progress)
        arrays = prepared_arrays(folder, name, build)
        offsets, labels = np.asarray(arrays["offsets"]), np.asarray(arrays["labels"])
        starts, lengths = offsets[:-1], np.diff(offsets)
        whole, validation, test = (np.flatnonzero(arrays["split"] == number) for number in range(3))
        stages = [whole]
        if self.parts:
            # Training expressions lie one after the other.
            build = partial(
                _draw_parts, arrays["tokens"], offsets[whole[0] : whole[-1] + 2], self.parts, self.seed
            )
            parts = prepared_arrays(folder, f"{name}-parts{self.parts}-seed{self.seed}-v1", build)
            stage_of = np.searchsorted(_LONGEST_PARTS, parts["lengths"])
            numbers = [np.flatnonzero(stage_of == stage) for stage in range(len(_LONGEST_PARTS) + 1)]
            stages = [*(len(labels) + some for some in numbers if len(some)), whole]
            starts = np.concatenate([starts, parts["starts"]])
            lengths = np.concatenate([lengths, parts["lengths"]])
            labels = np.concatenate([labels, parts["values"]])
        texts = partial(TokenSplit, arrays["tokens"], starts, lengths, labels)
        growth = Growth(tuple(map(len, stages)), self.grow_every) if len(stages) > 1 else None
        return SequenceData(
            input=InputDescription("tokens", len(VOCABULARY), self.max_length),
            task=Classification(DIGITS),
            train=texts(np.concatenate(stages), self.max_length, growth=growth),
            validation=texts(validation, self.max_length),
            test=texts(test, self.max_length),
        )


def _draw_parts(
    tokens: NDArray[np.uint8], offsets: NDArray[np.int64], count: int, seed: int
) -> dict[str, NDArray[Any]]:
    return draw_parts(tokens, offsets, count, np.random.default_rng(seed))._asdict()


class _Expressions(NamedTuple):
    """Expressions one after the other in `tokens`, the length and the value of each."""

    tokens: NDArray[np.uint8]
    lengths: NDArray[np.int64]
    values: NDArray[np.uint8]


def _generate_splits(
    sizes: tuple[int, int, int], seed: int, progress: Progress | None
) -> dict[str, NDArray[Any]]:
    train, validation, test = sizes
    expressions = _draw_distinct(train + validation + test, np.random.default_rng(seed), progress)
    return {
        "tokens": expressions.tokens,
        "offsets": offsets_of(expressions.lengths),
        "labels": expressions.values,
        # Test and validation come first, so that they do not depend on how much there is to train on.
        "split": np.repeat(np.array([2, 1, 0], np.uint8), (test, validation, train)),
    }


def _draw_distinct(count: int, rng: np.random.Generator, progress: Progress | None) -> _Expressions:
    """The first `count` different expressions of a permitted length."""
    seen: set[bytes] = set()
    tokens, lengths, values = [], [], []
    while len(seen) < count:
        drawn = _draw(_TREES_AT_ONCE, rng)
        ends = np.cumsum(drawn.lengths)
        permitted = (drawn.lengths > _SHORTEST) & (drawn.lengths < _LONGEST)
        for number in np.flatnonzero(permitted):
            expression = drawn.tokens[ends[number] - drawn.lengths[number] : ends[number]]
            # Digests need a small part of the memory that the expressions themselves would take.
            digest = blake2b(expression.tobytes(), digest_size=16).digest()
            if digest in seen or len(seen) == count:
                continue
            seen.add(digest)
            tokens.append(expression)
            lengths.append(drawn.lengths[number])
            values.append(drawn.values[number])
        if progress is not None:
            progress("Drawing expressions", len(seen), count)
    return _Expressions(np.concatenate(tokens), np.array(lengths, np.int64), np.array(values, np.uint8))


def _draw(count: int, rng: np.random.Generator) -> _Expressions:
    """Random expressions of any length, all of them worked on at once, level by level.

    Every root is an operator: a lone digit is far too short to be kept, so this changes no probability
    among the kept ones. The arguments of a level's operators are the next level, in order.
    """
    arguments = [_draw_arguments(count, 1.0, rng)]
    while len(arguments) < _MAX_DEPTH and (following := int(arguments[-1].sum())):
        at_bottom = len(arguments) + 1 == _MAX_DEPTH
        arguments.append(_draw_arguments(following, 0.0 if at_bottom else _OPERATOR_PROBABILITY, rng))
    symbols = [
        np.where(
            level > 0,
            rng.integers(FIRST_OPERATOR, CLOSE, len(level), dtype=np.uint8),
            rng.integers(FIRST_DIGIT, FIRST_OPERATOR, len(level), dtype=np.uint8),
        )
        for level in arguments
    ]

    lengths = [np.ones(len(level), np.int64) for level in arguments]
    values = [symbol - np.uint8(FIRST_DIGIT) for symbol in symbols]
    for depth in reversed(range(len(arguments) - 1)):
        nested = arguments[depth] > 0
        if nested.any():
            sizes = arguments[depth][nested]
            lengths[depth][nested] = 2 + np.add.reduceat(lengths[depth + 1], starts_of(sizes))
            values[depth][nested] = evaluate(symbols[depth][nested], sizes, values[depth + 1])

    tokens = np.empty(int(lengths[0].sum()), np.uint8)
    places = starts_of(lengths[0])
    for depth, symbol in enumerate(symbols):
        tokens[places] = symbol
        nested = arguments[depth] > 0
        if not nested.any():
            break
        opening = places[nested]
        tokens[opening + lengths[depth][nested] - 1] = CLOSE
        sizes = arguments[depth][nested]
        before = starts_of(lengths[depth + 1])
        places = before + np.repeat(opening + 1 - before[starts_of(sizes)], sizes)
    return _Expressions(tokens, lengths[0], values[0])


def _draw_arguments(count: int, operator_probability: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """How many arguments each of `count` nodes has; digits have none."""
    sizes = rng.integers(_MIN_ARGUMENTS, MAX_ARGUMENTS + 1, count)
    return np.where(rng.random(count) < operator_probability, sizes, 0)


def _read_official(folder: Path) -> dict[str, NDArray[Any]]:
    place = find_in_lra(folder, "listops-1000")
    tokens, lengths, labels, split = bytearray(), [], [], []
    for number, name in enumerate(_OFFICIAL_NAMES):
        path = place / name
        if not path.is_file():
            raise DatasetMissingError("lra", path)
        for expression, label in _read_tsv(path):
            tokens += expression
            lengths.append(len(expression))
            labels.append(label)
            split.append(number)
    return {
        "tokens": np.frombuffer(tokens, np.uint8),
        "offsets": offsets_of(lengths),
        "labels": np.array(labels, np.uint8),
        "split": np.array(split, np.uint8),
    }


def _read_tsv(path: Path) -> list[tuple[bytes, int]]:
    """Each line's expression, parentheses dropped, as token numbers, and its value."""
    numbers = {word.encode(): number for number, word in enumerate(VOCABULARY) if number}
    examples = []
    with path.open("rb") as file:
        header = file.readline()
        if header.rstrip(b"\r\n") != b"Source\tTarget":
            raise ValueError(
                f"{path} is not a file of ListOps: it begins with {header[:40]!r} instead of the columns "
                f"Source and Target. {_AGAIN}"
            )
        for line_number, line in enumerate(file, start=2):
            source, tab, target = line.rstrip(b"\r\n").partition(b"\t")
            words = source.translate(None, b"()").split()
            if unknown := next((word for word in words if word not in numbers), None):
                raise ValueError(
                    f"{path} is damaged: line {line_number} holds {unknown[:20]!r}, which is none of "
                    f"{' '.join(VOCABULARY[1:])}. {_AGAIN}"
                )
            expression = bytes(map(numbers.__getitem__, words))
            closed = expression.count(CLOSE)
            opened = sum(expression.count(FIRST_OPERATOR + number) for number in range(len(OPERATORS)))
            if not tab or target not in numbers or not target.isdigit() or opened != closed or not expression:
                raise ValueError(
                    f"{path} is damaged or truncated: line {line_number} should be an expression, a tab and "
                    f"a digit; it ends with {line[-40:]!r}. {_AGAIN}"
                )
            examples.append((expression, int(target)))
    if not examples:
        raise ValueError(f"{path} holds no expressions. {_AGAIN}")
    return examples
