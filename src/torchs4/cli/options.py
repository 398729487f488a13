"""Nested configurations as flat options: `--model.layers 4`, wherever in the configuration it belongs."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import tyro

from torchs4.configuration import documentation, short_options, with_options

if TYPE_CHECKING:
    from collections.abc import Collection

    from _typeshed import DataclassInstance


def flat_options(config: DataclassInstance, hidden: Collection[str] = ()) -> Any:
    """The configuration's options as one dataclass of its own, with its values, types and explanations."""
    fields = []
    for name, option in short_options(config).items():
        if name in hidden:
            continue
        field = option.path[-1]
        kind: Any = get_type_hints(option.owner)[field]
        if option.choices is not None:
            kind = Literal.__getitem__(tuple(option.choices))
        told: Any = Annotated
        told = told[kind, tyro.conf.arg(help=documentation(option.owner, field))]
        fields.append((name, told, dataclasses.field(default=option.value)))
    return dataclasses.make_dataclass(type(config).__name__, fields, frozen=True)()


def changed(config: Any, flat: DataclassInstance) -> Any:
    """The configuration with the values that the flat options have now."""
    return with_options(
        config, **{field.name: getattr(flat, field.name) for field in dataclasses.fields(flat)}
    )


def peek(arguments: list[str], name: str) -> str | None:
    """The value of an option that decides what the others are, before they are read; None if absent."""
    value = None
    for index, argument in enumerate(arguments):
        if argument == name and index + 1 < len(arguments):
            value = arguments[index + 1]
        elif argument.startswith(f"{name}="):
            value = argument.removeprefix(f"{name}=")
    return value


def take(arguments: list[str], name: str) -> tuple[str | None, list[str]]:
    """The value of an option, and the arguments without it."""
    value, rest, skip = None, [], False
    for index, argument in enumerate(arguments):
        if skip:
            skip = False
        elif argument == name:
            if index + 1 == len(arguments) or arguments[index + 1].startswith("--"):
                raise ValueError(f"{name} needs a value behind it.")
            value, skip = arguments[index + 1], True
        elif argument.startswith(f"{name}="):
            value = argument.removeprefix(f"{name}=")
        else:
            rest.append(argument)
    return value, rest


def with_flags(text: str, options: Collection[str]) -> str:
    """A message of a program's for people at a command line: `history=168` becomes `--history 168`."""
    names = "|".join(sorted(map(re.escape, options), key=len, reverse=True))
    text = re.sub(rf"(?<![\w-])({names})=", lambda found: f"{_flag(found[1])} ", text)
    # An option stands at the beginning of the message about it; names of two words stand for nothing else.
    text = re.sub(rf"^({names})(?= (?:is|holds|needs)\b)", lambda found: _flag(found[1]), text)
    return re.sub(
        rf"(?<![\w-])({names})(?!\w)", lambda found: _flag(found[1]) if "_" in found[1] else found[1], text
    )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
