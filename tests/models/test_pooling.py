"""What pooling knows of a stream is what it would know of the whole sequence, however long."""

import pytest
import torch

from torchs4.models.pooling import POOLING_KINDS, SharePooling, build_pooling

# The value is rounded to single precision once, at the end.
ROUNDING = 1e-7


def stream(pooling, chunks):
    state = pooling.initial_state(chunks[0])
    for chunk in chunks:
        value, state = pooling.prefill(chunk, state)
    return value, state


@pytest.mark.parametrize("kind", POOLING_KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_an_empty_chunk_changes_nothing(kind, dtype):
    pooling, x = build_pooling(kind, 3).to(dtype), torch.randn(2, 5, 3).to(dtype)
    value, state = stream(pooling, [x[:, :2], x[:, 2:]])
    again, same = pooling.prefill(x[:, :0], state)
    assert len(state) == len(same) == pooling.state_size
    assert all(map(torch.equal, state, same))
    assert again.dtype == dtype
    assert torch.equal(again, value if kind != "none" else x[:, :0])


@pytest.mark.parametrize("kind", ["mean", "last", "shares"])
def test_nothing_seen_yet_is_zero(kind):
    pooling, nothing = build_pooling(kind, 3), torch.randn(2, 0, 3)
    value, _ = pooling.prefill(nothing, pooling.initial_state(nothing))
    assert torch.equal(value, torch.zeros(2, pooling.width(3)))


@pytest.mark.parametrize("kind", ["mean", "last", "shares"])
@pytest.mark.parametrize("sizes", [(7,), (1, 6), (3, 0, 4), (0, 7), (1,) * 7])
def test_chunks_give_what_the_whole_sequence_gives(kind, sizes):
    pooling, x = build_pooling(kind, 3), torch.randn(2, 7, 3)
    value, _ = stream(pooling, x.split(sizes, dim=1))
    # The whole is summed in single precision.
    torch.testing.assert_close(value, pooling(x, None), rtol=0, atol=10 * ROUNDING)


def test_shares_count_the_positions_above_each_threshold():
    pooling, x = SharePooling(3), torch.randn(2, 50, 3)
    with torch.no_grad():
        pooling.slopes.fill_(1e6)
        pooling.offsets.copy_(0.5 - 1e6 * torch.linspace(-1, 1, 8)[:, None])
    mask = torch.arange(50) < torch.tensor([[50], [20]])
    shares = pooling(x, mask).unflatten(1, (8, 3))
    above = x[:, None] > torch.linspace(-1, 1, 8)[:, None, None]
    assert torch.allclose(shares[0], above[0].float().mean(1))
    assert torch.allclose(shares[1], above[1, :, :20].float().mean(1))


def test_shares_of_normal_values_start_evenly_spread():
    shares = SharePooling(2)(torch.randn(1, 20_000, 2, generator=torch.Generator().manual_seed(0)), None)
    expected = 1 - (torch.arange(8) + 0.5) / 8
    assert torch.allclose(shares.unflatten(1, (8, 2))[0], expected[:, None].expand(8, 2), atol=0.05)


def test_the_last_position_is_kept_without_its_chunk():
    pooling, x = build_pooling("last", 3), torch.randn(2, 1000, 3)
    _, (last,) = pooling.prefill(x, pooling.initial_state(x))
    assert last.untyped_storage().nbytes() == last.nbytes


@pytest.mark.parametrize("seen", [2**24 - 3, 10_000_000, 2**31, 2**53])
def test_counting_never_stops(seen):
    pooling, x = build_pooling("mean", 2), torch.ones(1, 1, 2)
    mean, count = pooling.initial_state(x)
    state = mean, count + seen
    for _ in range(10):
        _, state = pooling.prefill(x, state)
    assert state[1].item() == seen + 10


def test_the_mean_of_ten_million_steps_is_exact():
    steps, seen = 20_000, 10_000_000 - 20_000
    pooling = build_pooling("mean", 3)
    # A level in single precision that so few steps move by less than its last digits.
    before = torch.tensor([[0.25, 1000.0, -3.0]], dtype=torch.float64)
    x = torch.randn(1, steps, 3, generator=torch.Generator().manual_seed(0)) + torch.tensor(
        [1.0, 1001.0, 5.0]
    )
    mean, count = pooling.initial_state(x)
    state = before.to(mean.dtype), count + seen
    for x_t in x.unbind(1):
        value, state = pooling.prefill(x_t[:, None], state)
    exact = (before * seen + x.double().sum(1)) / (seen + steps)
    assert state[1].item() == 10_000_000
    torch.testing.assert_close(state[0], exact, rtol=1e-12, atol=0)
    torch.testing.assert_close(value, exact.float(), rtol=ROUNDING, atol=0)
