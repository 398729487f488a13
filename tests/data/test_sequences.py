from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchs4.data.sequences import (
    ArraySplit,
    TokenSplit,
    hold_out,
    offsets_of,
    require_validation_fraction,
    split_in_three,
)

# Tokens of text i are i + 1, so that a batch shows which text went where.
LENGTHS = (3, 64, 65, 0, 200, 1)


def token_split(
    members: list[int] | None = None, max_length: int = 100, lengths: Sequence[int] = LENGTHS
) -> TokenSplit:
    tokens = np.repeat(np.arange(1, len(lengths) + 1, dtype=np.uint8), lengths)
    starts = np.cumsum([0, *lengths])[:-1]
    labels = np.arange(len(lengths), dtype=np.uint8) * 10
    chosen = np.arange(len(lengths)) if members is None else np.array(members)
    return TokenSplit(tokens, starts, np.array(lengths), labels, chosen, max_length)


def test_texts_are_padded_with_zeros_to_a_multiple_of_64() -> None:
    batch = token_split().batch(np.array([1, 0]))
    assert batch.x.dtype == torch.int64
    assert batch.x.tolist() == [[2] * 64, [1] * 3 + [0] * 61]
    assert batch.y.tolist() == [10, 0]
    assert batch.lengths is not None
    assert batch.lengths.dtype == torch.int64
    assert batch.lengths.tolist() == [64, 3]


def test_texts_are_cut_at_their_end() -> None:
    tokens = np.arange(1, 301)
    split = TokenSplit(tokens, np.array([0]), np.array([300]), np.array([0]), np.array([0]), max_length=70)
    batch = split.batch(np.array([0]))
    assert batch.x.tolist() == [list(range(1, 71))]
    assert batch.lengths is not None
    assert batch.lengths.tolist() == [70]


@pytest.mark.parametrize(
    ("rows", "width"), [([5], 64), ([1], 64), ([2], 100), ([4], 100), ([0, 5], 64), ([0, 4], 100)]
)
def test_padding_never_passes_the_longest_allowed(rows: list[int], width: int) -> None:
    assert token_split().batch(np.array(rows)).x.shape == (len(rows), width)


def test_empty_text_beside_others_is_all_padding() -> None:
    batch = token_split().batch(np.array([3, 5]))
    assert batch.x.tolist() == [[0] * 64, [6] + [0] * 63]
    assert batch.lengths is not None
    assert batch.lengths.tolist() == [0, 1]


def test_empty_texts_alone_are_padding_too() -> None:
    batch = token_split().batch(np.array([3, 3]))
    assert batch.x.tolist() == [[0] * 64] * 2


def test_rows_count_among_the_members() -> None:
    split = token_split(members=[5, 0])
    batch = split.batch(np.array([0, 1, 0]))
    assert len(split) == 2
    assert batch.y.tolist() == [50, 0, 50]
    assert batch.x[:, 0].tolist() == [6, 1, 6]


def test_two_documents_per_example_stay_side_by_side() -> None:
    lengths = np.array([2, 3, 1, 70, 5, 4])
    tokens = np.repeat(np.arange(1, 7), lengths)
    starts = np.array([0, 2, 5, 6, 76, 81])
    split = TokenSplit(tokens, starts, lengths, np.array([0, 1, 1]), np.arange(3), max_length=66, documents=2)
    batch = split.batch(np.array([2, 1]))
    assert batch.x.shape == (2, 2, 66)
    assert batch.lengths is not None
    assert batch.lengths.tolist() == [[5, 4], [1, 66]]
    assert batch.y.tolist() == [1, 1]
    for example, documents in enumerate([[5, 6], [3, 4]]):
        for place, token in enumerate(documents):
            length = batch.lengths[example, place]
            assert (batch.x[example, place, :length] == token).all()
            assert (batch.x[example, place, length:] == 0).all()


@settings(deadline=None, derandomize=True, database=None)
@given(
    lengths=st.lists(st.integers(0, 150), min_size=1, max_size=6).filter(any),
    max_length=st.integers(1, 200),
    data=st.data(),
)
def test_every_text_comes_back_up_to_the_cut(
    lengths: list[int], max_length: int, data: st.DataObject
) -> None:
    rows = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=8))
    batch = token_split(None, max_length, lengths).batch(np.array(rows))
    assert batch.lengths is not None
    assert batch.x.shape[1] <= max_length
    for row, tokens, length in zip(rows, batch.x, batch.lengths, strict=True):
        assert length == min(lengths[row], max_length)
        assert (tokens[:length] == row + 1).all()
        assert (tokens[length:] == 0).all()


def test_texts_may_lie_on_disk(tmp_path: Path) -> None:
    np.save(tmp_path / "tokens.npy", np.array([7, 8, 9], dtype=np.uint16))
    tokens = np.load(tmp_path / "tokens.npy", mmap_mode="r")
    starts, lengths = np.array([0, 1]), np.array([1, 2])
    batch = TokenSplit(tokens, starts, lengths, np.array([0, 1]), np.arange(2), 9).batch(np.array([1]))
    assert batch.x.tolist() == [[8, 9, 0, 0, 0, 0, 0, 0, 0]]


def scale(rows: np.ndarray, generator: torch.Generator | None) -> torch.Tensor:
    return torch.from_numpy(rows).float()[..., None] * 2


def add_noise(rows: np.ndarray, generator: torch.Generator | None) -> torch.Tensor:
    return torch.from_numpy(rows).float() + torch.rand(rows.shape, generator=generator)


NUMBERS = np.arange(12, dtype=np.int16).reshape(4, 3)
LABELS = np.array([3, 2, 1, 0], dtype=np.uint8)


def test_array_split_picks_members_and_converts_them() -> None:
    split = ArraySplit(NUMBERS, LABELS, np.array([3, 1]), scale)
    batch = split.batch(np.array([0, 1, 0]))
    assert len(split) == 2
    assert batch.x.tolist() == [[[18], [20], [22]], [[6], [8], [10]], [[18], [20], [22]]]
    assert batch.y.dtype == torch.int64
    assert batch.y.tolist() == [0, 2, 0]
    assert batch.lengths is None


def test_array_split_leaves_the_array_on_disk_alone(tmp_path: Path) -> None:
    np.save(tmp_path / "numbers.npy", NUMBERS)
    numbers = np.load(tmp_path / "numbers.npy", mmap_mode="r")
    split = ArraySplit(numbers, LABELS, np.arange(4), lambda rows, _: torch.from_numpy(rows))
    split.batch(np.array([2])).x.zero_()
    assert split.batch(np.array([2])).x.tolist() == [[6, 7, 8]]


def test_what_is_random_comes_from_the_generator() -> None:
    split = ArraySplit(NUMBERS, LABELS, np.arange(4), add_noise)
    rows = np.array([1, 2])
    first, again, other = (split.batch(rows, torch.Generator().manual_seed(seed)).x for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@settings(deadline=None, derandomize=True, database=None)
@given(st.integers(2, 500), st.floats(0.01, 0.99), st.integers(0, 2**32))
def test_holding_out_loses_and_repeats_nothing(count: int, fraction: float, seed: int) -> None:
    if not 0 < round(count * fraction) < count:
        with pytest.raises(ValueError, match="both need at least one"):
            hold_out(count, fraction, seed)
        return
    train, validation = hold_out(count, fraction, seed)
    assert len(validation) == round(count * fraction)
    assert sorted([*train, *validation]) == list(range(count))
    assert (np.diff(train) > 0).all()
    assert (np.diff(validation) > 0).all()
    again = hold_out(count, fraction, seed)
    np.testing.assert_array_equal(again[0], train)
    np.testing.assert_array_equal(again[1], validation)


def test_seeds_hold_out_different_examples() -> None:
    held = [set(hold_out(1000, 0.1, seed)[1].tolist()) for seed in range(5)]
    # By chance two sets of 100 out of 1000 share about 10.
    assert all(len(a & b) < 40 for i, a in enumerate(held) for b in held[:i])


def test_held_out_examples_are_these_on_every_machine() -> None:
    assert hold_out(20, 0.25, seed=0)[1].tolist() == [2, 4, 6, 13, 19]


def test_every_example_is_held_out_equally_often() -> None:
    times = np.zeros(20)
    for seed in range(2000):
        times[hold_out(20, 0.25, seed)[1]] += 1
    # Binomial, 2000 trials of probability 1/4: deviation 19.4; six deviations either way.
    assert abs(times - 500).max() < 6 * 19.4


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, float("nan")])
def test_fraction_must_leave_both_parts(fraction: float) -> None:
    with pytest.raises(ValueError, match=rf"validation_fraction is {fraction}; it must lie between 0 and 1"):
        require_validation_fraction(fraction)


def test_three_parts_are_these_on_every_machine() -> None:
    train, validation, test = split_in_three(10, 2, seed=0)
    assert (train.tolist(), validation.tolist(), test.tolist()) == ([0, 1, 3, 5, 8, 9], [2, 7], [4, 6])


def test_offsets_begin_with_0_and_end_with_the_end() -> None:
    assert offsets_of([3, 0, 2]).tolist() == [0, 3, 3, 5]
    assert offsets_of([3, 0, 2]).dtype == np.int64
