"""Whole sequences in, predictions out: one model, or several that are averaged, in a single ONNX file.

Axes: B batch, L positions.
"""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from torchs4.inference.export import model_graph, require_graph, state_inputs
from torchs4.inference.onnx_graph import Graph
from torchs4.inference.samples import require_streaming
from torchs4.layers.inputs import require_rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchs4.models import SequenceModel

_FLOAT, _WHOLE = np.dtype(np.float32), np.dtype(np.int64)


def export_onnx_file(
    models: SequenceModel | Sequence[SequenceModel], path: str | Path, rate: float = 1.0
) -> Path:
    """Write a graph that takes "samples" (batch, length, columns), or tokens (batch, length), of any length.

    It gives "probabilities" of the classes, or the "prediction" of values in the data's units; of several
    models, their mean. The models read step by step inside it, so its size does not depend on the length.
    Names of classes or values, in the order of the output, are in the graph's metadata: "classes" or
    "columns", a list as JSON writes it.
    rate: step size of the samples relative to training.
    """
    models = list(models) if isinstance(models, list | tuple) else [models]  # type: ignore[list-item]
    require_rate(rate)
    for model in models:
        _require_steps(model)
    path, config = Path(path), models[0].config
    if path.is_dir():
        raise ValueError(f"{path} is a folder; a single graph is a file. Choose another name.")
    graph = Graph()
    columns = () if config.vocabulary_size is not None else (config.input_features,)
    samples = graph.add_input("samples", _FLOAT if columns else _WHOLE, ("batch", "length", *columns))
    is_values = config.output_scaling is not None
    each = [_add_model(graph, model, samples, rate, number) for number, model in enumerate(models)]
    if not is_values:
        each = [graph.node("Softmax", one, axis=-1) for one in each]
    mean = each[0] if len(each) == 1 else graph.node("Mean", *each)
    name = "prediction" if is_values else "probabilities"
    graph.add_output(name, mean, _FLOAT, ("batch", config.output_size))
    # In the order of the graph's output.
    notes = {"columns" if is_values else "classes": json.dumps(config.names)} if config.names else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        new.write_bytes(graph.written("sequences", notes))
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
    return path


def _require_steps(model: SequenceModel) -> None:
    require_streaming(model)
    require_graph(model)
    if model.config.pooling == "none":
        raise ValueError("This model predicts at every position; export_onnx writes graphs for that.")
    if model.stem is not None:
        raise ValueError(
            "This model has a stem, which makes a frame only now and then: it has no single graph of steps. "
            "Export it to a folder, whose graph takes chunks: a name that does not end with .onnx."
        )


def _add_model(graph: Graph, model: SequenceModel, samples: str, rate: float, number: int) -> str:
    """The prediction of one model after the last position."""
    # Constants are computed in double precision and rounded once.
    exact = copy.deepcopy(model).cpu().double()
    with torch.no_grad():
        body = model_graph(exact, None, rate, "float32", prefix=f"model{number}.").loop_body(f"step_{number}")
    parts = state_inputs(exact, rate)
    starts = [graph.zeros(samples, part.dtype, part.shape) for part in parts]
    *_, steps = graph.nodes(
        "Scan", *starts, samples, outputs=len(parts) + 1, body=body, num_scan_inputs=1, scan_input_axes=[1]
    )
    return graph.node("Gather", steps, graph.constant(torch.tensor(-1)), axis=0)
