"""Options: what they become, and which are refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from torchs4 import LSSLConfig, S4Config, S4DConfig, SequenceModel
from torchs4.data import BundledDigits, InputDescription
from torchs4.models import PairModel
from torchs4.training.config import BudgetOptions, ModelOptions, OptimizerOptions, TrainingConfig

VALUES = InputDescription("values", 3, 64)
TOKENS = InputDescription("tokens", 11, 64)
PAIRS = InputDescription("tokens", 11, 64, documents=2)

REFUSED = [
    (ModelOptions, {"layer": "lstm"}, "layer is 'lstm'; choose one of 's4', 's4d', 'lssl'"),
    (ModelOptions, {"layers": 0}, "layers is 0; it must be at least 1"),
    (ModelOptions, {"features": -1}, "features is -1; it must be at least 1"),
    (ModelOptions, {"state_size": 0}, "state_size"),
    (ModelOptions, {"dropout": 1.0}, "dropout is 1.0"),
    (ModelOptions, {"norm": "group"}, "norm is 'group'; choose one of"),
    (ModelOptions, {"mixing": "mlp"}, "mixing is 'mlp'; choose one of"),
    (ModelOptions, {"pooling": "none"}, "a classifier needs one prediction: choose 'mean' or 'last'"),
    (ModelOptions, {"min_step_size": 0.1, "max_step_size": 0.01}, "step_size"),
    (OptimizerOptions, {"lr": -0.1}, "lr is -0.1; it must be at least 0"),
    (OptimizerOptions, {"ssm_lr": math.nan}, "ssm_lr is nan; it must be at least 0"),
    (OptimizerOptions, {"batch_size": 0}, "batch_size is 0; it must be at least 1"),
    (OptimizerOptions, {"patience": 0}, "patience is 0; it must be at least 1"),
    (OptimizerOptions, {"schedule": "linear"}, "schedule is 'linear'; choose one of 'cosine'"),
    (OptimizerOptions, {"accumulate": 5, "batch_size": 4}, "accumulate is 5, but a batch has only 4"),
    (BudgetOptions, {"epochs": 0}, "epochs is 0; it must be at least 1"),
    (BudgetOptions, {"max_steps": -1}, "max_steps is -1; it must be at least 0"),
    (TrainingConfig, {"data": BundledDigits(), "seed": -1}, "seed is -1; it must be at least 0"),
    (TrainingConfig, {"data": BundledDigits(), "precision": "half"}, "precision is 'half'; choose one of"),
]


@pytest.mark.parametrize(
    ("kind", "options", "match"), REFUSED, ids=[f"{kind.__name__}-{'-'.join(o)}" for kind, o, _ in REFUSED]
)
def test_a_bad_value_is_refused_with_what_is_allowed(kind: Any, options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        kind(**options)


def small(**options: Any) -> ModelOptions:
    return ModelOptions(**{"layers": 2, "features": 4, "state_size": 8, **options})


def test_values_are_read_by_a_linear_layer_and_tokens_by_an_embedding() -> None:
    values = small().build(VALUES, 5)
    assert isinstance(values, SequenceModel)
    assert (values.config.input_features, values.config.vocabulary_size) == (3, None)
    assert (values.config.output_size, values.config.num_layers, values.config.features) == (5, 2, 4)
    tokens = small(pooling="last").build(TOKENS, 2)
    assert isinstance(tokens, SequenceModel)
    assert (tokens.config.vocabulary_size, tokens.config.pooling) == (11, "last")


def test_two_documents_are_read_by_a_pair_model() -> None:
    model = small(norm="batch").build(PAIRS, 2)
    assert isinstance(model, PairModel)
    assert (model.config.vocabulary_size, model.config.output_size) == (11, 2)
    assert model.config.block.norm == "batch"


@pytest.mark.parametrize("layer", ["s4", "s4d", "lssl"])
def test_every_option_reaches_the_block(layer: str) -> None:
    chosen = {
        "norm": "batch",
        "pre_norm": False,
        "activation": "relu",
        "dropout": 0.3,
        "tied_dropout": True,
        "mixing": "linear",
    }
    inner = {"state_size": 6, "bidirectional": True, "min_step_size": 1e-4, "max_step_size": 0.2}
    block = small(layer=layer, **chosen, **inner).build(VALUES, 2).config.block
    assert isinstance(block.layer, {"s4": S4Config, "s4d": S4DConfig, "lssl": LSSLConfig}[layer])
    assert {name: getattr(block, name) for name in chosen} == chosen
    assert {name: getattr(block.layer, name) for name in inner} == inner
