"""Informer's attention: the few queries that stand out attend, the others take the average of the values.

Axes: B sequences, heads side by side, L queries, S keys, D columns of a head.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from jaxtyping import Float, Int

# Where nothing is trained, the same keys are drawn every time.
_EVALUATION_SEED = 0


class ProbSparseAttention(nn.Module):
    """Multi-head self-attention in which factor · ln L of the queries attend to all keys.

    A query stands out when its largest product with a key exceeds the mean of its products; both are measured
    on factor · ln S keys, drawn anew at every training step and the same for all queries (the publication
    draws for each). Where factor · ln L reaches L, this is ordinary attention.
    causal: a query sees no key behind it; those that do not stand out take the average up to their place.
    """

    def __init__(self, features: int, heads: int, factor: float = 5.0, *, causal: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.factor = factor
        self.causal = causal
        self.query_key_value = nn.Linear(features, 3 * features)
        self.output = nn.Linear(features, features)

    def forward(self, x: Float[Tensor, "B L H"]) -> Float[Tensor, "B L H"]:
        """Every position's mixture of what it attends to."""
        query, keys, values = (
            part.transpose(1, 2)
            for part in self.query_key_value(x).unflatten(2, (3, self.heads, -1)).unbind(2)
        )
        count = _few(x.shape[1], self.factor)
        if count == x.shape[1]:
            mixed = F.scaled_dot_product_attention(query, keys, values, is_causal=self.causal)
        else:
            mixed = self._sparse(query, keys, values, self._outstanding(query, keys, count))
        return self.output(mixed.transpose(1, 2).flatten(2))

    @torch.no_grad()
    def _outstanding(
        self, query: Float[Tensor, "B heads L D"], keys: Float[Tensor, "B heads S D"], count: int
    ) -> Int[Tensor, "B heads n"]:
        """The places of so many queries whose attention is the least even, as far as some keys tell."""
        generator = None if self.training else torch.Generator().manual_seed(_EVALUATION_SEED)
        drawn = torch.randperm(keys.shape[2], generator=generator)[: _few(keys.shape[2], self.factor)]
        products = query @ keys[:, :, drawn.to(keys.device)].transpose(2, 3)
        return (products.amax(-1) - products.mean(-1)).topk(count, dim=-1).indices

    def _sparse(
        self, query: Tensor, keys: Tensor, values: Tensor, places: Int[Tensor, "B heads n"]
    ) -> Float[Tensor, "B heads L D"]:
        length = query.shape[2]
        rows = places[..., None].expand(-1, -1, -1, query.shape[3])
        visible = None
        if self.causal:
            positions = torch.arange(length, device=query.device)
            visible = positions <= places[..., None]
            average = values.cumsum(2) / (positions + 1)[:, None]
        else:
            average = values.mean(2, keepdim=True).expand_as(values)
        attended = F.scaled_dot_product_attention(query.gather(2, rows), keys, values, visible)
        return average.scatter(2, rows, attended.to(average.dtype))


def _few(count: int, factor: float) -> int:
    """That is factor · ln count, rounded up: at least one, at most all."""
    return min(count, max(1, math.ceil(factor * math.log(count + 1))))
