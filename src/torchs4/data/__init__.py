"""Datasets: one module each, one interface."""

from collections.abc import Callable
from functools import partial

from torchs4.data.cifar import CIFAR10
from torchs4.data.density import CIFAR10Density, MNISTDensity, picture_tokens
from torchs4.data.digits import BundledDigits, Digits, LabeledDigits, load_digits
from torchs4.data.electricity import Electricity
from torchs4.data.ett import ETT
from torchs4.data.fingerprint import fingerprint
from torchs4.data.given import GivenData
from torchs4.data.idx import read_idx
from torchs4.data.imdb import IMDB
from torchs4.data.listops import ListOps
from torchs4.data.location import DatasetMissingError, data_folder
from torchs4.data.mnist import MNIST
from torchs4.data.own.files import SequenceFiles
from torchs4.data.own.in_memory import from_arrays
from torchs4.data.own.torch_datasets import from_dataset
from torchs4.data.pathfinder import Pathfinder
from torchs4.data.retrieval import Retrieval
from torchs4.data.sequences import DataConfig, SequenceData, Split
from torchs4.data.series import SeriesFile
from torchs4.data.speech_commands import SpeechCommands
from torchs4.data.text import TextFile
from torchs4.data.weather import Weather
from torchs4.data.wikitext import WikiText
from torchs4.description import Batch, InputDescription

# Every dataset's options; files name them by their class.
CONFIGS = (
    BundledDigits,
    CIFAR10,
    CIFAR10Density,
    ETT,
    Electricity,
    GivenData,
    IMDB,
    ListOps,
    MNIST,
    MNISTDensity,
    Pathfinder,
    Retrieval,
    SeriesFile,
    SpeechCommands,
    TextFile,
    Weather,
    WikiText,
    SequenceFiles,
)

# A user's own files by what is asked about them; each takes a path.
OWN_DATA: dict[str, Callable[[str], DataConfig]] = {
    "classification": partial(SequenceFiles, task="classification"),
    "regression": partial(SequenceFiles, task="regression"),
    "position-regression": partial(SequenceFiles, task="position-regression"),
    "forecasting": SeriesFile,
    "next-token": TextFile,
}

__all__ = [
    "CIFAR10",
    "CONFIGS",
    "ETT",
    "IMDB",
    "MNIST",
    "OWN_DATA",
    "Batch",
    "BundledDigits",
    "CIFAR10Density",
    "DataConfig",
    "DatasetMissingError",
    "Digits",
    "Electricity",
    "GivenData",
    "InputDescription",
    "LabeledDigits",
    "ListOps",
    "MNISTDensity",
    "Pathfinder",
    "Retrieval",
    "SequenceData",
    "SequenceFiles",
    "SeriesFile",
    "SpeechCommands",
    "Split",
    "TextFile",
    "Weather",
    "WikiText",
    "data_folder",
    "fingerprint",
    "from_arrays",
    "from_dataset",
    "load_digits",
    "picture_tokens",
    "read_idx",
]
