import errno
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from official_files import LRA_FOLDERS, pathfinder_pixels, png, write_pathfinder

from torchs4.data import pathfinder_pictures
from torchs4.data.location import DatasetMissingError
from torchs4.data.pathfinder import Pathfinder
from torchs4.data.pathfinder_pictures import draw_picture
from torchs4.data.sequences import Growth, split_in_three


def everything(split) -> tuple[torch.Tensor, torch.Tensor]:
    x, y, lengths, _ = split.batch(np.arange(len(split)))
    assert lengths is None
    return x, y


def test_load_draws_pictures_once_and_splits_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Pathfinder(count=40)
    data = config.load(tmp_path / "new")
    assert (len(data.train), len(data.validation), len(data.test)) == (32, 4, 4)
    assert (data.input.kind, data.input.size, data.input.length) == ("values", 1, 1024)
    assert data.input.image == (32, 32)
    assert data.task.classes == ("different curves", "same curve")
    parts = [everything(split) for split in (data.train, data.validation, data.test)]
    x, y = (torch.cat(part) for part in zip(*parts, strict=True))
    assert x.dtype == torch.float32
    assert (x.min(), x.max()) == (-1, 1)
    assert y.bincount().tolist() == [20, 20]
    seen = {
        (((image + 1) * 127.5).round().to(torch.uint8)).numpy().tobytes(): int(label)
        for image, label in zip(x, y, strict=True)
    }
    assert seen == {draw_picture(32, 0, number).image.tobytes(): number % 2 for number in range(40)}
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["prepared"]

    monkeypatch.setattr(pathfinder_pictures, "draw_pictures", None)
    again = config.load(tmp_path / "new")
    assert torch.equal(everything(again.test)[0], parts[2][0])


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    with pytest.raises(OSError, match=r"Cannot write to .*taken"):
        Pathfinder(count=10).load(tmp_path / "taken")


def test_drawing_tells_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pathfinder_pictures, "_CHUNK", 5)
    reports = []
    Pathfinder(count=12).load(tmp_path, lambda *report: reports.append(report))
    assert reports == [("Drawing Pathfinder pictures of 14 dashes", done, 12) for done in (5, 10, 12)]


def test_full_disk_is_told_with_the_space_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pathfinder_pictures, "draw_pictures", fill)
    with pytest.raises(OSError, match=r"Cannot draw 2,000 Pathfinder pictures .*No space.*they need 2 MB"):
        Pathfinder(count=2000).load(tmp_path)
    assert not (tmp_path / "prepared").exists()


@pytest.fixture
def release(tmp_path: Path) -> Path:
    return write_pathfinder(tmp_path)


@pytest.mark.parametrize("place", LRA_FOLDERS)
def test_official_pictures_and_labels_are_read(tmp_path: Path, place: str) -> None:
    write_pathfinder(tmp_path, place)
    reports = []
    data = Pathfinder(source="official").load(tmp_path, lambda *report: reports.append(report))
    assert reports == [("Reading Pathfinder pictures", done, 20) for done in range(1, 21)]
    assert (len(data.train), len(data.validation), len(data.test)) == (16, 2, 2)
    x, y = (
        torch.cat(part)
        for part in zip(*map(everything, (data.train, data.validation, data.test)), strict=True)
    )
    labels = {image.numpy().tobytes(): int(label) for image, label in zip(x, y, strict=True)}
    for number in range(20):
        expected = (torch.from_numpy(pathfinder_pixels(number)).float().view(1024, 1) / 255 - 0.5) / 0.5
        assert labels[expected.numpy().tobytes()] == (number % 3 == 0)


@pytest.mark.parametrize(
    ("level", "place"), [("easy", "curv_baseline"), ("intermediate", "curv_contour_length_9")]
)
def test_easier_official_pictures_lie_beside_the_hard_ones(tmp_path: Path, level: str, place: str) -> None:
    write_pathfinder(tmp_path, level=place)
    assert len(Pathfinder(source="official", level=level).load(tmp_path).train) == 16
    with pytest.raises(DatasetMissingError, match="curv_contour_length_14"):
        Pathfinder(source="official").load(tmp_path)


def test_levels_are_prepared_apart(tmp_path: Path) -> None:
    hard, easy = (Pathfinder(count=10, level=level).load(tmp_path) for level in ("hard", "easy"))
    assert not torch.equal(everything(hard.train)[0], everything(easy.train)[0])


def test_curves_grow_in_training_pictures_alone(tmp_path: Path) -> None:
    hard = Pathfinder(count=20).load(tmp_path)
    growing = Pathfinder(count=20, grow_from=12, grow_every=7).load(tmp_path)
    assert growing.train.growth == Growth((16, 16, 16), 7)
    assert (len(growing.train), growing.train.distinct, growing.passes) == (48, 16, 1)
    assert len(growing.train.batch(np.array([], dtype=np.int64)).y) == 0
    for one, other in ((growing.validation, hard.validation), (growing.test, hard.test)):
        assert torch.equal(everything(one)[0], everything(other)[0])
    held_out = {int(number) for part in split_in_three(20, 2, 0)[1:] for number in part}
    training = [number for number in range(20) if number not in held_out]
    rows = np.array([17, 3, 31, 0, 15, 16, 47, 32])
    batch = growing.train.batch(rows)
    for row, x, y in zip(rows, batch.x, batch.y, strict=True):
        number = training[row % 16]
        picture = draw_picture(32, 0, number, 12 + row // 16)
        assert torch.equal(
            ((x.ravel() + 1) * 127.5).round().to(torch.uint8), torch.tensor(picture.image.ravel())
        )
        assert y == number % 2
    assert torch.equal(growing.train.batch(rows[:1]).x, batch.x[:1])


def test_official_pictures_may_be_preceded_by_drawn_shorter_ones(release: Path, tmp_path: Path) -> None:
    data = Pathfinder(source="official", grow_from=13).load(tmp_path)
    assert data.train.growth is not None
    assert data.train.growth.stages[-1] == len(Pathfinder(source="official").load(tmp_path).train)


def test_lists_are_read_in_numeric_order(release: Path, tmp_path: Path) -> None:
    Pathfinder(source="official").load(tmp_path)
    images = np.load(tmp_path / "prepared" / "pathfinder32-official-v1" / "images.npy")
    assert np.array_equal(images[0], pathfinder_pixels(0).ravel())


def test_a_missing_release_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetMissingError, match=r"pathfinder64.*metadata.*`s4 data get lra`"):
        Pathfinder(size=64, source="official").load(tmp_path)


def test_a_missing_picture_is_named(release: Path, tmp_path: Path) -> None:
    (release / "imgs/10/sample_3.png").unlink()
    with pytest.raises(DatasetMissingError, match=r"sample_3\.png"):
        Pathfinder(source="official").load(tmp_path)


@pytest.mark.parametrize("kept", [0, 5, 20, 40, 60, 500, -40])
def test_a_truncated_picture_is_named(release: Path, tmp_path: Path, kept: int) -> None:
    path = release / "imgs/2/sample_4.png"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"sample_4\.png is a damaged picture.*s4 data get lra --again"):
        Pathfinder(source="official").load(tmp_path)
    assert not any((tmp_path / "prepared").glob("*"))


def test_a_picture_of_another_size_is_refused(release: Path, tmp_path: Path) -> None:
    (release / "imgs/2/sample_4.png").write_bytes(png(np.zeros((32, 31), np.uint8)))
    with pytest.raises(ValueError, match=r"sample_4\.png has 32 × 31 pixels; expected 32 × 32"):
        Pathfinder(source="official").load(tmp_path)


@pytest.mark.parametrize("line", ["imgs/2 sample_0.png 0", "imgs/2 sample_0.png 0 2", "\x93NUMPY", ""])
def test_a_damaged_list_is_named_with_its_line(release: Path, tmp_path: Path, line: str) -> None:
    path = release / "metadata" / "2.npy"
    path.write_text("imgs/2 sample_0.png 0 1\n" + line + "\n", encoding="latin-1")
    with pytest.raises(ValueError, match=r"2\.npy, line 2, is .*expected a folder"):
        Pathfinder(source="official").load(tmp_path)


def test_without_pillow_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match="pip install pillow"):
        Pathfinder(source="official").load(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 48}, "size is 48; choose one of 32, 64, 128"),
        ({"level": "simple"}, "level is 'simple'; choose one of"),
        ({"source": "web"}, "source is 'web'; choose one of"),
        ({"count": 9}, "count is 9; it must be at least 10"),
        ({"seed": -1}, "seed is -1"),
        ({"grow_from": 1}, "grow_from is 1; curves can grow from 2 to 13 dashes to the 14 of level 'hard'"),
        ({"grow_from": 6, "level": "easy"}, "from 2 to 5 dashes to the 6 of level 'easy'"),
        ({"grow_every": 0}, "grow_every is 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Pathfinder(**options)
