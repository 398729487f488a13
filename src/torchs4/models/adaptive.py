"""Large vocabularies: frequent tokens get wide vectors, rare ones narrow ones, in and out of one table.

Axes: V tokens, H features, K bands of tokens; band i has n_i tokens with vectors of d_i numbers, D = Σ d_i.
Input and output share everything: a token's vector times the projection is what a model reads, and the
model's output times the projection, times that vector, is the token's logit (Grave et al. 2017, Baevski and
Auli 2019).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchs4 import ops
from torchs4.configuration import require_whole
from torchs4.layers.precision import widest_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float, Int


class AdaptiveTable(nn.Module):
    """Vectors of all tokens, ordered by how frequent they are, for both ends of a language model.

    cutoffs: where bands of rarer tokens begin, in rising order. Those beyond the vocabulary count for
        nothing; without any, this is an ordinary table of one width, tied with an ordinary softmax.
    division: how many times as narrow each band's vectors are as those of the band before it.

    The most frequent band stands beside one entry for each of the others. What a rare token gets is its
    band's share, then its own share of the band.
    """

    def __init__(
        self, vocabulary_size: int, features: int, cutoffs: Sequence[int] = (), division: int = 4
    ) -> None:
        super().__init__()
        self.vocabulary_size = vocabulary_size
        self.features = features
        self.borders = band_borders(vocabulary_size, cutoffs, division)
        sizes = [stop - start for start, stop in pairwise(self.borders)]
        self.widths = band_widths(features, len(sizes), division)
        # So that logits start with a deviation of about 1, whatever the width.
        self.vectors = nn.ParameterList(
            torch.randn(size, width) * width**-0.5 for size, width in zip(sizes, self.widths, strict=True)
        )
        self.biases = nn.ParameterList(torch.zeros(size) for size in sizes)
        self.band_vectors: nn.Parameter | None = None
        self.band_bias: nn.Parameter | None = None
        self.projection: nn.Parameter | None = None
        if len(sizes) > 1:
            self.band_vectors = nn.Parameter(torch.randn(len(sizes) - 1, features) * features**-0.5)
            # All tokens start equally likely, whatever band they are in.
            self.band_bias = nn.Parameter(torch.tensor(sizes[1:], dtype=torch.get_default_dtype()).log())
            # Of all bands, one below the other: both ends need one product only.
            self.projection = nn.Parameter(torch.randn(sum(self.widths), features) * features**-0.5)

    def embed(self, tokens: Int[Tensor, " *B"]) -> Float[Tensor, "*B H"]:
        """What a model reads, of deviation 1 at the start."""
        narrow = []
        for number, vectors in enumerate(self._vectors()):
            start, stop = self.borders[number : number + 2]
            own = F.embedding((tokens - start).clamp(0, stop - start - 1), vectors)
            if self.projection is not None:
                # No token is in two bands. Picking each band's tokens out would make a device wait.
                own = own * ((tokens >= start) & (tokens < stop))[..., None]
            narrow.append(own)
        read = torch.cat(narrow, dim=-1) if self.projection is not None else narrow[0]
        return self.features**0.5 * (read if self.projection is None else ops.linear(read, self.projection.T))

    def log_probabilities(self, hidden: Float[Tensor, "*B H"]) -> Float[Tensor, "*B V"]:
        """The logarithm of how likely each token is."""
        first, *others = self._narrowed(hidden)
        head = self._head(first)
        parts = [head[..., : self.borders[1]]]
        for number, narrow in enumerate(others, 1):
            share = head[..., self.borders[1] + number - 1, None]
            parts.append(share + self._within(number, narrow))
        return (torch.cat(parts, dim=-1) if others else parts[0]).to(hidden.dtype)

    def losses(self, hidden: Float[Tensor, "*B H"], targets: Int[Tensor, " *B"]) -> Float[Tensor, " *B"]:
        """The negative logarithm of how likely each target is; of rare bands, only those that occur."""
        flat = targets.long().contiguous().view(-1)
        first, *others = self._narrowed(hidden.reshape(-1, self.features))
        common = self.borders[1]
        bounds = torch.tensor(self.borders[1:-1], device=flat.device)
        band = torch.bucketize(flat, bounds, right=True)
        entry = torch.where(band == 0, flat, common + band - 1)
        losses = -self._head(first).gather(1, entry[:, None])[:, 0]
        for number, narrow in enumerate(others, 1):
            # No rows at all still give a gradient of zeros: processes agree on which weights have one.
            rows = (band == number).nonzero()[:, 0]
            inside = self._within(number, narrow[rows])
            own = inside.gather(1, (flat[rows] - self.borders[number])[:, None])[:, 0]
            losses = losses.index_add(0, rows, -own)
        return losses.reshape(targets.shape)

    def draw(
        self, hidden: Float[Tensor, "B H"], generator: torch.Generator | None = None
    ) -> Int[Tensor, " B"]:
        """A token for each row, as likely as it is held to be; of rare bands, only those that occur."""
        first, *others = self._narrowed(hidden)
        tokens = _drawn(self._head_logits(first), generator)
        entries = tokens - self.borders[1]
        for number, narrow in enumerate(others, 1):
            rows = (entries == number - 1).nonzero()[:, 0]
            inside = _drawn(self._band_logits(number, narrow[rows]), generator)
            tokens = tokens.index_copy(0, rows, inside + self.borders[number])
        return tokens

    def _narrowed(self, hidden: Float[Tensor, "*B H"]) -> tuple[Float[Tensor, "*B d"], ...]:
        """What is compared with the vectors of each band."""
        if self.projection is None:
            return (hidden,)
        return ops.linear(hidden, self.projection).split(self.widths, dim=-1)

    def _head(self, narrow: Float[Tensor, "*B H"]) -> Float[Tensor, "*B n_0+K-1"]:
        """Of the most frequent tokens and of the other bands."""
        return _log_softmax(self._head_logits(narrow))

    def _within(self, number: int, narrow: Float[Tensor, "*B d"]) -> Float[Tensor, "*B n"]:
        """Of each token among those of its band."""
        return _log_softmax(self._band_logits(number, narrow))

    def _head_logits(self, narrow: Float[Tensor, "*B H"]) -> Float[Tensor, "*B n_0+K-1"]:
        vectors, bias = self._vectors()[0], self._biases()[0]
        if self.band_vectors is None or self.band_bias is None:
            return ops.linear(narrow, vectors, bias)
        # Vectors or what comes out: whatever is less to copy.
        if narrow.numel() < narrow.shape[-1] ** 2:
            bands = ops.linear(narrow, self.band_vectors, self.band_bias)
            return torch.cat([ops.linear(narrow, vectors, bias), bands], dim=-1)
        bias = torch.cat([bias, self.band_bias])
        return ops.linear(narrow, torch.cat([vectors, self.band_vectors]), bias)

    def _band_logits(self, number: int, narrow: Float[Tensor, "*B d"]) -> Float[Tensor, "*B n"]:
        return ops.linear(narrow, self._vectors()[number], self._biases()[number])

    def _vectors(self) -> list[Tensor]:
        return cast("list[Tensor]", list(self.vectors))

    def _biases(self) -> list[Tensor]:
        return cast("list[Tensor]", list(self.biases))

    def extra_repr(self) -> str:
        """The options that are not visible as submodules."""
        return f"vocabulary_size={self.vocabulary_size}, features={self.features}, borders={self.borders}"


def band_borders(vocabulary_size: int, cutoffs: Sequence[int], division: int) -> tuple[int, ...]:
    """Where each band begins, and where the last one ends."""
    require_whole("division", division, 1)
    for cutoff in cutoffs:
        require_whole("cutoffs", cutoff, 1)
    if any(second <= first for first, second in pairwise(cutoffs)):
        raise ValueError(f"cutoffs are {tuple(cutoffs)}; they must rise, like 2000 10000.")
    return 0, *(cutoff for cutoff in cutoffs if cutoff < vocabulary_size), vocabulary_size


def band_widths(features: int, bands: int, division: int) -> list[int]:
    """How many numbers each band's vectors have."""
    return [max(1, features // division**number) for number in range(bands)]


def _log_softmax(logits: Float[Tensor, "*B n"]) -> Float[Tensor, "*B n"]:
    # Half precision would round the sum over many thousand tokens.
    return F.log_softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))


def _drawn(logits: Float[Tensor, "B n"], generator: torch.Generator | None) -> Int[Tensor, " B"]:
    """One of n for each row: the first whose share, with all before it, is above a random number."""
    # A sum over many thousand tokens has to tell the rarest from none.
    ends = logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    ends = ends.cumsum(-1, dtype=widest_dtype(logits.device))
    if not bool(ends[:, -1].isfinite().all()):
        raise ValueError("The model predicts no numbers for the next token: its weights or state hold NaN.")
    shares = torch.rand(len(ends), 1, dtype=ends.dtype, device=ends.device, generator=generator)
    # Rounding must not lead beyond the last one.
    return torch.searchsorted(ends, shares * ends[:, -1:], right=True)[:, 0].clamp_(max=logits.shape[1] - 1)
