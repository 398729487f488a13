"""Datasets: one module each."""

from torchs4.data.digits import Digits, LabeledDigits, load_digits
from torchs4.data.idx import read_idx

__all__ = ["Digits", "LabeledDigits", "load_digits", "read_idx"]
