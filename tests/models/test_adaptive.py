"""The tied table is an ordinary softmax over vectors that were written out in full."""

import copy
import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchs4.models import AdaptiveTable

V, H = 37, 8
# Without bands; two; three, the last of which is narrower than one number; a cutoff beyond the vocabulary.
CUTOFFS = [(), (10,), (5, 11, 20), (12, 90)]
# Sums over so few tokens round almost nothing in float64.
TOLERANCE = 1e-12


def a_table(cutoffs: tuple[int, ...], division: int = 4) -> AdaptiveTable:
    torch.manual_seed(0)
    table = AdaptiveTable(V, H, cutoffs, division).double()
    for bias in table.biases:
        nn.init.normal_(bias)
    if table.band_bias is not None:
        nn.init.normal_(table.band_bias)
    return table


def written_out(table: AdaptiveTable) -> tuple[Tensor, Tensor]:
    """All vectors (V, H) as a model reads them, but for their scale, and one bias for each."""
    if table.projection is None:
        return table.vectors[0], table.biases[0]
    projections = table.projection.split(table.widths)
    rows = [vectors @ part for vectors, part in zip(table.vectors, projections, strict=True)]
    return torch.cat(rows), torch.cat(list(table.biases))


def full_softmax(table: AdaptiveTable, hidden: Tensor) -> Tensor:
    """Every logit of the vocabulary; a band's share is divided among its tokens."""
    vectors, bias = written_out(table)
    logits = hidden @ vectors.T + bias
    bands = [logits[..., start:stop] for start, stop in pairwise(table.borders)]
    if len(bands) == 1:
        return logits.log_softmax(-1)
    first = hidden @ table.projection[:H].T @ table.band_vectors.T + table.band_bias
    head = torch.cat([bands[0], first], dim=-1)
    # Summed over the vocabulary: what stands for a band is as likely as its tokens together.
    total = head.logsumexp(-1, keepdim=True)
    shares = [bands[0] - total]
    for number, band in enumerate(bands[1:]):
        shares.append(first[..., number, None] - total + band - band.logsumexp(-1, keepdim=True))
    return torch.cat(shares, dim=-1)


@pytest.mark.parametrize("cutoffs", CUTOFFS)
def test_log_probabilities_are_those_of_a_full_softmax(cutoffs: tuple[int, ...]) -> None:
    table, hidden = a_table(cutoffs), torch.randn(3, 5, H, dtype=torch.float64)
    found = table.log_probabilities(hidden)
    torch.testing.assert_close(found, full_softmax(table, hidden), rtol=TOLERANCE, atol=TOLERANCE)
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(3, 5, dtype=torch.float64))


@pytest.mark.parametrize("cutoffs", CUTOFFS)
def test_losses_and_their_gradients_are_those_of_a_full_softmax(cutoffs: tuple[int, ...]) -> None:
    table = a_table(cutoffs)
    plain = copy.deepcopy(table)
    # Every token once, and one more than once.
    targets = torch.cat([torch.randperm(V), torch.tensor([3, 3, 36])]).reshape(2, 20)
    tokens = torch.randint(V, (2, 20))
    vectors, _ = written_out(plain)
    read, expected_read = table.embed(tokens), math.sqrt(H) * vectors[tokens]
    torch.testing.assert_close(read, expected_read, rtol=TOLERANCE, atol=TOLERANCE)
    losses = table.losses(read.tanh(), targets)
    expected = -full_softmax(plain, expected_read.tanh()).gather(-1, targets[..., None])[..., 0]
    torch.testing.assert_close(losses, expected, rtol=TOLERANCE, atol=TOLERANCE)
    weights = torch.randn(2, 20, dtype=torch.float64)
    (losses * weights).sum().backward()
    (expected * weights).sum().backward()
    for (name, ours), theirs in zip(table.named_parameters(), plain.parameters(), strict=True):
        assert ours.grad.abs().max() > 0, name
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-10, atol=TOLERANCE)


@pytest.mark.parametrize("cutoffs", CUTOFFS)
def test_tokens_are_drawn_as_often_as_a_full_softmax_says(cutoffs: tuple[int, ...]) -> None:
    table, hidden, count = a_table(cutoffs), torch.randn(2, H, dtype=torch.float64), 40_000
    expected = full_softmax(table, hidden).exp()
    generator = torch.Generator().manual_seed(0)
    tokens = table.draw(hidden.repeat_interleave(count, 0), generator).view(2, count)
    found = torch.stack([row.bincount(minlength=V) for row in tokens]) / count
    # Five deviations of each share.
    assert ((found - expected).abs() <= 5 * (expected / count).sqrt() + 1e-12).all()
    generator.manual_seed(0)
    assert torch.equal(table.draw(hidden.repeat_interleave(count, 0), generator).view(2, count), tokens)


def test_nothing_is_drawn_from_what_is_no_number() -> None:
    table, hidden = a_table((10,)), torch.randn(3, H, dtype=torch.float64)
    hidden[1, 2] = float("nan")
    with pytest.raises(ValueError, match="weights or state hold NaN"):
        table.draw(hidden)


def test_pytorchs_adaptive_softmax_is_the_same_where_it_has_no_more() -> None:
    cutoffs = (5, 11, 20)
    table = a_table(cutoffs, division=2)
    theirs = nn.AdaptiveLogSoftmaxWithLoss(H, V, cutoffs, div_value=2.0, head_bias=True).double()
    # Theirs does not project what it compares with frequent tokens, and has no biases in rare bands.
    with torch.no_grad():
        table.projection[:H] = torch.eye(H)
        for bias in list(table.biases)[1:]:
            bias.zero_()
        theirs.head.weight.copy_(torch.cat([table.vectors[0], table.band_vectors]))
        theirs.head.bias.copy_(torch.cat([table.biases[0], table.band_bias]))
        projections = table.projection.split(table.widths)[1:]
        for (down, out), projection, vectors in zip(
            theirs.tail, projections, list(table.vectors)[1:], strict=True
        ):
            down.weight.copy_(projection)
            out.weight.copy_(vectors)
    hidden, targets = torch.randn(40, H, dtype=torch.float64), torch.arange(40) % V
    torch.testing.assert_close(table.log_probabilities(hidden), theirs.log_prob(hidden))
    torch.testing.assert_close(-table.losses(hidden, targets), theirs(hidden, targets).output)


def test_bands_that_do_not_occur_have_gradients_of_zeros() -> None:
    # Or processes that see other tokens would disagree about which gradients to exchange.
    table = a_table((5, 11, 20))
    hidden = table.embed(torch.tensor([[1, 2]]))
    table.losses(hidden, torch.tensor([[0, 4]])).sum().backward()
    for number, vectors in enumerate(table.vectors):
        assert vectors.grad is not None
        assert bool(vectors.grad.abs().max() > 0) == (number == 0)


def test_losses_never_hold_the_whole_vocabulary() -> None:
    table, largest = AdaptiveTable(5000, 16, (50, 200)), 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            nonlocal largest
            result = function(*arguments, **(options or {}))
            if isinstance(result, Tensor):
                largest = max(largest, result.numel())
            return result

    hidden, targets = torch.randn(100, 16), torch.randint(50, (100,))
    targets[:3] = 4000
    with Watch():
        table.losses(hidden, targets)
    # Not 100 × 5000: the head, or three rows of the last band.
    assert largest <= 3 * 4800


def test_half_precision_sums_in_float32() -> None:
    table, hidden = AdaptiveTable(V, H, (10,)), torch.randn(4, H)
    expected = table.log_probabilities(hidden)
    with torch.autocast("cpu", torch.bfloat16):
        found = table.log_probabilities(hidden)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(4))


@pytest.mark.parametrize("cutoffs", [(), (10, 20)])
@torch.no_grad()
def test_a_start_is_neither_loud_nor_sure(cutoffs: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    table = AdaptiveTable(3000, 64, cutoffs)
    read = table.embed(torch.arange(3000))
    assert 0.8 < float(read.std()) < 1.2
    hidden = F.layer_norm(torch.randn(200, 64), (64,))
    assert abs(float(table.losses(hidden, torch.randint(3000, (200,))).mean()) - math.log(3000)) < 1


@pytest.mark.parametrize("cutoffs", [(0,), (20, 10), (10, 10)])
def test_impossible_cutoffs_are_refused(cutoffs: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="cutoffs"):
        AdaptiveTable(V, H, cutoffs)
