"""What became of a case."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Outcome:
    """What a case found: faults, and differences that the number format explains."""

    description: str = ""
    faults: list[str] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    def describe(self, description: str) -> None:
        """What was tried, for whoever reads of a fault."""
        self.description = description

    def fault(self, what: str) -> None:
        """Something is wrong."""
        self.faults.append(what)

    def limit(self, what: str) -> None:
        """As far off as rounding explains."""
        self.limits.append(what)

    def refused(self, message: str) -> None:
        """An error in our own words."""
        self.refusals.append(message)
