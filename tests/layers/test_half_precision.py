"""A model that is cast to half precision keeps its state spaces: their weights stay in float32."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchs4 import LSSL, S4, S4D, S4BlockConfig, S4DConfig, SequenceModel

# Inputs, outputs and the skip are rounded, to 8 and 11 digits.
TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 2e-3}
LENGTH = 300

BUILDERS: dict[str, Any] = {
    "s4": lambda **options: S4(6, state_size=16, **options),
    "s4d": lambda **options: S4D(6, state_size=16, **options),
    "s4d, one system per feature": lambda **options: S4D(6, state_size=16, per_feature=True, **options),
    "lssl": lambda **options: LSSL(6, state_size=16, **options),
}
every_layer = pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)
every_dtype = pytest.mark.parametrize("dtype", TOLERANCE)


@every_dtype
@every_layer
def test_a_cast_layer_does_what_it_did_whole_in_chunks_and_in_steps(build: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layer, x = build(), torch.randn(2, LENGTH, 6)
    with torch.no_grad():
        expected = layer(x)
        layer.to(dtype)
        half = x.to(dtype)
        whole = layer(half)
        first, state = layer.prefill(half[:, :211])
        rest = []
        for position in range(211, LENGTH):
            y, state = layer.step(half[:, position], state)
            rest.append(y)
    streamed = torch.cat([first, torch.stack(rest, dim=1)], dim=1)
    assert whole.dtype == streamed.dtype == dtype
    for y in (whole, streamed):
        assert (y.float() - expected).abs().max() <= TOLERANCE[dtype] * expected.abs().max()


@every_layer
def test_only_the_systems_own_weights_stay_wide_and_keep_their_digits(build: Any) -> None:
    layer = build()
    before = {name: weight.detach().clone() for name, weight in layer.ssm_parameters().items()}
    layer(torch.randn(1, 5, 6)).sum().backward()
    layer.bfloat16()
    assert layer.D.dtype == layer.D.grad.dtype == torch.bfloat16
    for name, weight in layer.ssm_parameters().items():
        assert weight.dtype == weight.grad.dtype == torch.float32, name
        assert torch.equal(weight, before[name]), name
    layer.double()
    assert {weight.dtype for weight in layer.parameters()} == {torch.float64}
    layer.half()
    assert {weight.dtype for weight in layer.ssm_parameters().values()} == {torch.float32}


@every_layer
def test_however_half_precision_was_asked_for(build: Any) -> None:
    layers = [build(dtype=torch.bfloat16)]
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        layers.append(build())
    finally:
        torch.set_default_dtype(default)
    for layer in layers:
        assert layer.D.dtype == torch.bfloat16
        assert {weight.dtype for weight in layer.ssm_parameters().values()} == {torch.float32}
        assert layer(torch.randn(1, 5, 6, dtype=torch.bfloat16)).isfinite().all()


def test_a_cast_model_is_loaded_as_it_was_saved(tmp_path: Any) -> None:
    torch.manual_seed(0)
    block = S4BlockConfig(layer=S4DConfig(state_size=8))
    model = SequenceModel(output_size=3, features=6, num_layers=2, block=block).to(torch.bfloat16).eval()
    model.save_pretrained(tmp_path)
    loaded = SequenceModel.from_pretrained(tmp_path)
    kinds = {name: weight.dtype for name, weight in model.state_dict().items()}
    assert kinds == {name: weight.dtype for name, weight in loaded.state_dict().items()}
    assert set(kinds.values()) == {torch.bfloat16, torch.float32}
    x = torch.randn(2, 50, 1, dtype=torch.bfloat16)
    assert torch.equal(loaded(x), model(x))
