"""A folder of recordings whose sub-folders are classes; they are read once and kept as one array."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from torchs4.data.own.examples import Examples
from torchs4.data.own.readers.packages import require_package
from torchs4.data.own.stored import EqualSequences, StoredSequences, UnequalSequences
from torchs4.data.prepared import prepared_arrays
from torchs4.data.progress import reported
from torchs4.data.sequences import offsets_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torchs4.data.own.readers.layout import Layout
    from torchs4.data.progress import Progress

RECORDINGS = (".wav", ".flac", ".ogg")
# Raised when the prepared arrays change meaning.
_PREPARATION = 1


class _Form(NamedTuple):
    """What all recordings have in common once they are read."""

    rate: int
    channels: int


def read_wav_folder(path: Path, layout: Layout, folder: Path, progress: Progress | None = None) -> Examples:
    """Recordings with their classes, or without classes even a single one; `folder` keeps what was read."""
    layout.refuse(path, "label", "id", "time", "values", "ignore")
    if layout.task != "classification":
        raise ValueError(
            f"task is {layout.task!r}, but the sub-folders of {path} are classes: classify them."
        )
    if path.is_file() and layout.with_labels:
        raise ValueError(
            f"{path} is one recording; to learn, there must be a folder with a sub-folder for each class."
        )
    if path.is_file():
        path, clips = path.parent, [Path(path.name)]
    else:
        clips = _find_clips(path) if layout.with_labels else _find_any_clips(path)
    arrays = prepared_arrays(
        folder,
        f"recordings-{_digest(path, clips, layout.sample_rate)}",
        partial(_read_clips, path, clips, layout, progress),
    )
    samples, offsets = arrays["samples"], np.asarray(arrays["offsets"])
    lengths = np.diff(offsets)
    x: StoredSequences
    if (lengths == lengths[0]).all():
        x = EqualSequences(samples.reshape(len(lengths), int(lengths[0]), -1))
    else:
        x = UnequalSequences(samples, offsets)
    return Examples(
        x,
        [clip.parent.name for clip in clips] if layout.with_labels else None,
        sample_rate=float(arrays["rate"]),
        name_of=lambda row: str(path / clips[row]),
        keys=[clip.as_posix() for clip in clips],
    )


def _find_any_clips(path: Path) -> list[Path]:
    """Every recording in the folder and its sub-folders, whatever these mean."""
    clips = sorted(
        item.relative_to(path)
        for item in path.glob("**/*")
        if item.suffix.lower() in RECORDINGS and item.name[0] != "."
    )
    if not clips:
        raise ValueError(f"{path} holds no recordings ({', '.join(RECORDINGS)}).")
    return clips


def _find_clips(path: Path) -> list[Path]:
    """Every recording as "class/file", in order."""
    classes = sorted(item.name for item in path.iterdir() if item.is_dir() and item.name[0] != ".")
    if not classes:
        raise ValueError(f"{path} has no sub-folders; there must be one for each class, with its recordings.")
    clips = []
    for name in classes:
        # Unpacking on a Mac may leave hidden companions.
        files = sorted(
            item.name
            for item in (path / name).iterdir()
            if item.suffix.lower() in RECORDINGS and item.name[0] != "."
        )
        if not files:
            raise ValueError(
                f"{path / name} holds no recordings ({', '.join(RECORDINGS)}); remove the folder, or put "
                f"those of its class there."
            )
        clips += [Path(name, file) for file in files]
    return clips


def _digest(path: Path, clips: list[Path], sample_rate: float | None) -> str:
    """Other files, or files that were written anew, are other recordings."""
    digest = hashlib.sha256(f"{_PREPARATION} {sample_rate}\n".encode())
    for clip in clips:
        status = (path / clip).stat()
        digest.update(f"{clip.as_posix()} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _read_clips(
    path: Path, clips: list[Path], layout: Layout, progress: Progress | None
) -> dict[str, NDArray[Any]]:
    soundfile = require_package("soundfile", "Reading recordings")
    form, capacity = _look(path, clips, layout, soundfile, progress)
    samples = np.empty((capacity, form.channels), np.float32)
    lengths = []
    end = 0
    for clip in reported(clips, "Reading recordings", progress):
        try:
            read, rate = soundfile.read(path / clip, dtype="float32", always_2d=True)
        except soundfile.LibsndfileError as error:
            raise ValueError(f"{path / clip} is damaged: {error}") from error
        if rate != form.rate:
            read = require_package("soxr", "Another sampling rate").resample(read, rate, form.rate)
        if not len(read):
            raise ValueError(f"{path / clip} has no samples. Remove it.")
        samples[end : end + len(read)] = read
        lengths.append(len(read))
        end += len(read)
    return {"samples": samples[:end], "offsets": offsets_of(lengths), "rate": np.array(form.rate)}


def _look(
    path: Path, clips: list[Path], layout: Layout, soundfile: Any, progress: Progress | None
) -> tuple[_Form, int]:
    """What the recordings have in common, and room for all their samples."""
    first = _info(path / clips[0], soundfile)
    form = _Form(round(layout.sample_rate or first.samplerate), first.channels)
    capacity = 0
    for clip in reported(clips, "Looking at recordings", progress):
        info = _info(path / clip, soundfile)
        if info.samplerate != form.rate and layout.sample_rate is None:
            raise ValueError(
                f"{path / clip} has {info.samplerate:,} samples per second, {path / clips[0]} has "
                f"{form.rate:,}. Give the {layout.told('sample_rate')} to bring all of them to."
            )
        if info.channels != form.channels:
            raise ValueError(
                f"{path / clip} has {info.channels} channels, {path / clips[0]} has {form.channels}; all "
                f"need as many. Mix them down, or keep one kind."
            )
        # A resampler may round up.
        capacity += info.frames * form.rate // info.samplerate + 2
    return form, capacity


def _info(path: Path, soundfile: Any) -> Any:
    try:
        return soundfile.info(path)
    except soundfile.LibsndfileError as error:
        raise ValueError(f"{path} is not a recording, or is damaged: {error}") from error
