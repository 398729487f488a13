"""Examples that are shown several times, a little different each time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from torchs4.data import fingerprint, from_arrays
from torchs4.data.augmentation import Augmentation, AugmentedSplit, repeats_for

EVERYTHING = Augmentation(noise=0.1, stretch=0.2, warp=0.2, shift=0.1, gap=0.3)


def data(lengths: bool = False) -> Any:
    generator = np.random.default_rng(0)
    x: Any = generator.normal(5, 2, (10, 30, 2)).astype(np.float32)
    if lengths:
        x = [row[: 10 + 2 * place] for place, row in enumerate(x)]
    return from_arrays(x, np.arange(10) % 2, validation=0.2)


def changed(augmentation: Augmentation, seed: int = 0, lengths: bool = False, repeats: int = 1) -> Any:
    whole = data(lengths)
    split = AugmentedSplit(whole.train, augmentation, repeats, whole.input.scaling)
    rows = np.arange(len(split))
    return whole.train.batch(rows // repeats), split.batch(rows, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("kind", ["noise", "stretch", "warp", "shift", "gap"])
def test_a_change_is_drawn_from_the_generator_and_leaves_answers_alone(kind: str, lengths: bool) -> None:
    augmentation = Augmentation(**{kind: 0.3})
    plain, one = changed(augmentation, 1, lengths)
    _, same = changed(augmentation, 1, lengths)
    _, other = changed(augmentation, 2, lengths)
    assert torch.equal(one.y, plain.y)
    assert torch.equal(one.x, same.x)
    assert not torch.equal(one.x, other.x)
    assert not torch.allclose(one.x, plain.x)
    assert one.x.shape == plain.x.shape


def test_without_a_generator_examples_are_as_they_are() -> None:
    whole = data()
    split = AugmentedSplit(whole.train, EVERYTHING, 3)
    assert len(split) == 3 * len(whole.train)
    assert split.distinct == len(whole.train)
    assert torch.equal(split.batch(np.array([0, 1, 2, 3])).x, whole.train.batch(np.array([0, 0, 0, 1])).x)
    assert split.lengths is None
    with_lengths = AugmentedSplit(data(True).train, EVERYTHING, 2)
    assert with_lengths.lengths is not None
    assert with_lengths.lengths.tolist() == np.repeat(data(True).train.lengths, 2).tolist()


def test_what_an_example_is_made_of_comes_from_itself() -> None:
    plain, other = changed(Augmentation(warp=0.3, shift=0.3), lengths=True)
    for row, length in enumerate(plain.lengths.tolist()):
        real = plain.x[row, :length]
        assert (other.x[row, :length] >= real.amin(0) - 1e-5).all()
        assert (other.x[row, :length] <= real.amax(0) + 1e-5).all()


def test_a_share_is_left_as_it_is() -> None:
    plain, other = changed(Augmentation(noise=0.5, share=0.5), repeats=20)
    same = (plain.x == other.x).flatten(1).all(1).float().mean()
    assert 0.3 < float(same) < 0.7
    plain, other = changed(Augmentation(noise=0.5, share=0.0))
    assert torch.equal(plain.x, other.x)


def test_a_gap_holds_the_channels_mean() -> None:
    plain, other = changed(Augmentation(gap=0.9))
    mean = torch.tensor(data().input.scaling.shift)
    gone = (other.x != plain.x).any(-1)
    assert gone.any()
    assert torch.allclose(other.x[gone], mean.expand(int(gone.sum()), -1))


def test_another_augmentation_is_another_training() -> None:
    from dataclasses import replace

    whole = data()
    one, two = (
        fingerprint(replace(whole, train=AugmentedSplit(whole.train, Augmentation(noise=size))))
        for size in (0.1, 0.2)
    )
    weighted = replace(whole, task=replace(whole.task, weights=(1.0, 2.0)))
    assert len({one, two, fingerprint(whole), fingerprint(weighted)}) == 4


def test_repeats_fill_an_epoch() -> None:
    assert repeats_for(10, 16, 20) == 32
    assert repeats_for(10_000, 16, 20) == 1


@pytest.mark.parametrize("options", [{"noise": -1}, {"warp": 2}, {"share": 1.5}])
def test_senseless_changes_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Augmentation(**options)
