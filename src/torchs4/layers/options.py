"""Frozen configurations: merge keyword options into one, check its fields, say what is wrong with them."""

from __future__ import annotations

import dataclasses
import difflib
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed import DataclassInstance

    Config = TypeVar("Config", bound=DataclassInstance)


def merge_options(config: Config, options: dict[str, Any]) -> Config:
    """The configuration with some fields replaced; an unknown field gets a suggestion."""
    known = [field.name for field in dataclasses.fields(config)]
    for name in options:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {close[0]!r}? " if close else ""
            raise ValueError(
                f"{type(config).__name__} has no option {name!r}. {hint}Options: {', '.join(known)}."
            )
    return dataclasses.replace(config, **options)


def require_choice(name: str, value: str, allowed: Iterable[str]) -> None:
    """Refuse a value that is not one of a few."""
    allowed = list(allowed)
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; choose one of {', '.join(map(repr, allowed))}.")


def require_at_least(name: str, value: float, minimum: float) -> None:
    """Refuse a number that is too small or not a number."""
    # The comparison is written so that NaN fails it.
    if not value >= minimum:
        raise ValueError(f"{name} is {value}; it must be at least {minimum}.")


def require_probability(name: str, value: float) -> None:
    """Refuse a dropout rate outside [0, 1)."""
    if not 0 <= value < 1:
        raise ValueError(f"{name} is {value}; it must be in [0, 1).")
