import io
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from torchs4.data import pathfinder
from torchs4.data.location import DatasetMissingError
from torchs4.data.pathfinder import Pathfinder, generate

SIZES = (32, 64, 128)
# Places are whole sixteenths of a pixel.
ROUNDING = 0.1


@pytest.fixture(scope="module")
def drawn() -> dict[int, list]:
    return {size: [pathfinder._draw_picture(size, 0, number) for number in range(12)] for size in SIZES}


def everything(split) -> tuple[torch.Tensor, torch.Tensor]:
    x, y, lengths = split.batch(np.arange(len(split)))
    assert lengths is None
    return x, y


def distances(points: np.ndarray, dashes: np.ndarray) -> np.ndarray:
    """Of every point (n, 2) to every dash (m, 2, 2)."""
    start, along = dashes[:, 0], dashes[:, 1] - dashes[:, 0]
    share = np.clip(((points[:, None] - start) * along).sum(-1) / (along**2).sum(-1), 0, 1)
    return np.linalg.norm(points[:, None] - start - share[..., None] * along, axis=-1)


def gaps(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Least distance of every dash to every other one, if they do not cross."""
    there = distances(some.reshape(-1, 2), others).reshape(len(some), 2, len(others)).min(axis=1)
    back = distances(others.reshape(-1, 2), some).reshape(len(others), 2, len(some)).min(axis=1)
    return np.minimum(there, back.T)


def cross(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether any two pieces of two polylines, (n, 2) and (m, 2), cross."""

    def side(start: np.ndarray, end: np.ndarray, point: np.ndarray) -> np.ndarray:
        along, to_point = end - start, point - start
        return np.sign(along[..., 0] * to_point[..., 1] - along[..., 1] * to_point[..., 0])

    a1, a2, b1, b2 = a[:-1, None], a[1:, None], b[None, :-1], b[None, 1:]
    apart = (side(a1, a2, b1) == side(a1, a2, b2)) | (side(b1, b2, a1) == side(b1, b2, a2))
    return not apart.all()


def all_curves(picture) -> list[np.ndarray]:
    return [*picture.curves, *picture.distractors]


def clearance(size: int) -> float:
    measures = pathfinder._MEASURES[size]
    beside_disc = measures.disc_radius + measures.thickness / 2 + 1
    return max(2 * min(measures.margins) + measures.thickness, beside_disc)


def test_crossing_is_recognised_by_the_test_itself() -> None:
    line = np.array([[0.0, 0.0], [4.0, 4.0]])
    assert cross(line, np.array([[0.0, 4.0], [4.0, 0.0]]))
    assert not cross(line, np.array([[0.0, 4.0], [1.0, 3.0]]))


@pytest.mark.parametrize("size", SIZES)
def test_curves_never_touch_or_cross_each_other(drawn, size: int) -> None:
    for picture in drawn[size]:
        curves = all_curves(picture)
        for number, curve in enumerate(curves):
            for other in curves[:number]:
                assert gaps(curve, other).min() >= clearance(size) - 1e-9
                assert not cross(curve.reshape(-1, 2), other.reshape(-1, 2))


@pytest.mark.parametrize("size", SIZES)
def test_no_curve_touches_itself(drawn, size: int) -> None:
    for picture in drawn[size]:
        for curve in all_curves(picture):
            between = gaps(curve, curve)
            beyond_next = np.triu_indices(len(curve), k=2)
            assert between[beyond_next].min() >= clearance(size) - 1e-9


@pytest.mark.parametrize("size", SIZES)
def test_dashes_follow_each_other_at_the_right_distance_without_sharp_turns(drawn, size: int) -> None:
    measures = pathfinder._MEASURES[size]
    margins = set()
    for picture in drawn[size]:
        for curve in all_curves(picture):
            along = curve[:, 1] - curve[:, 0]
            assert np.linalg.norm(along, axis=1) == pytest.approx(measures.dash, abs=ROUNDING)
            directions = along / measures.dash
            turns = np.arccos(np.clip((directions[1:] * directions[:-1]).sum(axis=1), -1, 1))
            assert turns.max() < np.pi / 2 / measures.continuity + ROUNDING
            steps = curve[1:, 0] - curve[:-1, 1]
            margin = round(float(np.median(np.linalg.norm(steps, axis=1))) / 2 + 0.1)
            assert steps == pytest.approx(margin * (directions[1:] + directions[:-1]), abs=ROUNDING * 3)
            margins.add(margin)
    assert margins == set(measures.margins)


@pytest.mark.parametrize("size", SIZES)
def test_long_curves_start_a_given_distance_apart(drawn, size: int) -> None:
    for picture in drawn[size]:
        assert picture.curves.shape == (2, 14, 2, 2)
        apart = np.linalg.norm(picture.curves[0, 0, 0] - picture.curves[1, 0, 0])
        assert apart == pytest.approx(pathfinder._MEASURES[size].start_distance, abs=ROUNDING)


@pytest.mark.parametrize("size", SIZES)
def test_discs_are_at_both_ends_of_one_curve_if_and_only_if_the_label_is_1(drawn, size: int) -> None:
    marked = set()
    for number, picture in enumerate(drawn[size]):
        assert picture.label == number % 2
        starts, ends = picture.curves[:, 0, 0].tolist(), picture.curves[:, -1, 1].tolist()
        first, second = starts.index(picture.discs[0].tolist()), ends.index(picture.discs[1].tolist())
        assert (first == second) == (picture.label == 1)
        marked.add((first, second))
        apart = np.linalg.norm(picture.discs[0] - picture.discs[1])
        assert apart >= 2 * pathfinder._MEASURES[size].disc_radius + 1
    assert marked == {(0, 0), (0, 1), (1, 0), (1, 1)}


@pytest.mark.parametrize("size", SIZES)
def test_picture_shows_dashes_and_discs_and_nothing_else(drawn, size: int) -> None:
    measures = pathfinder._MEASURES[size]
    pixels = np.indices((size, size)).reshape(2, -1).T.astype(float)
    for picture in drawn[size]:
        grey = picture.image.ravel()
        curves = distances(pixels, picture.curves.reshape(-1, 2, 2)).min(axis=1)
        distractors = np.full(len(pixels), np.inf)
        if len(picture.distractors):
            distractors = distances(pixels, picture.distractors.reshape(-1, 2, 2)).min(axis=1)
        discs = np.linalg.norm(pixels[:, None] - picture.discs, axis=-1).min(axis=1)
        half_diagonal = 2**-0.5
        reach = measures.thickness / 2 + half_diagonal
        empty = (curves > reach) & (distractors > reach) & (discs > measures.disc_radius + half_diagonal)
        assert (grey[empty] == 0).all()
        assert (grey[discs < measures.disc_radius - half_diagonal] == 255).all()
        for dash in all_curves(picture):
            for middle in dash.mean(axis=1):
                assert grey[np.linalg.norm(pixels - middle, axis=1) <= 1].max() > 80
        assert 255 * 0.01 < grey.mean() < 255 * 0.2


def test_a_dash_covers_pixels_by_its_area_and_a_disc_is_round() -> None:
    image = np.zeros((9, 9), dtype=np.uint8)
    levels = pathfinder._levels(1.0)
    # From x = 1.5 to 3.5 along row 2, one pixel thick: exactly the pixels 2 and 3.
    pathfinder._draw_strokes(image, np.array([[32, 24, 32, 56]]), 8, levels)
    assert np.argwhere(image).tolist() == [[2, 2], [2, 3]]
    assert image.max() == image[2, 2] == image[2, 3] == 255
    image[:] = 0
    pathfinder._draw_strokes(image, np.array([[64, 64, 64, 64]]), 40, levels)
    assert image.sum() / 255 == pytest.approx(np.pi * 2.5**2, rel=0.02)
    assert np.array_equal(image, image.T)
    assert np.array_equal(image, image[:, ::-1])


@pytest.mark.parametrize(("size", "checksum"), [(32, 3633988596), (64, 643512728), (128, 3265049023)])
def test_pictures_stay_the_same_from_version_to_version(drawn, size: int, checksum: int) -> None:
    # Prepared files are named after a version: whoever changes the pictures must raise it.
    assert zlib.crc32(b"".join(picture.image.tobytes() for picture in drawn[size])) == checksum


def test_pictures_depend_on_seed_and_number_only(drawn) -> None:
    alone = pathfinder._draw_picture(32, 0, 7).image
    assert np.array_equal(alone, drawn[32][7].image)
    assert not np.array_equal(alone, drawn[32][5].image)
    assert not np.array_equal(alone, pathfinder._draw_picture(32, 1, 7).image)


def test_generate_gives_chunks_in_order_and_reports_progress(drawn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pathfinder, "_CHUNK", 5)
    reports = []
    chunks = list(generate(32, 12, 0, workers=1, progress=lambda *report: reports.append(report)))
    assert [len(chunk) for chunk in chunks] == [5, 5, 2]
    assert reports == [(5, 12), (10, 12), (12, 12)]
    expected = [picture.image.ravel() for picture in drawn[32]]
    assert np.array_equal(np.concatenate(chunks), expected)


@pytest.mark.slow
def test_workers_draw_the_same_pictures(drawn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pathfinder, "_CHUNK", 3)
    chunks = list(generate(32, 12, 0, workers=2))
    assert np.array_equal(np.concatenate(chunks), [picture.image.ravel() for picture in drawn[32]])


def test_load_draws_pictures_once_and_splits_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Pathfinder(count=40)
    data = config.load(tmp_path / "new")
    assert (len(data.train), len(data.validation), len(data.test)) == (32, 4, 4)
    assert (data.input.kind, data.input.size, data.input.length) == ("values", 1, 1024)
    assert data.input.image == (32, 32)
    assert data.classes == ("different curves", "same curve")
    parts = [everything(split) for split in (data.train, data.validation, data.test)]
    x, y = (torch.cat(part) for part in zip(*parts, strict=True))
    assert x.dtype == torch.float32
    assert (x.min(), x.max()) == (-1, 1)
    assert y.bincount().tolist() == [20, 20]
    seen = {
        (((image + 1) * 127.5).round().to(torch.uint8)).numpy().tobytes(): int(label)
        for image, label in zip(x, y, strict=True)
    }
    assert seen == {
        pathfinder._draw_picture(32, 0, number).image.tobytes(): number % 2 for number in range(40)
    }
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["prepared"]

    monkeypatch.setattr(pathfinder, "generate", None)
    again = config.load(tmp_path / "new")
    assert torch.equal(everything(again.test)[0], parts[2][0])


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    with pytest.raises(OSError, match=r"Cannot draw 10 Pathfinder pictures into .*taken"):
        Pathfinder(count=10).load(tmp_path / "taken")


def test_load_reports_progress(tmp_path: Path) -> None:
    reports = []
    Pathfinder(count=10).load(tmp_path, progress=lambda *report: reports.append(report))
    assert reports == [(10, 10)]


def png(pixels: np.ndarray) -> bytes:
    Image = pytest.importorskip("PIL.Image", reason="official pictures are read with pillow")
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def official_pixels(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (32, 32), dtype=np.uint8)


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Lists 2 and 10, in which numeric and alphabetic order differ, of 10 pictures each."""
    root = tmp_path / "lra_release" / "pathfinder32" / "curv_contour_length_14"
    (root / "metadata").mkdir(parents=True)
    for position, part in enumerate((2, 10)):
        (root / "imgs" / str(part)).mkdir(parents=True)
        lines = []
        for number in range(10):
            total = 10 * position + number
            (root / f"imgs/{part}/sample_{number}.png").write_bytes(png(official_pixels(total)))
            lines.append(
                f"imgs/{part} sample_{number}.png {number} {int(total % 3 == 0)} 1.0 14 4 2 0.5 1 1\n"
            )
        (root / "metadata" / f"{part}.npy").write_text("".join(lines))
    return root


def test_official_pictures_and_labels_are_read(release: Path, tmp_path: Path) -> None:
    data = Pathfinder(source="official").load(tmp_path)
    assert (len(data.train), len(data.validation), len(data.test)) == (16, 2, 2)
    x, y = (
        torch.cat(part)
        for part in zip(*map(everything, (data.train, data.validation, data.test)), strict=True)
    )
    labels = {image.numpy().tobytes(): int(label) for image, label in zip(x, y, strict=True)}
    for number in range(20):
        expected = (torch.from_numpy(official_pixels(number)).float().view(1024, 1) / 255 - 0.5) / 0.5
        assert labels[expected.numpy().tobytes()] == (number % 3 == 0)


def test_lists_are_read_in_numeric_order(release: Path, tmp_path: Path) -> None:
    Pathfinder(source="official").load(tmp_path)
    images = np.load(tmp_path / "prepared" / "pathfinder32-official-v1" / "images.npy")
    assert np.array_equal(images[0], official_pixels(0).ravel())


def test_a_missing_release_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetMissingError, match=r"pathfinder64.*metadata.*lra_release.gz"):
        Pathfinder(size=64, source="official").load(tmp_path)


def test_a_missing_picture_is_named(release: Path, tmp_path: Path) -> None:
    (release / "imgs/10/sample_3.png").unlink()
    with pytest.raises(DatasetMissingError, match=r"sample_3\.png"):
        Pathfinder(source="official").load(tmp_path)


@pytest.mark.parametrize("kept", [0, 5, 20, 40, 60, 500, -40])
def test_a_truncated_picture_is_named(release: Path, tmp_path: Path, kept: int) -> None:
    path = release / "imgs/2/sample_4.png"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"sample_4\.png is a damaged picture"):
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
        ({"source": "web"}, "source is 'web'; choose one of"),
        ({"count": 9}, "count is 9; it must be at least 10"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Pathfinder(**options)
