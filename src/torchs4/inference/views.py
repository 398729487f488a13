"""What a page in the browser lets people give to a model, chosen by what the model reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from torchs4.configuration import require_choice, require_whole
from torchs4.data.characters import END_OF_TEXT, FIRST_CHARACTER, UNKNOWN
from torchs4.description import Scaling

if TYPE_CHECKING:
    from torchs4.models import SequenceModel, SequenceModelConfig

# Positions of a chunk where nothing suggests another number.
_CHUNK = 64
# Samples per second that every browser can resample to.
_SLOWEST, _FASTEST = 8_000, 96_000


@dataclass(frozen=True)
class Pictures:
    """Square pictures whose pixels a model reads one after the other, row by row.

    side: pixels of a row, and rows.
    kind: "drawing", which a person draws and the page prepares as MNIST's digits were, or "photograph".
    scaling: from values between 0 and 1 to those of the data; None where the data are between 0 and 1.
    """

    side: int
    kind: Literal["drawing", "photograph"] = "drawing"
    scaling: Scaling | None = None

    def __post_init__(self) -> None:
        require_whole("side", self.side, 2)
        require_choice("kind", self.kind, ("drawing", "photograph"))


@dataclass(frozen=True)
class View:
    """How a page gets the samples of one model.

    kind: "drawing", "photograph", "sound", or for texts "text" (classes) and "writing" (the next character).
    chunk: samples that the graph for chunks takes at a time.
    side, shift, scale: of pictures.
    characters: what each token stands for; a mark's name is longer than a character.
    unknown, end_of_text: the tokens of those marks.
    """

    kind: Literal["drawing", "photograph", "sound", "text", "writing"]
    chunk: int
    side: int | None = None
    shift: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    characters: tuple[str, ...] = ()
    unknown: int = UNKNOWN
    end_of_text: int = END_OF_TEXT


def choose_view(model: SequenceModel, pictures: Pictures | None) -> View:
    """The view that suits a model; a model that none suits is refused with the reason."""
    config = model.config
    if config.output_scaling is not None or not config.names:
        raise ValueError(
            "The page shows how probabilities of classes form, but this model predicts values: its outputs "
            "have a scale, or no names. Export it with --to onnx, and show its predictions your own way."
        )
    stride = 1 if model.stem is None else model.stem.at_rate(1.0).stride
    if pictures is not None:
        return _pictures_view(config, pictures, stride)
    if config.vocabulary_size is not None:
        return _text_view(config, stride)
    if config.sample_rate is not None:
        return _sound_view(config, config.sample_rate, stride)
    raise ValueError(
        f"No view of the page fits this model: it reads {config.input_features} numbers at each position, "
        f"with nothing to say whether they are pixels or a sound. For drawn pictures that it reads row by "
        f"row, pass their size (--side 28; in a program: pictures=Pictures(28)); a sound needs sample_rate "
        f"in the model's configuration, which `s4 train --data FOLDER` keeps."
    )


def _pictures_view(config: SequenceModelConfig, pictures: Pictures, stride: int) -> View:
    columns = 1 if pictures.kind == "drawing" else 3
    if config.vocabulary_size is not None or config.input_features not in (1, columns):
        reads = "tokens" if config.vocabulary_size is not None else f"{config.input_features} numbers"
        raise ValueError(
            f"The model reads {reads} at each position; for a {pictures.kind} it must be "
            f"{'one grey value' if columns == 1 else 'one grey value, or red, green and blue'}."
        )
    scaling = pictures.scaling or Scaling((0.0,) * config.input_features, (1.0,) * config.input_features)
    scaling.require_columns(config.input_features)
    # Behind a stem a whole number of frames: one, so that what is missing in the last chunk counts nothing.
    chunk = pictures.side if stride == 1 else stride
    return View(pictures.kind, chunk, pictures.side, scaling.shift, scaling.scale)


def _text_view(config: SequenceModelConfig, stride: int) -> View:
    writes = config.pooling == "none" and config.output_size == config.vocabulary_size
    names = config.input_names or (config.names if writes else ())
    if len(names) <= FIRST_CHARACTER or any(len(name) != 1 for name in names[FIRST_CHARACTER:]):
        raise ValueError(
            "The model reads tokens that are no characters, and the page has only a text box for them. "
            "Export it with --to onnx."
        )
    chunk = _CHUNK if stride == 1 else stride
    return View("writing" if writes else "text", chunk, characters=names)


def _sound_view(config: SequenceModelConfig, sample_rate: float, stride: int) -> View:
    if config.input_features != 1 or not _SLOWEST <= sample_rate <= _FASTEST:
        raise ValueError(
            f"The model reads {config.input_features} numbers at {sample_rate:g} positions per second; the "
            f"page takes sounds of one channel with {_SLOWEST:,} to {_FASTEST:,} samples per second, which "
            f"is what browsers can make of a recording."
        )
    return View("sound", max(1, round(_CHUNK / stride)) * stride)
