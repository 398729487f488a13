"""Layers from outside the package: the table they join, and what saving and loading do without it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch

from torchs4 import S4D, S4BlockConfig, S4DConfig, SequenceModel, SequenceModelConfig
from torchs4.configuration import short_options, with_options
from torchs4.layers import LAYERS, register_layer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True)
class OwnConfig:
    """A layer that nobody registered yet."""

    modes: int = 4

    def build(self, features: int) -> S4D:
        return S4D(features, state_size=2 * self.modes)


@pytest.fixture(autouse=True)
def table() -> Iterator[dict[str, type]]:
    """The table of layers, afterwards as it was before."""
    before = dict(LAYERS)
    yield LAYERS
    LAYERS.clear()
    LAYERS.update(before)


def refuses(*pieces: str) -> Any:
    """A ValueError whose text has these pieces in this order."""
    return pytest.raises(ValueError, match="(?s)" + ".*".join(map(re.escape, pieces)))


def build_model() -> SequenceModel:
    return SequenceModel(features=4, num_layers=1, block=S4BlockConfig(layer=OwnConfig())).eval()


def test_the_package_registers_its_own_layers() -> None:
    # S4 comes first in every list, then its kin, then what it is compared with.
    assert list(LAYERS)[:5] == ["s4", "s4d", "lssl", "lstm", "transformer"]
    assert len(LAYERS) == 5 + 13


def test_a_registered_layer_is_saved_and_loaded(tmp_path: Path) -> None:
    register_layer("own")(OwnConfig)
    model, x = build_model(), torch.randn(2, 9, 1)
    model.save_pretrained(tmp_path)
    loaded = SequenceModel.from_pretrained(tmp_path)
    assert loaded.config.block.layer == OwnConfig()
    assert torch.equal(loaded(x), model(x))


def test_an_unregistered_layer_trains_but_is_refused_when_saving(tmp_path: Path) -> None:
    model = build_model()
    model(torch.randn(2, 9, 1)).sum().backward()
    with refuses("layer is a OwnConfig", "could not be loaded again", "registered first"):
        model.save_pretrained(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_file_with_a_layer_that_is_not_registered_says_what_to_do(
    tmp_path: Path, table: dict[str, type]
) -> None:
    register_layer("own")(OwnConfig)
    build_model().save_pretrained(tmp_path)
    del table["own"]
    with refuses("config.json", "layer is of kind 'OwnConfig'", "import the module that does it"):
        SequenceModel.from_pretrained(tmp_path)


def test_a_registered_layer_can_be_chosen_by_name_and_shows_its_options() -> None:
    register_layer("own")(OwnConfig)
    config = with_options(SequenceModelConfig(), layer="own", modes=3)
    assert config.block.layer == OwnConfig(modes=3)
    assert short_options(config)["modes"].owner is OwnConfig


@pytest.mark.parametrize("name", list(LAYERS))
def test_every_layers_options_have_names_of_their_own(name: str) -> None:
    config = with_options(SequenceModelConfig(), layer=name)
    assert short_options(config)["layer"].value == name


@pytest.mark.parametrize("name", list(LAYERS))
def test_another_layer_keeps_what_both_know(name: str) -> None:
    config = with_options(SequenceModelConfig(), bidirectional=True)
    assert with_options(config, layer=name).block.layer.bidirectional


def test_a_cell_of_a_notebook_may_run_twice() -> None:
    register_layer("own")(OwnConfig)
    assert register_layer("own")(OwnConfig) is OwnConfig


def test_a_name_that_is_taken_is_refused() -> None:
    with refuses("'s4d' is taken by S4DConfig", "choose another"):
        register_layer("s4d")(OwnConfig)


def test_a_second_name_for_the_same_configuration_is_refused() -> None:
    with refuses("named S4DConfig is registered already"):
        register_layer("own")(S4DConfig)


def test_what_is_no_configuration_is_refused() -> None:
    with refuses("no layer's configuration", "build(features)"):
        register_layer("own")(S4D)


def test_a_configuration_that_can_change_is_refused() -> None:
    @dataclass
    class Loose:
        def build(self, features: int) -> S4D:
            return S4D(features)

    with refuses("Loose can be changed", "frozen=True"):
        register_layer("own")(Loose)
