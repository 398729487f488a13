"""The folder that a training run leaves behind: everything in it can be read by a person."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from torchs4.configuration import from_plain, to_plain
from torchs4.tasks import Metric
from torchs4.training.config import TrainingConfig
from torchs4.training.lock import LOCK_FILE, locked

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

    from _typeshed import DataclassInstance

    Part = TypeVar("Part", bound=DataclassInstance)


class FolderUsedError(ValueError):
    """There is something in the folder already."""


class RunFolder:
    """Names and contents of a run's files."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.best = self.path / "best"
        self.last = self.path / "last"
        self.curves = self.path / "curves.png"
        self.kernels = self.path / "kernels.png"
        self._config = self.path / "config.json"
        self._metrics = self.path / "metrics.jsonl"
        self._summary = self.path / "summary.json"

    def start(
        self, name: str, config: TrainingConfig[Any], metrics: Sequence[Metric], data_dir: Path | None = None
    ) -> None:
        """Make the folder and write config.json, with what is measured and where the data lie."""
        self.require_unused()
        plain = to_plain(config)
        self.path.mkdir(parents=True, exist_ok=True)
        place = None if data_dir is None else str(data_dir.absolute())
        written = [to_plain(metric) for metric in metrics]
        _write(self._config, {"name": name, "data_dir": place, "metrics": written, "training": plain})

    def locked(self) -> AbstractContextManager[None]:
        """While this is held, no other process trains in the folder; refused while one does."""
        if self.path.exists() and not self.path.is_dir():
            self.require_unused()
        self.path.mkdir(parents=True, exist_ok=True)
        return locked(self.path)

    def require_unused(self) -> None:
        """Refuse a folder with something in it."""
        if self.path.exists() and (
            not self.path.is_dir() or any(path.name != LOCK_FILE for path in self.path.iterdir())
        ):
            raise FolderUsedError(
                f"{self.path} is there already. Choose another folder with --output, or continue that run: "
                f"s4 train --resume {self.path}. In a program: output=… or resume=True."
            )

    def is_begun(self) -> bool:
        """Whether a run has started here, so that it can be continued."""
        return self._config.is_file()

    def name(self) -> str:
        """Which recipe and preset the run follows."""
        return str(self._read_config().get("name", self.path.name))

    def data_dir(self) -> Path | None:
        """Where the run found its data, if it says."""
        place = self._read_config().get("data_dir")
        if not isinstance(place, str | None) or "\0" in (place or ""):
            raise ValueError(f"{self._config}: data_dir is {place!r}; expected the path of a folder.")
        return None if place is None else Path(place)

    def config(self) -> TrainingConfig[Any]:
        """What config.json says about the training."""
        return self._part(TrainingConfig, self._read_config().get("training"))

    def metric(self) -> Metric:
        """What decides how good the run's model is."""
        written = self._read_config().get("metrics")
        if not isinstance(written, list) or not written:
            raise ValueError(f"{self._config} does not say what the run measures.")
        return self._part(Metric, written[0])

    def _part(self, kind: type[Part], plain: Any) -> Part:
        try:
            return from_plain(kind, plain, self._config)
        except RecursionError as error:
            raise ValueError(f"{self._config} is nested too deeply to describe a run.") from error

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl: names and what was measured."""
        if not self._metrics.is_file():
            return []
        try:
            lines = self._metrics.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise ValueError(f"{self._metrics} is damaged: it is no text ({error}).") from error
        records = []
        for number, line in enumerate(lines):
            place = f"{self._metrics}, line {number + 1}"
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                # A kill may cut the last line short; what it said is measured again.
                if number < len(lines) - 1:
                    raise ValueError(f"{place} is damaged ({error}).") from error
                continue
            if not isinstance(record, dict):
                raise ValueError(f"{place} is {record!r}; expected a table of what was measured.")
            records.append(record)
        return records

    def curve(self, metric: Metric) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, each with all the numbers that tables and pictures show."""
        names = [f"{kind}_{what}" for kind in ("train", "validation") for what in ("loss", metric.name)]
        records = self.metrics()
        for number, record in enumerate(records, 1):
            for name in ("epoch", "step", "seconds", *names):
                _require_number(record.get(name), name, f"{self._metrics}, line {number}")
        return records

    def add_metrics(self, record: dict[str, Any]) -> None:
        """Append a line to metrics.jsonl."""
        with self._metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def keep_metrics(self, count: int) -> list[dict[str, Any]]:
        """Forget what was measured after the checkpoint that the run continues from."""
        records = self.metrics()[:count]
        _write_text(self._metrics, "".join(json.dumps(record) + "\n" for record in records))
        return records

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write summary.json, which also says that the run is complete."""
        _write(self._summary, summary)

    def extend(self, config: TrainingConfig[Any], steps: int) -> Path | None:
        """Write the new configuration of a run that goes on; where its summary is now, if it was complete."""
        content = self._read_config()
        kept = self._summary.with_name(f"summary-{steps}-steps.json") if self._summary.is_file() else None
        if kept is not None:
            # First: a run without a summary can be continued, whichever budget its configuration has.
            os.replace(self._summary, kept)
        _write(self._config, {**content, "training": to_plain(config)})
        return kept

    def summary(self) -> dict[str, Any] | None:
        """What summary.json says, or None while the run is not complete."""
        if not self._summary.is_file():
            return None
        return self._read(self._summary)

    def result(self, name: str) -> float | None:
        """A number of summary.json; None if it is not there, or while the run is not complete."""
        value = (self.summary() or {}).get(name)
        if value is not None:
            _require_number(value, name, self._summary)
        return value

    def _read_config(self) -> dict[str, Any]:
        if not self._config.is_file():
            raise ValueError(
                f"{self.path} is not a run: it holds no config.json. Pass a folder of `s4 train`. What "
                f"`s4 fit` wrote is read by `s4 predict`, and in Python by "
                f"torchs4.estimators.load_estimator, to be streamed and exported."
            )
        return self._read(self._config)

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} is not readable JSON ({error}).") from error
        if not isinstance(content, dict):
            raise ValueError(f"{path} does not describe a run: it holds {content!r}.")
        return content


def free_folder(parent: Path, name: str) -> Path:
    """A folder below the parent that nobody has used: name, name-2, name-3 …"""
    taken: Iterable[str] = {path.name for path in parent.iterdir()} if parent.is_dir() else ()
    number, candidate = 1, name
    while candidate in taken:
        number += 1
        candidate = f"{name}-{number}"
    return parent / candidate


def _require_number(value: Any, name: str, source: object) -> None:
    # JSON's whole numbers may be larger than any float.
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or (isinstance(value, int) and abs(value) > sys.float_info.max):
        raise ValueError(f"{source}: {name} is {value!r}; expected a number.")


def _write(path: Path, content: dict[str, Any]) -> None:
    _write_text(path, json.dumps(content, indent=2) + "\n")


def _write_text(path: Path, text: str) -> None:
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(text, encoding="utf-8")
    os.replace(new, path)
