"""How fast models write: words per second (Table 8) and images per second (Table 7), by D.3.3's protocol.

    python benchmarks/generation_speed.py                    # every piece that is missing, then the results
    python benchmarks/generation_speed.py --width 128 --groups 2 --budget 0.2 --largest 16   # a try
    python benchmarks/generation_speed.py --keep-memory      # in a process that keeps freed memory
    python benchmarks/generation_speed.py --collect          # only write results, picture and table

All models have the paper's size, and write at the largest batch whose memory of the past fits into the
budget, or at the largest batch asked for: beyond it, time grows with the batch. Memory of the past means
states, or keys and values, without weights. While a text of L words is written, the context is L / 2 on
average: that is where a step of the Transformer is timed, whose time grows linearly with the context.

The Transformer is a plain decoder with fused attention, whose keys and values lie in memory that is allocated
once for the whole text, with the same products as S4; or the GPT-2 backbone of the package transformers with
its own cache, whichever is faster. All have the same table of 267,735 words, and draw from the whole of it.
Latency is a step at batch 1. Two bounds: what the Transformer would write if it did nothing but read its keys
and values, at the speed at which this machine reads memory; and what S4 would write if it did nothing but
multiply by its weights, at the speed of one large product. Models take turns at every context; medians of
three.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from harness import RESULTS, THREADS, Pieces, keep_for_tables, record, show
from matplotlib.ticker import LogLocator, NullLocator, ScalarFormatter
from torch import Tensor, nn

from torchs4 import ops
from torchs4.configuration import with_options
from torchs4.layers.block import mixed
from torchs4.models import LanguageModel, LanguageModelConfig, UNetModel
from torchs4.models.adaptive import AdaptiveTable
from torchs4.models.states import named_tensors
from torchs4.recipes import recipe_config

if TYPE_CHECKING:
    from collections.abc import Callable

CONTEXTS = (512, 1024, 2048, 4096, 8192)
WORDS, CUTOFFS = 267_735, (20_000, 40_000, 200_000)
IMAGE = 3072
MODELS = ("S4", "Transformer", "GPT-2", "Linear Transformer")
WIDTH, GROUPS, HEADS = 1024, 16, 8
REPEATS = 3


class Decoder(nn.Module):
    """A plain Transformer decoder that writes: keys and values of (B, heads, L, D) in memory of its own."""

    def __init__(self, width: int, layers: int, table: nn.Module) -> None:
        super().__init__()
        self.table, self.heads, self.layers = table, HEADS, nn.ModuleList()
        for _ in range(layers):
            self.layers.append(
                nn.ModuleDict(
                    {
                        "norm": nn.LayerNorm(width),
                        "query_key_value": nn.Linear(width, 3 * width),
                        "output": nn.Linear(width, width),
                        "second_norm": nn.LayerNorm(width),
                        "expand": nn.Linear(width, 4 * width),
                        "contract": nn.Linear(4 * width, width),
                    }
                )
            )
        self.norm = nn.LayerNorm(width)

    def empty(self, batch: int, length: int) -> Tensor:
        width = self.norm.normalized_shape[0]
        # Written, or the system would not hand it out.
        return torch.zeros(len(self.layers), 2, batch, self.heads, length, width // self.heads)

    def step(self, tokens: Tensor, memory: Tensor, seen: int) -> Tensor:
        x = self.table.embed(tokens)
        for layer, (keys, values) in zip(self.layers, memory, strict=True):
            all_three = mixed(layer["query_key_value"], layer["norm"](x)).unflatten(1, (3, self.heads, -1))
            query, keys[:, :, seen], values[:, :, seen] = all_three.unbind(1)
            past = slice(seen + 1)
            y = F.scaled_dot_product_attention(query[:, :, None], keys[:, :, past], values[:, :, past])
            x = x + mixed(layer["output"], y[:, :, 0].flatten(1))
            x = x + mixed(layer["contract"], F.gelu(mixed(layer["expand"], layer["second_norm"](x))))
        return self.table.draw(self.norm(x))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--budget", type=float, default=4.0, help="GB for the memory of the past")
    parser.add_argument("--largest", type=int, default=256, help="batch")
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--collect", action="store_true", help="write what is there")
    parser.add_argument("--keep-memory", action="store_true", help="in a process that keeps freed memory")
    parser.add_argument("--words", type=int, default=WORDS)
    chosen = parser.parse_args()
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    sizes = f"{chosen.width}x{chosen.groups}x{chosen.words}-{chosen.budget:g}gb-{chosen.largest}"
    pieces = Pieces(f"generation_speed_{sizes}")
    with torch.inference_mode():
        if not chosen.collect:
            measure(pieces, chosen)
    collect(pieces, chosen)


def measure(pieces: Pieces, chosen: argparse.Namespace) -> None:
    pieces.measure("gigabytes per second", read_speed)
    pieces.measure("gigaflops", multiplication_speed)
    if any(f"{what} {context}" not in pieces.found for context in CONTEXTS for what in ("text", "one")):
        table = AdaptiveTable(chosen.words, chosen.width, CUTOFFS).eval()
        models = {name: build(name, table, chosen) for name in MODELS}
        for name, model in models.items():
            pieces.measure(f"{name} parameters", partial(count, model))
        pieces.measure("S4 multiplications", partial(multiplications, models["S4"]))
        for context in CONTEXTS:
            batches = {name: fitting(name, model, context, chosen) for name, model in models.items()}
            pieces.measure(f"text {context}", partial(take_turns, models, batches, context))
            pieces.measure(f"one {context}", partial(take_turns, models, dict.fromkeys(models, 1), context))
    if "images" not in pieces.found:
        # The paper's U-Net, and a decoder with as many weights: 12 W² in each of 16 layers.
        unet: Any = UNetModel(replace(picture_config(), output_size=256, vocabulary_size=769)).eval()
        width = 8 * round((count(unet) / (12 * 16)) ** 0.5 / 8)
        decoder: Any = Decoder(width, 16, AdaptiveTable(769, width)).eval()
        linear = linear_transformer(width, 16, 769)
        pictures = {"S4": unet, "Transformer": decoder, "Linear Transformer": linear}
        batches = {name: fitting(name, model, IMAGE, chosen) for name, model in pictures.items()}
        pieces.measure("images", partial(take_turns, pictures, batches, IMAGE))


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def fitting(name: str, model: Any, context: int, chosen: argparse.Namespace) -> int:
    """The largest batch."""
    return max(1, min(int(1e9 * chosen.budget / bytes_per_text(name, model, context)), chosen.largest))


def take_turns(models: dict[str, Any], batches: dict[str, int], context: int) -> dict[str, Any]:
    """Milliseconds of a step in the middle of a text, for each model at its batch."""
    times: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(REPEATS):
        for name, model in models.items():
            run = RUNS[name](model, batches[name], context)
            # The first one compiles and prepares.
            run()
            times[name].append(run())
    return {name: {"batch": batches[name], "ms": statistics.median(taken)} for name, taken in times.items()}


def picture_config() -> Any:
    return with_options(recipe_config("cifar-density", "paper").model, pooling="none")


def build(name: str, table: nn.Module, chosen: argparse.Namespace) -> Any:
    if name == "Transformer":
        return Decoder(chosen.width, chosen.groups, table).eval()
    if name == "GPT-2":
        return gpt2(chosen.width, chosen.groups, table)
    if name == "Linear Transformer":
        return linear_transformer(chosen.width, chosen.groups, chosen.words)
    config: LanguageModelConfig = with_options(LanguageModelConfig(), cutoffs=CUTOFFS, features=chosen.width)
    config = with_options(config, layers=2 * chosen.groups, state_size=64, per_feature=True)
    return LanguageModel(replace(config, vocabulary_size=chosen.words)).eval()


def linear_transformer(width: int, layers: int, words: int) -> LanguageModel:
    config = with_options(
        LanguageModelConfig(), layer="linear-transformer", heads=HEADS, mixing="linear", features=width
    )
    config = with_options(config, layers=layers, feed_forward_every=1, cutoffs=CUTOFFS)
    return LanguageModel(replace(config, vocabulary_size=words)).eval()


def multiplications(model: LanguageModel) -> int:
    """By weights, for one word: those of all blocks, of the projections at both ends, of frequent words."""
    blocks = sum(layer.weight.numel() for layer in model.stack.modules() if isinstance(layer, nn.Linear))
    table = model.table
    ends = 0 if table.projection is None else 2 * table.projection.numel()
    return blocks + ends + table.vectors[0].numel()


def gpt2(width: int, layers: int, table: nn.Module) -> nn.Module:
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(vocab_size=1, n_positions=max(CONTEXTS), n_embd=width, n_layer=layers, n_head=HEADS)
    model = GPT2Model(config).eval()
    model.table = table
    return model


def bytes_per_text(name: str, model: Any, context: int) -> int:
    """What a model remembers of one text while it writes it."""
    if name == "Transformer":
        return 4 * model.empty(1, 1).numel() * context
    if name == "GPT-2":
        return 4 * 2 * model.config.n_layer * model.config.n_embd * context
    return 4 * sum(tensor.numel() for _, tensor in named_tensors(model.initial_state(1)))


def run_decoder(model: Decoder, batch: int, context: int) -> Callable[[], float]:
    tokens, memory = torch.randint(1, 700, (batch,)), model.empty(batch, context).fill_(0.1)
    return partial(milliseconds, lambda: model.step(tokens, memory, context // 2))


def run_gpt2(model: Any, batch: int, context: int) -> Callable[[], float]:
    from transformers import DynamicCache

    config, tokens = model.config, torch.randint(1, 700, (batch,))
    past = torch.full((batch, HEADS, context // 2, config.n_embd // HEADS), 0.1)

    def step() -> None:
        hidden = model(inputs_embeds=model.table.embed(tokens)[:, None], past_key_values=cache)
        model.table.draw(hidden.last_hidden_state[:, 0])

    def run() -> float:
        nonlocal cache
        cache = DynamicCache()
        for layer in range(config.n_layer):
            cache.update(past, past, layer)
        return milliseconds(step)

    cache: Any = None
    return run


def run_recurrence(model: Any, batch: int, context: int) -> Callable[[], float]:
    """Of a step, averaged over a frame of the coarsest level where a model has levels."""
    state, tokens, steps = model.initial_state(batch), torch.randint(1, 257, (batch,)), model.period()

    def frame() -> None:
        nonlocal state
        for _ in range(steps):
            if isinstance(model, LanguageModel):
                _, state = model.write(tokens, state)
            else:
                prediction, state = model.step(tokens, state)
                torch.multinomial(prediction.softmax(-1), 1)

    return lambda: milliseconds(frame) / steps


RUNS: dict[str, Callable[[Any, int, int], Callable[[], float]]] = {
    "S4": run_recurrence,
    "Transformer": run_decoder,
    "GPT-2": run_gpt2,
    "Linear Transformer": run_recurrence,
}


def milliseconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - start)


def multiplication_speed() -> float:
    """How many billion multiplications and additions of a large product this machine does in a second."""
    x, weight = torch.randn(2048, 2048), torch.randn(2048, 2048)
    times = [milliseconds(lambda: ops.linear(x, weight)) for _ in range(2 * REPEATS)]
    return 2e-9 * 2048**3 / (statistics.median(times) / 1e3)


def read_speed() -> float:
    """How many gigabytes of memory this machine reads in a second."""
    numbers = torch.ones(2**27)
    times = [milliseconds(numbers.sum) for _ in range(2 * REPEATS)]
    return 4e-9 * numbers.numel() / (statistics.median(times) / 1e3)


def collect(pieces: Pieces, chosen: argparse.Namespace) -> None:
    found = pieces.found
    contexts: dict[str, Any] = {}
    for context in CONTEXTS:
        speeds = {}
        for name, cell in found.get(f"text {context}", {}).items():
            alone = found.get(f"one {context}", {}).get(name, {}).get("ms")
            rate = 1e3 * cell["batch"] / cell["ms"]
            speeds[name] = {"batch": cell["batch"], "words_per_second": rate, "latency_ms": alone}
        if speeds:
            bytes_read = 4 * 2 * chosen.groups * chosen.width * context / 2
            bound = 1e9 * found["gigabytes per second"] / bytes_read
            contexts[str(context)] = {"models": speeds, "transformer_bound": bound}
    s4_bound = 1e9 * found["gigaflops"] / (2 * found["S4 multiplications"])
    images = {
        name: 1e3 * cell["batch"] / cell["ms"] / IMAGE for name, cell in found.get("images", {}).items()
    }
    parameters = {name: found[f"{name} parameters"] for name in MODELS if f"{name} parameters" in found}
    results = {"budget_gb": chosen.budget, "largest_batch": chosen.largest, "width": chosen.width}
    results |= {"groups": chosen.groups, "parameters": parameters, "contexts": contexts, "images": images}
    results |= {"gigabytes_per_second": found["gigabytes per second"], "gigaflops": found["gigaflops"]}
    results |= {"s4_bound": s4_bound, "pieces": pieces.about}
    rows = []
    for context, part in contexts.items():
        for name, cell in part["models"].items():
            rows.append([context, name, cell["batch"], cell["words_per_second"], cell["latency_ms"]])
            rows[-1].append(part["transformer_bound"])
    show("words", ["context", "model", "batch", "words / s", "latency ms", "Transformer's bound"], rows)
    print(f"S4's bound: {s4_bound:.0f} words / s at {found['gigaflops']:.0f} Gflop/s")
    show("images", ["model", "images / s"], [[name, rate] for name, rate in images.items()])
    if (chosen.width, chosen.groups, chosen.words) == (WIDTH, GROUPS, WORDS):
        path = record("generation_speed", results)
        keep_for_tables("generation_speed", path, {key: results[key] for key in results if key != "pieces"})
        picture(contexts, s4_bound)


def picture(contexts: dict[str, Any], s4_bound: float) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
    for name in MODELS:
        points = {int(c): part["models"][name] for c, part in contexts.items() if name in part["models"]}
        axes[0].plot(list(points), [p["words_per_second"] for p in points.values()], "o-", label=name)
        axes[1].plot(list(points), [p["latency_ms"] for p in points.values()], "o-", label=name)
    bounds = [part["transformer_bound"] for part in contexts.values()]
    axes[0].plot(list(map(int, contexts)), bounds, "k:", label="Transformer: reading keys and values alone")
    axes[0].axhline(s4_bound, color="grey", linestyle="--", label="S4: multiplying by its weights alone")
    titles = "words per second, largest batch", "milliseconds per word, batch 1"
    for axis, title in zip(axes, titles, strict=True):
        axis.set(xscale="log", xlabel="words of the text", title=title)
        axis.set_xticks(CONTEXTS, list(map(str, CONTEXTS)))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.grid(alpha=0.3)
    axes[0].set_yscale("log")
    axes[0].yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    axes[0].yaxis.set_major_formatter(ScalarFormatter())
    axes[0].yaxis.set_minor_locator(NullLocator())
    axes[1].set_ylim(bottom=0)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(RESULTS / "generation_speed.png", dpi=120)


if __name__ == "__main__":
    main()
