"""Samples from lines, recordings and microphones; what is no sample is named, and the rest is read."""

from __future__ import annotations

import builtins
import json
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from torchs4 import SequenceModelConfig
from torchs4.inference.sources import LineReader, microphone_samples, recording_samples

if TYPE_CHECKING:
    from pathlib import Path

PAIR = SequenceModelConfig(input_features=2)
NAMED = SequenceModelConfig(input_features=2, input_names=("x", "y"))
TOKENS = SequenceModelConfig(vocabulary_size=5)


def read(
    config: SequenceModelConfig, text: str, every: int = 1, **options: Any
) -> tuple[list[Any], list[str]]:
    complaints: list[str] = []
    reader = LineReader(config, complaints.append, **options)
    chunks = [chunk.tolist() for chunk in reader.read(text.splitlines(keepends=True), every)]
    assert reader.refused == sum("is taken for names" not in complaint for complaint in complaints)
    return chunks, complaints


@pytest.mark.parametrize("text", ["1,2\n3,4\n", "1 2\n\n3\t4", "[1, 2]\n [3, 4.0]\n", "1;2\n[3, 4]"])
def test_lines_are_samples(text: str) -> None:
    assert read(PAIR, text) == ([[[1, 2]], [[3, 4]]], [])


def test_names_that_a_model_does_not_know_are_passed_over_and_told() -> None:
    told = ["line 1 is taken for names of columns: x, y"]
    assert read(PAIR, "x,y\n1,2\n3,4") == ([[[1, 2]], [[3, 4]]], told)


def test_lines_come_in_chunks_and_the_last_may_be_short() -> None:
    chunks, _ = read(PAIR, "1,2\n" * 5, every=2)
    assert [len(chunk) for chunk in chunks] == [2, 2, 1]


def test_a_first_line_of_names_says_where_columns_are() -> None:
    assert read(NAMED, "time,y,x\n0,2,1\n1,4,3\n")[0] == [[[1, 2]], [[3, 4]]]
    assert read(NAMED, '{"y": 2, "x": 1, "z": 9}\n')[0] == [[[1, 2]]]
    with pytest.raises(ValueError, match="line 1: there is no column x among time, y"):
        read(NAMED, "time,y\n0,2\n")


@pytest.mark.parametrize(
    ("config", "bad", "words"),
    [
        (PAIR, "1,2,3", "3 numbers; expected 2"),
        (PAIR, "1,two", "'two' is no number"),
        (PAIR, "1,", "'' is no number"),
        (PAIR, "nan,1", "not finite"),
        (PAIR, "[1, 2", "no JSON"),
        (PAIR, "[1, null]", "None is no number"),
        (PAIR, "[1, true]", "True is no number"),
        (PAIR, '{"x": 1}', "no names"),
        (NAMED, '{"x": 1}', "lacks y"),
        (TOKENS, "5", "from 0 to 4"),
        (TOKENS, "1.5", "from 0 to 4"),
        (TOKENS, "-1", "from 0 to 4"),
    ],
)
def test_a_malformed_line_is_named_and_the_next_one_is_read(
    config: SequenceModelConfig, bad: str, words: str
) -> None:
    good = "3" if config is TOKENS else "3,4"
    chunks, complaints = read(config, f"{good}\n{bad}\n{good}\n")
    assert len(chunks) == 2
    (complaint,) = complaints
    assert complaint.startswith("line 2: ")
    assert words in complaint


def test_tokens_are_whole_numbers() -> None:
    chunks, _ = read(TOKENS, "0\n4\n[2]\n", every=3)
    assert chunks == [[0, 4, 2]]


def test_nan_is_passed_on_if_wanted() -> None:
    chunks, complaints = read(PAIR, "nan,1\n", allow_nan=True)
    assert len(chunks) == 1
    assert not complaints


def test_recordings_come_in_tenths_of_a_second(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    sound = np.random.default_rng(0).uniform(-0.5, 0.5, 2500).astype(np.float32)
    soundfile.write(tmp_path / "a.wav", sound, 8000, subtype="FLOAT")
    per_second, channels, chunks = recording_samples(tmp_path / "a.wav", None)
    parts = list(chunks)
    assert (per_second, channels) == (8000, 1)
    assert [len(part) for part in parts] == [800, 800, 800, 100]
    np.testing.assert_array_equal(np.concatenate(parts)[:, 0], sound)
    (tmp_path / "b.wav").write_text("no sound")
    with pytest.raises(ValueError, match="not a recording"):
        recording_samples(tmp_path / "b.wav", None)


def test_without_the_package_listening_tells_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(ImportError, match="pip install sounddevice"):
        next(microphone_samples(16000, 1, None))
    real = builtins.__import__

    def without_library(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "sounddevice":
            raise OSError("PortAudio library not found")
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_library)
    with pytest.raises(ImportError, match="libportaudio2"):
        next(microphone_samples(16000, 1, None))


class Microphone:
    """Hears ones, as sounddevice's InputStream would."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def __enter__(self) -> Microphone:
        return self

    def __exit__(self, *_: object) -> None: ...

    def read(self, size: int) -> tuple[Any, bool]:
        return np.ones((size, self.options["channels"]), np.float32), False


def test_a_microphone_is_heard_and_a_missing_one_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    class PortAudioError(Exception): ...

    package = SimpleNamespace(InputStream=Microphone, PortAudioError=PortAudioError)
    monkeypatch.setitem(sys.modules, "sounddevice", package)
    assert next(microphone_samples(16000, 1, None)).shape == (1600, 1)
    assert next(microphone_samples(16000, 2, 50)).shape == (50, 2)

    def nothing(**_: Any) -> None:
        raise PortAudioError("Error querying device -1")

    package.InputStream = nothing
    with pytest.raises(ValueError, match="no microphone that can be used here"):
        next(microphone_samples(16000, 1, None))


def test_json_may_be_written_by_json() -> None:
    text = "\n".join(json.dumps([index / 2, -index]) for index in range(4))
    assert len(read(PAIR, text)[0]) == 4
