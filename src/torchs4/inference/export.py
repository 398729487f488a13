"""A model as ONNX graphs with explicit states, which run where there is no PyTorch.

Axes: B batch, T samples of a chunk, H features, O numbers per prediction.
"""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from torchs4.configuration import require_choice, require_whole
from torchs4.inference.onnx_graph import Graph
from torchs4.inference.onnx_layers import add_block, add_int8_linear, add_linear, add_norm, require_exportable
from torchs4.inference.onnx_package import import_onnxruntime
from torchs4.inference.samples import require_streaming
from torchs4.inference.stream import Stream
from torchs4.layers.hooks import are_untouched
from torchs4.layers.inputs import require_rate
from torchs4.models import Backbone, LanguageModel, UNetModel
from torchs4.models.pooling import LastPooling, MeanPooling, SharePooling

if TYPE_CHECKING:
    from torchs4.models import SequenceModel
    from torchs4.models.pooling import NoPooling
    from torchs4.models.stem import Stem

# Raised when older descriptions stop meaning what they say.
FORMAT = 1
STEP_FILE, CHUNK_FILE, DESCRIPTION_FILE = "step.onnx", "chunk.onnx", "model.json"
# How far single precision may differ from PyTorch's, relative to the largest number of a prediction.
TOLERANCE = 1e-4
# How far products in whole numbers may: what differs more is refused.
INT8_TOLERANCE = 0.05

Mixing = Literal["float32", "int8"]
_MIXINGS = {"float32": add_linear, "int8": add_int8_linear}

_FLOAT, _DOUBLE, _WHOLE = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64)
_NO_STEP = "Behind a stem a frame is due only now and then: push whole chunks."


class _StateInput(NamedTuple):
    """A part of the state: its name, type, and shape for each sequence."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def export_onnx(
    model: SequenceModel, path: str | Path, chunk: int = 64, rate: float = 1.0, mixing: Mixing = "float32"
) -> Path:
    """Write step.onnx for one position, chunk.onnx for `chunk` of them, and model.json, which explains them.

    Both take "samples" and the parts of the state, for any number of sequences at once, and give "prediction"
    and the next state in the same order. States start as zeros. Units are the data's: scaling is inside.
    rate: step size of the samples relative to training.
    mixing: "int8" mixes features in whole numbers of eight bits. What is exported is tried on an example and
        refused if it predicts something else than PyTorch; sequences of a batch share a scale, so they depend
        on one another by as much as they are rounded.
    """
    return write_files(Path(path), onnx_files(model, chunk, rate, mixing))


def onnx_files(
    model: SequenceModel, chunk: int, rate: float = 1.0, mixing: Mixing = "float32"
) -> dict[str, bytes]:
    """The graphs and their description, by the names of their files."""
    require_choice("mixing", mixing, _MIXINGS)
    require_streaming(model)
    require_whole("chunk", chunk, 1)
    require_rate(rate)
    require_graph(model)
    stem = model.stem
    if stem is not None and chunk % (stride := stem.at_rate(rate).stride):
        raise ValueError(
            f"chunk is {chunk}; the model's stem makes one frame of {stride} samples, so it must be a "
            f"multiple of {stride}, such as {max(1, round(chunk / stride)) * stride}."
        )
    # Constants are computed in double precision and rounded once.
    exact = copy.deepcopy(model).cpu().double()
    with torch.no_grad():
        files = {CHUNK_FILE: _written(exact, chunk, rate, mixing)}
        if stem is None:
            files[STEP_FILE] = _written(exact, None, rate, mixing)
    description = _described(model, exact, chunk, rate, mixing)
    if mixing == "int8":
        _require_faithful(files[CHUNK_FILE], description)
    files[DESCRIPTION_FILE] = (json.dumps(description, indent=1) + "\n").encode()
    return files


def require_graph(model: SequenceModel) -> None:
    """Refuse a model that has parts without an ONNX form."""
    if isinstance(model, UNetModel):
        raise ValueError(
            "This model is a U-Net, whose levels step at different times: it has no ONNX form. It streams "
            "and samples in PyTorch."
        )
    if isinstance(model, LanguageModel):
        raise ValueError(
            "This is a LanguageModel, whose tied tables and feed-forwards have no ONNX form. It streams and "
            "writes in PyTorch; a SequenceModel of the next token can be exported."
        )
    if not are_untouched(*model.modules()):
        raise ValueError("The model has hooks, which a graph would leave out. Remove them before exporting.")
    for number, block in enumerate(model.stack.blocks):
        require_exportable(number, block)
    if type(model.head) is not (nn.Identity if isinstance(model, Backbone) else nn.Linear):
        raise ValueError(
            f"The head is a {type(model.head).__name__} instead of a Linear: it cannot be exported."
        )
    if type(model.encoder) not in (nn.Linear, nn.Embedding, nn.Identity):
        raise ValueError(f"The encoder is a {type(model.encoder).__name__}, which has no ONNX form here.")


def state_inputs(model: SequenceModel, rate: float) -> list[_StateInput]:
    """What goes from one call to the next, named and shaped as in PyTorch."""
    parts = []
    if model.stem is not None:
        for number, stage in enumerate(model.stem.at_rate(rate).stages):
            parts.append(_StateInput(f"stem.{number}", _FLOAT, (stage.memory, stage.weight.shape[1])))
    for number, block in enumerate(model.stack.blocks):
        layer: Any = block.layer
        parts.append(_StateInput(f"blocks.{number}", _FLOAT, (layer.features, layer.state_size)))
    if isinstance(model.pooling, MeanPooling):
        width = model.pooling.width(model.config.features)
        parts.append(_StateInput("pooling.0", _DOUBLE, (width,)))
        parts.append(_StateInput("pooling.1", _WHOLE, (1,)))
    return parts


def _written(model: SequenceModel, length: int | None, rate: float, mixing: Mixing) -> bytes:
    """The graph of a chunk of that length, or of one step, as a file's content."""
    graph = model_graph(model, length, rate, mixing)
    return graph.written("step" if length is None else "chunk")


def model_graph(
    model: SequenceModel, length: int | None, rate: float, mixing: Mixing, prefix: str = ""
) -> Graph:
    """The graph of a chunk of that length, or of one step."""
    config, graph = model.config, Graph(prefix)
    positions = () if length is None else (length,)
    columns = () if config.vocabulary_size is not None else (config.input_features,)
    kind = _FLOAT if columns else _WHOLE
    x = graph.add_input("samples", kind, ("batch", *positions, *columns))
    parts = state_inputs(model, rate)
    state = {
        part.name: graph.add_input(f"state.{part.name}", part.dtype, ("batch", *part.shape)) for part in parts
    }
    x = _add_encoder(graph, model, x)
    frames = length
    if model.stem is not None and length is not None:
        x = _add_stem(graph, model.stem, x, state, rate)
        frames, rate = length // model.stem.at_rate(rate).stride, model.stem.at_rate(rate).rate
    for number, block in enumerate(model.stack.blocks):
        name = f"blocks.{number}"
        x, state[name] = add_block(graph, cast("Any", block), x, state[name], frames, rate, _MIXINGS[mixing])
    x = _add_pooling(graph, model.pooling, add_norm(graph, model.stack.norm, x), state, frames)
    if isinstance(model.head, nn.Linear):
        x = add_linear(graph, model.head, x)
    if model.output_scaling is not None:
        x = graph.node("Mul", x, graph.constant(model.output_scaling.scale))
        x = graph.node("Add", x, graph.constant(model.output_scaling.shift))
    if config.pooling != "none":
        positions = ()
    elif frames is not None and length is not None and frames != length:
        # Until a frame is due, the one before it stands.
        x = graph.node("Unsqueeze", x, graph.constant([2]))
        x = graph.node("Expand", x, graph.constant([1, 1, length // frames, 1]))
        x = graph.node("Reshape", x, graph.constant([-1, length, config.output_size]))
    graph.add_output("prediction", x, _FLOAT, ("batch", *positions, config.output_size))
    for part in parts:
        graph.add_output(f"next.{part.name}", state[part.name], part.dtype, ("batch", *part.shape))
    return graph


def _add_encoder(graph: Graph, model: SequenceModel, x: str) -> str:
    if model.input_scaling is not None:
        x = graph.node("Sub", x, graph.constant(model.input_scaling.shift))
        x = graph.node("Div", x, graph.constant(model.input_scaling.scale))
    match model.encoder:
        case nn.Linear():
            return add_linear(graph, model.encoder, x)
        case nn.Embedding():
            return graph.node("Gather", graph.constant(model.encoder.weight), x, axis=0)
    return x


def _add_stem(graph: Graph, stem: Stem, x: str, state: dict[str, str], rate: float) -> str:
    """Frames of a chunk that begins with a frame, as every chunk of a whole number of frames does."""
    for number, stage in enumerate(stem.at_rate(rate).stages):
        if number:
            x = graph.node("Gelu", x)
        name = f"stem.{number}"
        signal = graph.node("Concat", state[name], x, axis=1)
        beginning = graph.constant([-stage.memory if stage.memory else np.iinfo(np.int64).max])
        end = graph.constant([np.iinfo(np.int64).max])
        state[name] = graph.node("Slice", signal, beginning, end, graph.constant([1]))
        columns = graph.node("Transpose", signal, perm=[0, 2, 1])
        weights = graph.constant(stage.weight), graph.constant(stage.bias)
        frames = graph.node("Conv", columns, *weights, strides=[stage.stride])
        x = graph.node("Transpose", frames, perm=[0, 2, 1])
    return x


def _add_pooling(graph: Graph, pooling: NoPooling, x: str, state: dict[str, str], frames: int | None) -> str:
    if isinstance(pooling, LastPooling):
        return x if frames is None else graph.node("Gather", x, graph.constant(torch.tensor(-1)), axis=1)
    if not isinstance(pooling, MeanPooling):
        return x
    if isinstance(pooling, SharePooling):
        x = _add_levels(graph, pooling, x, frames)
    mean, count = state["pooling.0"], state["pooling.1"]
    count = graph.node("Add", count, graph.constant([frames or 1]))
    x = graph.cast(x, _DOUBLE)
    if frames is None:
        moved = graph.node("Sub", x, mean)
    else:
        axis = graph.constant([1])
        away = graph.node("Sub", x, graph.node("Unsqueeze", mean, axis))
        moved = graph.node("ReduceSum", away, axis, keepdims=0)
    mean = graph.node("Add", mean, graph.node("Div", moved, graph.cast(count, _DOUBLE)))
    state["pooling.0"], state["pooling.1"] = mean, count
    return graph.cast(mean, _FLOAT)


def _add_levels(graph: Graph, pooling: SharePooling, x: str, frames: int | None) -> str:
    """How far every feature is above each of its thresholds, level after level."""
    positions = () if frames is None else (frames,)
    above = graph.node("Unsqueeze", x, graph.constant([1 + len(positions)]))
    above = graph.node("Mul", above, graph.constant(pooling.slopes))
    above = graph.node("Add", above, graph.constant(pooling.offsets))
    zero, one = (graph.constant(pooling.slopes.new_tensor(end)) for end in (0.0, 1.0))
    above = graph.node("Clip", above, zero, one)
    return graph.node("Reshape", above, graph.constant([-1, *positions, pooling.offsets.numel()]))


def _described(
    model: SequenceModel, exact: SequenceModel, chunk: int, rate: float, mixing: Mixing
) -> dict[str, Any]:
    """What somebody without PyTorch has to know, with an example to check against."""
    config = model.config
    samples = _example(exact, chunk)
    first = Stream(exact, rate=rate).push(samples[0])
    whole = Stream(exact, rate=rate).push(samples)
    return {
        "format": FORMAT,
        "graphs": {"chunk": CHUNK_FILE, "step": STEP_FILE if model.stem is None else None},
        "without_step": None if model.stem is None else _NO_STEP,
        "chunk": chunk,
        "reads": "values" if config.vocabulary_size is None else "tokens",
        "input_features": config.input_features if config.vocabulary_size is None else None,
        "vocabulary_size": config.vocabulary_size,
        "output_size": config.output_size,
        "pooling": config.pooling,
        "names": list(config.names),
        "input_names": list(config.input_names),
        "sample_rate": None if config.sample_rate is None else config.sample_rate / rate,
        "rate": rate,
        "mixing": mixing,
        "state": [
            {"name": f"state.{part.name}", "shape": ["batch", *part.shape], "dtype": part.dtype.name}
            for part in state_inputs(model, rate)
        ],
        "example": {
            "samples": samples.tolist(),
            "step_prediction": first.tolist() if model.stem is None else None,
            "chunk_prediction": whole.tolist(),
            "tolerance": TOLERANCE if mixing == "float32" else INT8_TOLERANCE,
        },
    }


def _example(model: SequenceModel, length: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    if model.config.vocabulary_size is not None:
        return torch.randint(model.config.vocabulary_size, (length,), generator=generator)
    x = torch.randn(length, model.config.input_features, generator=generator)
    x = x.double() if model.input_scaling is None else model.input_scaling.to_data(x.double())
    # As single precision holds them: the graphs read no more.
    return x.float().double()


def _require_faithful(chunk_graph: bytes, description: dict[str, Any]) -> None:
    """The exported chunk has to predict what PyTorch predicts for the example."""
    runtime = import_onnxruntime()
    samples = np.array(
        description["example"]["samples"], _FLOAT if description["reads"] == "values" else _WHOLE
    )
    start = {part["name"]: np.zeros([1, *part["shape"][1:]], part["dtype"]) for part in description["state"]}
    predicted = runtime.InferenceSession(chunk_graph).run(["prediction"], {"samples": samples[None], **start})
    expected = np.array(description["example"]["chunk_prediction"])
    error = float(np.abs(predicted[0][0] - expected).max() / np.abs(expected).max())
    if not error <= INT8_TOLERANCE:
        raise ValueError(
            f"With mixing='int8' the example's prediction differs by {error:.1%} of its size; "
            f"{INT8_TOLERANCE:.0%} are allowed. Export this model with mixing='float32'."
        )


def write_files(folder: Path, files: dict[str, bytes]) -> Path:
    """Every file is written whole beside an old one before any takes its place."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; an export is a folder. Choose another name.")
    folder.mkdir(parents=True, exist_ok=True)
    new = {name: folder / f".{name}.{os.getpid()}" for name in files}
    try:
        for name, content in files.items():
            new[name].write_bytes(content)
        for name, place in new.items():
            os.replace(place, folder / name)
        if STEP_FILE not in files:
            # That of another model, which was exported here before.
            (folder / STEP_FILE).unlink(missing_ok=True)
    finally:
        for place in new.values():
            place.unlink(missing_ok=True)
    return folder
