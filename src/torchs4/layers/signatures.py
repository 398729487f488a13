"""Signatures that a notebook shows: every option by name, with its type and default."""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Function = TypeVar("Function", bound="Callable[..., None]")


def lists_options(config: type) -> Callable[[Function], Function]:
    """A decorator for an `__init__` whose **options are a configuration's fields: `help()` lists them.

    Editors read the annotation instead, `**options: Unpack[…Options]`.
    """

    def decorate(init: Function) -> Function:
        shown: Any = init
        shown.__signature__ = with_options_listed(inspect.signature(init), config)
        return init

    return decorate


def with_options_listed(signature: inspect.Signature, config: type) -> inspect.Signature:
    """A signature with a configuration's fields in the place of **options."""
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    named = {parameter.name for parameter in own}
    options = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=_default(field), annotation=field.type
        )
        for field in dataclasses.fields(config)
        if field.name not in named
    ]
    return signature.replace(parameters=[*own, *options])


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
