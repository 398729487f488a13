"""Which part of a file means what, as far as a person has said so."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from torchs4.data.own.answers import TaskName

_USUAL_LABELS = ("label", "class", "target", "y")
# Names in an error before it says how many more there are.
_NAMES_SHOWN = 20


@dataclass(frozen=True)
class Layout:
    """Names of columns, keys or arrays; an empty one is to be found by itself.

    with_labels: what is to be learned is there. Without it, the sequences alone are read, and a label that is
        there all the same is left out.
    ignore: columns to leave out, if they are there.
    flags: what to call these names in an error, where a person gives them otherwise than in a program.
    """

    task: TaskName = "classification"
    label: str = ""
    id: str = ""
    time: str = ""
    values: tuple[str, ...] = ()
    sample_rate: float | None = None
    with_labels: bool = True
    ignore: tuple[str, ...] = ()
    flags: Mapping[str, str] = field(default_factory=dict)

    def told(self, name: str) -> str:
        """What asks for something, in an error: `label`, or `--target`."""
        return self.flags.get(name, name)

    def how(self, name: str) -> str:
        """What to write, in an error: `label=…`, or `--target`."""
        return self.flags.get(name, f"{name}=…")

    def refuse(self, path: Path, *fields: str) -> None:
        """Refuse what means nothing for this format, instead of passing over it."""
        for name in fields:
            if value := getattr(self, name):
                raise ValueError(
                    f"{self.told(name)} is {value!r}, which means nothing for {path}: leave it out."
                )

    def find_label(self, names: Sequence[str], source: str) -> str:
        """The name of what is to be learned; an empty one where nothing is, and nothing has such a name."""
        if not self.with_labels:
            return next((name for name in (self.label or "label", *_USUAL_LABELS) if name in names), "")
        if self.label:
            self.require("label", [self.label], names, source)
            return self.label
        if "label" in names:
            return "label"
        usual = [name for name in _USUAL_LABELS if name in names]
        if len(usual) == 1:
            return usual[0]
        problem = f"both {' and '.join(map(repr, usual))}" if usual else "no column 'label'"
        raise ValueError(
            f"{source} has {problem}: say by {self.how('label')} which one to learn. There are "
            f"{listed(names)}."
        )

    def require(self, field: str, wanted: Iterable[str], names: Sequence[str], source: str) -> None:
        """Refuse names that are not there."""
        if missing := [name for name in wanted if name not in names]:
            raise ValueError(
                f"{source} has no {listed(missing)}, which {self.told(field)} asks for. There are "
                f"{listed(names)}."
            )


def listed(names: Sequence[str]) -> str:
    """Names as an error shows them; of thousands, the first ones and the last, which often is the label."""
    more = len(names) - _NAMES_SHOWN
    shown = ", ".join(map(repr, names[:_NAMES_SHOWN]))
    return f"{shown} and {more:,} more, the last of them {names[-1]!r}" if more > 0 else shown
