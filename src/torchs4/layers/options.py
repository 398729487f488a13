"""Frozen configurations: merge keyword options into one, check its fields, say what is wrong with them."""

from __future__ import annotations

import dataclasses
import difflib
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed import DataclassInstance

    Config = TypeVar("Config", bound=DataclassInstance)


def merge_options(kind: type[Config], config: Config | None, options: dict[str, Any]) -> Config:
    """The configuration, or the default one, with some fields replaced; an unknown one gets a suggestion."""
    if config is None:
        config = kind()
    require_config("config", config, kind)
    known = [field.name for field in dataclasses.fields(config)]
    for name in options:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {close[0]!r}? " if close else ""
            if place := _nested_place(config, name):
                hint = f"It is an option of {place}. "
            raise ValueError(
                f"{type(config).__name__} has no option {name!r}. {hint}Options: {', '.join(known)}."
            )
    return dataclasses.replace(config, **options)


def _nested_place(config: object, name: str) -> str:
    """Where inside a configuration an option of that name is, such as "block.layer"; empty if nowhere."""
    for field in dataclasses.fields(config):  # type: ignore[arg-type]
        value = getattr(config, field.name)
        if not dataclasses.is_dataclass(value):
            continue
        if name in {inner.name for inner in dataclasses.fields(value)}:
            return f"{type(value).__name__}, the field {field.name!r} of {type(config).__name__}"
        if place := _nested_place(value, name):
            return place
    return ""


def require_config(name: str, value: object, *kinds: type) -> None:
    """Refuse a value that is not a configuration of one of the given kinds."""
    if not isinstance(value, kinds):
        shown = value.__name__ if isinstance(value, type) else f"{type(value).__name__} {value!r}"
        names = " or ".join(f"{kind.__name__}(…)" for kind in kinds)
        raise ValueError(f"{name} is {shown}; expected {names}.")


def require_choice(name: str, value: str, allowed: Iterable[str]) -> None:
    """Refuse a value that is not one of a few."""
    allowed = list(allowed)
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; choose one of {', '.join(map(repr, allowed))}.")


def require_at_least(name: str, value: float, minimum: float) -> None:
    """Refuse a number that is too small or not a number."""
    # Written so that NaN fails it.
    if not isinstance(value, int | float) or not value >= minimum:
        raise ValueError(f"{name} is {value!r}; it must be at least {minimum}.")


def require_probability(name: str, value: float) -> None:
    """Refuse a dropout rate outside [0, 1)."""
    if not 0 <= value < 1:
        raise ValueError(f"{name} is {value}; it must be in [0, 1).")
