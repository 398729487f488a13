"""What a language model has that other sequence models have not; the rest is in the conformance sweep."""

from pathlib import Path
from typing import Any

import pytest
import torch

from torchs4 import LanguageModel, LanguageModelConfig, S4BlockConfig, S4Config, load_model
from torchs4.description import InputDescription, OutputDescription
from torchs4.inference import Sampling, generate
from torchs4.models import BlockStack, build_model
from torchs4.training.room import require_room

V = 30


def a_model(**options: Any) -> LanguageModel:
    torch.manual_seed(0)
    block = S4BlockConfig(layer=S4Config(state_size=4), dropout=options.pop("dropout", 0.0))
    settings = {"vocabulary_size": V, "cutoffs": (6, 15), "features": 8, "num_layers": 4, "block": block}
    return LanguageModel(**{**settings, **options})


def parameters(layers: int) -> int:
    block = S4BlockConfig(layer=S4Config(state_size=64, per_feature=True))
    cutoffs = (20_000, 40_000, 200_000)
    sizes = {"vocabulary_size": 267_735, "features": 1024, "num_layers": layers}
    model = LanguageModel(block=block, cutoffs=cutoffs, **sizes, device="meta")
    return sum(parameter.numel() for parameter in model.parameters())


def test_the_papers_model_has_249_million_parameters() -> None:
    # Sixteen equal groups: two of them tell what all have, without a gigabyte of weights.
    two, four = parameters(2), parameters(4)
    assert round((two + 15 * (four - two)) / 1e6) == 249


def test_predictions_are_normalised_and_losses_are_taken_from_them() -> None:
    model = a_model().double().eval()
    x, targets = torch.randint(V, (2, 2, 13)).unbind()
    prediction = model(x)
    torch.testing.assert_close(prediction.exp().sum(-1), torch.ones(2, 13, dtype=torch.float64))
    expected = -prediction.gather(-1, targets[..., None])[..., 0]
    torch.testing.assert_close(model.token_losses(x, targets), expected)


def test_losses_in_chunks_are_those_of_the_whole() -> None:
    model = a_model().double().eval()
    x, targets = torch.randint(V, (2, 2, 13)).unbind()
    expected, state, found = model.token_losses(x, targets), None, []
    for start, stop in ((0, 5), (5, 6), (6, 13)):
        losses, state = model.prefill_losses(x[:, start:stop], targets[:, start:stop], state)
        found.append(losses)
    torch.testing.assert_close(torch.cat(found, dim=1), expected)


def test_losses_of_padded_sequences_are_those_of_each_alone() -> None:
    model = a_model().double().eval()
    x, targets = torch.randint(V, (2, 2, 13)).unbind()
    alone = model.token_losses(x[1:, :7], targets[1:, :7])
    together = model.token_losses(x, targets, lengths=torch.tensor([13, 7]))
    torch.testing.assert_close(together[1:, :7], alone)


def test_dropout_acts_on_embedding_and_softmax_input() -> None:
    model = a_model(dropout=0.5, feed_forward=0).train()
    # Blocks that give back what they get: what is left is dropped at the ends.
    for block in model.stack.blocks:
        torch.nn.init.zeros_(block.mixing.weight)
        torch.nn.init.zeros_(block.mixing.bias)
    seen: list[torch.Tensor] = []
    model.stack.register_forward_hook(lambda _, given, got: seen.extend((given[0], got)))
    read: list[torch.Tensor] = []
    narrowed = model.table._narrowed
    model.table._narrowed = lambda hidden: read.append(hidden) or narrowed(hidden)  # type: ignore[method-assign]
    model.token_losses(torch.randint(V, (4, 50)), torch.randint(V, (4, 50)))
    for dropped in (seen[0], read[0]):
        assert 0.4 < float((dropped == 0).float().mean()) < 0.6


def test_without_feed_forwards_it_is_a_plain_stack() -> None:
    assert isinstance(a_model(feed_forward=0).stack, BlockStack)


def test_a_step_of_a_group_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    model = a_model().eval()
    calls = []
    for group in model.stack.groups:
        prepare = group._fused_steps.prepare
        monkeypatch.setattr(
            group._fused_steps,
            "prepare",
            lambda *given, prepare=prepare: calls.append(prepare(*given)) or calls[-1],
        )
    with torch.inference_mode():
        model.step(torch.tensor([3]), model.initial_state(1))
    assert len(calls) == 2
    assert None not in calls


def test_it_learns_a_text_by_heart() -> None:
    model = a_model(features=16, cutoffs=(15,), division=2).train()
    text = torch.arange(2 * V) * 7 % V
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        loss = model.token_losses(text[None, :-1], text[None, 1:]).mean()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.3
    (written,) = generate(model.eval(), [text[:5].tolist()], 8, sampling=Sampling(temperature=0))
    assert written == text[5:13].tolist()


def test_it_writes() -> None:
    (text,) = generate(a_model().eval(), [[1, 2, 3]], 12, seed=0)
    assert len(text) == 12
    assert max(text) < V


def test_what_it_writes_is_what_its_steps_hold_likely() -> None:
    model, generator = a_model().double().eval(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        _, state = model.prefill(torch.tensor([[3, 7]]).repeat(20_000, 1))
        now = torch.full((20_000,), 20)
        tokens, after = model.write(now, state, generator)
        likely, expected_after = model.step(now, state)
        shares = tokens.bincount(minlength=V) / len(tokens)
        assert ((shares - likely[0].exp()).abs() <= 5 * (likely[0].exp() / len(tokens)).sqrt()).all()
        torch.testing.assert_close(after, expected_after)
    with pytest.raises(ValueError, match="state"):
        model.write(now, {})


def test_it_is_built_for_texts_and_for_nothing_else() -> None:
    config = LanguageModelConfig(features=8, num_layers=2, cutoffs=(6,))
    names = tuple(map(str, range(V)))
    given = InputDescription("tokens", V, 64)
    asked = OutputDescription(V, per_position=True, causal=True, names=names)
    model = build_model(config, given, asked)
    assert isinstance(model, LanguageModel)
    assert model.config.names == names
    with pytest.raises(ValueError, match=r"predicts the next one.*SequenceModelConfig"):
        build_model(config, given, OutputDescription(2))
    sees_the_future = LanguageModelConfig(
        features=8, num_layers=2, block=S4BlockConfig(layer=S4Config(bidirectional=True))
    )
    with pytest.raises(ValueError, match="S4Config sees the future"):
        build_model(sees_the_future, given, asked)


def test_targets_are_as_many_and_of_the_same_kind_as_what_is_read() -> None:
    model, x = a_model().eval(), torch.randint(V, (2, 5))
    for losses in (model.token_losses, model.prefill_losses):
        with pytest.raises(ValueError, match=r"targets have shape \(2, 4\) and x \(2, 5\).*tokens\[:, 1:\]"):
            losses(x, x[:, 1:])
        with pytest.raises(ValueError, match="Tokens are between 0 and 30, but the model knows 0 to 29"):
            losses(x, torch.tensor([0, V, 0, 0, 0]).expand(2, 5))
        with pytest.raises(ValueError, match=r"targets has dtype torch.float32.*targets.long\(\)"):
            losses(x, x.float())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vocabulary_size", V),
        ("features", 8),
        ("num_layers", 4),
        ("feed_forward", 4),
        ("state_size", 4),
        ("channels", 1),
    ],
)
def test_sizes_that_the_weights_do_not_hold_are_refused_before_anything_is_built(
    tmp_path: Path, name: str, value: int
) -> None:
    a_model().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    text = path.read_text()
    if name == "vocabulary_size":
        text = text.replace(f'"output_size": {V}', '"output_size": 3000000000')
    assert f'"{name}": {value}' in text
    path.write_text(text.replace(f'"{name}": {value}', f'"{name}": 3000000000'))
    with pytest.raises(ValueError, match="another model"):
        load_model(tmp_path)


def test_a_model_that_cannot_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="Make it smaller"):
        require_room(LanguageModelConfig(features=2**17, num_layers=64))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"cutoffs": (9, 3)}, "rise"),
        ({"pooling": "mean"}, "every position"),
        ({"stem": (2,)}, "every token"),
        ({"output_size": 7}, "tokens that it reads"),
        ({"vocabulary_size": None}, "vocabulary_size"),
        ({"block": S4BlockConfig(pre_norm=False)}, "pre_norm"),
        ({"feed_forward": -1}, "feed_forward"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        a_model(**options)
