"""One case after the other, each told with what repeats it."""

from __future__ import annotations

import collections
import importlib
import itertools
import signal
import sys
import time
import traceback
from typing import TYPE_CHECKING

from outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType, ModuleType

# Of one case; nothing that is tried takes a tenth of it when it works.
SECONDS = 120
# Whoever has so many will not read more.
MOST_FAULTS = 20
# Cases of a seed have numbers from here on.
CASES_PER_SEED = 1_000_000


class TooSlowError(Exception):
    """A case that does not end."""


def run(kinds: Sequence[str], seed: int, deadline: float) -> int:
    """Take turns, so that every kind gets its share of the time."""
    modules = {kind: importlib.import_module(kind) for kind in kinds}
    spent = dict.fromkeys(kinds, 0.0)
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    numbers = {kind: itertools.count(seed * CASES_PER_SEED) for kind in kinds}
    refusals: collections.Counter[str] = collections.Counter()
    while (start := time.monotonic()) < deadline and _faults(counts) < MOST_FAULTS:
        kind = min(kinds, key=spent.__getitem__)
        number = next(numbers[kind])
        outcome = attempt(modules[kind], number)
        spent[kind] += time.monotonic() - start
        counts[kind, "cases"] += 1
        counts[kind, "faults"] += bool(outcome.faults)
        counts[kind, "at the limit"] += bool(outcome.limits and not outcome.faults)
        counts[kind, "refused"] += bool(outcome.refusals)
        refusals.update(message.split(";")[0][:60] for message in outcome.refusals)
        show(kind, number, outcome)
    for kind in kinds:
        words = (f"{counts[kind, what]:,} {what}" for what in ("cases", "refused", "at the limit", "faults"))
        print(f"{kind}: {', '.join(words)}")
    if refusals:
        print("Refused most often:", "; ".join(f"{times}× {said}" for said, times in refusals.most_common(5)))
    faults = _faults(counts)
    print(f"Seed {seed}: " + (f"{faults} cases with faults, see above." if faults else "nothing is wrong."))
    return 1 if faults else 0


def _faults(counts: collections.Counter[tuple[str, str]]) -> int:
    return sum(count for (_, what), count in counts.items() if what == "faults")


def attempt(module: ModuleType, number: int) -> Outcome:
    """Run a case. Whatever it raises that is no error in our own words is a fault."""
    outcome = Outcome()
    signal.signal(signal.SIGALRM, _too_slow)
    signal.alarm(SECONDS)
    try:
        module.run(number, outcome)
    except Exception:
        outcome.fault(traceback.format_exc(limit=-6).rstrip())
    finally:
        signal.alarm(0)
    return outcome


def show(kind: str, number: int, outcome: Outcome, always: bool = False) -> None:
    """Print what a case found."""
    if not (outcome.faults or outcome.limits or always):
        return
    title = "FAULT" if outcome.faults else "limit" if outcome.limits else "fine"
    print(f"\n{title}: make fuzz CASE={kind}:{number}\n{outcome.description}")
    for line in (*outcome.faults, *outcome.limits, *(outcome.refusals if always else ())):
        print("  " + line.replace("\n", "\n  "))
    sys.stdout.flush()


def _too_slow(signum: int, frame: FrameType | None) -> None:
    raise TooSlowError(f"not done after {SECONDS} seconds")
