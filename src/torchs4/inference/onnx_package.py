"""The optional package onnx, or one sentence about how to get it."""

try:
    import onnx
    import onnx.checker
    import onnx.helper
    import onnx.numpy_helper
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        'Exporting needs the package onnx, which is not installed: pip install "torchs4[export]".'
    ) from error

__all__ = ["onnx"]
