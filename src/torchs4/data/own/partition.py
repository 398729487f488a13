"""Which of somebody's examples are trained on, validated with and tested with."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Partition(NamedTuple):
    """Sorted row numbers of three parts that share nothing; an unused one is empty."""

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]


def require_fractions(validation: float | None, test: float | None) -> None:
    """Refuse shares that leave nothing to validate with or to train on; None stands for given examples."""
    # Written so that NaN fails them.
    if validation is not None and not 0 < validation < 1:
        raise ValueError(f"The validation fraction is {validation}; it must lie between 0 and 1, like 0.1.")
    if test is not None and not 0 <= test < 1:
        raise ValueError(f"The test fraction is {test}; it must be 0 (no test) or lie below 1, like 0.1.")
    if (validation or 0) + (test or 0) >= 1:
        raise ValueError(
            f"Fractions of {validation} for validation and {test} for the test leave nothing to train on; "
            f"their sum must be below 1."
        )


def divide(groups: NDArray[np.int64], validation: float, test: float, seed: int) -> Partition:
    """Hold out fractions of all examples, at least one each, in every group about as many as it has.

    A group never loses its last example to a held-out part. The test part does not depend on the other
    fraction, so that choosing that one anew looks at no test example.
    """
    count = len(groups)
    generator = np.random.default_rng(seed)
    rest, tested = np.arange(count), np.arange(0)
    if test:
        rest, tested = _hold_out(rest, groups, _size(count, test), generator)
    validated = np.arange(0)
    if validation:
        rest, validated = _hold_out(rest, groups, _size(count, validation), generator)
    return Partition(rest, validated, tested)


def _size(count: int, fraction: float) -> int:
    return max(1, round(count * fraction))


def _hold_out(
    rows: NDArray[np.int64], groups: NDArray[np.int64], held: int, generator: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    order = generator.permutation(rows)
    sizes = np.bincount(groups[order], minlength=int(groups.max()) + 1)
    quotas = _shares(sizes, held)
    if len(rows) == 1:
        raise ValueError("There is 1 example, and none to hold out for measuring: give more of them.")
    if not quotas.any():
        raise ValueError(
            f"Of {len(rows)} examples in {np.count_nonzero(sizes)} classes none can be held out: every class "
            f"keeps at least one to train on. Give more examples of each class, or those to validate and "
            f"test with yourself; numbers to predict are no classes, give those as floating-point numbers."
        )
    # Each example's place within its group, in the drawn order.
    by_group = np.argsort(groups[order], kind="stable")
    places = np.empty(len(order), np.int64)
    places[by_group] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    is_held = places < quotas[groups[order]]
    return np.sort(order[~is_held]), np.sort(order[is_held])


def _shares(sizes: NDArray[np.int64], held: int) -> NDArray[np.int64]:
    """How many examples each group gives: in proportion, the largest remainders first, never its last one."""
    spare = np.maximum(sizes - 1, 0)
    held = min(held, int(spare.sum()))
    exact = sizes * (held / max(int(sizes.sum()), 1))
    shares = np.minimum(exact.astype(np.int64), spare)
    while (missing := held - int(shares.sum())) > 0:
        wanting = np.where(shares < spare, exact - shares, -np.inf)
        best = np.argsort(-wanting, kind="stable")[:missing]
        shares[best[wanting[best] > -np.inf]] += 1
    return shares
