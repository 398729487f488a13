"""Trained models at work: streams, text and pictures that they make, graphs for other runtimes."""

from typing import TYPE_CHECKING, Any

from torchs4.inference.batch import StreamBatch
from torchs4.inference.drawing import complete, draw
from torchs4.inference.generate import Sampling, generate, generate_each
from torchs4.inference.predict import classify, predict
from torchs4.inference.recorded_steps import RecordedSteps
from torchs4.inference.stream import Stream
from torchs4.inference.views import Pictures
from torchs4.inference.writing import write

if TYPE_CHECKING:
    from torchs4.inference.export import export_onnx
    from torchs4.inference.web import export_web

__all__ = [
    "Pictures",
    "RecordedSteps",
    "Sampling",
    "Stream",
    "StreamBatch",
    "classify",
    "complete",
    "draw",
    "export_onnx",
    "export_web",
    "generate",
    "generate_each",
    "predict",
    "write",
]


def __getattr__(name: str) -> Any:
    # Needs a package that the rest does not.
    if name == "export_onnx":
        from torchs4.inference.export import export_onnx

        return export_onnx
    if name == "export_web":
        from torchs4.inference.web import export_web

        return export_web
    raise AttributeError(f"module 'torchs4.inference' has no attribute {name!r}")
