"""Files that people have, one format each, read into `Examples`."""

from torchs4.data.own.readers.json_lines import read_json_lines
from torchs4.data.own.readers.layout import Layout
from torchs4.data.own.readers.npz import read_npz
from torchs4.data.own.readers.tables import read_csv, read_parquet
from torchs4.data.own.readers.wav_folder import RECORDINGS, read_wav_folder

__all__ = [
    "RECORDINGS",
    "Layout",
    "read_csv",
    "read_json_lines",
    "read_npz",
    "read_parquet",
    "read_wav_folder",
]
