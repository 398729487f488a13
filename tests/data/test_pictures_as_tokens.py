"""Pictures as tokens: what is read, what is asked, and pixels that are none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from official_files import write_cifar, write_mnist

from torchs4.data import CIFAR10Density, MNISTDensity, picture_tokens
from torchs4.data.density import PictureSplit
from torchs4.tasks import LogisticMixture, NextToken

if TYPE_CHECKING:
    from pathlib import Path


def some_pictures(count: int, side: int, channels: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, side, side, channels), np.uint8)


def test_a_position_reads_what_came_before_and_asks_for_what_comes() -> None:
    pictures = some_pictures(2, 4, 3)
    split = PictureSplit(pictures.reshape(2, 16, 3), np.arange(2), (4, 4, 3))
    x, y, lengths, asked = split.batch(np.array([1, 0]))
    assert lengths is None
    assert asked is None
    values = pictures[[1, 0]].reshape(2, -1).astype(np.int64)
    assert torch.equal(y, torch.from_numpy(values))
    assert (x[:, 0] == 0).all()
    channel = np.arange(48) % 3
    assert torch.equal(x[:, 1:], torch.from_numpy((1 + values + 256 * channel)[:, :-1]))


def test_every_channel_has_tokens_of_its_own_and_no_two_share_one() -> None:
    every = np.broadcast_to(np.arange(256)[:, None, None, None], (256, 1, 1, 3))
    assert sorted(picture_tokens(every).flatten().tolist()) == list(range(1, 769))


def test_mirrored_pictures_keep_their_colours() -> None:
    pictures = some_pictures(8, 4, 3)
    split = PictureSplit(pictures.reshape(8, 16, 3), np.arange(8), (4, 4, 3), mirror=True)
    shown = split.batch(np.arange(8), torch.Generator().manual_seed(0)).y.numpy().reshape(pictures.shape)
    kinds = [
        (np.array_equal(now, was), np.array_equal(now, was[:, ::-1]))
        for now, was in zip(shown, pictures, strict=True)
    ]
    assert set(kinds) == {(True, False), (False, True)}
    assert np.array_equal(split.batch(np.arange(8)).y.numpy().reshape(pictures.shape), pictures)


def test_datasets_say_what_they_hold(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    write_mnist(tmp_path)
    colour = CIFAR10Density(validation_fraction=0.1).load(tmp_path)
    assert (colour.input.size, colour.input.length, colour.input.channels) == (769, 3072, 3)
    assert isinstance(colour.task, NextToken)
    assert (colour.task.output.size, colour.task.metrics[0].title) == (256, "bits per dimension")
    grey = MNISTDensity(mixtures=5, validation_fraction=0.1).load(tmp_path)
    assert (grey.input.size, grey.input.length, grey.input.image) == (257, 784, (28, 28))
    assert isinstance(grey.task, LogisticMixture)


@pytest.mark.parametrize(
    ("pictures", "message"),
    [
        (np.full((1, 2, 2, 1), 300), r"between 300 and 300; expected whole numbers from 0 to 255"),
        (np.full((1, 2, 2, 1), -1), r"between -1 and -1"),
        (np.full((1, 2, 2, 1), 0.5), r"of type float64.*\(255 \* pixels\)"),
        (np.zeros((2, 2), np.uint8), r"shape \(2, 2\); expected \(count, height, width, channels\)"),
    ],
)
def test_pixels_that_are_none_are_told(pictures: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        picture_tokens(pictures)
