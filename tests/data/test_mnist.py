import gzip
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from official_files import (
    MNIST_FILES,
    MNIST_TEST_COUNT,
    MNIST_TRAIN_COUNT,
    idx_bytes,
    mnist_pictures,
    write_mnist,
)

from torchs4.data.digits import BundledDigits, load_digits
from torchs4.data.location import DatasetMissingError
from torchs4.data.mnist import MNIST, bit_reversal


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_mnist(tmp_path)
    return tmp_path


def everything(split) -> tuple[torch.Tensor, torch.Tensor]:
    x, y, lengths, _ = split.batch(np.arange(len(split)))
    assert lengths is None
    return x, y


def test_pixels_come_row_by_row_between_0_and_1(folder: Path) -> None:
    data = MNIST().load(folder)
    x, y = everything(data.test)
    assert x.dtype == torch.float32
    assert x.shape == (MNIST_TEST_COUNT, 784, 1)
    assert torch.equal(
        x.view(MNIST_TEST_COUNT, 28, 28), torch.from_numpy(mnist_pictures(MNIST_TEST_COUNT, 2)).float() / 255
    )
    assert y.dtype == torch.int64
    assert y.tolist() == list(range(MNIST_TEST_COUNT))
    assert (data.input.kind, data.input.size, data.input.length) == ("values", 1, 784)
    assert data.input.image == (28, 28)
    assert data.task.classes == tuple("0123456789")


def test_batch_gives_the_rows_asked_for(folder: Path) -> None:
    test = MNIST().load(folder).test
    x, y = everything(test)
    rows = np.array([4, 0, 4])
    assert torch.equal(test.batch(rows).x, x[rows])
    assert torch.equal(test.batch(rows).y, y[rows])


@pytest.mark.parametrize("permutation", ["none", "bit_reversal"])
def test_augmented_digits_are_moved_before_their_pixels_are_put_in_order(folder: Path, permutation) -> None:
    plain, augmenting = (MNIST(permutation, augment=augment).load(folder) for augment in (False, True))
    order = bit_reversal(784) if permutation == "bit_reversal" else np.arange(784)
    rows, backwards = np.arange(len(plain.train)), np.argsort(order)
    whole = plain.train.batch(rows).x[:, backwards].view(-1, 28, 28).numpy()
    padded = np.pad(whole, ((0, 0), (2, 2), (2, 2)), mode="symmetric")
    moved = augmenting.train.batch(rows, torch.Generator().manual_seed(0)).x[:, backwards]
    places = set()
    for number, picture in enumerate(moved.view(-1, 28, 28).numpy()):
        found = [
            (top, left)
            for top in range(5)
            for left in range(5)
            if np.array_equal(picture, padded[number, top : top + 28, left : left + 28])
        ]
        assert len(found) == 1
        places.update(found)
    assert len(places) > 5
    assert torch.equal(augmenting.train.batch(rows).x, plain.train.batch(rows).x)
    generator = torch.Generator().manual_seed(0)
    assert torch.equal(augmenting.validation.batch([0, 1], generator).x, plain.validation.batch([0, 1]).x)


def test_train_and_validation_share_out_the_training_digits(folder: Path) -> None:
    data = MNIST(validation_fraction=0.2).load(folder)
    assert (len(data.train), len(data.validation)) == (16, 4)
    x = torch.cat([everything(data.train)[0], everything(data.validation)[0]])
    seen = {image.numpy().tobytes() for image in (x * 255).round().to(torch.uint8)}
    assert seen == {image.tobytes() for image in mnist_pictures(MNIST_TRAIN_COUNT, 1)}


def test_seed_chooses_the_held_out_digits(folder: Path) -> None:
    first, again, other = (everything(MNIST(seed=seed).load(folder).validation)[0] for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_plain_files_are_read_like_packed_ones(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    plain = tmp_path_factory.mktemp("plain")
    write_mnist(plain, packed=False)
    assert torch.equal(everything(MNIST().load(plain).train)[0], everything(MNIST().load(folder).train)[0])


def test_bit_reversal_of_eight_is_the_textbook_order() -> None:
    assert bit_reversal(8).tolist() == [0, 4, 2, 6, 1, 5, 3, 7]
    assert bit_reversal(6).tolist() == [0, 4, 2, 1, 5, 3]
    assert bit_reversal(1).tolist() == [0]


def test_bit_reversal_of_784_reverses_ten_bits_and_leaves_out_what_is_beyond() -> None:
    reversed_numbers = [int(f"{number:010b}"[::-1], 2) for number in range(1024)]
    assert bit_reversal(784).tolist() == [number for number in reversed_numbers if number < 784]
    assert sorted(bit_reversal(784)) == list(range(784))


@pytest.mark.parametrize("permutation", ["bit_reversal", "random"])
def test_permuted_pixels_are_the_same_in_another_order(folder: Path, permutation) -> None:
    plain, _ = everything(MNIST().load(folder).test)
    data = MNIST(permutation=permutation).load(folder)
    permuted, _ = everything(data.test)
    order = bit_reversal(784) if permutation == "bit_reversal" else np.random.default_rng(0).permutation(784)
    assert torch.equal(permuted, plain[:, order])
    assert not torch.equal(permuted, plain)
    assert torch.equal(permuted.sort(dim=1).values, plain.sort(dim=1).values)
    assert data.input.image is None


def test_permutation_seed_chooses_the_random_order_only(folder: Path) -> None:
    first, other = (MNIST(permutation="random", permutation_seed=seed).load(folder) for seed in (0, 1))
    assert not torch.equal(everything(first.test)[0], everything(other.test)[0])
    assert torch.equal(everything(first.validation)[1], everything(other.validation)[1])


@pytest.mark.parametrize("name", MNIST_FILES)
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / "mnist" / f"{name}.gz").unlink()
    with pytest.raises(DatasetMissingError, match=rf"{name}.*s4 data get mnist"):
        MNIST().load(folder)


@pytest.mark.parametrize("name", MNIST_FILES)
def test_a_truncated_file_is_named(folder: Path, name: str) -> None:
    path = folder / "mnist" / f"{name}.gz"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match=rf"{name}.*s4 data get mnist --again"):
        MNIST().load(folder)
    assert not any((folder / "prepared").glob("*"))


@pytest.mark.parametrize(
    ("name", "numbers", "message"),
    [
        ("train-images-idx3-ubyte", np.zeros((20, 28, 27), np.uint8), r"\(20, 28, 27\); expected"),
        ("train-images-idx3-ubyte", np.zeros((0, 28, 28), np.uint8), r"\(0, 28, 28\); expected"),
        ("train-labels-idx1-ubyte", np.zeros(19, np.uint8), r"each of 20 images.*\(19,\)"),
        ("train-labels-idx1-ubyte", np.zeros(0, np.uint8), r"each of 20 images.*\(0,\)"),
        ("train-labels-idx1-ubyte", np.full(20, 10, np.uint8), "largest 10"),
    ],
)
def test_files_that_do_not_hold_digits_are_refused(
    folder: Path, name: str, numbers: np.ndarray, message: str
) -> None:
    (folder / "mnist" / f"{name}.gz").write_bytes(gzip.compress(idx_bytes(numbers)))
    with pytest.raises(ValueError, match=rf"{name}.*{message}.*s4 data get mnist --again"):
        MNIST().load(folder)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"permutation": "shuffled"}, "permutation is 'shuffled'; choose one of"),
        ({"permutation_seed": -1}, "permutation_seed is -1"),
        ({"validation_fraction": 0.0}, "validation_fraction is 0.0"),
        ({"validation_fraction": 1.5}, "validation_fraction is 1.5"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MNIST(**options)


def test_bundled_digits_are_those_of_load_digits(tmp_path: Path) -> None:
    data = BundledDigits().load(tmp_path)
    for split, expected in zip((data.train, data.validation, data.test), load_digits(), strict=True):
        x, y = everything(split)
        assert torch.equal(x, expected.images)
        assert torch.equal(y, expected.labels)
    assert data.input.image == (28, 28)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif("TORCHS4_DATA" not in os.environ, reason="TORCHS4_DATA names no folder with real data")
def test_real_files_hold_70_000_digits() -> None:
    folder = Path(os.environ["TORCHS4_DATA"])
    if not (folder / "mnist").is_dir():
        pytest.skip("TORCHS4_DATA has no mnist")
    data = MNIST().load(folder)
    assert (len(data.train), len(data.validation), len(data.test)) == (54_000, 6_000, 10_000)
    x, y = everything(data.test)
    assert y[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert y.bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert x.mean().item() == pytest.approx(0.1325, abs=1e-4)
