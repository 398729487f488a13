import os
from pathlib import Path

import numpy as np
import pytest
import torch
from official_files import CIFAR_FILES, CIFAR_PER_FILE, cifar_records, write_cifar

from torchs4.data.cifar import CIFAR10
from torchs4.data.location import DatasetMissingError

MEANS, DEVIATIONS = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.247, 0.2435, 0.2616])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_cifar(tmp_path)
    return tmp_path


def everything(split, generator: torch.Generator | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    x, y, lengths, _ = split.batch(np.arange(len(split)), generator)
    assert lengths is None
    return x, y


def as_bytes(x: torch.Tensor) -> torch.Tensor:
    return ((x * DEVIATIONS + MEANS) * 255).round().to(torch.uint8)


def test_colours_come_pixel_by_pixel_and_standardised(folder: Path) -> None:
    data = CIFAR10().load(folder)
    x, y = everything(data.test)
    planes = torch.from_numpy(cifar_records(5)[:, 1:].reshape(CIFAR_PER_FILE, 3, 1024))
    assert x.dtype == torch.float32
    torch.testing.assert_close(x, (planes.transpose(1, 2).float() / 255 - MEANS) / DEVIATIONS)
    assert y.tolist() == cifar_records(5)[:, 0].tolist()
    assert (data.input.kind, data.input.size, data.input.length) == ("values", 3, 1024)
    assert data.input.image == (32, 32)
    assert data.task.classes[3] == "cat"
    assert len(data.task.classes) == 10


def test_grey_is_what_an_image_library_makes_of_the_colours(folder: Path) -> None:
    Image = pytest.importorskip("PIL.Image", reason="pillow is the oracle for grey")
    data = CIFAR10(grey=True).load(folder)
    x, _ = everything(data.test)
    assert x.shape == (CIFAR_PER_FILE, 1024, 1)
    assert data.input.size == 1
    for values, record in zip(x, cifar_records(5), strict=True):
        colours = Image.fromarray(np.ascontiguousarray(record[1:].reshape(3, 32, 32).transpose(1, 2, 0)))
        grey = torch.from_numpy(np.array(colours.convert("L"))).view(1024, 1)
        torch.testing.assert_close(values, (grey.float() - 122.6) / 61)


def test_training_pictures_come_from_all_five_files(folder: Path) -> None:
    data = CIFAR10(validation_fraction=0.25).load(folder)
    assert (len(data.train), len(data.validation), len(data.test)) == (15, 5, CIFAR_PER_FILE)
    x = torch.cat([everything(data.train)[0], everything(data.validation)[0]])
    seen = {picture.numpy().tobytes() for picture in as_bytes(x).transpose(1, 2).contiguous()}
    assert seen == {record[1:].tobytes() for number in range(5) for record in cifar_records(number)}


def test_seed_chooses_the_held_out_pictures(folder: Path) -> None:
    first, again, other = (everything(CIFAR10(seed=seed).load(folder).validation)[0] for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_augmented_pictures_are_flips_and_crops_of_mirror_padded_ones(folder: Path) -> None:
    plain, _ = everything(CIFAR10().load(folder).train)
    split = CIFAR10(augment=True).load(folder).train
    padded = np.pad(
        as_bytes(plain).view(-1, 32, 32, 3).numpy(), ((0, 0), (4, 4), (4, 4), (0, 0)), mode="symmetric"
    )
    seen = set()
    for seed in range(20):
        x, _ = everything(split, torch.Generator().manual_seed(seed))
        for number, picture in enumerate(as_bytes(x).view(-1, 32, 32, 3).numpy()):
            matches = [
                (top, left, flipped)
                for top in range(9)
                for left in range(9)
                for flipped, view in enumerate((picture, picture[:, ::-1]))
                if np.array_equal(view, padded[number, top : top + 32, left : left + 32])
            ]
            assert len(matches) == 1
            seen.update(matches)
    tops, lefts, flips = map(set, zip(*seen, strict=True))
    assert tops == set(range(9))
    assert lefts == set(range(9))
    assert flips == {0, 1}


def test_augmentation_follows_its_generator_and_pictures_differ_in_it(folder: Path) -> None:
    split = CIFAR10(augment=True, grey=True).load(folder).train
    rows = np.zeros(8, dtype=np.int64)
    first, again, other = (split.batch(rows, torch.Generator().manual_seed(seed)).x for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert len({picture.numpy().tobytes() for picture in first}) > 1


def test_only_training_pictures_drawn_with_a_generator_are_augmented(folder: Path) -> None:
    plain, augmenting = CIFAR10().load(folder), CIFAR10(augment=True).load(folder)
    generator = torch.Generator().manual_seed(0)
    assert torch.equal(everything(augmenting.train)[0], everything(plain.train)[0])
    assert not torch.equal(everything(augmenting.train, generator)[0], everything(plain.train)[0])
    assert torch.equal(everything(augmenting.validation, generator)[0], everything(plain.validation)[0])
    assert torch.equal(everything(augmenting.test, generator)[0], everything(plain.test)[0])
    assert torch.equal(everything(plain.train, generator)[0], everything(plain.train)[0])


@pytest.mark.parametrize("name", CIFAR_FILES)
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / "cifar-10-batches-bin" / name).unlink()
    with pytest.raises(DatasetMissingError, match=rf"{name}.*s4 data get cifar10"):
        CIFAR10().load(folder)


@pytest.mark.parametrize("size", [0, 1, 3072, 2 * 3073 - 1, 2 * 3073 + 1])
def test_a_file_of_a_wrong_size_is_refused(folder: Path, size: int) -> None:
    (folder / "cifar-10-batches-bin" / "data_batch_2.bin").write_bytes(bytes(size))
    with pytest.raises(
        ValueError, match=rf"data_batch_2.bin is truncated.*{size:,} bytes.*s4 data get cifar10 --again"
    ):
        CIFAR10().load(folder)
    assert not any((folder / "prepared").glob("*"))


def test_a_label_beyond_the_classes_is_refused(folder: Path) -> None:
    numbers = cifar_records(5)
    numbers[2, 0] = 10
    numbers.tofile(folder / "cifar-10-batches-bin" / "test_batch.bin")
    with pytest.raises(ValueError, match=r"test_batch.bin is damaged.*label 10.*s4 data get cifar10 --again"):
        CIFAR10().load(folder)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"validation_fraction": 1.0}, "validation_fraction is 1.0"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CIFAR10(**options)


@pytest.mark.skipif("TORCHS4_DATA" not in os.environ, reason="TORCHS4_DATA names no folder with real data")
def test_real_pictures_have_the_published_means() -> None:
    folder = Path(os.environ["TORCHS4_DATA"])
    if not (folder / "cifar-10-batches-bin").is_dir():
        pytest.skip("TORCHS4_DATA has no cifar-10-batches-bin")
    colour, grey = CIFAR10().load(folder), CIFAR10(grey=True).load(folder)
    assert (len(colour.train), len(colour.validation), len(colour.test)) == (45_000, 5_000, 10_000)
    _, labels = everything(grey.test)
    assert labels[:5].tolist() == [3, 8, 8, 0, 6]
    assert labels.bincount().tolist() == [1000] * 10
    some = np.arange(0, 45_000, 15)
    assert colour.train.batch(some).x.mean(dim=(0, 1)).abs().max() < 0.03
    assert grey.train.batch(some).x.mean().abs() < 0.03
    assert abs(grey.train.batch(some).x.std() - 1) < 0.05
