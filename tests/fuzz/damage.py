"""Ways in which files go wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

# What no field expects, or only some do.
_VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    0.5,
    1e308,
    -1e-300,
    10**30,
    10**400,
    float("nan"),
    float("inf"),
    "",
    "text",
    "nan",
    "../../etc",
    "\x00",
    "ü" * 300,
    [],
    [[]],
    {},
    {"": None},
    [1, "two", None],
]


def damage(random: Random, path: Path) -> str:
    """Damage a file in one way or another; says how."""
    if path.suffix in (".json", ".jsonl") and random.random() < 0.75:
        return _change_json(random, path)
    content = bytearray(path.read_bytes())
    place = random.randrange(len(content)) if content else 0
    match random.choice(["gone", "empty", "cut", "flipped", "zeros", "inserted", "doubled", "folder"]):
        case "gone":
            path.unlink()
            return "gone"
        case "empty":
            content.clear()
            how = "empty"
        case "cut":
            del content[place:]
            how = f"cut at byte {place}"
        case "flipped" if content:
            count = random.choice([1, 1, 8])
            for _ in range(count):
                content[random.randrange(len(content))] ^= 1 << random.randrange(8)
            how = f"{count} bits flipped"
        case "zeros":
            end = min(len(content), place + random.choice([1, 16, 512]))
            content[place:end] = bytes(end - place)
            how = f"zeros from {place} to {end}"
        case "inserted":
            content[place:place] = random.randbytes(random.choice([1, 9]))
            how = f"bytes inserted at {place}"
        case "folder":
            path.unlink()
            path.mkdir()
            return "a folder in its place"
        case _:
            content *= 2
            how = "twice in a row"
    path.write_bytes(content)
    return how


def _change_json(random: Random, path: Path) -> str:
    """Change one entry of a JSON file, or of a line of one."""
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    if not lines:
        return "left as it is"
    which = random.randrange(len(lines))
    root = {"": json.loads(lines[which])}
    place: Any = root
    key: Any = ""
    # Deeper and deeper, until chance says stop.
    while isinstance(place[key], dict | list) and place[key] and random.random() < 0.85:
        place = place[key]
        key = random.choice(list(place)) if isinstance(place, dict) else random.randrange(len(place))
    value = _other_value(random, place[key])
    match random.choice(["replaced", "replaced", "replaced", "removed", "renamed", "deep"]):
        case "removed" if place is not root:
            del place[key]
            how = f"without {key!r}"
        case "renamed" if isinstance(place, dict) and place is not root:
            place[f"{key}s"] = place.pop(key)
            how = f"{key!r} renamed"
        case "deep":
            deep: Any = []
            for _ in range(500):
                deep = [deep]
            place[key] = deep
            how = f"{key!r} nested deeply"
        case _:
            how = f"{key!r}: {str(place[key])[:40]} → {str(value)[:40]}"
            place[key] = value
    text = json.dumps(root[""])
    if how.endswith("nested deeply") and random.random() < 0.5:
        # Deeper than Python's own reader follows.
        text = text.replace("[[[", "[" * 100_000, 1)
    lines[which] = text
    path.write_text("\n".join(lines))
    return how


def _other_value(random: Random, value: Any) -> Any:
    if isinstance(value, int | float) and random.random() < 0.4:
        return value * random.choice([-1, 2, 1000, 10**9, 0.5]) + random.choice([0, 1])
    return random.choice(_VALUES)
