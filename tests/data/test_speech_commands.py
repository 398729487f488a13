import os
import wave
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from official_files import TEST_SPEAKER, VALIDATION_SPEAKER, noise, write_recordings, write_wav

from torchs4.data.location import DatasetMissingError
from torchs4.data.mfcc import mfcc
from torchs4.data.sequences import SequenceData, Split
from torchs4.data.speech_commands import SC10_WORDS, SpeechCommands

OFFICIAL = SpeechCommands(split="official")


def clip_numbers(split: Split) -> list[int]:
    x = split.batch(np.arange(len(split))).x[:, :, 0].double()
    return ((x[:, 0] - x[:, 1]) / (x[:, 2] - x[:, 1]) * 100).round().int().tolist()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_recordings(tmp_path)


def load(root: Path, config: SpeechCommands = OFFICIAL) -> SequenceData:
    return config.load(root.parents[1])


def test_official_lists_decide_the_splits(root: Path) -> None:
    data = load(root)
    assert clip_numbers(data.train) == [n for n in range(40) if n % 4 in (0, 3)]
    assert clip_numbers(data.validation) == list(range(1, 40, 4))
    assert clip_numbers(data.test) == list(range(2, 40, 4))


def test_labels_are_the_places_of_the_words(root: Path) -> None:
    data = load(root)
    assert data.task.classes == ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
    labels = data.test.batch(np.array([3, 0, 9])).y
    assert labels.dtype == torch.int64
    assert labels.tolist() == [3, 0, 9]


def test_raw_samples_are_standardised_by_training_clips_only(root: Path) -> None:
    data = load(root)
    training = np.stack([noise(number) for number in clip_numbers(data.train)])
    batch = data.test.batch(np.array([7, 2]))
    expected = (np.stack([noise(30), noise(10)]) - training.mean()) / training.std()
    scaling = data.input.scaling
    assert scaling is not None
    assert batch.x.abs().max() <= 1
    assert batch.x.dtype == torch.float32
    assert batch.lengths is None
    assert batch.x.shape == (2, 16_000, 1)
    read = (batch.x[..., 0].numpy() - scaling.shift[0]) / scaling.scale[0]
    np.testing.assert_allclose(read, expected, atol=2e-6)
    assert (data.input.kind, data.input.size, data.input.length) == ("values", 1, 16_000)
    assert data.input.sample_rate == 16_000


def test_coefficients_are_standardised_one_by_one_by_training_clips_only(root: Path) -> None:
    data = load(root, SpeechCommands(form="mfcc", split="official"))
    training = [n for n in range(40) if n % 4 in (0, 3)]
    samples = torch.from_numpy(np.stack([noise(n) for n in [*training, 10]])) / 2**15
    coefficients = mfcc(samples.double())
    mean = coefficients[:-1].mean(dim=(0, 1))
    deviation = coefficients[:-1].std(dim=(0, 1), correction=0)
    batch = data.test.batch(np.array([2]))
    assert batch.x.dtype == torch.float32
    assert batch.x.shape == (1, 161, 20)
    torch.testing.assert_close(batch.x[0].double(), coefficients[-1], rtol=0, atol=1e-4)
    scaling = data.input.scaling
    assert scaling is not None
    assert scaling.shift == pytest.approx(mean.tolist(), rel=1e-5, abs=1e-6)
    assert scaling.scale == pytest.approx(deviation.tolist(), rel=1e-5)
    assert (data.input.kind, data.input.size, data.input.length) == ("values", 20, 161)


@pytest.mark.parametrize("form", ["raw", "mfcc"])
def test_only_training_clips_drawn_with_a_generator_are_moved_and_made_louder(root: Path, form: Any) -> None:
    plain, moving = (load(root, replace(OFFICIAL, form=form, augment=augment)) for augment in (False, True))
    rows = np.arange(6)
    before = plain.train.batch(rows).x
    assert torch.equal(moving.train.batch(rows).x, before)
    for split in ("validation", "test"):
        other = getattr(moving, split).batch(rows, torch.Generator().manual_seed(0)).x
        assert torch.equal(other, getattr(plain, split).batch(rows).x)
    moved = moving.train.batch(rows, torch.Generator().manual_seed(0)).x
    again = moving.train.batch(rows, torch.Generator().manual_seed(0)).x
    assert torch.equal(moved, again)
    length = before.shape[1]
    farthest = round(0.1 * length)
    for clip, source in zip(moved, before, strict=True):
        # The middle is somewhere near the middle, up to a factor.
        middle = clip[2 * farthest : length - 2 * farthest]
        places = [
            shift
            for shift in range(-farthest, farthest + 1)
            if _is_multiple(middle, source[2 * farthest + shift :][: len(middle)], form == "raw")
        ]
        assert len(places) == 1


def _is_multiple(clip: torch.Tensor, source: torch.Tensor, by_any_factor: bool) -> bool:
    factor = float((clip * source).sum() / source.square().sum()) if by_any_factor else 1.0
    return 0.5 <= factor <= 2.0 and torch.allclose(clip, factor * source, atol=1e-4)


def test_random_split_is_complete_and_without_overlap(root: Path) -> None:
    data = load(root, SpeechCommands())
    parts = [clip_numbers(split) for split in (data.train, data.validation, data.test)]
    assert [len(part) for part in parts] == [28, 6, 6]
    assert sorted(number for part in parts for number in part) == list(range(40))
    for split, numbers in zip((data.train, data.validation, data.test), parts, strict=True):
        assert split.batch(np.arange(len(split))).y.tolist() == [number // 4 for number in numbers]


def test_random_split_depends_on_the_seed_alone(root: Path) -> None:
    first = clip_numbers(load(root, SpeechCommands(seed=1)).test)
    assert clip_numbers(load(root, SpeechCommands(seed=1)).test) == first
    assert clip_numbers(load(root, SpeechCommands(seed=2)).test) != first


def test_clips_that_are_not_one_second_long_are_left_out(root: Path) -> None:
    write_wav(root / "yes" / "a0_nohash_1.wav", noise(0)[:15_999])
    write_wav(root / "go" / "a0_nohash_1.wav", np.append(noise(0), 0))
    write_wav(root / "no" / f"{TEST_SPEAKER}_nohash_0.wav", noise(6)[:8000])
    data = load(root)
    assert clip_numbers(data.train) == [n for n in range(40) if n % 4 in (0, 3)]
    assert clip_numbers(data.test) == [n for n in range(2, 40, 4) if n != 6]


def test_other_words_and_other_files_are_not_read(root: Path) -> None:
    (root / "bird").mkdir()
    (root / "bird" / "a0_nohash_0.wav").write_bytes(b"no recording")
    (root / "yes" / "._a0_nohash_0.wav").write_bytes(b"no recording")
    (root / "yes" / "notes.txt").write_bytes(b"no recording")
    assert len(load(root).train) == 20


def test_recordings_are_read_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = SpeechCommands(form="mfcc")
    before = load(root, config).train.batch(np.arange(5))

    def refuse(*_: Any) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(wave, "open", refuse)
    monkeypatch.setattr("torchs4.data.speech_commands.mfcc", refuse)
    again = load(root, config).train.batch(np.arange(5))
    assert torch.equal(before.x, again.x)
    assert torch.equal(before.y, again.y)
    assert len(load(root).train) == 20


def test_clips_that_arrive_later_are_seen(root: Path) -> None:
    assert len(load(root).train) == 20
    write_wav(root / "up" / "e4_nohash_0.wav", noise(77))
    assert 77 in clip_numbers(load(root).train)


def test_a_batch_may_be_changed_without_changing_the_data(root: Path) -> None:
    for form in ("raw", "mfcc"):
        split = load(root, SpeechCommands(form=form)).train  # type: ignore[arg-type]
        expected = split.batch(np.array([0])).x.clone()
        split.batch(np.array([0])).x.zero_()
        assert torch.equal(split.batch(np.array([0])).x, expected)


def test_other_version_has_its_own_folder_and_arrays(root: Path) -> None:
    assert len(load(root).test) == 10
    other = root.with_name("speech_commands_v0.01")
    root.rename(other)
    write_wav(other / "yes" / f"{TEST_SPEAKER}_nohash_0.wav", noise(88))
    assert clip_numbers(load(other, SpeechCommands(version="0.01", split="official")).test)[0] == 88


def test_missing_data_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(DatasetMissingError, match=r"speech_commands_v0\.02 .*s4 data get speech-commands"):
        SpeechCommands().load(tmp_path)


def test_messages_name_the_version_that_is_wanted(root: Path) -> None:
    config = SpeechCommands(version="0.01")
    other = root.with_name("speech_commands_v0.01")
    root.rename(other)
    (other / "go" / "a0_nohash_0.wav").write_bytes(b"no recording")
    with pytest.raises(ValueError, match=r"speech-commands-v0\.01 --again"):
        load(other, config)
    (other / "testing_list.txt").unlink()
    with pytest.raises(DatasetMissingError, match=r"`s4 data get speech-commands-v0\.01`"):
        load(other, config)
    other.rename(other.with_name("elsewhere"))
    with pytest.raises(DatasetMissingError, match=r"`s4 data get speech-commands-v0\.01`"):
        load(other, config)


def test_reading_tells_how_far_it_is(root: Path) -> None:
    reports: list[tuple[str, int, int]] = []
    SpeechCommands(form="mfcc").load(root.parents[1], lambda *report: reports.append(report))
    assert reports == [
        *(("Reading recordings", done, 40) for done in range(1, 41)),
        ("Computing mel coefficients", 1, 1),
    ]


def test_missing_version_points_to_the_one_that_is_there(root: Path) -> None:
    with pytest.raises(DatasetMissingError, match=r"Choose version 0\.02, which is there"):
        load(root, SpeechCommands(version="0.01"))


@pytest.mark.parametrize("name", ["validation_list.txt", "testing_list.txt", "stop"])
@pytest.mark.parametrize("split", ["random", "official"])
def test_incomplete_data_names_what_is_missing(root: Path, name: str, split: Any) -> None:
    (root / name).rename(root / "elsewhere")
    with pytest.raises(DatasetMissingError, match=name):
        load(root, SpeechCommands(split=split))


def test_listed_clip_must_be_there(root: Path) -> None:
    (root / "off" / f"{TEST_SPEAKER}_nohash_0.wav").unlink()
    with pytest.raises(ValueError, match=r"testing_list.txt names off/c2_nohash_0.wav, which is not in"):
        load(root, SpeechCommands())


def test_no_clip_may_be_on_both_lists(root: Path) -> None:
    with (root / "testing_list.txt").open("a") as testing:
        testing.write(f"left/{VALIDATION_SPEAKER}_nohash_0.wav\n")
    with pytest.raises(
        ValueError, match=r"left/b1_nohash_0.wav is on the validation list and on the testing"
    ):
        load(root)


def test_file_cut_anywhere_is_refused_and_nothing_is_kept(root: Path) -> None:
    path = root / "yes" / "a0_nohash_0.wav"
    whole = path.read_bytes()
    for kept in (*range(0, 46), 1000, len(whole) - 2, len(whole) - 1):
        path.write_bytes(whole[:kept])
        with pytest.raises(
            ValueError, match=r"a0_nohash_0\.wav .*cut short.*s4 data get speech-commands --again`\."
        ):
            load(root)
    assert not list(root.parents[1].rglob("*.npy"))


@pytest.mark.parametrize(
    ("place", "size"),
    [(16, size) for size in (1, 15, 17, 31_999, 2**31, 2**32 - 1)]
    + [(40, size) for size in (40_001, 2**31, 2**32 - 1)],
)
def test_parts_of_wrong_sizes_are_refused_in_words(root: Path, place: int, size: int) -> None:
    path = root / "yes" / "a0_nohash_0.wav"
    whole = path.read_bytes()
    path.write_bytes(whole[:place] + size.to_bytes(4, "little") + whole[place + 4 :])
    # An empty pair of brackets would explain nothing.
    with pytest.raises(
        ValueError, match=r"a0_nohash_0\.wav (is|has) (?!.*\(\)).*s4 data get speech-commands --again"
    ):
        load(root)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 8000}, "1 channels of 16 bits at 8,000 Hz"),
        ({"channels": 2}, "2 channels of 16 bits at 16,000 Hz"),
        ({"width": 1}, "1 channels of 8 bits at 16,000 Hz"),
    ],
)
def test_other_kinds_of_recordings_are_refused(root: Path, options: dict[str, int], message: str) -> None:
    write_wav(root / "go" / "a0_nohash_0.wav", noise(0), **options)
    with pytest.raises(
        ValueError, match=rf"go/a0_nohash_0\.wav has {message}; expected 1 channel of 16 bits"
    ):
        load(root)


def test_file_that_is_no_recording_is_refused(root: Path) -> None:
    (root / "go" / "a0_nohash_0.wav").write_bytes(b"<html>404</html>" * 9)
    with pytest.raises(ValueError, match=r"go/a0_nohash_0\.wav is not a WAV file"):
        load(root)


def test_folder_of_short_clips_is_refused(root: Path) -> None:
    for path in root.glob("*/*.wav"):
        write_wav(path, noise(0)[:100])
    with pytest.raises(ValueError, match=r"None of the 40 clips .* has 16,000 samples"):
        load(root)


def test_empty_split_is_refused(root: Path) -> None:
    (root / "testing_list.txt").write_text("")
    with pytest.raises(ValueError, match=r"\(30, 10, 0\) clips"):
        load(root)


def test_too_few_clips_to_split_are_refused(root: Path) -> None:
    for path in sorted(root.glob("*/*.wav"))[3:]:
        path.unlink()
    for name in ("validation_list.txt", "testing_list.txt"):
        (root / name).write_text("")
    with pytest.raises(ValueError, match="3 clips are too few to hold out 15% of them"):
        load(root, SpeechCommands())


def test_silent_training_clips_are_refused(root: Path) -> None:
    for path in root.glob("*/*.wav"):
        write_wav(path, np.zeros(16_000))
    with pytest.raises(ValueError, match="silent"):
        load(root)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "spectrum"}, "form is 'spectrum'; choose one of 'raw', 'mfcc'"),
        ({"version": "0.03"}, "version is '0.03'; choose one of '0.01', '0.02'"),
        ({"split": "speaker"}, "split is 'speaker'; choose one of 'random', 'official'"),
        ({"seed": -1}, "seed is -1; it must be at least 0"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SpeechCommands(**options)


def speakers_of(clips: set[str]) -> set[str]:
    return {Path(clip).name.split("_nohash_")[0] for clip in clips}


def test_real_recordings() -> None:
    folder = Path(os.environ.get("TORCHS4_DATA", ""))
    root = folder / "SpeechCommands" / "speech_commands_v0.01"
    if "TORCHS4_DATA" not in os.environ or not root.is_dir():
        pytest.skip("TORCHS4_DATA does not point to a folder with SpeechCommands/speech_commands_v0.01")
    data = SpeechCommands(version="0.01", split="official").load(folder)
    clips = {f"{path.parent.name}/{path.name}" for word in SC10_WORDS for path in (root / word).glob("*.wav")}
    listed = [
        set((root / name).read_text().split()) & clips for name in ("validation_list.txt", "testing_list.txt")
    ]
    parts = [clips - listed[0] - listed[1], *listed]
    for split, part in zip((data.train, data.validation, data.test), parts, strict=True):
        # The lists also hold clips that are too short to be used.
        assert 0.8 * len(part) < len(split) <= len(part)
    train, validation, test = map(speakers_of, parts)
    assert not train & validation
    assert not train & test
    assert not validation & test
    batch = data.train.batch(np.arange(0, len(data.train), 10))
    assert batch.y.bincount(minlength=10).min() > 0
    scaling = data.input.scaling
    assert scaling is not None
    assert batch.x.abs().max() <= 1
    assert abs(batch.x.mean() - scaling.shift[0]) < 0.05 * scaling.scale[0]
    assert 0.8 < batch.x.std() / scaling.scale[0] < 1.2
