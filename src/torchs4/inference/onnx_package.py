"""The optional packages onnx and onnxruntime, or one sentence about how to get them."""

from typing import Any

_ADVICE = 'is not installed: pip install "torchs4[export]".'

try:
    import onnx
    import onnx.checker
    import onnx.helper
    import onnx.numpy_helper
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"Exporting needs the package onnx, which {_ADVICE}") from error

__all__ = ["import_onnxruntime", "onnx"]


def import_onnxruntime() -> Any:
    """What runs graphs; only those pay for it who try what they have exported."""
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"Trying a graph needs the package onnxruntime, which {_ADVICE}") from error
    return onnxruntime
