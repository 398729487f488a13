"""Pictures that a density draws: as likely as it says, whoever else is drawn beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from torchs4 import S4BlockConfig, S4Config, SequenceModel, UNetModel
from torchs4.data import picture_tokens
from torchs4.inference import Sampling, complete, draw

SHAPE = (4, 4, 3)


def a_model(mixtures: int = 0, **options: Any) -> UNetModel:
    torch.manual_seed(0)
    settings: dict[str, Any] = {
        "output_size": 3 * mixtures or 256,
        "vocabulary_size": 769,
        "features": 8,
        "num_layers": 1,
        "block": S4BlockConfig(layer=S4Config(state_size=4)),
        "pooling": "none",
        "pools": (3, 4),
        "image": SHAPE[:2],
        "channels": 3,
        "mixtures": mixtures,
    }
    model = UNetModel(**{**settings, **options}).eval()
    with torch.no_grad():
        # Untrained, every value would be about as likely.
        model.head.weight.mul_(4)
    return model


@pytest.mark.parametrize("mixtures", [0, 3])
def test_the_likeliest_picture_is_the_one_that_forward_finds_likeliest(mixtures: int) -> None:
    model = a_model(mixtures)
    picture = draw(model, 2, sampling=Sampling(temperature=0))
    assert picture.shape == (2, *SHAPE)
    assert picture.dtype == np.uint8
    tokens = picture_tokens(picture)
    with torch.no_grad():
        logits = model.value_logits(model(torch.cat([torch.zeros(2, 1).long(), tokens[:, :-1]], dim=1)))
    assert np.array_equal(logits.argmax(-1).numpy(), picture.reshape(2, -1))


def test_a_seed_gives_the_same_picture_alone_and_among_others() -> None:
    model = a_model()
    together = draw(model, 3, seed=5)
    assert not np.array_equal(together[0], together[1])
    for number in range(3):
        assert np.array_equal(draw(model, 1, seed=5 + number)[0], together[number])
    assert not np.array_equal(draw(model, 1), draw(model, 1))


@pytest.mark.parametrize("rows", [None, 0, 1, 3])
def test_completions_keep_what_is_given_and_draw_the_rest(rows: int | None) -> None:
    model = a_model()
    pictures = np.random.default_rng(0).integers(0, 256, (2, *SHAPE), np.uint8)
    told: list[tuple[int, int]] = []
    done = complete(model, pictures, rows, seed=1, progress=lambda *report: told.append(report))
    kept = 2 if rows is None else rows
    assert np.array_equal(done[:, :kept], pictures[:, :kept])
    assert not np.array_equal(done[:, kept:], pictures[:, kept:])
    left = (4 - kept) * 12
    assert told == [(number, left) for number in range(1, left + 1)]


def test_what_cannot_be_drawn_is_told() -> None:
    model, pictures = a_model(), np.zeros((1, *SHAPE), np.int64)
    with pytest.raises(ValueError, match=r"SequenceModel does not draw pictures"):
        draw(SequenceModel().eval(), 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="count"):
        draw(model, 0)
    with pytest.raises(ValueError, match=r"this model draws \(count, 4, 4, 3\)"):
        complete(model, pictures[..., :1])
    with pytest.raises(ValueError, match="nothing would be left to draw"):
        complete(model, pictures, 4)
    with pytest.raises(ValueError, match="between 0 and 256; expected whole numbers from 0 to 255"):
        complete(model, pictures + np.arange(48).reshape(SHAPE) % 2 * 256)
