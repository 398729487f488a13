"""Small models of every kind that can stream."""

from __future__ import annotations

from typing import Any

import torch

from torchs4 import (
    LSSLConfig,
    LSTMConfig,
    S4BlockConfig,
    S4Config,
    S4DConfig,
    SequenceModel,
    TransformerConfig,
)
from torchs4.description import Scaling

CASES: dict[str, dict[str, Any]] = {
    "s4": {},
    "s4-last": {"pooling": "last"},
    "s4-none": {"pooling": "none"},
    "s4-shares": {
        "pooling": "shares",
        "block": S4BlockConfig(layer=S4Config(state_size=8), norm="none", activation="none", mixing="none"),
    },
    "s4d-batch-norm": {"block": S4BlockConfig(layer=S4DConfig(state_size=8), norm="batch")},
    "s4d-unusual": {
        "block": S4BlockConfig(
            layer=S4DConfig(state_size=8, channels=2),
            pre_norm=False,
            activation="silu",
            mixing="linear",
            residual=False,
        )
    },
    "s4-rank-2": {"block": S4BlockConfig(layer=S4Config(state_size=8, start="legt"), activation="relu")},
    "s4-scalar-norm": {"block": S4BlockConfig(layer=S4Config(state_size=8), norm="scalar")},
    "lssl": {"block": S4BlockConfig(layer=LSSLConfig(state_size=8))},
    "lstm": {"block": S4BlockConfig(layer=LSTMConfig())},
    "transformer": {"block": S4BlockConfig(layer=TransformerConfig(heads=2))},
    "tokens": {"vocabulary_size": 11, "output_size": 11, "pooling": "none"},
    "stem": {"stem": (2, 3)},
    "stem-last": {"stem": (2, 3), "pooling": "last"},
    "stem-none": {"stem": (2, 3), "pooling": "none"},
    "scaled": {
        "pooling": "none",
        "input_scaling": Scaling((1.0, -2.0), (2.0, 0.5)),
        "output_scaling": Scaling((0.0, 1.0, 2.0, 3.0, 4.0), (1.0, 2.0, 3.0, 4.0, 5.0)),
    },
}


def build(
    case: str = "s4", seed: int = 0, dtype: torch.dtype = torch.float64, **options: Any
) -> SequenceModel:
    """The model of a case, in evaluation mode, with running statistics that mean something."""
    torch.manual_seed(seed)
    defaults = {
        "output_size": 5,
        "input_features": 2,
        "features": 4,
        "num_layers": 2,
        "block": S4BlockConfig(layer=S4Config(state_size=8)),
    }
    model = SequenceModel(**{**defaults, **CASES[case], **options}).to(dtype)
    with torch.no_grad():
        model(samples(model, 3, 50))
    return model.eval()


def samples(model: SequenceModel, batch: int, length: int, seed: int = 1) -> torch.Tensor:
    """A batch that the model reads."""
    generator = torch.Generator().manual_seed(seed)
    if model.config.vocabulary_size is not None:
        return torch.randint(model.config.vocabulary_size, (batch, length), generator=generator)
    x = torch.randn(batch, length, model.config.input_features, generator=generator)
    return x.to(next(model.parameters()).dtype)
