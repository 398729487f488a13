"""Speech Commands, the ten words of SC10: one second of speech each, as samples or as mel coefficients."""

from __future__ import annotations

import functools
import hashlib
import os
import wave
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import torch

from torchs4.configuration import require_at_least, require_choice
from torchs4.data.location import DatasetMissingError, advise_again
from torchs4.data.mfcc import mfcc
from torchs4.data.prepared import prepared_arrays
from torchs4.data.progress import reported
from torchs4.data.sequences import ArraySplit, SequenceData, split_in_three
from torchs4.description import InputDescription, Scaling
from torchs4.tasks import Classification

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from jaxtyping import Float
    from numpy.typing import NDArray
    from torch import Tensor

    from torchs4.data.progress import Progress

SC10_WORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")

Form = Literal["raw", "mfcc"]
Version = Literal["0.01", "0.02"]
SplitRule = Literal["random", "official"]

# What the catalogue calls them.
_NAMES: dict[Version, str] = {"0.01": "speech-commands-v0.01", "0.02": "speech-commands"}
_SAMPLES = 16_000
# One more than the largest sample of 16 bits.
_LOUDEST = 2.0**15
_MFCC_SHAPE = (161, 20)
# Of all clips for validation, and as many again for the test.
_HELD_OUT = 0.15
# Bounds the memory for spectra, which are larger than the recordings.
_CLIPS_AT_ONCE = 128
# Raised when the prepared arrays change meaning.
_PREPARATION = 1
# How far augmentation moves a clip, as a share of its length, and by which factor it changes its loudness.
_LARGEST_SHIFT, _LARGEST_GAIN = 0.1, 2.0


@dataclass(frozen=True)
class SpeechCommands:
    """Options of Speech Commands, ten words, clips of exactly 16,000 samples (shorter ones are left out).

    Attributes:
        form: "raw" for 16,000 samples, "mfcc" for 20 mel-frequency cepstral coefficients at 161 positions;
            either standardised by the training clips, which the model does itself: raw samples are between
            -1 and 1, as they come from any file or microphone.
        version: of the recordings; S4's results are on 0.02 (34,975 clips).
        split: "random" for 70/15/15 percent, as S4's results have it, where a speaker is heard in training
            and in test; "official" for the lists that come with the recordings, where no speaker is in two
            splits.
        augment: training clips begin up to a tenth of a second earlier or later, in every epoch anew, and raw
            ones are louder or softer by up to a factor of two.
        seed: of the random split; it decides the test clips too. The official split has nothing random.
    """

    form: Form = "raw"
    version: Version = "0.02"
    split: SplitRule = "random"
    augment: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        require_choice("form", self.form, get_args(Form))
        require_choice("version", self.version, get_args(Version))
        require_choice("split", self.split, get_args(SplitRule))
        require_at_least("seed", self.seed, 0)

    def load(self, folder: Path, progress: Progress | None = None) -> SequenceData:
        """The three splits, from `folder/SpeechCommands/speech_commands_v{version}`."""
        release = _find(folder, self.version)
        clips = _clip_names(release)
        # Read for the random split too: the lists name what an interrupted download lacks.
        official = _official_split(release, clips)
        # The names stand for the clips, so that completing a half-unpacked folder prepares it again.
        digest = hashlib.sha256("\n".join(clips).encode()).hexdigest()[:12]
        base = f"speech-commands-{self.version}-{digest}"
        arrays = recordings = prepared_arrays(
            folder, f"{base}-raw-{_PREPARATION}", lambda: _read_recordings(release, clips, progress)
        )
        if self.form == "mfcc":
            arrays = prepared_arrays(
                folder, f"{base}-mfcc-{_PREPARATION}", lambda: _transform(recordings["inputs"], progress)
            )
        if self.split == "official":
            members = _official_members(official[recordings["clips"]], release)
        else:
            members = _random_members(len(recordings["clips"]), self.seed, release)
        is_raw = self.form == "raw"
        unit = _LOUDEST if is_raw else 1.0
        convert = functools.partial(_in_units, unit)
        train_convert = functools.partial(_augmented, convert, loudness=is_raw) if self.augment else convert
        train, validation, test = (
            ArraySplit(arrays["inputs"], recordings["labels"], rows, way)
            for rows, way in zip(members, (train_convert, convert, convert), strict=True)
        )
        length, size = arrays["inputs"].shape[1:]
        description = InputDescription(
            "values",
            size,
            length,
            sample_rate=float(_SAMPLES) if is_raw else None,
            scaling=_scaling(arrays, members[0], unit, release),
        )
        return SequenceData(description, Classification(SC10_WORDS), train, validation, test)


class _Release(NamedTuple):
    """Where one version of the recordings lies, and what the catalogue calls it."""

    root: Path
    name: str

    @property
    def again(self) -> str:
        return advise_again(self.name)


def _find(folder: Path, version: Version) -> _Release:
    root = folder / "SpeechCommands" / f"speech_commands_v{version}"
    if not root.is_dir():
        present = [
            other for other in get_args(Version) if (root.parent / f"speech_commands_v{other}").is_dir()
        ]
        advice = f"Choose version {present[0]}, which is there" if present else None
        raise DatasetMissingError(_NAMES[version], root, advice)
    return _Release(root, _NAMES[version])


def _clip_names(release: _Release) -> list[str]:
    """Every clip as "word/file.wav", words in the order of their labels, files in that of their names."""
    root, clips = release.root, []
    for word in SC10_WORDS:
        if not (root / word).is_dir():
            raise DatasetMissingError(release.name, root / word)
        # Unpacking on a Mac may leave hidden companions, named ._ and the clip's name.
        names = [name for name in os.listdir(root / word) if name.endswith(".wav") and name[0] != "."]
        clips += [f"{word}/{name}" for name in sorted(names)]
    return clips


def _read_recordings(
    release: _Release, clips: list[str], progress: Progress | None
) -> dict[str, NDArray[Any]]:
    """The clips of full length with their labels, their places in the list, and what standardising needs."""
    inputs = np.empty((len(clips), _SAMPLES, 1), dtype=np.int16)
    kept: list[int] = []
    for place, clip in enumerate(reported(clips, "Reading recordings", progress)):
        if (samples := _read_clip(release.root / clip, release.again)) is not None:
            inputs[len(kept), :, 0] = samples
            kept.append(place)
    if not kept:
        raise ValueError(
            f"None of the {len(clips)} clips of the ten words in {release.root} has {_SAMPLES:,} samples. "
            f"{release.again}"
        )
    inputs = inputs[: len(kept)]
    labels = np.array([SC10_WORDS.index(clips[place].split("/")[0]) for place in kept], dtype=np.uint8)
    return {"inputs": inputs, "labels": labels, "clips": np.array(kept), **_power_sums(inputs, np.int64)}


def _read_clip(path: Path, again: str) -> NDArray[np.int16] | None:
    """The samples, or None if there are more or fewer than a second has."""
    try:
        with wave.open(str(path)) as recording:
            channels, width, rate = recording.getparams()[:3]
            if (channels, width, rate) != (1, 2, _SAMPLES):
                raise ValueError(
                    f"{path} has {channels} channels of {8 * width} bits at {rate:,} Hz; expected 1 channel "
                    f"of 16 bits at {_SAMPLES:,} Hz. {again}"
                )
            promised = 2 * recording.getnframes()
            if promised != 2 * _SAMPLES and promised <= path.stat().st_size:
                return None
            content = recording.readframes(promised // 2)
    except (wave.Error, EOFError) as error:
        raise ValueError(
            f"{path} is not a WAV file or is cut short ({str(error) or 'it ends early'}). {again}"
        ) from error
    except RuntimeError as error:
        # The wave module has no words for a part that claims to be longer than the file that holds it.
        raise ValueError(
            f"{path} is damaged: the sizes of its parts do not fit the file's. {again}"
        ) from error
    if len(content) != promised:
        raise ValueError(
            f"{path} is cut short: it promises {promised:,} bytes of samples and holds {len(content):,}. "
            f"{again}"
        )
    # The wave module has put the bytes in this machine's order.
    return np.frombuffer(content, dtype=np.int16)


def _transform(recordings: NDArray[np.int16], progress: Progress | None) -> dict[str, NDArray[Any]]:
    inputs = np.empty((len(recordings), *_MFCC_SHAPE), dtype=np.float32)
    starts = range(0, len(recordings), _CLIPS_AT_ONCE)
    for start in reported(starts, "Computing mel coefficients", progress):
        # Computed in double precision, so that machines agree on the single precision that is kept.
        rows = slice(start, start + _CLIPS_AT_ONCE)
        samples = torch.from_numpy(recordings[rows, :, 0].astype(np.float64))
        inputs[rows] = mfcc(samples / _LOUDEST).numpy()
    return {"inputs": inputs, **_power_sums(inputs, np.float64)}


def _power_sums(inputs: NDArray[Any], dtype: type[np.int64 | np.float64]) -> dict[str, NDArray[Any]]:
    """Sums and sums of squares over each clip's positions: with them, any split is standardised at once."""
    sums = np.empty((len(inputs), inputs.shape[2]), dtype)
    squares = np.empty_like(sums)
    for row, clip in enumerate(inputs):
        values = clip.astype(dtype)
        sums[row] = values.sum(axis=0)
        squares[row] = (values * values).sum(axis=0)
    return {"sums": sums, "squares": squares}


def _scaling(
    arrays: Mapping[str, NDArray[Any]], train: NDArray[np.int64], unit: float, release: _Release
) -> Scaling:
    """Mean and deviation of every column, over all positions of the training clips."""
    numbers = len(train) * arrays["inputs"].shape[1]
    mean = arrays["sums"][train].sum(axis=0) / numbers
    variance = arrays["squares"][train].sum(axis=0) / numbers - mean**2
    if not (variance > 0).all():
        raise ValueError(
            f"The training clips in {release.root} are silent: every sample is the same. {release.again}"
        )
    return Scaling(tuple((mean / unit).tolist()), tuple((np.sqrt(variance) / unit).tolist()))


def _augmented(
    convert: Callable[..., Tensor],
    rows: NDArray[Any],
    generator: torch.Generator | None = None,
    *,
    loudness: bool,
) -> Float[Tensor, "B L d"]:
    inputs = convert(rows, None)
    if generator is None:
        return inputs
    count, length, _ = inputs.shape
    farthest = round(_LARGEST_SHIFT * length)
    shift = torch.randint(-farthest, farthest + 1, (count, 1), generator=generator)
    # What was not recorded is like the first or the last moment.
    source = (torch.arange(length) + shift).clamp(0, length - 1)
    moved = inputs[torch.arange(count)[:, None], source]
    if not loudness:
        return moved
    power = 2 * torch.rand(count, 1, 1, generator=generator) - 1
    return moved * _LARGEST_GAIN**power


def _in_units(
    unit: float, rows: NDArray[Any], generator: torch.Generator | None = None
) -> Float[Tensor, "B L d"]:
    return torch.from_numpy(rows).to(torch.float32, copy=True).div_(unit)


def _official_split(release: _Release, clips: list[str]) -> NDArray[np.uint8]:
    """For each clip 0 (training), 1 (on the validation list) or 2 (on the testing list)."""
    places = {clip: place for place, clip in enumerate(clips)}
    codes = np.zeros(len(clips), dtype=np.uint8)
    for code, name in ((1, "validation_list.txt"), (2, "testing_list.txt")):
        path = release.root / name
        if not path.is_file():
            raise DatasetMissingError(release.name, path)
        for clip in path.read_text(encoding="utf-8").split():
            if clip.split("/")[0] not in SC10_WORDS:
                continue
            if clip not in places:
                raise ValueError(f"{path} names {clip}, which is not in {release.root}. {release.again}")
            if codes[places[clip]] not in (0, code):
                raise ValueError(
                    f"{clip} is on the validation list and on the testing list of {release.root}. "
                    f"{release.again}"
                )
            codes[places[clip]] = code
    return codes


def _official_members(codes: NDArray[np.uint8], release: _Release) -> tuple[NDArray[np.int64], ...]:
    members = tuple(np.flatnonzero(codes == code) for code in range(3))
    sizes = tuple(map(len, members))
    if 0 in sizes:
        raise ValueError(
            f"The lists in {release.root} leave {sizes} clips of full length to train on, validate and "
            f"test with; each needs at least one. {release.again}"
        )
    return members


def _random_members(count: int, seed: int, release: _Release) -> tuple[NDArray[np.int64], ...]:
    held = round(count * _HELD_OUT)
    if not held:
        raise ValueError(f"{count} clips are too few to hold out {_HELD_OUT:.0%} of them. {release.again}")
    return split_in_three(count, held, seed)
