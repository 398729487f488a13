"""Try random things until the time is over, and say how to try again what went wrong.

make fuzz                              five minutes, a new seed
make fuzz MINUTES=60 SEED=7            an hour, the same cases again
make fuzz CASE=networks:123            one case, with what it found
"""

from __future__ import annotations

import argparse
import importlib
import secrets
import sys
import time
import warnings

from trials import attempt, run, show

KINDS = ("networks", "files", "commands")


def main() -> int:
    """Run until the time is over; 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=None, help="the same number tries the same cases")
    parser.add_argument("--only", choices=KINDS, nargs="*", default=KINDS)
    parser.add_argument("--case", default=None, metavar="KIND:NUMBER", help="this one alone")
    options = parser.parse_args()
    # What a user would see as a warning is shown once; here it would hide findings.
    warnings.simplefilter("ignore")
    if options.case is not None:
        kind, number = options.case.split(":")
        outcome = attempt(importlib.import_module(kind), int(number))
        show(kind, int(number), outcome, always=True)
        return 1 if outcome.faults else 0
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    print(f"Seed {seed}, {options.minutes:g} minutes: {', '.join(options.only)}.", flush=True)
    return run(options.only, seed, time.monotonic() + 60 * options.minutes)


if __name__ == "__main__":
    sys.exit(main())
