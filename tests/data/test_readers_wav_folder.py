from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from torchs4.data.own.readers import Layout, read_wav_folder
from torchs4.data.own.stored import EqualSequences, UnequalSequences

soundfile = pytest.importorskip("soundfile", reason="recordings are read with soundfile")

if TYPE_CHECKING:
    from pathlib import Path

    from torchs4.data.own.examples import Examples


def tone(samples: int, hertz: float = 440, rate: int = 8000, channels: int = 1) -> np.ndarray:
    signal = 0.5 * np.sin(2 * np.pi * hertz * np.arange(samples) / rate)
    return np.stack([signal / (1 + channel) for channel in range(channels)], axis=1)


def write(folder: Path, name: str, samples: np.ndarray, rate: int = 8000) -> Path:
    path = folder / "words" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, rate)
    return path


def read(folder: Path, progress: Any = None, **layout: Any) -> Examples:
    return read_wav_folder(folder / "words", Layout(**layout), folder, progress)


def test_sub_folders_are_classes(tmp_path: Path) -> None:
    for name in ("yes/b.wav", "yes/a.wav", "no/c.WAV", "no/d.flac"):
        write(tmp_path, name, tone(80, hertz=len(name) * 100))
    (tmp_path / "words/yes/notes.txt").write_text("passed over")
    (tmp_path / "words/yes/._a.wav").write_text("passed over")
    (tmp_path / "words/.hidden").mkdir()
    examples = read(tmp_path)
    assert isinstance(examples.x, EqualSequences)
    assert examples.y == ["no", "no", "yes", "yes"]
    assert examples.sample_rate == 8000
    assert examples.name_of(2) == str(tmp_path / "words/yes/a.wav")
    np.testing.assert_allclose(examples.x.pick(np.array([3])).values[0], tone(80, 900), atol=1e-4)


def test_recordings_of_unequal_length_keep_their_channels(tmp_path: Path) -> None:
    for name, samples in (("yes/a.wav", 50), ("no/b.wav", 90)):
        write(tmp_path, name, tone(samples, channels=2))
    examples = read(tmp_path)
    assert isinstance(examples.x, UnequalSequences)
    assert examples.x.counts.tolist() == [90, 50]
    picked = examples.x.pick(np.array([1])).values[0, :50]
    np.testing.assert_allclose(picked, tone(50, channels=2), atol=1e-4)


def test_recordings_are_read_once_and_again_when_they_change(tmp_path: Path) -> None:
    calls: list[str] = []
    for name in ("yes/a.wav", "no/b.wav"):
        write(tmp_path, name, tone(40))

    def told(what: str, done: int, total: int) -> None:
        calls.append(what)

    read(tmp_path, told)
    assert set(calls) == {"Looking at recordings", "Reading recordings"}
    calls.clear()
    read(tmp_path, told)
    assert not calls
    write(tmp_path, "yes/a.wav", tone(60))
    assert read(tmp_path, told).x.counts.tolist() == [40, 60]
    assert calls


def test_another_rate_is_resampled_when_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("soxr", reason="rates are changed with soxr")
    write(tmp_path, "yes/a.wav", tone(8000), 8000)
    write(tmp_path, "no/b.wav", tone(16000, rate=16000), 16000)
    examples = read(tmp_path, sample_rate=8000)
    assert examples.sample_rate == 8000
    assert isinstance(examples.x, EqualSequences)
    high, low = examples.x.pick(np.array([0, 1])).values
    # Away from the ends, where a filter meets silence.
    np.testing.assert_allclose(high[500:-500], low[500:-500], atol=1e-3)


def test_another_rate_is_refused_otherwise(tmp_path: Path) -> None:
    write(tmp_path, "no/a.wav", tone(80), 8000)
    write(tmp_path, "yes/b.wav", tone(80), 16000)
    message = r"b\.wav has 16,000 samples per second, .*a\.wav has 8,000\. Give the sample_rate"
    with pytest.raises(ValueError, match=message):
        read(tmp_path)


def test_different_channels_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "no/a.wav", tone(80))
    write(tmp_path, "yes/b.wav", tone(80, channels=2))
    with pytest.raises(ValueError, match=r"b\.wav has 2 channels, .*a\.wav has 1"):
        read(tmp_path)


def test_what_is_no_recording_is_named(tmp_path: Path) -> None:
    write(tmp_path, "no/a.wav", tone(80))
    write(tmp_path, "yes/b.wav", tone(80)).write_bytes(b"this is no sound")
    with pytest.raises(ValueError, match=r"yes/b\.wav is not a recording, or is damaged"):
        read(tmp_path)


def test_an_empty_recording_is_named(tmp_path: Path) -> None:
    write(tmp_path, "no/a.wav", tone(80))
    write(tmp_path, "yes/b.wav", tone(0))
    with pytest.raises(ValueError, match=r"yes/b\.wav has no samples"):
        read(tmp_path)


def test_empty_folders_are_named(tmp_path: Path) -> None:
    (tmp_path / "words").mkdir()
    with pytest.raises(ValueError, match="words has no sub-folders; there must be one for each class"):
        read(tmp_path)
    write(tmp_path, "no/a.wav", tone(80))
    (tmp_path / "words/yes").mkdir()
    with pytest.raises(ValueError, match=r"words/yes holds no recordings \(\.wav"):
        read(tmp_path)


@pytest.mark.parametrize("layout", [{"task": "regression"}, {"label": "y"}, {"id": "a"}, {"values": ("a",)}])
def test_only_classes_can_be_asked_for(tmp_path: Path, layout: dict[str, Any]) -> None:
    write(tmp_path, "no/a.wav", tone(80))
    with pytest.raises(ValueError, match=r"classify them|means nothing for"):
        read(tmp_path, **layout)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "no/a.wav", tone(80))
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(ModuleNotFoundError, match=r'package soundfile, .* pip install "torchs4\[data\]"'):
        read(tmp_path)
