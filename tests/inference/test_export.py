"""Exported graphs, run by the real onnxruntime, predict what PyTorch predicts."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from cases import CASES, build, samples
from torch import nn

from torchs4 import S4BlockConfig, S4Config
from torchs4.inference import Stream, export_onnx

if TYPE_CHECKING:
    from pathlib import Path

    from torchs4 import SequenceModel

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

EXPORTED = [case for case in CASES if case not in ("lstm", "transformer")]
WITH_STEP = [case for case in EXPORTED if not case.startswith("stem")]
# Single precision against double; predictions are of size one, or of that of their scaling.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


class Runner:
    """A graph and the state between its calls."""

    def __init__(self, folder: Path, graph: str, batch: int) -> None:
        self.description = json.loads((folder / "model.json").read_text())
        self.session = onnxruntime.InferenceSession(folder / self.description["graphs"][graph])
        self.state = {
            part["name"]: np.zeros([batch, *part["shape"][1:]], part["dtype"])
            for part in self.description["state"]
        }

    def push(self, x: torch.Tensor) -> torch.Tensor:
        array = x.float().numpy() if x.is_floating_point() else x.numpy()
        prediction, *state = self.session.run(None, {"samples": array, **self.state})
        self.state = dict(zip(self.state, state, strict=True))
        return torch.from_numpy(prediction)


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual.double(), expected.double(), **TOLERANCE)


@pytest.mark.parametrize("case", EXPORTED)
@pytest.mark.parametrize("batch", [1, 3])
def test_chunks_predict_what_pytorch_predicts(case: str, batch: int, tmp_path: Path) -> None:
    model = build(case)
    runner = Runner(export_onnx(model, tmp_path / "out", chunk=12), "chunk", batch)
    x = samples(model, batch, 60)
    stream = Stream(model, batch_size=batch)
    for piece in x.split(12, dim=1):
        assert_close(runner.push(piece), stream.push(piece))


@pytest.mark.parametrize("case", WITH_STEP)
@pytest.mark.parametrize("batch", [1, 3])
def test_steps_predict_what_pytorch_predicts(case: str, batch: int, tmp_path: Path) -> None:
    model = build(case)
    runner = Runner(export_onnx(model, tmp_path / "out", chunk=5), "step", batch)
    x = samples(model, batch, 40)
    stream = Stream(model, batch_size=batch)
    for position in range(40):
        assert_close(runner.push(x[:, position]), stream.push(x[:, position]))


def test_a_scalar_norm_of_equal_features_is_exported_as_pytorch_has_it(tmp_path: Path) -> None:
    model = build("s4-scalar-norm")
    nn.init.zeros_(model.encoder.weight)
    nn.init.constant_(model.encoder.bias, 0.5)
    runner, x = Runner(export_onnx(model, tmp_path / "out", chunk=4), "chunk", 1), samples(model, 1, 4)
    expected = Stream(model, batch_size=1).push(x)
    assert expected.isfinite().all()
    assert_close(runner.push(x), expected)


def test_chunks_and_steps_and_pytorch_share_their_states(tmp_path: Path) -> None:
    model = build("s4")
    folder = export_onnx(model, tmp_path / "out", chunk=16)
    chunk, step = Runner(folder, "chunk", 1), Runner(folder, "step", 1)
    x = samples(model, 1, 40)
    chunk.push(x[:, :16])
    step.state = chunk.state
    predictions = [step.push(x[:, position]) for position in range(16, 40)]
    stream = Stream(model, batch_size=1)
    assert_close(predictions[-1], stream.push(x))
    for name, state in zip(("blocks.0", "blocks.1"), stream.state["blocks"], strict=True):
        assert_close(torch.from_numpy(step.state[f"state.{name}"]), state)


@pytest.mark.parametrize("case", ["s4", "stem-none"])
def test_another_rate_is_exported_too(case: str, tmp_path: Path) -> None:
    model = build(case)
    runner = Runner(export_onnx(model, tmp_path / "out", chunk=12, rate=2.0), "chunk", 1)
    x = samples(model, 1, 24)
    stream = Stream(model, batch_size=1, rate=2.0)
    for piece in x.split(12, dim=1):
        assert_close(runner.push(piece), stream.push(piece))


@pytest.mark.parametrize("case", EXPORTED)
def test_the_description_holds_an_example_that_comes_true(case: str, tmp_path: Path) -> None:
    folder = export_onnx(build(case), tmp_path / "out", chunk=12)
    description = json.loads((folder / "model.json").read_text())
    example = description["example"]
    x = np.array(example["samples"], np.int64 if description["reads"] == "tokens" else np.float32)
    predicted = Runner(folder, "chunk", 1).push(torch.from_numpy(x[None]))[0].numpy()
    expected = np.array(example["chunk_prediction"])
    assert np.abs(predicted - expected).max() <= example["tolerance"] * np.abs(expected).max()
    if description["graphs"]["step"]:
        predicted = Runner(folder, "step", 1).push(torch.from_numpy(x[:1]))[0].numpy()
        assert predicted == pytest.approx(np.array(example["step_prediction"]), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("case", EXPORTED)
def test_graphs_hold_no_transform_no_complex_number_and_no_loop(case: str, tmp_path: Path) -> None:
    folder = export_onnx(build(case), tmp_path / "out", chunk=12)
    for path in folder.glob("*.onnx"):
        graph = onnx.load(path).graph
        assert not {node.op_type for node in graph.node} & {"DFT", "STFT", "Loop", "Scan", "If"}
        complex_types = {onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128}
        assert not {constant.data_type for constant in graph.initializer} & complex_types
        used = {name for node in graph.node for name in node.input}
        assert {constant.name for constant in graph.initializer} <= used
        assert graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_a_long_stream_of_a_slow_system_stays_with_pytorch(tmp_path: Path) -> None:
    slow = S4Config(state_size=16, min_step_size=1e-4, max_step_size=1e-3)
    model = build("s4-none", block=S4BlockConfig(layer=slow))
    folder = export_onnx(model, tmp_path / "out", chunk=50)
    x = samples(model, 1, 5000)
    expected = Stream(model, batch_size=1).push(x)
    chunk, step = Runner(folder, "chunk", 1), Runner(folder, "step", 1)
    assert_close(torch.cat([chunk.push(piece) for piece in x.split(50, dim=1)], dim=1), expected)
    stepped = torch.stack([step.push(x[:, position]) for position in range(5000)], dim=1)
    torch.testing.assert_close(stepped.double(), expected, rtol=1e-3, atol=1e-4)


def test_a_description_names_classes_and_inputs(tmp_path: Path) -> None:
    model = build(names=tuple("abcde"), input_names=("x", "y"), sample_rate=16000.0)
    export_onnx(model, tmp_path / "out", rate=2.0)
    description = json.loads((tmp_path / "out" / "model.json").read_text())
    assert description["names"] == list("abcde")
    assert description["input_names"] == ["x", "y"]
    assert (description["sample_rate"], description["chunk"], description["rate"]) == (8000.0, 64, 2.0)


@pytest.mark.parametrize("case", ["s4", "tokens", "stem-none"])
def test_mixing_in_whole_numbers_predicts_nearly_the_same(case: str, tmp_path: Path) -> None:
    model = build(case, features=16)
    folder = export_onnx(model, tmp_path / "out", chunk=12, mixing="int8")
    runner = Runner(folder, "chunk", 1)
    assert runner.description["mixing"] == "int8"
    operators = [node.op_type for node in onnx.load(folder / "chunk.onnx").graph.node]
    assert operators.count("MatMulInteger") == len(model.stack.blocks)
    x = samples(model, 1, 60)
    expected = Stream(model, batch_size=1).push(x)
    predictions = [runner.push(piece) for piece in x.split(12, dim=1)]
    predicted = torch.cat(predictions, dim=1) if model.config.pooling == "none" else predictions[-1]
    error = (predicted - expected).abs().max() / expected.abs().max()
    assert 1e-6 < error < runner.description["example"]["tolerance"]


def test_whole_numbers_that_would_change_predictions_are_refused(tmp_path: Path) -> None:
    model = build(features=16)
    with torch.no_grad():
        for block in model.stack.blocks:
            # One large weight in each row leaves no digits to the others.
            block.mixing.weight[:, 0] = 1e4
    with pytest.raises(ValueError, match=r"differs by .*mixing='float32'"):
        export_onnx(model, tmp_path / "out", mixing="int8")
    assert not (tmp_path / "out").exists()


def _changed(change: Any) -> SequenceModel:
    model = build()
    change(model)
    return model


REFUSED = {
    "lstm": (lambda: build("lstm"), {}, "kind LSTM"),
    "transformer": (lambda: build("transformer"), {}, "kind Transformer"),
    "bidirectional": (
        lambda: build(block=S4BlockConfig(layer=S4Config(state_size=8, bidirectional=True))),
        {},
        "bidirectional",
    ),
    "training": (lambda: build().train(), {}, "training mode"),
    "head": (lambda: _changed(lambda model: setattr(model, "head", nn.Identity())), {}, "head is a Identity"),
    "mixing": (
        lambda: _changed(lambda model: setattr(model.stack.blocks[0], "mixing", nn.Sequential())),
        {},
        "mixing of block 0",
    ),
    "norm": (lambda: _changed(lambda model: setattr(model.stack, "norm", nn.RMSNorm(4))), {}, "RMSNorm"),
    "hooks": (
        lambda: _changed(lambda model: model.stack.blocks[1].register_forward_hook(lambda *_: None)),
        {},
        "hooks",
    ),
    "stem": (lambda: build("stem"), {"chunk": 64}, "multiple of 6, such as 66"),
    "empty": (build, {"chunk": 0}, "chunk"),
    "numbers": (build, {"mixing": "int4"}, "mixing is 'int4'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_exported_is_refused_with_the_reason(name: str, tmp_path: Path) -> None:
    make, options, words = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        export_onnx(make(), tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_exporting_over_a_file_is_refused_and_an_old_step_graph_goes(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="is a file"):
        export_onnx(build(), tmp_path / "file")
    export_onnx(build(), tmp_path / "out")
    export_onnx(build("stem"), tmp_path / "out", chunk=6)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["chunk.onnx", "model.json"]


def test_without_the_package_the_way_to_it_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(sys.modules):
        if name.startswith("torchs4.inference.onnx_") or name == "torchs4.inference.export":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnx", None)
    import torchs4.inference

    with pytest.raises(ModuleNotFoundError, match=r"torchs4\[export\]"):
        _ = torchs4.inference.export_onnx
