"""The symbols of ListOps and what its operators mean, for the drawing and the cutting of expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIGITS = tuple("0123456789")
OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")

# A token's number is its place here.
VOCABULARY = ("<padding>", *DIGITS, *OPERATORS, "]")

FIRST_DIGIT = 1
FIRST_OPERATOR = FIRST_DIGIT + len(DIGITS)
CLOSE = FIRST_OPERATOR + len(OPERATORS)

MAX_ARGUMENTS = 10


def evaluate(
    operators: NDArray[np.uint8], sizes: NDArray[np.int64], arguments: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    """The value of each operator, whose arguments lie one group after the other."""
    # 255 sorts behind every digit, so the arguments of an operator are the first of its row.
    ordered = np.full((len(sizes), MAX_ARGUMENTS), 255, np.uint8)
    ordered[np.arange(MAX_ARGUMENTS) < sizes[:, None]] = arguments
    ordered.sort(axis=1)
    row = np.arange(len(sizes))
    median = (ordered[row, (sizes - 1) // 2] + ordered[row, sizes // 2]) // 2
    total = np.add.reduceat(arguments, starts_of(sizes)) % 10
    results = [ordered[:, 0], ordered[row, sizes - 1], median, total]
    return np.choose(operators - FIRST_OPERATOR, results).astype(np.uint8)


def starts_of(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each of these groups begins when they lie one after the other."""
    return np.cumsum(sizes) - sizes
