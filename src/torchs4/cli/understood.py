"""What `s4 fit` understood a file to hold, so that a slip shows before anything is learned from it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from torchs4.cli.consoles import console
from torchs4.data.own.stored import StoredSequences

if TYPE_CHECKING:
    from torchs4.data.own.examples import Examples

# Classes in a line before it says how many more there are.
_SHOWN = 12
_RARE_SHOWN = 5
# Rows of a sequence, at least, for a column to look like the one that names it.
_ROWS_EACH = 3


def tell_sequences(x: Any, examples: Examples) -> None:
    """How many sequences there are, how long, of how many channels."""
    if not isinstance(x, StoredSequences):
        is_table = hasattr(x, "columns")
        lengths, channels = ([x.shape[1]] if is_table else list(map(len, x))), 1 if is_table else None
    else:
        lengths, channels = x.counts.tolist(), None if x.is_tokens else x.channels
    low, high = min(lengths), max(lengths)
    length = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    unit = "characters" if isinstance(x, list) else "tokens" if channels is None else "positions"
    told = "" if channels is None else f", {channels:,} channel{'s' if channels > 1 else ''}"
    _say(f"{len(x):,} sequences of {length} {unit}{told}.")
    # Columns that have names are what they are called.
    if channels is not None and channels > high and not examples.channels:
        _say(
            "There are more channels than positions. Here channels come last: if yours are (examples, "
            "channels, positions), stop and swap the last two axes, x.transpose(0, 2, 1)."
        )


def tell_groups(x: Any, y: Any) -> None:
    """Whether a column looks like one that names sequences, of which each row would be a position."""
    if not hasattr(x, "columns"):
        return
    _, classes = np.unique(np.asarray(list(map(str, y))), return_inverse=True)
    for name in x.columns:
        values = x[name].to_numpy()
        if values.dtype.kind not in "iuf" or (values != np.floor(values)).any():
            continue
        _, groups = np.unique(values, return_inverse=True)
        count = groups.max() + 1
        of_one_class = len(np.unique(np.stack([groups, classes]), axis=1).T) == count
        if classes.max() + 1 < count <= len(values) / _ROWS_EACH and of_one_class:
            _say(
                f"Rows with the same {name} always have the same class. If they are positions of one "
                f"sequence, stop and pass --id {name}: read row by row, the accuracy means nothing."
            )
            return


def tell_classes(y: Any) -> None:
    """Which classes there are and how many examples of each, so that one that was misspelt shows."""
    counts = Counter(map(_written, y.tolist() if hasattr(y, "tolist") else y))
    # 7 examples of the class 3 are not "3 7".
    form = "{} ({:,})" if any(name[-1].isdigit() for name in counts) else "{} {:,}"
    told = ", ".join(form.format(name, counts[name]) for name in sorted(counts)[:_SHOWN])
    if (more := len(counts) - _SHOWN) > 0:
        told += f" and {more:,} more"
    _say(f"{len(counts):,} class{'es' if len(counts) > 1 else ''}: {told}.")
    alike: dict[str, list[str]] = {}
    for name in sorted(counts):
        alike.setdefault(name.strip("' ").casefold(), []).append(name)
    if pairs := [names for names in alike.values() if len(names) > 1]:
        shown = "; ".join(" and ".join(names) for names in pairs[:_RARE_SHOWN])
        _say(f"These differ only in blanks or capitals, and are taken for classes of their own: {shown}.")
    if rare := [name for name, count in counts.items() if count == 1]:
        shown = ", ".join(rare[:_RARE_SHOWN]) + (" …" if len(rare) > _RARE_SHOWN else "")
        _say(f"There is a single example of {shown}: nothing will show whether such a class is recognised.")


def _written(label: Any) -> str:
    text = str(label)
    # Blanks at the ends would not be seen.
    return text if text == text.strip() and text else repr(text)


def _say(text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)
