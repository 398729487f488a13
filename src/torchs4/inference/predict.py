"""What a trained model says about new data, in whatever form people have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from torchs4.data.characters import UNKNOWN, encode_texts
from torchs4.data.own.examples import Examples
from torchs4.data.own.inputs import read_inputs
from torchs4.data.own.stored import UnequalSequences
from torchs4.data.sequences import offsets_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torchs4.models import SequenceModel


def predict(
    model: SequenceModel, x: Any, *, batch_size: int = 32, rate: float = 1.0
) -> list[NDArray[np.float32]]:
    """The model's outputs for each sequence: numbers, or for models without pooling a row for each position.

    x: as `torchs4.data.from_arrays` takes it: an array, a list of sequences of any lengths, or of texts.
    Values come in the data's own units; for classes they are scores, the largest of which `classify` names.
    """
    is_tokens = model.config.vocabulary_size is not None
    stored: Any = read_inputs(Examples(x, None), is_tokens)
    if isinstance(stored, list):
        stored = _encoded(stored, model)
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    outputs: list[NDArray[np.float32]] = []
    try:
        with torch.inference_mode():
            for start in range(0, len(stored), batch_size):
                picked = stored.pick(np.arange(start, min(start + batch_size, len(stored))))
                inputs, lengths = torch.from_numpy(picked.values).to(device), picked.lengths
                real = None if lengths is None else torch.as_tensor(lengths).to(device)
                result = model(inputs, lengths=real, rate=rate).float().cpu().numpy()
                if model.config.pooling == "none" and lengths is not None:
                    outputs += [row[:length] for row, length in zip(result, lengths, strict=True)]
                else:
                    outputs += list(result)
    finally:
        model.train(was_training)
    return outputs


def classify(model: SequenceModel, x: Any, *, batch_size: int = 32, rate: float = 1.0) -> list[str]:
    """The most probable class of each sequence, by its name."""
    names = model.config.names
    if not names or model.config.output_scaling is not None or model.config.pooling == "none":
        raise ValueError(
            "This model does not tell classes of whole sequences; predict(model, x) gives what it does tell."
        )
    return [names[int(scores.argmax())] for scores in predict(model, x, batch_size=batch_size, rate=rate)]


def _encoded(texts: list[str], model: SequenceModel) -> UnequalSequences:
    """Texts as the numbers that the model was trained on."""
    names = model.config.input_names
    if model.config.vocabulary_size is None or not names:
        raise ValueError("x holds texts, but this model was not trained on texts.")
    numbers = {ord(name): number for number, name in enumerate(names) if len(name) == 1}
    table = np.full(0x110000, UNKNOWN, np.int64)
    table[list(numbers)] = list(numbers.values())
    tokens, lengths = encode_texts(texts, table)
    return UnequalSequences(tokens, offsets_of(lengths))
