"""Tokens that models write: greedy ones are the convolution's, drawn ones keep to their limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from cases import build
from hypothesis import given, settings
from hypothesis import strategies as st

from torchs4 import LSTMConfig, S4BlockConfig, S4Config, TransformerConfig, UNetModel
from torchs4.inference import Sampling, generate, generate_each, write
from torchs4.inference.writing import encode, unknown_parts

if TYPE_CHECKING:
    from torchs4 import SequenceModel

GREEDY = Sampling(temperature=0)
PROMPTS = [[3, 1, 4], [1], [5, 9, 2, 6, 5, 3, 5, 8, 9, 7], [10, 10]]
NAMES = ("<padding>", "<unknown>", "<end of text>", *"abcdefg ")


def sharp(model: SequenceModel) -> SequenceModel:
    """A model that is sure of its predictions: small ones that learned nothing hardly differ by token."""
    with torch.no_grad():
        model.head.weight.mul_(30)  # type: ignore[operator, union-attr]
    return model


def by_convolution(model: SequenceModel, prompt: list[int], length: int) -> list[int]:
    tokens = list(prompt)
    with torch.inference_mode():
        for _ in range(length):
            tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("layer", [S4Config(state_size=8), LSTMConfig(), TransformerConfig(heads=2)])
def test_greedy_tokens_are_the_likeliest_of_the_convolution(layer: Any) -> None:
    model = sharp(build("tokens", block=S4BlockConfig(layer=layer)))
    written = generate(model, PROMPTS, 25, sampling=GREEDY)
    assert written == [by_convolution(model, prompt, 25) for prompt in PROMPTS]
    assert len({token for text in written for token in text}) > 2


def test_greedy_behind_a_stem_too() -> None:
    model = sharp(build("tokens", stem=(3,)))
    assert generate(model, PROMPTS, 9, sampling=GREEDY) == [by_convolution(model, p, 9) for p in PROMPTS]


def test_a_seed_repeats_and_texts_of_a_batch_are_those_alone() -> None:
    model = build("tokens")
    written = generate(model, PROMPTS, 30, seed=7)
    assert written == generate(model, PROMPTS, 30, seed=7)
    assert written != generate(model, PROMPTS, 30, seed=8)
    for number, prompt in enumerate(PROMPTS):
        assert generate(model, [prompt], 30, seed=7 + number) == [written[number]]


def test_the_global_generator_is_left_alone() -> None:
    model = build("tokens")
    before = torch.get_rng_state()
    generate(model, PROMPTS, 3)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_stop_token_ends_a_text() -> None:
    model = build("tokens")
    free = generate(model, PROMPTS, 40, seed=1)
    stopped = generate(model, PROMPTS, 40, seed=1, stop=(4,))
    for text, whole in zip(stopped, free, strict=True):
        end = whole.index(4) + 1 if 4 in whole else len(whole)
        assert text == whole[:end]
    assert any(len(text) < 40 for text in stopped)


def test_tokens_come_as_they_are_drawn() -> None:
    steps = generate_each(build("tokens"), PROMPTS, 1_000_000_000, seed=0)
    first = [next(steps) for _ in range(3)]
    assert [set(step) for step in first] == [{0, 1, 2, 3}] * 3


@settings(deadline=None)
@given(
    st.lists(st.floats(-5, 5), min_size=1, max_size=9),
    st.none() | st.integers(1, 12),
    st.none() | st.floats(0.01, 1.0),
    st.floats(0.01, 3),
)
def test_limits_keep_the_likeliest(
    values: list[float], top_k: int | None, top_p: float | None, temperature: float
) -> None:
    logits = torch.tensor(values, dtype=torch.float64)
    kept = Sampling(temperature, top_k, top_p).probabilities(logits)
    free = Sampling(temperature).probabilities(logits)
    assert float(kept.sum()) == pytest.approx(1)
    chosen = kept > 0
    assert chosen.any()
    assert not top_k or int(chosen.sum()) <= top_k
    if not chosen.all():
        assert free[chosen].min() >= free[~chosen].max() - 1e-12
    if top_p is not None and top_k is None:
        assert free[chosen].sum() >= top_p - 1e-9
        # Without the least likely of them it would not suffice.
        assert free[chosen].sum() - free[chosen].min() < top_p + 1e-9


def test_forbidden_tokens_are_never_drawn() -> None:
    sampling = Sampling(forbidden=(0, 1, 2, 3, 4, 5))
    written = generate(build("tokens"), PROMPTS, 50, seed=0, sampling=sampling)
    assert {token for text in written for token in text} <= {6, 7, 8, 9, 10}


def test_a_model_of_characters_writes_text() -> None:
    model = build("tokens", names=NAMES)
    text = list(write(model, "abba and x", 60, seed=0))
    assert text
    assert set(text) <= set("abcdefg ")
    assert list(write(model, "abba and x", 60, seed=0)) == text
    assert list(write(model, "", 60, seed=3)) != text
    # The first end of text ends it.
    assert min(len(list(write(model, "a", 60, seed=seed))) for seed in range(5)) < 60


WORDS = ("the", "<unk>", "cat", ".", "<eos>", "sat", "'s", "mat", "=", ",", "on")


def test_a_model_of_words_writes_words_and_lines() -> None:
    model = build("tokens", names=WORDS)
    parts = list(write(model, "the cat", 80, seed=0))
    assert len(parts) == 80
    known = set(WORDS) - {"<unk>", "<eos>"}
    assert "\n" in parts
    assert {part.strip(" ") for part in parts} == known | {"\n"}
    # A line begins without a space.
    text = "the cat" + "".join(parts)
    assert "\n " not in text
    assert all(set(line.split()) <= known for line in text.split("\n"))
    assert not next(write(model, "", 1, seed=0)).startswith(" ")


def test_a_prompt_of_words_is_read_as_people_write() -> None:
    model = build("tokens", names=WORDS)
    assert [WORDS[token] for token in encode(model, "the cat's mat, sat.\nthe dog")] == [
        *("the", "cat", "'s", "mat", ",", "sat", ".", "<eos>", "the", "<unk>")
    ]
    assert unknown_parts(model, "a dog, the dog <unk> cat") == ["a", "dog"]
    assert unknown_parts(build("tokens", names=NAMES), "abba xyx") == ["x", "y"]


def test_models_that_do_not_write_are_refused() -> None:
    with pytest.raises(ValueError, match="reads values"):
        generate(build("s4"), [[1]], 3)
    with pytest.raises(ValueError, match=r"does not predict the next token.*for a whole sequence"):
        generate(build("tokens", pooling="mean"), [[1]], 3)
    # What a model is for comes before whether it could stream.
    block = S4BlockConfig(layer=S4Config(state_size=8, bidirectional=True))
    with pytest.raises(ValueError, match="does not predict the next token"):
        generate(build("tokens", pooling="mean", block=block), [[1]], 3)
    pictures = {"vocabulary_size": 257, "output_size": 256, "features": 8, "pools": (4,), "image": (4, 4)}
    with pytest.raises(ValueError, match=r"draws pictures.*s4 sample"):
        generate(UNetModel(pooling="none", num_layers=1, **pictures).eval(), [[1]], 3)
    with pytest.raises(ValueError, match="does not predict the next token"):
        generate(build("tokens", output_size=3), [[1]], 3)
    with pytest.raises(ValueError, match="reads values"):
        write(build("s4"), "a", 3)
    with pytest.raises(ValueError, match="no characters"):
        write(build("tokens"), "a", 3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temperature": -1.0}, "temperature is -1"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_k": 0}, "top_k"),
        ({"top_p": 0.0}, "top_p is 0"),
        ({"top_p": 1.5}, "top_p is 1.5"),
    ],
)
def test_sampling_options_are_checked(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Sampling(**options)


def test_prompts_and_lengths_are_checked() -> None:
    model = build("tokens")
    with pytest.raises(ValueError, match="Prompt 1 is empty"):
        generate(model, [[1], []], 3)
    with pytest.raises(ValueError, match="length"):
        generate(model, [[1]], 0)
    with pytest.raises(ValueError, match="knows 0 to 10"):
        generate(model, [[11]], 3)
    with torch.no_grad():
        model.head.weight.fill_(float("nan"))  # type: ignore[operator, union-attr]
    with pytest.raises(ValueError, match="hold NaN"):
        generate(model, [[1]], 3)


@pytest.mark.parametrize(
    "sampling",
    [Sampling(), Sampling(0.5, top_k=3), Sampling(top_p=0.7), Sampling(forbidden=(0, 4)), Sampling(0)],
    ids=["plain", "top_k", "top_p", "forbidden", "likeliest"],
)
def test_rows_are_drawn_as_often_as_they_are_likely(sampling: Sampling) -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0, 0.5], [3.0, 0.0, 0.0, 0.0, 3.0]])
    generators = [torch.Generator().manual_seed(row % 1000) for row in range(4000)]
    drawn = sampling.draw_each(logits.repeat_interleave(2000, 0), generators).view(2, -1)
    # Equal rows with equal generators draw the same.
    assert torch.equal(drawn[:, :1000], drawn[:, 1000:])
    for row, tokens in zip(logits, drawn, strict=True):
        if sampling.temperature == 0:
            assert (tokens == row.argmax()).all()
            continue
        allowed = row.double().index_fill(0, torch.tensor(sampling.forbidden, dtype=torch.int64), -torch.inf)
        expected = sampling.probabilities(allowed)
        counted = tokens.bincount(minlength=5) / len(tokens)
        # Five deviations of a share of 1,000 draws.
        assert (counted - expected).abs().max() < 5 * 0.5 / 1000**0.5
        assert (counted[expected == 0] == 0).all()


def test_rows_without_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="its weights or state hold NaN"):
        Sampling().draw_each(torch.tensor([[0.0, 1.0], [0.0, torch.nan]]), [torch.Generator()] * 2)
