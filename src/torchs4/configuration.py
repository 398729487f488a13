"""Frozen configurations: check their fields, change them by short names, write and read them as JSON.

A field's metadata may say three things: `option_name`, its name among short options; `choices`, a table of
names and configuration classes that may stand there; `FROM_DATA`, that data decide it and no person has to.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import math
import sys
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from _typeshed import DataclassInstance

    Config = TypeVar("Config", bound=DataclassInstance)

_LARGEST_WHOLE = 2**63 - 1

# What a field's metadata says when its value comes from the data.
FROM_DATA = {"from_data": True}


def merge_options(kind: type[Config], config: Config | None, options: Mapping[str, Any]) -> Config:
    """The configuration, or the default one, with some fields replaced; an unknown one gets a suggestion."""
    if config is None:
        config = kind()
    require_config("config", config, kind)
    known = [field.name for field in dataclasses.fields(config)]
    for name in options:
        if name not in known:
            hint = _suggestion(name, known)
            if place := _nested_place(config, name):
                hint = f"It is an option of {place}. "
            raise ValueError(
                f"{type(config).__name__} has no option {name!r}. {hint}Options: {', '.join(known)}."
            )
    return dataclasses.replace(config, **options)


def _suggestion(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {close[0]!r}? " if close else ""


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


class Option(NamedTuple):
    """A field somewhere inside a configuration, under its short name.

    owner: the class whose field it is. path: the fields that lead there. choices: configurations that may
    stand there, by name; the value is then a name.
    """

    name: str
    value: Any
    owner: type
    path: tuple[str, ...]
    choices: Mapping[str, type] | None = None


def short_options(config: DataclassInstance) -> dict[str, Option]:
    """Every field that a person may choose, of the configuration and of those inside it, by a short name."""
    found: dict[str, Option] = {}
    for option in _walk(config, ()):
        if option.name in found:
            raise ValueError(
                f"Both {found[option.name].owner.__name__} and {option.owner.__name__} have an option "
                f"{option.name!r}: rename the field, or give it an option_name in its metadata."
            )
        found[option.name] = option
    return found


def _walk(config: DataclassInstance, path: tuple[str, ...]) -> Iterable[Option]:
    for field in dataclasses.fields(config):
        if field.metadata.get("from_data"):
            continue
        name, value, place = (
            field.metadata.get("option_name", field.name),
            getattr(config, field.name),
            (*path, field.name),
        )
        choices = field.metadata.get("choices")
        if choices is not None:
            yield Option(name, name_of(type(value), choices), type(config), place, choices)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield from _walk(value, place)
        elif choices is None:
            yield Option(name, value, type(config), place)


def name_of(kind: type, choices: Mapping[str, type]) -> str:
    """Under which name a configuration class stands in a table."""
    for name, choice in choices.items():
        if choice is kind:
            return name
    raise ValueError(f"{kind.__name__} is not registered; there are {', '.join(choices)}.")


def with_options(config: Config, **options: Any) -> Config:
    """The configuration with these fields changed, wherever inside it they are, by their short names.

    A choice, such as `layer="s4d"`, comes first; the new configuration keeps the values of fields that it
    shares with the old one.
    """
    choosable = {name: option for name, option in short_options(config).items() if option.choices}
    for name in [name for name in options if name in choosable]:
        config = _choose(config, choosable[name], options.pop(name))
    known = short_options(config)
    for name in options:
        if name not in known:
            raise ValueError(
                f"There is no option {name!r}. {_suggestion(name, known)}Options: {', '.join(known)}."
            )
    return _replace_all(config, {known[name].path: value for name, value in options.items()})


def _choose(config: Config, option: Option, choice: str) -> Config:
    choices = option.choices or {}
    require_choice(option.name, choice, choices)
    old = config
    for name in option.path:
        old = getattr(old, name)
    kind: Any = choices[choice]
    if type(old) is kind:
        return config
    # The same name with another default is another thing.
    defaults = {field.name: _default(field) for field in dataclasses.fields(old)}
    kept = {
        field.name: getattr(old, field.name)
        for field in dataclasses.fields(kind)
        if field.name in defaults and _default(field) == defaults[field.name]
    }
    return _replace_all(config, {option.path: kind(**kept)})


def _replace_all(config: Any, values: Mapping[tuple[str, ...], Any]) -> Any:
    """Values at these paths, all at once: fields of one configuration may fit only together."""
    here = {path[0]: value for path, value in values.items() if len(path) == 1}
    for name in {path[0] for path in values if len(path) > 1}:
        inside = {path[1:]: value for path, value in values.items() if path[0] == name and len(path) > 1}
        here[name] = _replace_all(getattr(config, name), inside)
    return dataclasses.replace(config, **here) if here else config


def documentation(kind: type, name: str) -> str:
    """What the docstring of a configuration, or of one that it extends, says about a field."""
    for cls in kind.__mro__:
        lines = inspect.cleandoc(cls.__doc__ or "").splitlines()
        for number, line in enumerate(lines):
            names, colon, text = line.strip().partition(": ")
            if not colon or name not in names.split(", "):
                continue
            indent = len(line) - len(line.lstrip())
            for more in lines[number + 1 :]:
                if len(more) - len(more.lstrip()) <= indent or not more.strip():
                    break
                text += " " + more.strip()
            return text
    return ""


def to_plain(config: DataclassInstance) -> dict[str, Any]:
    """The configuration as what JSON can hold; one that could not be read again is refused."""
    plain: dict[str, Any] = {}
    hints = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            kinds = _kinds_at(field, hints[field.name])
            if type(value).__name__ not in kinds:
                raise ValueError(
                    f"{field.name} is a {type(value).__name__}, which could not be loaded again: "
                    f"{_how_to_register(field, kinds)}"
                )
            value = {"kind": type(value).__name__, **to_plain(value)}
        plain[field.name] = value
    return plain


def from_plain(kind: type[Config], plain: Any, source: object) -> Config:
    """The configuration that `to_plain` wrote; errors begin with the source."""
    if not isinstance(plain, dict):
        raise ValueError(f"{source}: {kind.__name__} is {plain!r}; expected a table of its fields.")
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if unknown := set(plain) - set(fields):
        raise ValueError(
            f"{source}: {kind.__name__} has no field {', '.join(sorted(map(str, unknown)))}. "
            f"The file comes from another version of torchs4."
        )
    hints = get_type_hints(kind)
    values = {}
    for name, value in plain.items():
        if isinstance(value, dict):
            kinds = _kinds_at(fields[name], hints[name])
            chosen = value.get("kind")
            if not isinstance(chosen, str) or chosen not in kinds:
                raise ValueError(
                    f"{source}: {name} is of kind {chosen!r}; {_how_to_register(fields[name], kinds)}"
                )
            rest = {key: item for key, item in value.items() if key != "kind"}
            values[name] = from_plain(kinds[chosen], rest, source)
        else:
            values[name] = _checked(value, hints[name], name, source)
    missing = [
        name
        for name, field in fields.items()
        if name not in values and _default(field) is dataclasses.MISSING
    ]
    if missing:
        raise ValueError(f"{source}: {kind.__name__} lacks {', '.join(missing)}.")
    try:
        return kind(**values)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{source}: {error}") from error


def _kinds_at(field: dataclasses.Field[Any], hint: Any) -> dict[str, Any]:
    """Which configurations may stand in a field, by the names of their classes."""
    choices = field.metadata.get("choices")
    kinds = choices.values() if choices is not None else (hint, *get_args(hint))
    return {
        kind.__name__: kind for kind in kinds if isinstance(kind, type) and dataclasses.is_dataclass(kind)
    }


def _how_to_register(field: dataclasses.Field[Any], kinds: Iterable[str]) -> str:
    text = f"this version of torchs4 knows {', '.join(kinds)}."
    if "choices" in field.metadata:
        text += " One of your own has to be registered first: import the module that does it"
        text += " (s4 … --import MODULE)."
    return text


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _checked(value: Any, hint: Any, name: str, source: object) -> Any:
    """A value of a JSON file, which must be of the kind that the field wants."""
    if isinstance(value, list):
        value = _as_tuple(value)
    if not _fits(value, hint):
        shown = (
            getattr(hint, "__name__", None) if isinstance(hint, type) else str(hint).replace("typing.", "")
        )
        raise ValueError(f"{source}: {name} is {value!r}; expected {shown}.")
    return float(value) if hint is float else value


def _as_tuple(value: Any) -> Any:
    return tuple(_as_tuple(item) for item in value) if isinstance(value, list) else value


def _fits(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin is Literal:
        # True equals 1 but is not meant.
        return any(value == allowed and type(value) is type(allowed) for allowed in get_args(hint))
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in get_args(hint))
    if origin is tuple:
        parts = get_args(hint)
        if not isinstance(value, tuple):
            return False
        if len(parts) == 2 and parts[1] is Ellipsis:
            return all(_fits(item, parts[0]) for item in value)
        return len(value) == len(parts) and all(map(_fits, value, parts))
    if hint in (None, NoneType):
        return value is None
    if hint is float:
        # JSON's whole numbers may be larger than any float.
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return isinstance(value, float) or (is_whole and abs(value) <= sys.float_info.max)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    # Dataclasses are written as tables and other kinds do not occur.
    return isinstance(value, hint) if hint in (bool, str) else False


def differences(name: str, before: Any, now: Any) -> list[str]:
    """What has changed from one configuration to another, field by field, under its full name."""
    if type(before) is type(now) and dataclasses.is_dataclass(before):
        return [
            change
            for field in dataclasses.fields(before)
            for change in differences(
                f"{name}.{field.name}", getattr(before, field.name), getattr(now, field.name)
            )
        ]
    return [] if before == now else [f"{name} was {before!r}, now it is {now!r}"]


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
    """Refuse a number that is too small, infinite or not a number."""
    # Written so that NaN fails it.
    if not isinstance(value, int | float) or not minimum <= value < math.inf:
        raise ValueError(f"{name} is {value!r}; it must be at least {minimum}.")


def require_whole(name: str, value: int, minimum: int) -> None:
    """Refuse a number that is too small, has a fraction, or is larger than what arrays can count."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}; it must be a whole number.")
    require_at_least(name, value, minimum)
    if value > _LARGEST_WHOLE:
        raise ValueError(f"{name} is {value!r}; it must be at most {_LARGEST_WHOLE}.")


def require_probability(name: str, value: float) -> None:
    """Refuse a dropout rate outside [0, 1)."""
    if not 0 <= value < 1:
        raise ValueError(f"{name} is {value}; it must be in [0, 1).")
