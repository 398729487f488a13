"""Trained models at work: streams, text that is written, graphs for other runtimes."""

from torchs4.inference.batch import StreamBatch
from torchs4.inference.generate import Sampling, generate, generate_each
from torchs4.inference.stream import Stream
from torchs4.inference.writing import write

__all__ = ["Sampling", "Stream", "StreamBatch", "generate", "generate_each", "write"]
