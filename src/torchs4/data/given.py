"""Data that a program hands over instead of naming them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from torchs4.data.progress import Progress
    from torchs4.data.sequences import SequenceData


@dataclass(frozen=True)
class GivenData:
    """What a run folder knows of data that were in memory: by their fingerprint it knows them again."""

    fingerprint: str = ""

    def load(self, folder: Path, progress: Progress | None = None) -> SequenceData:
        """Nothing on disk could be read."""
        raise ValueError(
            "This run was trained on data in memory, so the command line cannot find them. In the program "
            "that trained it, call torchs4.train again with the same data, output and resume=True."
        )
