"""Configurations: short names for nested fields, and JSON that gives them back or says why not."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchs4 import S4BlockConfig, S4Config, S4DConfig, SequenceModelConfig
from torchs4.configuration import documentation, from_plain, short_options, to_plain, with_options
from torchs4.description import Scaling
from torchs4.layers import LAYERS


def test_fields_are_found_by_short_names_wherever_they_are() -> None:
    config = with_options(SequenceModelConfig(), layers=3, norm="batch", state_size=16, stem=(4, 4))
    assert config == SequenceModelConfig(
        num_layers=3, stem=(4, 4), block=S4BlockConfig(norm="batch", layer=S4Config(state_size=16))
    )


def test_what_data_decide_is_no_option() -> None:
    names = set(short_options(SequenceModelConfig()))
    assert {"layers", "features", "layer", "state_size", "norm", "stem"} <= names
    assert not {"output_size", "vocabulary_size", "names", "input_scaling", "block", "num_layers"} & names


def test_another_layer_keeps_what_it_shares_with_the_old_one() -> None:
    config = with_options(SequenceModelConfig(), state_size=16, bidirectional=True)
    changed = with_options(config, layer="s4d", min_step_size=0.01)
    layer = changed.block.layer
    assert isinstance(layer, S4DConfig)
    assert (layer.state_size, layer.bidirectional, layer.min_step_size) == (16, True, 0.01)
    assert with_options(config, layer="s4") == config


def test_fields_that_fit_only_together_change_together() -> None:
    config = with_options(SequenceModelConfig(), min_step_size=0.5, max_step_size=0.9)
    assert (config.block.layer.min_step_size, config.block.layer.max_step_size) == (0.5, 0.9)  # type: ignore[attr-defined]


def test_a_mistyped_option_gets_a_suggestion() -> None:
    with pytest.raises(ValueError, match=r"no option 'state_sise'. Did you mean 'state_size'\?"):
        with_options(SequenceModelConfig(), state_sise=4)
    with pytest.raises(ValueError, match="layer is 's7'; choose one of 's4'"):
        with_options(SequenceModelConfig(), layer="s7")


@pytest.mark.parametrize("name", list(LAYERS))
def test_every_registered_layer_has_distinct_short_options_with_explanations(name: str) -> None:
    options = short_options(with_options(SequenceModelConfig(), layer=name))
    told = {key: documentation(option.owner, option.path[-1]) for key, option in options.items()}
    undocumented = [key for key, text in told.items() if not text]
    # Names that say it all.
    assert set(undocumented) <= {"activation", "norm", "dropout", "residual", "heads"}


@settings(max_examples=50, deadline=None, database=None)
@given(
    features=st.integers(1, 10**6),
    dropout=st.floats(0, 0.99),
    stem=st.lists(st.integers(1, 9), max_size=3),
    names=st.lists(st.text(), min_size=4, max_size=4),
    scaling=st.none() | st.tuples(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6)),
    layer=st.sampled_from(sorted(LAYERS)),
)
def test_what_is_written_is_read_again(
    features: int, dropout: float, stem: list[int], names: list[str], scaling: object, layer: str
) -> None:
    config = with_options(
        SequenceModelConfig(), features=features, dropout=dropout, layer=layer, stem=tuple(stem)
    )
    config = replace(config, output_size=4, names=tuple(names))
    if scaling is not None:
        shift, scale = scaling  # type: ignore[misc]
        config = replace(config, input_scaling=Scaling((shift,), (scale,)))
    assert from_plain(SequenceModelConfig, json.loads(json.dumps(to_plain(config))), "file") == config


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"features": True}, "file: features is True; expected int"),
        ({"features": 3.5}, r"features is 3\.5; expected int"),
        ({"features": None}, "features is None; expected int"),
        ({"pooling": "max"}, "pooling is 'max'; expected Literal"),
        ({"stem": [1, "2"]}, r"stem is \(1, '2'\); expected tuple"),
        (
            {"block": {"kind": "os.system"}},
            "block is of kind 'os.system'; this version of torchs4 knows S4BlockC",
        ),
        ({"colour": 1}, "SequenceModelConfig has no field colour"),
        ({"features": -1}, "file: features is -1; it must be at least 1"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(change: dict[str, object], match: str) -> None:
    plain = {**to_plain(SequenceModelConfig()), **change}
    with pytest.raises(ValueError, match=match):
        from_plain(SequenceModelConfig, plain, "file")


@dataclass(frozen=True)
class Twin:
    """A field whose name is taken."""

    features: int = 1


@dataclass(frozen=True)
class Outer:
    """Two fields of one name."""

    features: int = 1
    inner: Twin = field(default_factory=Twin)


def test_two_options_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="Both Outer and Twin have an option 'features'"):
        short_options(Outer())
