"""Attentions written out: plain softmax over what each position may see, with a layer's own weights."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
from torch import Tensor

from torchs4.layers import LAYERS
from torchs4.layers.attention import (
    BigBirdConfig,
    FNetConfig,
    LinearTransformerConfig,
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

# The same sums in another order.
FLOAT64_TOLERANCE = 1e-11
FEATURES = 8

# Every attention, with sizes that no length of these tests is a multiple of.
CONFIGS: dict[str, Any] = {
    "linear-transformer": LinearTransformerConfig(heads=2),
    "linear-transformer-bidirectional": LinearTransformerConfig(heads=2, bidirectional=True),
    "performer": PerformerConfig(heads=2, random_features=5),
    "performer-bidirectional": PerformerConfig(heads=2, random_features=5, bidirectional=True),
    "local-attention": LocalAttentionConfig(heads=2, window=4),
    "sparse-transformer": SparseTransformerConfig(heads=2, window=4, summaries=2),
    "longformer": LongformerConfig(heads=2, reach=2, global_positions=1),
    "bigbird": BigBirdConfig(heads=2, window=2, random_blocks=1),
    "linformer": LinformerConfig(heads=2, projections=3, max_length=40),
    "reformer": ReformerConfig(heads=2, buckets=4, rounds=2, chunk=4),
    "sinkhorn": SinkhornConfig(heads=2, window=4),
    "synthesizer": SynthesizerConfig(heads=2, score_rank=3, max_length=40),
    "synthesizer-dense": SynthesizerConfig(heads=2, scores="dense", score_rank=3, max_length=40),
    "nystromformer": NystromformerConfig(heads=2, landmarks=4, skip_kernel=3),
    "luna": LunaConfig(heads=2, packed=3),
    "fnet": FNetConfig(),
}
every_attention = pytest.mark.parametrize("name", CONFIGS)


def refuses(*pieces: str) -> Any:
    """A ValueError whose text has these pieces in this order."""
    return pytest.raises(ValueError, match="(?s)" + ".*".join(map(re.escape, pieces)))


def build(config: Any, features: int = FEATURES) -> Any:
    torch.manual_seed(0)
    return config.build(features).double().eval()


def inputs(batch: int = 2, length: int = 23, features: int = FEATURES) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(batch, length, features, dtype=torch.float64, generator=generator)


def assert_close(actual: Tensor, expected: Tensor, tolerance: float = FLOAT64_TOLERANCE) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


def heads_of(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def softmax_attention(
    query: Tensor, key: Tensor, value: Tensor, heads: int, visible: Tensor | None = None
) -> Tensor:
    """Of queries, keys and values (B, L, H), with columns of a head side by side."""
    query, key, value = (heads_of(part, heads) for part in (query, key, value))
    scores = torch.einsum("bhid,bhjd->bhij", query, key) / math.sqrt(query.shape[-1])
    if visible is not None:
        scores = scores.masked_fill(~visible, -math.inf)
    return torch.einsum("bhij,bhjd->bihd", scores.softmax(-1), value).flatten(2)


def expected_of(layer: Any, x: Tensor, visible: Tensor | None = None) -> Tensor:
    """What a layer gives that is softmax attention over what is visible."""
    query, key, value = layer.query_key_value(x).chunk(3, dim=-1)
    return layer.output(softmax_attention(query, key, value, layer.heads, visible))


def seen_by(layer: Any, length: int) -> Tensor:
    """Which positions each position's output depends on, found by differentiating."""
    x = inputs(1, length).requires_grad_()
    y = layer(x)
    rows = [
        torch.autograd.grad(y[0, i].sum(), x, retain_graph=True)[0][0].abs().sum(-1) for i in range(length)
    ]
    return torch.stack(rows) > 0


def is_attention(kind: type) -> bool:
    return kind.__module__.startswith("torchs4.layers.attention")


def registered_attentions() -> set[str]:
    return {name for name, kind in LAYERS.items() if is_attention(kind)}
