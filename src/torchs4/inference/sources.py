"""Where samples come from while they arrive: lines of text, recordings, a microphone.

Axes: n samples of a chunk, F columns.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from torchs4.data.own.readers.packages import require_package

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from jaxtyping import Shaped
    from numpy.typing import NDArray

    from torchs4.models import SequenceModelConfig


class LineReader:
    """Samples from lines, one each: numbers with commas, tabs or spaces between them, or JSON.

    A JSON line is a number, a list of numbers, or an object of the model's input names. A first line of names
    says in which order columns come.
    complain: is told about every line that is no sample, by its number; the next line is read all the same.
        `refused` counts those that should have been one.
    """

    def __init__(
        self, config: SequenceModelConfig, complain: Callable[[str], None], *, allow_nan: bool = False
    ) -> None:
        self._config = config
        self._complain = complain
        self._allow_nan = allow_nan
        self._order: list[int] | None = None
        self.refused = 0

    def read(self, lines: Iterable[str], every: int) -> Iterator[Shaped[np.ndarray, "n ..."]]:
        """Chunks of that many samples; the last one may be shorter."""
        rows: list[Any] = []
        is_first = True
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            if is_first and (names := _names(line)):
                self._take_names(names, number)
            else:
                try:
                    rows.append(self._sample(line))
                except ValueError as error:
                    self.refused += 1
                    self._complain(f"line {number}: {error}")
            is_first = False
            if len(rows) == every:
                yield np.array(rows)
                rows = []
        if rows:
            yield np.array(rows)

    def _take_names(self, names: list[str], number: int) -> None:
        wanted = self._config.input_names
        if self._config.vocabulary_size is None and wanted:
            missing = [name for name in wanted if name not in names]
            if missing:
                raise ValueError(
                    f"line {number}: there is no column {', '.join(missing)} among {', '.join(names)}."
                )
            self._order = [names.index(name) for name in wanted]
        else:
            # Nothing else shows that this was no sample.
            self._complain(f"line {number} is taken for names of columns: {', '.join(names)}")

    def _sample(self, line: str) -> Any:
        values = _json_values(line, self._config.input_names) if line.lstrip()[0] in "[{" else _cells(line)
        if self._order is not None and len(values) > max(self._order):
            values = [values[index] for index in self._order]
        numbers = [_number(value) for value in values]
        if self._config.vocabulary_size is not None:
            return self._token(numbers)
        if len(numbers) != self._config.input_features:
            raise ValueError(f"it has {len(numbers)} numbers; expected {self._config.input_features}.")
        if not self._allow_nan and not all(map(math.isfinite, numbers)):
            raise ValueError(f"{numbers} holds a value that is not finite.")
        return numbers

    def _token(self, numbers: list[float]) -> int:
        size = self._config.vocabulary_size or 0
        if len(numbers) != 1 or not numbers[0].is_integer() or not 0 <= numbers[0] < size:
            raise ValueError(f"{numbers} is no token; expected one whole number from 0 to {size - 1}.")
        return int(numbers[0])


def recording_samples(path: Path, every: int | None) -> tuple[float, int, Iterator[NDArray[np.float32]]]:
    """A recording's samples per second, its channels, and chunks of it; a tenth of a second by default."""
    soundfile = require_package("soundfile", "Reading recordings")
    if not path.is_file():
        raise ValueError(f"There is no file {path}.")
    try:
        file = soundfile.SoundFile(path)
    except soundfile.LibsndfileError as error:
        raise ValueError(f"{path} is not a recording, or is damaged: {error}") from error
    size = every or max(1, round(file.samplerate / 10))
    return file.samplerate, file.channels, _blocks(file, size)


def _blocks(file: Any, size: int) -> Iterator[NDArray[np.float32]]:
    with file:
        yield from file.blocks(blocksize=size, dtype="float32", always_2d=True)


def microphone_samples(sample_rate: float, channels: int, every: int | None) -> Iterator[NDArray[np.float32]]:
    """What a microphone hears, in chunks of a tenth of a second by default, until somebody stops it."""
    try:
        import sounddevice
    except (ImportError, OSError) as error:
        # Without the system's PortAudio the package is there but cannot be loaded.
        raise ImportError(
            f"Listening needs the package sounddevice and PortAudio ({error}). Install them with: pip "
            f"install sounddevice; on Debian also: apt install libportaudio2"
        ) from error
    size = every or max(1, round(sample_rate / 10))
    try:
        with sounddevice.InputStream(
            samplerate=sample_rate, channels=channels, blocksize=size, dtype="float32"
        ) as device:
            while True:
                samples, _ = device.read(size)
                yield samples
    except sounddevice.PortAudioError as error:
        raise ValueError(f"There is no microphone that can be used here ({error}).") from error


def _cells(line: str) -> list[str]:
    separator = next((mark for mark in ",;\t" if mark in line), None)
    return [cell.strip() for cell in line.strip().split(separator)]


def _names(line: str) -> list[str]:
    """The cells of a line of names; nothing if one of them is a number."""
    if line.lstrip()[0] in "[{":
        return []
    cells = [cell.strip('"') for cell in _cells(line)]
    for cell in cells:
        try:
            float(cell)
        except ValueError:
            continue
        return []
    return cells


def _json_values(line: str, names: tuple[str, ...]) -> list[Any]:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON ({error}).") from error
    if isinstance(values, list):
        return values
    if not names:
        raise ValueError("it is an object, but the model's inputs have no names; expected a list of numbers.")
    missing = [name for name in names if name not in values]
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}.")
    return [values[name] for name in names]


def _number(value: Any) -> float:
    if value is None or isinstance(value, bool | list | dict):
        raise ValueError(f"{value!r} is no number.")
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"{value!r} is no number.") from None
