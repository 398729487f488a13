"""S4 and the fourteen attentions of Table 10, trained here for the same time at about the same size."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from torchs4.tables.measurements import MARK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torchs4.tables.table import PublishedTable

# The table that has these rows, published.
ARENA = "lra"
# Columns of the table that this machine's data allow, and the recipes that train for them.
TASKS = {
    "ListOps": "lra-listops",
    "Text": "lra-text",
    "Image": "lra-image",
    "Pathfinder": "lra-pathfinder",
}
# Rows as they are published, and the layers that they are.
MODELS = {
    "S4": "s4",
    "Transformer": "transformer",
    "Local Attention": "local-attention",
    "Sparse Trans.": "sparse-transformer",
    "Longformer": "longformer",
    "Linformer": "linformer",
    "Reformer": "reformer",
    "Sinkhorn Trans.": "sinkhorn",
    "Synthesizer": "synthesizer",
    "BigBird": "bigbird",
    "Linear Trans.": "linear-transformer",
    "Performer": "performer",
    "FNet": "fnet",
    "Nyströmformer": "nystromformer",
    "Luna-256": "luna",
}


@dataclass(frozen=True)
class Arena:
    """What was measured: minutes of training each, and accuracies in percent by task and model."""

    minutes: float
    machine: str
    commit: str
    tasks: Mapping[str, Mapping[str, float]]

    def rows(self, table: PublishedTable) -> list[list[str]]:
        """A row for every model of which anything is known, with a cell for each column of the table."""
        return [
            [f"{model}, {self.minutes:g} min", *(self._cell(column.title, model) for column in table.columns)]
            for model in MODELS
            if any(model in found for found in self.tasks.values())
        ]

    @property
    def note(self) -> str:
        """What has to be known to read the rows."""
        return (
            f"Rows with minutes: every model trained here for {self.minutes:g} minutes on each task, one "
            f"seed, at about the same size, Pathfinder at its easy level ({self.machine}; "
            f"benchmarks/arena.py, commit {self.commit[:7]}). They compare with one another, not with the "
            f"published rows, which trained for many hours."
        )

    def _cell(self, task: str, model: str) -> str:
        value = self.tasks.get(task, {}).get(model)
        return "" if value is None else f"{value:.2f}{MARK}"


def measured_arena() -> Arena | None:
    """The measurements that come with the package, if any."""
    path = files("torchs4.recipes") / "measured" / "arena.json"
    if not path.is_file():
        return None
    kept = json.loads(path.read_text(encoding="utf-8"))
    return Arena(kept["minutes"], kept["machine"], str(kept["commit"]), kept["tasks"])
