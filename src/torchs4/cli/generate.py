"""`s4 generate RUN`: text that a model of characters or words writes, shown as it is written."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from torchs4.cli.consoles import errors
from torchs4.cli.models import best_model, named_run
from torchs4.inference import Sampling, write
from torchs4.inference.writing import reads_words, unknown_parts


@dataclass(frozen=True)
class GenerateArguments:
    """Text that a run's best model writes after a prompt.

    Attributes:
        run: a folder that `s4 train characters`, `s4 train wikitext-2` or `s4 train --data TEXT --task
            next-token` wrote.
        prompt: how the text begins; without one the model begins a new text. Words that a model of words
            does not know are read as <unk>.
        length: characters or words to write at most; the model may end the text before.
        temperature: 1 takes the model at its word, less makes likely characters or words likelier, 0 always
            takes the likeliest.
        top_k: only the k likeliest may be drawn.
        top_p: only the likeliest may be drawn that together have at least this probability.
        seed: the same number gives the same text; by default every text is another.
    """

    run: tyro.conf.Positional[Path]
    prompt: str = ""
    length: int = 200
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None


def generate(arguments: list[str]) -> int:
    """Write."""
    chosen = tyro.cli(GenerateArguments, prog="s4 generate", args=arguments)
    sampling = Sampling(chosen.temperature, chosen.top_k, chosen.top_p)
    model = best_model(named_run(chosen.run))
    text = write(model, chosen.prompt, chosen.length, sampling=sampling, seed=chosen.seed)
    unknown = unknown_parts(model, chosen.prompt)
    if unknown:
        kind = "words" if reads_words(model) else "characters"
        errors.print(
            f"The model does not know these {kind}, which it reads as unknown: {' '.join(unknown)}",
            markup=False,
            soft_wrap=True,
        )
    # Not through rich, which would wrap lines and read brackets as styles.
    print(chosen.prompt, end="", flush=True)
    try:
        for part in text:
            print(part, end="", flush=True)
    finally:
        print(flush=True)
    return 0
