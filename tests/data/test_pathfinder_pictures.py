import zlib

import numpy as np
import pytest

from torchs4.data import pathfinder_pictures
from torchs4.data.pathfinder_pictures import draw_picture, draw_pictures

SIZES = (32, 64, 128)
# Places are whole sixteenths of a pixel.
ROUNDING = 0.1


@pytest.fixture(scope="module")
def drawn() -> dict[int, list]:
    return {size: [draw_picture(size, 0, number) for number in range(12)] for size in SIZES}


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
    measures = pathfinder_pictures._MEASURES[size]
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
    measures = pathfinder_pictures._MEASURES[size]
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
        assert apart == pytest.approx(pathfinder_pictures._MEASURES[size].start_distance, abs=ROUNDING)


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
        assert apart >= 2 * pathfinder_pictures._MEASURES[size].disc_radius + 1
    assert marked == {(0, 0), (0, 1), (1, 0), (1, 1)}


@pytest.mark.parametrize("size", SIZES)
def test_picture_shows_dashes_and_discs_and_nothing_else(drawn, size: int) -> None:
    measures = pathfinder_pictures._MEASURES[size]
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
    levels = pathfinder_pictures._levels(1.0)
    # From x = 1.5 to 3.5 along row 2, one pixel thick: exactly the pixels 2 and 3.
    pathfinder_pictures._draw_strokes(image, np.array([[32, 24, 32, 56]]), 8, levels)
    assert np.argwhere(image).tolist() == [[2, 2], [2, 3]]
    assert image.max() == image[2, 2] == image[2, 3] == 255
    image[:] = 0
    pathfinder_pictures._draw_strokes(image, np.array([[64, 64, 64, 64]]), 40, levels)
    assert image.sum() / 255 == pytest.approx(np.pi * 2.5**2, rel=0.02)
    assert np.array_equal(image, image.T)
    assert np.array_equal(image, image[:, ::-1])


@pytest.mark.parametrize(("size", "checksum"), [(32, 3633988596), (64, 643512728), (128, 3265049023)])
def test_pictures_stay_the_same_from_version_to_version(drawn, size: int, checksum: int) -> None:
    # Prepared files are named after a version: whoever changes the pictures must raise it.
    assert zlib.crc32(b"".join(picture.image.tobytes() for picture in drawn[size])) == checksum


def test_pictures_depend_on_seed_and_number_only(drawn) -> None:
    alone = draw_picture(32, 0, 7).image
    assert np.array_equal(alone, drawn[32][7].image)
    assert not np.array_equal(alone, drawn[32][5].image)
    assert not np.array_equal(alone, draw_picture(32, 1, 7).image)


@pytest.mark.parametrize("dashes", [2, 6, 9, 14])
@pytest.mark.parametrize("size", SIZES)
def test_curves_have_as_many_dashes_as_asked_for(size: int, dashes: int) -> None:
    for number in (0, 1):
        picture = draw_picture(size, 0, number, dashes)
        assert picture.curves.shape == (2, dashes, 2, 2)
        starts = [curve[0, 0].tolist() for curve in picture.curves]
        ends = [curve[-1, 1].tolist() for curve in picture.curves]
        start, end = picture.discs.tolist()
        assert (starts.index(start) == ends.index(end)) == bool(picture.label)
    chunk = next(draw_pictures(size, 2, 0, dashes))
    assert np.array_equal(chunk[0], draw_picture(size, 0, 0, dashes).image.ravel())


def test_chunks_come_in_order(drawn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pathfinder_pictures, "_CHUNK", 5)
    chunks = list(draw_pictures(32, 12, 0))
    assert [len(chunk) for chunk in chunks] == [5, 5, 2]
    assert np.array_equal(np.concatenate(chunks), [picture.image.ravel() for picture in drawn[32]])


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_draw_the_same_pictures(drawn, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pathfinder_pictures, "_CHUNK", 1)
    chunks = list(draw_pictures(64, 12, 0, threads=threads))
    assert np.array_equal(np.concatenate(chunks), [picture.image.ravel() for picture in drawn[64]])


def test_no_more_is_drawn_ahead_than_threads_need(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []

    def draw(size: int, seed: int, numbers: range, dashes: int) -> np.ndarray:
        begun.append(numbers)
        return np.zeros((len(numbers), size**2), np.uint8)

    monkeypatch.setattr(pathfinder_pictures, "_CHUNK", 1)
    monkeypatch.setattr(pathfinder_pictures, "_draw_chunk", draw)
    pictures = draw_pictures(32, 100, 0, threads=2)
    for taken in range(1, 11):
        next(pictures)
        assert len(begun) <= taken + 4
    pictures.close()
    assert len(begun) <= 14


def test_an_error_of_a_thread_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("no room for pictures")

    monkeypatch.setattr(pathfinder_pictures, "_draw_chunk", fail)
    with pytest.raises(MemoryError, match="no room for pictures"):
        list(draw_pictures(32, 10, 0))


def test_measures_that_leave_no_room_do_not_run_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pathfinder_pictures, "_lay_out", lambda *_: 0)
    with pytest.raises(RuntimeError, match="No Pathfinder picture of size 32 found in 100,000 layouts"):
        draw_picture(32, 0, 0)
