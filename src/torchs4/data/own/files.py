"""Your own files as a dataset: NPZ, CSV, Parquet, JSON Lines, or a folder of recordings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from torchs4.configuration import require_at_least, require_choice
from torchs4.data.own.answers import TaskName
from torchs4.data.own.in_memory import Wishes, assemble
from torchs4.data.own.partition import require_fractions
from torchs4.data.own.readers import (
    RECORDINGS,
    Layout,
    read_csv,
    read_json_lines,
    read_npz,
    read_parquet,
    read_wav_folder,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torchs4.data.own.examples import Examples
    from torchs4.data.progress import Progress
    from torchs4.data.sequences import SequenceData

_READERS = {
    ".csv": read_csv,
    ".tsv": read_csv,
    ".parquet": read_parquet,
    ".npz": read_npz,
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
}


_TABLES = (".csv", ".tsv", ".parquet")


@dataclass(frozen=True)
class SequenceFiles:
    """Options of your own files. Layouts of all formats are shown in docs/your-own-data.md.

    Attributes:
        path: an .npz, .csv, .tsv, .parquet, .jsonl or .ndjson file, or a folder of recordings whose
            sub-folders are classes. A relative one is looked for here, then in the data folder.
        task: "classification" (a class for each sequence), "regression" (a value) or "position-regression"
            (a value for each position).
        label: the column, key or array to learn; without it "label", else "class", "target" or "y" if there
            is one of them.
        id: the column that tells which sequence a row belongs to, if each row of a table is one position.
            Without it, each row is a sequence.
        time: the column that orders the rows of a sequence; without it, they keep the order of the file.
        values: the columns to read, as positions of a row or as channels; without it, all others.
        ignore: columns of a table to leave out.
        tokens: read whole numbers from 1 on as tokens; 0 is padding.
        sample_rate: positions per second. Recordings of another rate are resampled to it.
        normalize: let the model scale every channel, and values to predict, to mean 0 and deviation 1.
        validation_fraction: of all sequences, held out to choose the best model by, unless the file brings
            some for it.
        test_fraction: of all sequences, held out to measure the best model with; 0 for none.
        seed: of the choice of held-out sequences.
    """

    path: str = ""
    task: Literal["classification", "regression", "position-regression"] = "classification"
    label: str = ""
    id: str = ""
    time: str = ""
    values: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    tokens: bool = False
    sample_rate: float | None = None
    normalize: bool = True
    validation_fraction: float = 0.1
    test_fraction: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        require_choice("task", self.task, get_args(TaskName))
        require_fractions(self.validation_fraction, self.test_fraction)
        if self.sample_rate is not None and not self.sample_rate > 0:
            raise ValueError(f"sample_rate is {self.sample_rate}; it must be positive.")
        require_at_least("seed", self.seed, 0)

    def load(self, folder: Path, progress: Progress | None = None) -> SequenceData:
        """Read the files; recordings are kept in `folder` as arrays, once they have been read."""
        given = self.examples(folder, progress)
        if progress is not None:
            for note in given.notes:
                progress(note, 1, 1)
        if given.test is not None and self.test_fraction > 0:
            raise ValueError(
                f"test_fraction is {self.test_fraction}, but {self.path} brings examples to test with: leave "
                f"it out."
            )
        wishes = Wishes(
            task=self.task,
            tokens=self.tokens,
            sample_rate=self.sample_rate,
            normalize=self.normalize,
            validation=self.validation_fraction,
            test=self.test_fraction,
            seed=self.seed,
        )
        return assemble(given, wishes, progress)

    def examples(
        self,
        folder: Path,
        progress: Progress | None = None,
        with_labels: bool = True,
        flags: Mapping[str, str] | None = None,
    ) -> Examples:
        """What the files hold, as it came; without labels, the sequences alone.

        flags: what errors call the fields, where they are given otherwise.
        """
        layout = Layout(
            self.task,
            self.label,
            self.id,
            self.time,
            self.values,
            self.sample_rate,
            with_labels,
            self.ignore,
            flags or {},
        )
        return self._read(self._find(folder), folder, progress, layout)

    def _find(self, folder: Path) -> Path:
        if not self.path:
            raise ValueError("path is empty; it must name a file, or a folder of recordings.")
        path = Path(self.path).expanduser()
        for place in (path, folder / path):
            if place.exists():
                return place
        raise FileNotFoundError(f"There is no {path}, neither here ({Path.cwd()}) nor in {folder}.")

    def _read(self, path: Path, folder: Path, progress: Progress | None, layout: Layout) -> Examples:
        suffix = path.suffix.lower()
        if path.is_dir() or suffix in RECORDINGS:
            if self.tokens:
                raise ValueError(f"tokens is True, but {path} is a folder of recordings: leave it out.")
            return read_wav_folder(path, layout, folder, progress)
        if suffix not in _READERS:
            hint = " Arrays in .npy files are for torchs4.data.from_arrays." if suffix == ".npy" else ""
            if suffix == ".txt":
                hint = " To predict a text's next character: s4 train --data FILE --task next-token."
            raise ValueError(
                f"{path} ends with {suffix!r}; there are readers for {', '.join(_READERS)} and folders of "
                f"recordings.{hint}"
            )
        given = _READERS[suffix](path, layout)
        if progress is not None and suffix in _TABLES and not self.id:
            # A table with a row for each position would otherwise be misread without a word.
            hint = f"{layout.told('id')} names them in a long table"
            progress(f"Reading each row of {path.name} as one sequence ({hint})", 1, 1)
        return given
