"""Options have names: in editors by their types, in notebooks by their signatures."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from typing import Any, get_type_hints

import pytest

from torchs4 import (
    LSSL,
    LSTM,
    S4,
    S4D,
    LSSLConfig,
    LSTMConfig,
    S4Block,
    S4BlockConfig,
    S4Config,
    S4DConfig,
    SequenceModel,
    SequenceModelConfig,
    Transformer,
    TransformerConfig,
)

MODULES: list[tuple[type, type]] = [
    (S4, S4Config),
    (S4D, S4DConfig),
    (LSSL, LSSLConfig),
    (LSTM, LSTMConfig),
    (Transformer, TransformerConfig),
    (S4Block, S4BlockConfig),
    (SequenceModel, SequenceModelConfig),
]
every_module = pytest.mark.parametrize(("module", "config"), MODULES, ids=lambda kind: kind.__name__)


@every_module
def test_what_an_editor_completes_are_the_fields_of_the_configuration(module: Any, config: Any) -> None:
    name = config.__name__.removesuffix("Config") + "Options"
    # Its other annotations name what only type checkers import.
    assert module.__init__.__annotations__["options"] == f"Unpack[{name}]"
    options = getattr(sys.modules[config.__module__], name)
    fields = {field.name for field in dataclasses.fields(config)}
    assert get_type_hints(options) == {
        field: hint for field, hint in get_type_hints(config).items() if field in fields
    }
    assert options.__required_keys__ == frozenset()


@every_module
def test_a_signature_lists_every_option_with_its_default(module: Any, config: Any) -> None:
    parameters = inspect.signature(module).parameters
    for field in dataclasses.fields(config):
        assert parameters[field.name].default == getattr(config(), field.name)
        assert parameters[field.name].kind is inspect.Parameter.KEYWORD_ONLY
    assert [name for name in list(parameters)[:4] if name != "features"][:3] == ["config", "device", "dtype"]


def test_a_subclass_shows_its_own_signature() -> None:
    class Narrow(S4):
        def __init__(self) -> None:
            super().__init__(1)

    assert list(inspect.signature(Narrow).parameters) == []
