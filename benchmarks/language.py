"""Language models of one size and one training time: S4, LSTM, Transformer; and compressors on the same text.

    python benchmarks/language.py --compressors          # xz and zstd alone, two minutes
    python benchmarks/language.py                        # every piece that is missing, then the result files
    python benchmarks/language.py --list                 # the pieces that are missing: task, model
    for task in words characters; do python benchmarks/language.py --task $task & done   # on two cores
    python benchmarks/language.py --collect              # only write results/language.json
    python benchmarks/language.py --minutes 0.2          # a try
    python benchmarks/language.py --precision bfloat16   # all models with products in half precision

A piece is one training by the recipe `wikitext-2` (words) or `characters`: so many minutes of one core's work
(what else runs does not count) for training and measuring on validation text, then the best model on the
whole test text, once in passages that know nothing of each other and, where a state of constant size allows
it, once in one unbroken stream. The LSTM and the Transformer get the width at which they have about as many
weights as S4; learning rates are those in RATES, which nothing was tuned for. Each piece is kept in
runs/language as soon as it is done, and a killed one goes on where it was. With fifteen minutes each, all six
take about two hours of one core.

Compressors get the test text alone, and after the training text, which is what models have read too. Bits
per character of a model of words are its bits per word, times the words, over the characters of the text.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import lzma
import time
from typing import TYPE_CHECKING, Any

import torch
from arena import closest
from harness import RESULTS, Pieces, record, show

from torchs4.configuration import with_options
from torchs4.data import data_folder
from torchs4.models import build_model
from torchs4.recipes import recipe_config
from torchs4.training.config import BudgetOptions
from torchs4.training.devices import open_accelerator
from torchs4.training.display import Display
from torchs4.training.evaluation import evaluate_unbroken
from torchs4.training.finish import load_best
from torchs4.training.run_folder import RunFolder
from torchs4.training.session import run

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchs4.data.sequences import SequenceData
    from torchs4.training.config import TrainingConfig

TASKS = {"words": "wikitext-2", "characters": "characters"}
# None takes the recipe's.
RATES = {"s4": None, "lstm": 0.003, "transformer": 0.001}
PRECISIONS = ("float32", "bfloat16")
MINUTES = 15.0
WIDTHS = range(32, 513, 8)
PIECES = RESULTS.parents[1] / "runs" / "language"
UNBROKEN = "unbroken.json"
# xz's -9 looks back 64 MiB, zstd's -19 eight: as far as the training text reaches for both, or nearly.
XZ_LEVEL, ZSTD_LEVEL, ZSTD_LONG = 9, 19, 27


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of training, for each piece")
    parser.add_argument("--task", choices=TASKS, action="append", help="only this one; may be repeated")
    parser.add_argument("--model", choices=RATES, action="append", help="only this one; may be repeated")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", choices=PRECISIONS, default=PRECISIONS[0], help="of all products")
    parser.add_argument("--list", action="store_true", help="name the pieces that are not done yet")
    parser.add_argument("--collect", action="store_true", help="write the result file from what is there")
    parser.add_argument("--compressors", action="store_true", help="only what compressors need")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    if chosen.compressors:
        compressors()
        return
    missing = [
        (task, model)
        for task in chosen.task or TASKS
        for model in chosen.model or RATES
        if not (folder_of(task, model, chosen.minutes, chosen.precision).path / UNBROKEN).is_file()
    ]
    if chosen.list:
        for task, model in missing:
            print(f"{task}\t{model}")
        return
    if not chosen.collect:
        for task, model in missing:
            do_piece(task, model, chosen.minutes, chosen.precision)
    collect(chosen.minutes, chosen.precision)


def do_piece(task: str, model: str, minutes: float, precision: Any) -> None:
    data = recipe_config(TASKS[task]).data.load(data_folder())
    folder, config = folder_of(task, model, minutes, precision), config_of(task, model, data, minutes)
    config = dataclasses.replace(config, precision=precision)
    if folder.summary() is None:
        # S4's is a run of the recipe, which benchmarks/bundle.py can put into the package.
        is_recipe = model == "s4" and precision == recipe_config(TASKS[task]).precision
        name = f"{TASKS[task]} (cpu)" if is_recipe else ""
        resume = folder.is_begun()
        run(folder, config, name=name, data=data, resume=resume, pictures=False, clock=time.process_time)
    with Display() as display:
        best, unbroken = load_best(folder, display), None
        if data.test is not None and model != "transformer":
            counting = display.counting("reading in one stream")
            accelerator = open_accelerator(config.precision, "cpu")
            score = evaluate_unbroken(best, data.test, data.task, accelerator=accelerator, progress=counting)
            unbroken = score.metrics
    (folder.path / UNBROKEN).write_text(json.dumps(unbroken) + "\n", encoding="utf-8")


def config_of(task: str, model: str, data: SequenceData, minutes: float) -> TrainingConfig[Any]:
    """The recipe with another layer, at the width that makes it as large, and with this budget."""
    config = recipe_config(TASKS[task])
    budget = BudgetOptions(epochs=1000, max_minutes=minutes, evaluate_every=200, validation_examples=100)
    config = dataclasses.replace(config, budget=budget)
    rate = RATES[model]
    if rate is None:
        return config
    target = parameters(config.model, data)
    other = with_options(config.model, layer=model)
    width = closest(WIDTHS, lambda width: abs(parameters(with_options(other, features=width), data) - target))
    return dataclasses.replace(
        config,
        model=with_options(other, features=width),
        optim=dataclasses.replace(config.optim, lr=rate),
    )


def parameters(config: Any, data: SequenceData) -> int:
    model = build_model(config, data.input, data.task.output)
    return sum(parameter.numel() for parameter in model.parameters())


def folder_of(task: str, model: str, minutes: float, precision: str) -> RunFolder:
    kind = "" if precision == PRECISIONS[0] else f"-{precision}"
    return RunFolder(PIECES / f"{minutes:g}-minutes{kind}" / f"{task}-{model}")


def collect(minutes: float, precision: str) -> None:
    results: dict[str, Any] = {"minutes": minutes, "precision": precision, "tasks": {}}
    rows = []
    for task, recipe in TASKS.items():
        for model in RATES:
            folder = folder_of(task, model, minutes, precision)
            summary = folder.summary()
            if summary is None or not (folder.path / UNBROKEN).is_file():
                continue
            unbroken = json.loads((folder.path / UNBROKEN).read_text(encoding="utf-8"))
            names = "test_perplexity", "test_bits", "best_validation_perplexity", "best_validation_bits"
            names += "parameters", "steps", "epochs", "training_seconds", "commit"
            found = {name: summary[name] for name in names if name in summary}
            found["unbroken"] = unbroken
            found["bits_per_character"] = summary["test_bits"]
            if task == "words":
                found["bits_per_character"] *= test_words() / len(text_of("test"))
            results["tasks"].setdefault(recipe, {})[model] = found
            rows.append([task, model, summary["parameters"], summary["steps"], summary["test_perplexity"]])
            rows[-1] += [found["bits_per_character"], "" if unbroken is None else unbroken["perplexity"]]
    columns = ["task", "model", "parameters", "steps", "perplexity", "bits per character", "unbroken"]
    show(f"{minutes:g} minutes each, {precision}", columns, rows)
    if minutes == MINUTES:
        record("language" if precision == PRECISIONS[0] else f"language_{precision}", results)


def compressors() -> None:
    """What compressors need for the test text, alone and after the training text."""
    pieces = Pieces("language_compressors")
    characters = len(text_of("test"))
    before, text = text_of("train").encode(), text_of("test").encode()
    results: dict[str, Any] = {"characters": characters, "bytes": len(text), "bits_per_character": {}}
    for name, (compress, restore) in packers().items():

        def bits(data: bytes, compress: Any = compress, restore: Any = restore) -> int:
            packed = compress(data)
            if restore(packed) != data:
                raise ValueError("What was packed is not what comes out.")
            return 8 * len(packed)

        alone = pieces.measure(f"{name} alone", lambda bits=bits: bits(text))
        both = pieces.measure(f"{name} both", lambda bits=bits: bits(before + text))
        first = pieces.measure(f"{name} first", lambda bits=bits: bits(before))
        results["bits_per_character"][name] = {
            "alone": alone / characters,
            "after the training text": (both - first) / characters,
        }
    record("language_compressors", results)
    found = results["bits_per_character"]
    columns = ["alone", "after the training text"]
    show(
        "bits per character of WikiText-2's test text",
        ["", *columns],
        [[n, *r.values()] for n, r in found.items()],
    )


def packers() -> dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]]:
    import zstandard

    far = zstandard.ZstdCompressionParameters.from_level(ZSTD_LEVEL, window_log=ZSTD_LONG)
    return {
        "xz -9": (lambda data: lzma.compress(data, preset=XZ_LEVEL), lzma.decompress),
        "zstd -19": (
            zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress,
            zstandard.ZstdDecompressor().decompress,
        ),
        "zstd -19 --long=27": (
            zstandard.ZstdCompressor(compression_params=far).compress,
            zstandard.ZstdDecompressor(max_window_size=2**ZSTD_LONG).decompress,
        ),
    }


def text_of(part: str) -> str:
    return (data_folder() / "wikitext-2" / f"wiki.{part}.tokens").read_bytes().decode()


def test_words() -> int:
    """Words that are asked for: all but the first one, the ends of lines among them."""
    text = text_of("test")
    return len(text.split()) + text.count("\n") - 1


if __name__ == "__main__":
    main()
