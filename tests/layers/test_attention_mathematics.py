"""Each attention against what it must equal: softmax where nothing is left out, and its formula elsewhere."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from attention_oracle import (
    CONFIGS,
    assert_close,
    build,
    expected_of,
    heads_of,
    inputs,
    refuses,
    seen_by,
    softmax_attention,
)
from torch import nn

from torchs4 import TransformerConfig
from torchs4.layers.attention import (
    BigBirdConfig,
    LinformerConfig,
    LocalAttentionConfig,
    LongformerConfig,
    LunaConfig,
    NystromformerConfig,
    PerformerConfig,
    ReformerConfig,
    SinkhornConfig,
    SparseTransformerConfig,
    SynthesizerConfig,
)
from torchs4.layers.attention.nystromformer import landmarks_of, pseudo_inverse
from torchs4.layers.attention.performer import orthogonal_directions

LENGTH = 23
SEES_EVERYTHING: dict[str, Any] = {
    "local-attention, window = length": LocalAttentionConfig(heads=2, window=LENGTH),
    "local-attention, larger window": LocalAttentionConfig(heads=2, window=LENGTH + 9),
    "sparse-transformer, window = length": SparseTransformerConfig(heads=2, window=LENGTH),
    "sparse-transformer, all are summaries": SparseTransformerConfig(heads=2, window=4, summaries=4),
    "longformer, reach = length": LongformerConfig(heads=2, reach=LENGTH, global_positions=0),
    "longformer, reach just enough": LongformerConfig(heads=2, reach=LENGTH - 1, global_positions=0),
    "bigbird, one block": BigBirdConfig(heads=2, window=LENGTH + 1, random_blocks=2),
    "bigbird, neighbours are all": BigBirdConfig(heads=2, window=12, global_blocks=0, random_blocks=1),
    "bigbird, all blocks are global": BigBirdConfig(heads=2, window=4, global_blocks=6),
    "bigbird, all blocks are drawn": BigBirdConfig(heads=2, window=4, global_blocks=0, random_blocks=60),
    "nystromformer, landmarks = length": NystromformerConfig(heads=2, landmarks=LENGTH, skip_kernel=0),
    "sinkhorn, one block": SinkhornConfig(heads=2, window=LENGTH),
}


@pytest.mark.parametrize("config", SEES_EVERYTHING.values(), ids=SEES_EVERYTHING)
def test_what_leaves_nothing_out_is_softmax_attention(config: Any) -> None:
    layer, x = build(config), inputs(length=LENGTH)
    assert_close(layer(x), expected_of(layer, x))


def test_both_ways_to_compute_softmax_attention_give_the_same() -> None:
    for bidirectional in (False, True):
        fused = build(TransformerConfig(heads=2, bidirectional=bidirectional))
        written_out = build(replace(fused.config, attention="materialised"))
        x = inputs()
        assert_close(written_out(x), fused(x))
        assert_close(written_out(x, lengths=[23, 7]), fused(x, lengths=[23, 7]))
    with refuses("attention is 'flash'", "'fused', 'materialised'"):
        TransformerConfig(attention="flash")


def test_local_attention_sees_its_block() -> None:
    layer, x = build(CONFIGS["local-attention"]), inputs(length=LENGTH)
    block = torch.arange(LENGTH) // 4
    assert_close(layer(x), expected_of(layer, x, block[:, None] == block))


def test_a_sparse_transformer_sees_its_block_and_the_ends_of_all_blocks() -> None:
    layer, x = build(CONFIGS["sparse-transformer"]), inputs(length=LENGTH)
    place = torch.arange(LENGTH)
    visible = (place[:, None] // 4 == place // 4) | (place % 4 >= 2)
    assert_close(layer(x), expected_of(layer, x, visible))


def test_longformer_sees_its_window_and_the_global_positions() -> None:
    layer, x = build(LongformerConfig(heads=2, reach=3, global_positions=2)), inputs(length=LENGTH)
    place = torch.arange(LENGTH)
    visible = ((place[:, None] - place).abs() <= 3) | (place < 2)
    query, key, value = layer.query_key_value(x).chunk(3, dim=-1)
    y = softmax_attention(query, key, value, 2, visible)
    key, value = layer.global_key_value(x).chunk(2, dim=-1)
    y[:, :2] = softmax_attention(layer.global_query(x[:, :2]), key, value, 2)
    assert_close(layer(x), layer.output(y))


def test_bigbird_sees_its_neighbours_the_global_blocks_and_some_at_random() -> None:
    layer, length, size = build(BigBirdConfig(heads=2, window=2, random_blocks=2)), 39, 2
    seen = seen_by(layer, length)
    # Softmax over exactly what it depends on.
    x = inputs(length=length)
    assert_close(layer(x), expected_of(layer, x, seen))
    blocks = seen[::size, ::size]
    assert torch.equal(seen, blocks.repeat_interleave(2, 0).repeat_interleave(2, 1)[:length, :length])
    place = torch.arange(20)
    fixed = ((place[:, None] - place).abs() <= 1) | (place == 0)
    assert (blocks | ~fixed).all()
    assert blocks[0].all()
    drawn = (blocks & ~fixed)[1:]
    assert drawn.sum(1).max() == 2
    assert drawn.any(1).float().mean() > 0.8
    # Not always the same ones, nor the same distance away.
    assert drawn.any(0).sum() >= 10
    assert len({int(j - i) for i, j in drawn.nonzero()}) >= 10


def test_a_linformer_that_projects_nothing_is_softmax_attention() -> None:
    layer, x = build(LinformerConfig(heads=2, projections=LENGTH, max_length=LENGTH)), inputs(length=LENGTH)
    with torch.no_grad():
        layer.key_projection.copy_(torch.eye(LENGTH))
        layer.value_projection.copy_(torch.eye(LENGTH))
    assert_close(layer(x), expected_of(layer, x))


def test_a_linformer_attends_to_projections() -> None:
    layer, x = build(CONFIGS["linformer"]), inputs(length=LENGTH)
    query, key, value = layer.query_key_value(x).chunk(3, dim=-1)
    key = torch.einsum("bjh,jk->bkh", key, layer.key_projection[:LENGTH])
    value = torch.einsum("bjh,jk->bkh", value, layer.value_projection[:LENGTH])
    assert_close(layer(x), layer.output(softmax_attention(query, key, value, 2)))


@pytest.mark.parametrize("scores", ["random", "dense"])
def test_a_synthesizer_weighs_by_what_it_has_learned(scores: Any) -> None:
    layer = build(SynthesizerConfig(heads=2, scores=scores, score_rank=3, max_length=40))
    x = inputs(length=LENGTH)
    if scores == "random":
        weights = torch.einsum("hir,hjr->hij", layer.rows, layer.columns)[None, :, :LENGTH, :LENGTH]
    else:
        hidden = heads_of(layer.hidden(x).relu(), 2)
        weights = torch.einsum("bhir,hjr->bhij", hidden, layer.columns)[..., :LENGTH]
    value = heads_of(layer.value(x), 2)
    y = torch.einsum("bhij,bhjd->bihd", weights.softmax(-1).expand(2, -1, -1, -1), value).flatten(2)
    assert_close(layer(x), layer.output(y))


def test_luna_packs_and_unpacks() -> None:
    layer, x = build(CONFIGS["luna"]), inputs(length=LENGTH)
    query, key, value = layer.query_key_value(x).chunk(3, dim=-1)
    seeking = layer.pack_query(layer.queries).expand(2, -1, -1)
    packed = softmax_attention(seeking, key, value, 2)
    key, value = layer.unpack_key_value(packed).chunk(2, dim=-1)
    assert_close(layer(x), layer.output(softmax_attention(query, key, value, 2)))


def test_a_luna_that_packs_each_position_by_itself_is_softmax_attention() -> None:
    layer = build(LunaConfig(heads=1, packed=8), features=8)
    # Positions at right angles: vector i finds position i and nothing else.
    x = torch.linalg.qr(inputs(1, 8)).Q
    with torch.no_grad():
        layer.pack_query.weight.copy_(1e4 * torch.eye(8))
        layer.pack_query.bias.zero_()
        layer.queries.copy_(x[0])
        layer.query_key_value.weight[8:] = torch.eye(8).repeat(2, 1)
        layer.query_key_value.bias[8:] = 0
    query = layer.query_key_value(x)[..., :8]
    key, value = layer.unpack_key_value(x).chunk(2, dim=-1)
    assert_close(layer(x), layer.output(softmax_attention(query, key, value, 1)))


def test_nystroms_matrix_with_a_landmark_at_each_position_is_the_attention_matrix() -> None:
    layer, x = build(NystromformerConfig(heads=2, landmarks=9, skip_kernel=0)), inputs(length=9)
    with torch.no_grad():
        # Sharp attention is easy to invert.
        layer.query_key_value.weight[:16] *= 6
    query, key, value = layer._project(x)
    expected = softmax_attention(*layer.query_key_value(x).chunk(3, dim=-1), heads=2)
    # Six rounds invert to about a thousandth.
    assert_close(layer._by_landmarks(query, key, value).transpose(1, 2).flatten(2), expected, 2e-2)


def test_the_iteration_finds_the_pseudo_inverse() -> None:
    matrices = (3 * torch.randn(3, 6, 6, dtype=torch.float64, generator=torch.manual_seed(0))).softmax(-1)
    assert_close(pseudo_inverse(matrices, rounds=30), torch.linalg.pinv(matrices), 1e-8)


def test_landmarks_are_means_of_stretches_that_cover_all_positions() -> None:
    x = inputs(1, 11)[:, None]
    found = landmarks_of(x, 4)
    stretches = torch.arange(11) * 4 // 11
    assert stretches.bincount().tolist() == [3, 3, 3, 2]
    for number in range(4):
        assert_close(found[0, 0, number], x[0, 0, stretches == number].mean(0))


def test_fnet_is_the_real_part_of_a_fourier_transform() -> None:
    layer, x = build(CONFIGS["fnet"]), inputs(length=9)
    along, across = (
        torch.exp(-2j * math.pi * torch.outer(torch.arange(n), torch.arange(n)).double() / n) for n in (9, 8)
    )
    expected = torch.einsum("ij,bjh,hk->bik", along, x.to(along.dtype), across).real / math.sqrt(9 * 8)
    assert_close(layer(x), expected)
    assert list(layer.parameters()) == []


def kernel_attention(layer: Any, x: torch.Tensor, features: Any, causal: bool) -> torch.Tensor:
    """Every pair of positions, weighed by the product of their features."""
    query, key, value = (heads_of(part, 2) for part in layer.query_key_value(x).chunk(3, dim=-1))
    weights = torch.einsum("bhim,bhjm->bhij", features(query), features(key))
    weights = weights.tril() if causal else weights
    y = torch.einsum("bhij,bhjd->bihd", weights / weights.sum(-1, keepdim=True), value)
    return layer.output(y.flatten(2))


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
def test_a_linear_transformer_weighs_by_products_of_features(causal: bool) -> None:
    layer = build(replace(CONFIGS["linear-transformer"], bidirectional=not causal))
    x = inputs(length=150)
    assert_close(layer(x), kernel_attention(layer, x, lambda part: nn.functional.elu(part) + 1, causal))


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
def test_a_performer_weighs_by_products_of_random_features(causal: bool) -> None:
    layer = build(replace(CONFIGS["performer"], bidirectional=not causal))

    def features(part: torch.Tensor) -> torch.Tensor:
        part = part / part.shape[-1] ** 0.25
        return torch.exp(part @ layer.directions.T - part.square().sum(-1, keepdim=True) / 2)

    x = inputs(length=150)
    assert_close(layer(x), kernel_attention(layer, x, features, causal))


def test_a_performers_error_falls_with_the_square_root_of_its_features() -> None:
    # Of products of large queries and keys a few directions decide, which only very many features find: the
    # variance grows with exp(|q + k|²).
    x, seeds = 0.3 * inputs(1, 30), 16
    errors: list[float] = []
    for count in (16, 128, 1024):
        layer = build(PerformerConfig(heads=2, random_features=count, bidirectional=True))
        expected = expected_of(layer, x).detach()
        squares = []
        for seed in range(seeds):
            torch.manual_seed(seed)
            layer.directions.copy_(orthogonal_directions(count, 4))
            squares.append((layer(x) - expected).detach().square().mean())
        errors.append(float(torch.stack(squares).mean().sqrt()))
    rates = [math.log(before / after) / math.log(8) for before, after in pairwise(errors)]
    assert all(0.4 < rate < 0.6 for rate in rates), (errors, rates)
    assert errors[-1] < 0.01 * float(expected.std())


def test_directions_are_at_right_angles_and_as_long_as_normal_vectors() -> None:
    torch.manual_seed(0)
    directions = orthogonal_directions(4000, 8).double()
    first = nn.functional.normalize(directions[:8], dim=1)
    # Rounded to float32.
    assert_close(first @ first.T, torch.eye(8, dtype=torch.float64), 1e-6)
    assert abs(float(directions.square().sum(1).mean()) - 8) < 0.3
    assert abs(float(directions.mean())) < 0.03


@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0, 300.0])
def test_a_performer_takes_keys_of_any_size(size: float) -> None:
    layer = build(CONFIGS["performer"]).float()
    x = (size * inputs(1, 100)).float().requires_grad_()
    with torch.no_grad():
        # Sizes in any order: the largest key may come late.
        x *= torch.linspace(0.01, 1, 100)[torch.randperm(100, generator=torch.manual_seed(0))][:, None]
    y = layer(x)
    y.square().sum().backward()
    assert y.isfinite().all()
    assert x.grad.isfinite().all()
    _, state = layer.prefill(x[:, :57])
    # Relative to the values, which are as large as the keys.
    assert_close(layer.prefill(x[:, 57:], state)[0], y[:, 57:], 1e-4 * max(size, 1))


def shared_attention(layer: Any, x: torch.Tensor, visible: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """With one vector as query and key; a position sees itself only where it sees nothing else."""
    query = heads_of(layer.query_key(x), layer.heads)
    scores = torch.einsum("bhid,bhjd->bhij", query, nn.functional.normalize(query, dim=-1))
    alone = visible.sum(-1, keepdim=True) == 1
    itself = torch.eye(x.shape[1], dtype=torch.bool)
    scores = scores.masked_fill(~visible | (itself & ~alone), -math.inf)
    value = heads_of(layer.value(x), layer.heads)
    return torch.einsum("bhij,bhjd->bhid", scores.softmax(-1), value), scores.logsumexp(-1)


def test_a_reformer_with_one_bucket_is_softmax_attention_with_shared_queries_and_keys() -> None:
    layer, x = build(ReformerConfig(heads=2, buckets=1, rounds=2, chunk=LENGTH)), inputs(length=LENGTH)
    y, _ = shared_attention(layer, x, torch.ones(LENGTH, LENGTH, dtype=torch.bool))
    assert_close(layer(x), layer.output(y.transpose(1, 2).flatten(2)))


def test_a_reformer_sees_chunks_of_sorted_buckets() -> None:
    layer, x = build(CONFIGS["reformer"]), inputs(length=LENGTH)
    query = heads_of(layer.query_key(x), 2)
    found, weights = [], []
    for number in range(2):
        turned = torch.einsum("bhld,hdk->bhlk", query, layer.directions[:, number])
        bucket = torch.cat([turned, -turned], dim=-1).argmax(-1)
        visible = torch.zeros(2, 2, LENGTH, LENGTH, dtype=torch.bool)
        for b in range(2):
            for h in range(2):
                order = sorted(range(LENGTH), key=lambda place: (int(bucket[b, h, place]), place))
                for rank, place in enumerate(order):
                    start = max(0, (rank // 4 - 1) * 4)
                    visible[b, h, place, order[start : (rank // 4 + 1) * 4]] = True
        y, weight = shared_attention(layer, x, visible)
        found.append(y)
        weights.append(weight)
    share = torch.stack(weights).softmax(0)[..., None]
    y = (share * torch.stack(found)).sum(0)
    assert_close(layer(x), layer.output(y.transpose(1, 2).flatten(2)))


def test_a_reformer_finds_the_same_vector_wherever_it_is() -> None:
    layer = build(ReformerConfig(heads=1, buckets=32, rounds=1, chunk=24))
    x = inputs(1, 128)
    x[:, 120] = x[:, 3]
    seen = torch.autograd.functional.jacobian(lambda x: layer(x)[0, 120].sum(), x)[0].abs().sum(-1) > 0
    assert seen[3]
    assert seen.sum() <= 48


def test_a_reformer_hashes_anew_in_training_only() -> None:
    layer, x = build(CONFIGS["reformer"]), inputs()
    assert torch.equal(layer(x), layer(x))
    layer.train()
    assert not torch.equal(layer(x), layer(x))


def test_two_sorted_blocks_that_change_places_are_softmax_attention(monkeypatch: Any) -> None:
    layer, x = build(SinkhornConfig(heads=2, window=12)), inputs(length=LENGTH)
    swap = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64).expand(2, 2, 2, 2)
    monkeypatch.setattr(layer, "_sorting", lambda *_: swap)
    assert_close(layer(x), expected_of(layer, x))


def test_a_sorting_is_doubly_stochastic_and_keeps_padding_apart() -> None:
    layer = build(SinkhornConfig(heads=2, window=4, sorting_rounds=60, temperature=1.0))
    query, key = (
        torch.randn(2, 2, 6, 4, 4, dtype=torch.float64, generator=torch.manual_seed(0)) for _ in "qk"
    )
    real = torch.arange(24).view(6, 4) < torch.tensor([24, 14])[:, None, None, None]
    sorting = layer._sorting(query, key, real)
    ones = torch.ones(2, 2, 6, dtype=torch.float64)
    assert_close(sorting.sum(3), ones)
    assert_close(sorting.sum(2), ones, 1e-4)
    # Four blocks of the second sequence have real positions.
    assert sorting[1, :, :4, 4:].max() == 0
    assert sorting[1, :, 4:, :4].max() == 0
    # The colder, the more it picks one block for each.
    colder = build(replace(layer.config, temperature=0.02))._sorting(query, key, real)
    assert colder.amax(3).mean() > max(0.8, sorting.amax(3).mean() + 0.1)
