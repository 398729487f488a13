"""JSON Lines: an example on each line, {"x": […], "y": …} or {"text": "…", "label": …}."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from torchs4.data.own.examples import Examples
from torchs4.data.own.readers.layout import listed

if TYPE_CHECKING:
    from pathlib import Path

    from torchs4.data.own.readers.layout import Layout

_USUAL_INPUTS = ("x", "text")


def read_json_lines(path: Path, layout: Layout) -> Examples:
    """One object for each example; empty lines are passed over."""
    layout.refuse(path, "id", "time", "ignore")
    lines: list[int] = []
    x: list[Any] = []
    y: list[Any] = []
    keys: tuple[str, str] | None = None
    with path.open(encoding="utf-8-sig") as file:
        try:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                where = f"Line {number} of {path}"
                found = _parse(line, where)
                if keys is None:
                    keys = _find_input(list(found), layout, where), layout.find_label(list(found), where)
                for key in keys if layout.with_labels else keys[:1]:
                    if found.get(key) is None:
                        raise ValueError(f"{where} has no {key!r}; it has {listed(list(found))}.")
                lines.append(number)
                x.append(found[keys[0]])
                y.append(found.get(keys[1]))
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not UTF-8 text ({error}).") from error
    if keys is None:
        raise ValueError(f"{path} is empty; expected an object on each line.")
    answers = y if layout.with_labels else None
    return Examples(x, answers, columns=(keys[1],), name_of=lambda row: f"line {lines[row]} of {path}")


def _parse(line: str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{where} is not JSON, or is cut short: {error.msg} at character "
            f"{error.pos + 1} of {len(line.rstrip())}."
        ) from error
    if not isinstance(found, dict):
        raise ValueError(
            f'{where} holds a {type(found).__name__}; expected an object such as {{"x": [1, 2, 3], "y": 0}}.'
        )
    return found


def _find_input(names: list[str], layout: Layout, where: str) -> str:
    if len(layout.values) > 1:
        raise ValueError(
            f"{layout.told('values')} is {layout.values}; of JSON Lines, it may name one key, such as 'x'."
        )
    if layout.values:
        layout.require("values", layout.values, names, where)
        return layout.values[0]
    usual = [name for name in _USUAL_INPUTS if name in names]
    if len(usual) != 1:
        raise ValueError(
            f"{where} has {listed(names)}; expected one of 'x' and 'text', or say by "
            f"{layout.how('values')} which key holds the sequence."
        )
    return usual[0]
