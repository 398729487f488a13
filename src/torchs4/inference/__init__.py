"""Trained models at work: streams, text that is written, graphs for other runtimes."""

from torchs4.inference.batch import StreamBatch
from torchs4.inference.stream import Stream

__all__ = ["Stream", "StreamBatch"]
