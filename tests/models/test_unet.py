"""The U-Net over time: causal at every position, and its coarser levels step only when a frame is due."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from conformance import assert_close, run_chunks, run_steps
from torch import nn
from torch.utils._pytree import tree_map

from torchs4 import S4BlockConfig, S4Config, UNetModel, UNetModelConfig, load_model
from torchs4.inference import StreamBatch, export_onnx
from torchs4.layers.attention import LinearTransformerConfig

if TYPE_CHECKING:
    from pathlib import Path

# A float64 kernel is within 1e-12; seven stages add a little.
TOLERANCE = 1e-11
LENGTH = 150


def density_model(**options: Any) -> UNetModel:
    torch.manual_seed(0)
    options = {"features": 4, "num_layers": 1, "growth": 1.5, **options}
    block = S4BlockConfig(layer=S4Config(state_size=4, min_step_size=0.01, max_step_size=0.2))
    return UNetModel(
        output_size=256, vocabulary_size=769, pooling="none", block=block, channels=3, image=(4, 4), **options
    ).eval()


def tokens(batch: int, length: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(769, (batch, length), generator=torch.Generator().manual_seed(seed))


def test_no_position_sees_its_future_and_all_see_their_past() -> None:
    model, x = density_model().double(), tokens(1, LENGTH)
    # One sequence for each position that is changed.
    changed = x.repeat(LENGTH, 1)
    changed[torch.arange(LENGTH), torch.arange(LENGTH)] = (x[0] + 1) % 769
    with torch.no_grad():
        difference = (model(changed) - model(x)).abs().amax(-1)
    is_before = torch.arange(LENGTH) < torch.arange(LENGTH)[:, None]
    assert difference[is_before].max() < TOLERANCE
    assert (difference.diagonal() > 1e-6).all()
    # Through every level: far behind a change, something of it is left.
    assert (difference[0, 1:] > TOLERANCE).all()


def test_a_frame_is_the_pixel_that_was_just_read() -> None:
    model, x = density_model(pools=(3,)), tokens(1, 12)
    inputs: list[torch.Tensor] = []
    level = model.stack.levels[0]
    level.gather.register_forward_pre_hook(lambda module, given: inputs.append(given[0]))
    after = []
    level.down.register_forward_hook(lambda module, given, output: after.append(output))
    with torch.no_grad():
        model(x)
    # Position 0 reads the start, positions 1, 2, 3 the channels of the first pixel.
    assert torch.equal(inputs[0][0, 1], after[0][0, 1:4].flatten())


def test_coarser_levels_step_once_in_3_12_and_48_positions() -> None:
    model, x = density_model(), tokens(2, 96)
    counts = [0] * 4
    stages = [*(level.down for level in model.stack.levels), model.stack.centre]
    for number, stage in enumerate(stages):

        def count(module: Any, given: Any, output: Any, number: int = number) -> None:
            counts[number] += 1

        stage.blocks[0].register_forward_hook(count)
    with torch.no_grad():
        run_steps(model, x)
    assert counts == [96, 32, 8, 2]


@pytest.mark.parametrize("cuts", [[1, 2, 3], [48, 96], [3, 4, 50, 149], list(range(7, 150, 7))])
def test_chunks_and_steps_agree_with_the_whole_over_all_levels(cuts: list[int]) -> None:
    model, x = density_model().double(), tokens(2, LENGTH)
    with torch.no_grad():
        whole = model(x)
        assert_close(run_chunks(model, x, cuts)[0], whole, TOLERANCE)
        assert_close(run_steps(model, x)[0], whole, TOLERANCE)


def test_streams_at_different_positions_go_on_side_by_side() -> None:
    model, x = density_model(), tokens(2, 60)
    batch: StreamBatch[str] = StreamBatch(model)
    batch.join("early")
    batch.push({"early": x[0, :5].tolist()})
    batch.join("late")
    together = batch.push({"early": x[0, 5:30].tolist(), "late": x[1, :25].tolist()})
    with torch.no_grad():
        assert_close(together["early"], model(x[:1, :30])[0, 5:], 1e-5)
        assert_close(together["late"], model(x[1:, :25])[0], 1e-5)


def test_a_batch_at_different_positions_is_refused() -> None:
    model, x = density_model(), tokens(2, 4)
    _, state = model.prefill(x)
    state["blocks"]["position"] = (torch.tensor([4, 5]),)
    with pytest.raises(ValueError, match=r"different positions \(\[4, 5\]\).*began together"):
        model.step(x[:, 0], state)


def test_another_models_state_is_refused() -> None:
    model, other = density_model(), density_model(pools=(3, 4))
    with pytest.raises(ValueError, match=r"7 entries in 'blocks'; this U-Net has 5"):
        other.step(tokens(1, 1)[:, 0], model.initial_state(1))
    with pytest.raises(ValueError, match=r"state is tuple; expected what initial_state"):
        model.stack.prefill(torch.zeros(1, 2, 4), ())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pools": ()}, "at least one coarser level"),
        ({"pools": (0,)}, "pools"),
        ({"growth": 0.5}, "growth"),
        ({"stem": (2,)}, "choose pools"),
        ({"block": S4BlockConfig(pre_norm=False)}, "leave pre_norm and residual True"),
    ],
)
def test_what_a_unet_cannot_be_is_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        UNetModelConfig(**options)


def test_it_says_that_it_has_no_graph(tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="U-Net, whose levels step at different times"):
        export_onnx(density_model(), tmp_path / "graph")


def test_the_least_number_of_weights_is_a_bound() -> None:
    for options in ({}, {"pools": (2,), "feed_forward": 3, "num_layers": 2}):
        model = density_model(**options)
        assert 0 < model.config.least_weights() < sum(weight.numel() for weight in model.parameters())


def test_a_wrong_digit_in_a_description_is_told_before_anything_is_built(tmp_path: Path) -> None:
    density_model().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    written = json.loads(path.read_text())
    for name, value, message in (
        ("num_layers", 10_000, "at least [0-9,]+ weights, but there are"),
        ("vocabulary_size", 10**9, "vocabulary_size is 1000000000, but there are"),
    ):
        wrong = {**written, "config": {**written["config"], name: value}}
        path.write_text(json.dumps(wrong))
        with pytest.raises(ValueError, match=message):
            load_model(tmp_path)


def test_neighbouring_values_start_with_similar_embeddings() -> None:
    weight = density_model(features=32).encoder.weight.detach()[1:257]
    similar = torch.nn.functional.cosine_similarity(weight[:-1], weight[1:]).mean()
    far = torch.nn.functional.cosine_similarity(weight[:-128], weight[128:]).mean()
    assert similar > 0.9
    assert far < similar - 0.3


@pytest.mark.filterwarnings(
    "ignore:`torch.jit:DeprecationWarning", "ignore:The .grad attribute of a Tensor that is not a leaf"
)
def test_it_compiles_into_one_graph() -> None:
    torch.compiler.reset()
    model, x = density_model(pools=(3, 4)), tokens(2, 40)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        assert_close(compiled(x), model(x), 1e-5)


def test_attention_in_a_unet_knows_where_a_position_is() -> None:
    torch.manual_seed(0)
    block = S4BlockConfig(layer=LinearTransformerConfig(heads=2))
    model = UNetModel(vocabulary_size=5, output_size=3, pooling="none", features=8, num_layers=1, block=block)
    model = model.double().eval()
    same = torch.ones(2, LENGTH, dtype=torch.int64)
    with torch.no_grad():
        whole = model(same)
        # Without positions a mean of equal values is that value: everything after the first frames is alike.
        far = whole[0, 2 * model.period() :]
        assert (far - far[0]).abs().amax(-1)[1:].min() > 1e-6
        assert_close(run_chunks(model, same, [1, 50, 97])[0], whole, TOLERANCE)
        assert_close(run_steps(model, same)[0], whole, TOLERANCE)


def test_streams_a_whole_period_apart_step_together() -> None:
    model, x = density_model().double(), tokens(2, 60)
    with torch.no_grad():
        _, late = model.prefill(x[:1, : model.period()])
        both = {}
        for name, values in model.initial_state(1).items():
            both[name] = tree_map(lambda old, new: torch.cat([old, new]), late[name], values)
        y, _ = model.step(x[:, 50], both)
        assert_close(y[:1], model.prefill(x[:1, [*range(48), 50]])[0][:, -1], TOLERANCE)
        assert_close(y[1:], model(x[1:, 50:51])[:, 0], TOLERANCE)


def test_a_wrapped_map_between_levels_is_called() -> None:
    class Wrapped(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return cast("torch.Tensor", 2 * self.inner(x))

    torch.manual_seed(0)
    model = UNetModel(input_features=1, output_size=1, features=8, num_layers=1, pools=(2,))
    x = torch.randn(1, 8, 1)
    before = model(x)
    level: Any = model.stack.levels[0]
    level.gather = Wrapped(level.gather)
    assert not torch.allclose(model(x), before)
