"""Models for data: what options and descriptions become."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchs4 import (
    LSSLConfig,
    PairModel,
    S4BlockConfig,
    S4Config,
    S4DConfig,
    SequenceModel,
    SequenceModelConfig,
)
from torchs4.configuration import with_options
from torchs4.description import InputDescription, OutputDescription, Scaling
from torchs4.models import build_model

VALUES = InputDescription("values", 3, 64)
TOKENS = InputDescription("tokens", 11, 64)
PAIRS = InputDescription("tokens", 11, 64, documents=2)


def small(**options: Any) -> SequenceModelConfig:
    return with_options(SequenceModelConfig(), **{"layers": 2, "features": 4, "state_size": 8, **options})


def test_values_are_read_by_a_linear_layer_and_tokens_by_an_embedding() -> None:
    values = build_model(small(), VALUES, OutputDescription(5))
    assert isinstance(values, SequenceModel)
    assert (values.config.input_features, values.config.vocabulary_size) == (3, None)
    assert (values.config.output_size, values.config.num_layers, values.config.features) == (5, 2, 4)
    tokens = build_model(small(pooling="last"), TOKENS, OutputDescription(2))
    assert isinstance(tokens, SequenceModel)
    assert (tokens.config.vocabulary_size, tokens.config.pooling) == (11, "last")


def test_two_documents_are_read_by_a_pair_model() -> None:
    model = build_model(small(norm="batch"), PAIRS, OutputDescription(2))
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
    block = build_model(small(layer=layer, **chosen, **inner), VALUES, OutputDescription(2)).config.block
    assert isinstance(block.layer, {"s4": S4Config, "s4d": S4DConfig, "lssl": LSSLConfig}[layer])
    assert {name: getattr(block, name) for name in chosen} == chosen
    assert {name: getattr(block.layer, name) for name in inner} == inner


def test_whoever_sees_the_future_is_told_how_not_to() -> None:
    asked = OutputDescription(11, per_position=True, causal=True)
    with pytest.raises(ValueError, match="Set bidirectional to False"):
        build_model(small(bidirectional=True), TOKENS, asked)
    # Advice that could not be followed would be none.
    fnet = with_options(SequenceModelConfig(), layer="fnet", features=4)
    with pytest.raises(ValueError, match=r"FNet cannot be causal.*'linear-transformer'"):
        build_model(fnet, TOKENS, asked)


def test_a_layers_name_is_not_its_configuration() -> None:
    with pytest.raises(ValueError, match=r"layer is 'performer'; .* such as PerformerConfig\(\)\."):
        S4BlockConfig(layer="performer")  # type: ignore[arg-type]


def test_an_answer_for_each_position_needs_no_pooling() -> None:
    model = build_model(small(), TOKENS, OutputDescription(11, per_position=True, causal=True))
    assert model(torch.ones(2, 7, dtype=torch.int64)).shape == (2, 7, 11)


def test_what_does_not_fit_the_question_is_refused() -> None:
    with pytest.raises(
        ValueError, match="one answer for each sequence is asked for: choose 'mean' or 'last'"
    ):
        build_model(small(pooling="none"), VALUES, OutputDescription(2))
    with pytest.raises(ValueError, match=r"sees the future .*Set bidirectional to False"):
        build_model(small(bidirectional=True), TOKENS, OutputDescription(11, per_position=True, causal=True))


def test_a_model_reads_and_answers_in_the_units_of_the_data() -> None:
    torch.manual_seed(0)
    plain = build_model(small(), VALUES, OutputDescription(2)).double().eval()
    given = InputDescription(
        "values", 3, 64, sample_rate=50.0, scaling=Scaling((10.0, 0.0, -5.0), (2.0, 1.0, 4.0))
    )
    asked = OutputDescription(2, names=("height", "width"), scaling=Scaling((100.0, 0.0), (5.0, 0.5)))
    scaled = build_model(small(), given, asked).double().eval()
    scaled.load_state_dict(plain.state_dict())
    x = torch.randn(4, 20, 3, dtype=torch.float64)
    shift, scale = torch.tensor([10.0, 0.0, -5.0]), torch.tensor([2.0, 1.0, 4.0])
    expected = plain(x) * torch.tensor([5.0, 0.5]) + torch.tensor([100.0, 0.0])
    torch.testing.assert_close(scaled(x * scale + shift), expected)
    assert (scaled.config.names, scaled.config.sample_rate) == (("height", "width"), 50.0)
    streamed, _ = scaled.prefill(x * scale + shift)
    torch.testing.assert_close(streamed, expected)


def test_units_and_names_are_saved_with_the_model(tmp_path: Any) -> None:
    given = InputDescription("values", 1, 64, sample_rate=8000.0, scaling=Scaling((3.0,), (2.0,)))
    model = build_model(small(stem=(2, 2)), given, OutputDescription(2, names=("yes", "no"))).eval()
    model.save_pretrained(tmp_path)
    again = SequenceModel.from_pretrained(tmp_path)
    assert again.config == model.config
    x = torch.randn(2, 30, 1)
    assert torch.equal(again(x), model(x))
