"""model.safetensors: its weights, and what its first bytes tell before any weight is read or model built."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from torch import Tensor

_BLOCK = re.compile(r"(?:.*\.)?stack\.blocks\.(\d+)\.(.*)")
# Which numbers of a layer's configuration are sizes; each comes at least once for every feature.
_LAYER_SIZES = ("state_size", "channels", "rank", "heads", "hidden_size")


@dataclass(frozen=True)
class Header:
    """What a weights file says about itself: the shapes of its weights, and notes of whoever wrote it."""

    shapes: Mapping[str, tuple[int, ...]]
    notes: Mapping[str, str]


def read_header(path: Path) -> Header:
    """The file's own table of contents."""
    try:
        with safe_open(path, framework="pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            return Header(shapes, file.metadata() or {})
    except SafetensorError as error:
        raise _damaged(path, error) from error


def read_weights(path: Path) -> dict[str, Tensor]:
    """All weights by name."""
    try:
        return load_file(path)
    except SafetensorError as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: SafetensorError) -> ValueError:
    return ValueError(f"{path} is damaged or cut short ({error}). Copy or download it again.")


def misfits(config: Any, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[str]:
    """Where a model's configuration asks for more than the weights hold.

    Whoever builds a model before asking may wait for days, or fill the memory, because of one wrong digit.
    """
    total = sum(map(math.prod, shapes.values()))
    if not hasattr(config, "block"):
        # One of a fixed design: whatever it counts, there are more weights.
        for name, size in vars(config).items():
            if isinstance(size, int) and name not in ("history", "horizon", "label") and size > total:
                yield f"{name} is {size}, but there are {total:,} weights in all"
        return
    if hasattr(config, "least_weights"):
        # Blocks of several widths, or tokens.
        if (least := config.least_weights()) > total:
            yield f"a model of its sizes has at least {least:,} weights, but there are {total:,}"
        # Rare tokens have vectors of few numbers.
        width = 1 if getattr(config, "cutoffs", ()) else config.features
        for name, size in (("output_size", config.output_size), ("vocabulary_size", config.vocabulary_size)):
            if size is not None and size * width > total:
                yield f"{name} is {size}, but there are {total:,} weights in all"
        for name in _LAYER_SIZES:
            size = getattr(config.block.layer, name, None)
            if isinstance(size, int) and size > total:
                yield f"{name} is {size}, but there are {total:,} weights in all"
        return
    places = [(int(match[1]), match[2], shape) for match, shape in _blocks(shapes)]
    depth = len({number for number, _, _ in places})
    if config.num_layers != depth:
        yield f"num_layers is {config.num_layers}, but there are weights for {depth}"
    first = {name: shape for number, name, shape in places if number == 0}
    width = first.get("mixing.weight", (0,))[0] // (2 if config.block.mixing == "glu" else 1)
    if config.block.mixing == "none":
        # Only a state space's skip is as wide as its block.
        width = first.get("layer.D", (0, config.features))[-1]
    if config.features != width:
        yield f"features is {config.features}, but the weights are for {width}"
    sizes: dict[str, Any] = {"output_size": config.output_size}
    if config.vocabulary_size is None:
        sizes["input_features"] = config.input_features
    else:
        sizes["vocabulary_size"] = config.vocabulary_size
    for name, size in (*sizes.items(), *(("stem", stride) for stride in config.stem)):
        if size * config.features > total:
            yield f"{name} is {size}, but there are {total:,} weights in all"
    layer, inside = config.block.layer, sum(map(math.prod, first.values()))
    for name in _LAYER_SIZES:
        size = getattr(layer, name, None)
        if isinstance(size, int) and size > inside // max(1, width):
            yield f"{name} is {size}, but a block has {inside:,} weights for {width} features"


def _blocks(shapes: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[re.Match[str], tuple[int, ...]]]:
    for name, shape in shapes.items():
        if match := _BLOCK.fullmatch(name):
            yield match, shape
