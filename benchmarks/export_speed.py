"""How fast exported graphs run in onnxruntime, beside our own step and prefill on the same weights.

Everything on one thread: graphs this small gain nothing from a second.

python benchmarks/export_speed.py
"""

from __future__ import annotations

import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from harness import interleave, record, show

from torchs4 import SequenceModel, load_model
from torchs4.inference import export_onnx

CHUNK = 64
STEPS, CHUNKS = 100, 10


class Exported:
    """A graph and the state between its calls."""

    def __init__(self, folder: Path, graph: str, batch: int) -> None:
        about = json.loads((folder / "model.json").read_text())
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(folder / about["graphs"][graph], options)
        self.state = {
            part["name"]: np.zeros([batch, *part["shape"][1:]], part["dtype"]) for part in about["state"]
        }

    def run(self, samples: np.ndarray[Any, Any], times: int) -> np.ndarray[Any, Any]:
        prediction = samples
        for _ in range(times):
            prediction, *state = self.session.run(None, {"samples": samples, **self.state})
            self.state = dict(zip(self.state, state, strict=True))
        return prediction


def run_model(verb: Any, model: SequenceModel, x: torch.Tensor, times: int) -> torch.Tensor:
    with torch.inference_mode():
        state = model.initial_state(len(x))
        for _ in range(times):
            prediction, state = verb(x, state)
    return prediction


def measure(model: SequenceModel, folder: Path, batch: int) -> dict[str, Any]:
    """Microseconds for one step and for one chunk, in onnxruntime and in PyTorch, on random samples."""
    x = torch.rand(batch, CHUNK, model.config.input_features)
    result: dict[str, Any] = {}
    for kind, verb, samples, times in (
        ("step", model.step, x[:, 0], STEPS),
        ("chunk", model.prefill, x, CHUNKS),
    ):
        candidates: dict[str, Any] = {"pytorch": partial(run_model, verb, model, samples, times)}
        for mixing in ("float32", "int8"):
            graph = Exported(folder / mixing, kind, batch)
            candidates[mixing] = partial(graph.run, samples.numpy(), times)
        taken = interleave(candidates, repeats=9, warmup=1)
        microseconds = {name: taken[name]["median_ms"] / times * 1e3 for name in taken}
        result[kind] = {
            "pytorch_us": microseconds["pytorch"],
            "onnx_us": microseconds["float32"],
            "onnx_int8_us": microseconds["int8"],
            "onnx_speed_over_pytorch": microseconds["pytorch"] / microseconds["float32"],
        }
    return result


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    models = {
        "digits (the quickstart's)": load_model("digits"),
        "6 layers, H 128, N 64": SequenceModel(
            input_features=1, output_size=10, features=128, num_layers=6
        ).eval(),
    }
    results: dict[str, Any] = {}
    rows = []
    for name, model in models.items():
        with tempfile.TemporaryDirectory() as place:
            for mixing in ("float32", "int8"):
                export_onnx(model, Path(place, mixing), chunk=CHUNK, mixing=mixing)
            megabytes = {
                f"{mixing}/{path.name}": path.stat().st_size / 1e6
                for mixing in ("float32", "int8")
                for path in sorted(Path(place, mixing).glob("*.onnx"))
            }
            batches = {f"batch{batch}": measure(model, Path(place), batch) for batch in (1, 16)}
        results[name] = {"megabytes": megabytes, **batches}
        rows += [
            [name, batch.removeprefix("batch"), kind, *part.values()]
            for batch, kinds in batches.items()
            for kind, part in kinds.items()
        ]
    columns = ["model", "batch", "graph", "PyTorch µs", "ONNX µs", "ONNX int8 µs", "ONNX speed / PyTorch"]
    show(f"one step, and a chunk of {CHUNK} samples", columns, rows)
    record("export_speed", {"threads": 1, "chunk": CHUNK, "models": results})


if __name__ == "__main__":
    main()
