"""Tokens that a model writes itself: a prompt is read at once, then each token follows from those before.

Axes: B texts, V tokens of the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from torchs4.configuration import require_whole
from torchs4.inference.batch import StreamBatch
from torchs4.inference.samples import require_streaming
from torchs4.models import SequenceModel

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from jaxtyping import Float, Int
    from torch import Tensor

    from torchs4.models import SequenceModelConfig


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn.

    temperature: 1 takes the model at its word, less makes likely tokens likelier, 0 takes the likeliest.
    top_k: only the k likeliest tokens may be drawn.
    top_p: only the likeliest tokens may be drawn that together have at least this probability.
    forbidden: tokens that are never drawn.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    forbidden: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature is {self.temperature}; it must be 0, or positive and finite.")
        if self.top_k is not None:
            require_whole("top_k", self.top_k, 1)
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; it must be above 0 and at most 1.")

    def draw(self, logits: Float[Tensor, " V"], generator: torch.Generator) -> int:
        """One token."""
        logits = self._allowed(logits)
        if self.temperature == 0:
            return int(logits.argmax())
        return int(torch.multinomial(self.probabilities(logits), 1, generator=generator))

    def draw_each(
        self, logits: Float[Tensor, "B V"], generators: Sequence[torch.Generator]
    ) -> Int[Tensor, " B"]:
        """One token for each row, drawn with its own generator; other tokens than `draw` would, as likely."""
        logits = self._allowed(logits)
        if self.temperature == 0:
            return logits.argmax(-1)
        ends = self.probabilities(logits).cumsum(-1)
        shares = [torch.rand(1, generator=generator, dtype=ends.dtype) for generator in generators]
        # The first end above a share of the whole; rounding must not lead beyond the last one.
        drawn = torch.searchsorted(ends, torch.stack(shares) * ends[:, -1:], right=True)
        return drawn[:, 0].clamp(max=logits.shape[1] - 1)

    def _allowed(self, logits: Float[Tensor, "*B V"]) -> Float[Tensor, "*B V"]:
        logits = logits.detach().cpu().double()
        if self.forbidden:
            logits = logits.index_fill(-1, torch.tensor(self.forbidden), float("-inf"))
        if not bool(logits.isfinite().any(-1).all()) or bool(logits.isnan().any()):
            raise ValueError(
                "The model predicts no numbers for the next token: its weights or state hold NaN."
            )
        return logits

    def probabilities(self, logits: Float[Tensor, "*B V"]) -> Float[Tensor, "*B V"]:
        """How likely each token is to be drawn at a temperature above 0."""
        # The largest one is subtracted first: a small temperature would make it infinite.
        probabilities = ((logits - logits.amax(-1, keepdim=True)) / self.temperature).softmax(-1)
        if self.top_k is None and self.top_p is None:
            return probabilities
        ranked, order = probabilities.sort(descending=True, stable=True)
        kept = torch.ones_like(ranked, dtype=torch.bool)
        if self.top_k is not None:
            kept[..., self.top_k :] = False
        if self.top_p is not None:
            # A token stays if those before it do not suffice: so there is always one.
            kept &= (ranked * kept).cumsum(-1) - ranked < self.top_p * (ranked * kept).sum(-1, keepdim=True)
        ranked = ranked * kept
        return torch.zeros_like(ranked).scatter(-1, order, ranked / ranked.sum(-1, keepdim=True))


def generate_each(
    model: SequenceModel,
    prompts: Sequence[Sequence[int]],
    length: int,
    *,
    sampling: Sampling | None = None,
    seed: int | None = None,
    stop: Collection[int] = (),
) -> Iterator[dict[int, int]]:
    """Yields the next token of every text that goes on, by the number of its prompt, as soon as it is drawn.

    prompts: of any lengths, at least one token each. length: of what is written at most.
    seed: text number i is what `[prompts[i]]` alone gives with seed + i. stop: tokens that end a text.
    """
    require_writing(model)
    require_whole("length", length, 1)
    for number, prompt in enumerate(prompts):
        if len(prompt) == 0:
            raise ValueError(f"Prompt {number} is empty: a model needs at least one token to go on from.")
    return _written(model, prompts, length, sampling or Sampling(), seed, frozenset(stop))


def _written(
    model: SequenceModel,
    prompts: Sequence[Sequence[int]],
    length: int,
    sampling: Sampling,
    seed: int | None,
    stop: frozenset[int],
) -> Iterator[dict[int, int]]:
    first = torch.Generator().seed() if seed is None else seed
    generators = [torch.Generator().manual_seed((first + number) % 2**63) for number in range(len(prompts))]
    batch: StreamBatch[int] = StreamBatch(model)
    for number, prompt in enumerate(prompts):
        batch.join(number)
        batch.push({number: prompt})
    for position in range(length):
        tokens = {number: sampling.draw(batch[number].prediction, generators[number]) for number in batch}
        yield tokens
        for number, token in tokens.items():
            if token in stop:
                batch.leave(number)
        if not batch or position == length - 1:
            return
        batch.push({number: tokens[number] for number in batch})


def generate(
    model: SequenceModel,
    prompts: Sequence[Sequence[int]],
    length: int,
    *,
    sampling: Sampling | None = None,
    seed: int | None = None,
    stop: Collection[int] = (),
) -> list[list[int]]:
    """What a model writes after each prompt, without the prompt; a token that stops a text is its last."""
    written: list[list[int]] = [[] for _ in prompts]
    for tokens in generate_each(model, prompts, length, sampling=sampling, seed=seed, stop=stop):
        for number, token in tokens.items():
            written[number].append(token)
    return written


def require_writing(model: SequenceModel) -> None:
    """Only a model that predicts the next token can write."""
    if isinstance(model, SequenceModel):
        # What it is for comes first: a classifier need not be causal to be the wrong model.
        _require_next_tokens(model.config)
    require_streaming(model)


def _require_next_tokens(config: SequenceModelConfig) -> None:
    if config.vocabulary_size is None:
        raise ValueError(
            "This model reads values, not tokens: it cannot write. Train one with --task next-token."
        )
    if getattr(config, "image", None) is not None:
        raise ValueError("This model draws pictures, it does not write. Try: s4 sample RUN")
    if config.pooling != "none" or config.output_size != config.vocabulary_size:
        each = "at each position" if config.pooling == "none" else "for a whole sequence"
        raise ValueError(
            f"This model does not predict the next token: it gives {config.output_size} numbers {each} and "
            f"knows {config.vocabulary_size} tokens. Train one with --task next-token."
        )
