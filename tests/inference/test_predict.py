"""New data in whatever form people have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from torchs4.data import from_arrays
from torchs4.inference import classify, predict
from torchs4.models import build_model
from torchs4.recipes import network

if TYPE_CHECKING:
    from torchs4 import SequenceModelConfig

SMALL = network(layers=1, features=4, state_size=4)


def model_for(data: Any, config: SequenceModelConfig = SMALL) -> Any:
    torch.manual_seed(0)
    return build_model(config, data.input, data.task.output).eval()


def test_arrays_and_lists_of_any_lengths_get_what_each_gets_alone() -> None:
    x = [np.random.default_rng(n).normal(size=5 + n) for n in range(20)]
    model = model_for(from_arrays(x, ["up", "down"] * 10))
    together = predict(model, x, batch_size=7)
    for signal, scores in zip(x, together, strict=True):
        alone = model(torch.tensor(signal, dtype=torch.float32)[None, :, None])[0].detach().numpy()
        np.testing.assert_allclose(scores, alone, atol=1e-5)
    assert classify(model, x) == [model.config.names[int(scores.argmax())] for scores in together]
    equal = np.stack([signal[:5] for signal in x])
    assert [len(scores) for scores in predict(model, equal)] == [2] * 20


def test_texts_become_the_numbers_that_the_model_was_trained_on() -> None:
    texts = ["a fine film", "dull", "fine", "a dull film"] * 5
    data = from_arrays(texts, ["good", "bad", "good", "bad"] * 5, validation=(texts, ["good", "bad"] * 10))
    model = model_for(data)
    batch = data.validation.batch(np.arange(4))
    expected = model(batch.x, lengths=batch.lengths).detach().numpy()
    np.testing.assert_allclose(np.stack(predict(model, texts[:4])), expected, atol=1e-6)
    # A character that no training text has is "unknown".
    assert len(classify(model, ["Ω", "film"])) == 2


def test_values_of_each_position_come_without_padding() -> None:
    x = [np.arange(3.0 + n) for n in range(12)]
    model = model_for(from_arrays(x, [np.cumsum(row) for row in x]))
    assert [row.shape for row in predict(model, x)] == [(3 + n, 1) for n in range(12)]
    with pytest.raises(ValueError, match="does not tell classes"):
        classify(model, x)


def test_texts_for_a_model_of_signals_are_refused() -> None:
    model = model_for(from_arrays(np.zeros((10, 5)) + np.arange(10)[:, None], ["a", "b"] * 5))
    with pytest.raises(ValueError, match="x holds texts, but this model was not trained on texts"):
        predict(model, ["hello"])
