"""Put a finished run of a recipe into the package: its best model under a name, its card, and its numbers.

python benchmarks/bundle.py RUN NAME [--rates 2 3] [--again] [--data-dir FOLDER]

Without NAME only the numbers go where `s4 list` and `s4 table` look for them: other seeds need no weights.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchs4 import recipes
from torchs4.data import catalogue, data_folder
from torchs4.models import bundled, load_model
from torchs4.training.checkpoints import newest, replace_folder
from torchs4.training.devices import open_accelerator
from torchs4.training.evaluation import evaluate
from torchs4.training.provenance import source_commit
from torchs4.training.run_folder import RunFolder

if TYPE_CHECKING:
    from torchs4.recipes import Preset, Recipe

MEASURED = Path(recipes.__file__).parent / "measured"
# A package that everybody downloads has to stay small.
LARGEST = 4_000_000
_LICENCE_OF_WEIGHTS = "Apache-2.0, like torchs4; that of the data is their own"


def bundle(folder: RunFolder, name: str, summary: dict[str, Any]) -> Path:
    """Copy the run's best model, configuration and summary into the package and write its card."""
    recipe, preset, _ = origin(folder)
    dataset = dataset_of(folder, recipe)
    best, _ = newest(folder.best)
    size = sum(path.stat().st_size for path in best.iterdir())
    if size > LARGEST:
        raise ValueError(f"{best} has {size:,} bytes; a bundled model has at most {LARGEST:,}.")
    if not re.fullmatch(r"[a-z0-9-]+", name):
        raise ValueError(f"name is {name!r}; use small letters, digits and hyphens.")
    target = bundled.FOLDER / name
    shutil.rmtree(target, ignore_errors=True)
    new = RunFolder(target)
    # Without data_dir: where the data lay on this machine helps nobody.
    new.start(folder.name(), folder.config(), [folder.metric()])
    replace_folder(new.best, load_model(best).save_pretrained)
    new.write_summary(summary)
    text = card(name, recipe, preset, summary, dataset)
    (target / bundled.CARD_FILE).write_text(text, encoding="utf-8")
    return target


def dataset_of(folder: RunFolder, recipe: Recipe) -> str:
    """The catalogue's name of what the run has read, which may be another release than the recipe's."""
    release = f"{recipe.dataset}-v{getattr(folder.config().data, 'version', '')}"
    return release if release in {source.name for source in catalogue.SOURCES} else recipe.dataset


def keep_numbers(folder: RunFolder, summary: dict[str, Any]) -> Path:
    """Put the run's summary where `s4 list` and `s4 table` look for it."""
    recipe, preset, seed = origin(folder)
    ending = f".seed{seed}" if seed else ""
    path = MEASURED / f"{recipe.name}.{preset}{ending}.json"
    path.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return path


def origin(folder: RunFolder) -> tuple[Recipe, Preset, int]:
    """Which recipe and preset the run followed, with which seed."""
    match = re.fullmatch(r"([\w-]+) \((\w+)(?:, seed \d+)?\)", folder.name())
    if match is None:
        raise ValueError(f"{folder.path} is {folder.name()!r}, not a run of a recipe.")
    recipe, preset = recipes.find(match[1]), match[2]
    if preset not in recipe.presets:
        raise ValueError(f"{recipe.name} has no preset {preset!r}; it has {', '.join(recipe.presets)}.")
    return recipe, preset, folder.config().seed  # type: ignore[return-value]


def measured_summary(
    folder: RunFolder, rates: tuple[int, ...], data_dir: Path | None, again: bool = False
) -> dict[str, Any]:
    """The run's summary, with what the model gets when it sees only every so manyth sample.

    again: with what today's code measures on the test examples, where rounding has changed since the run.
    """
    summary = folder.summary()
    if summary is None:
        raise ValueError(f"{folder.path} is not finished. Continue with: s4 train --resume {folder.path}")
    # What anybody types, not what was typed on this machine, with its folders.
    summary["command"] = command_of(folder, summary)
    if not rates and not again:
        return summary
    config = folder.config()
    data = config.data.load(data_folder(data_dir or folder.data_dir()))
    if data.test is None:
        raise ValueError(f"The data of {folder.path} have no test examples to measure with.")
    model, accelerator = load_model(newest(folder.best)[0]), open_accelerator(config.precision, "cpu")

    def measured(rate: float) -> dict[str, float]:
        size = config.optim.batch_size
        score = evaluate(model, data.test, data.task, size, accelerator=accelerator, rate=rate)
        return {"test_loss": score.loss} | {f"test_{name}": value for name, value in score.metrics.items()}

    if again:
        summary |= {**measured(1.0), "measured_again_at": source_commit()}
    return {**summary, "rates": {str(rate): measured(float(rate)) for rate in rates}} if rates else summary


def command_of(folder: RunFolder, summary: dict[str, Any]) -> str:
    """What trains such a model: the recipe alone, if the run has changed none of its options."""
    recipe, preset, seed = origin(folder)
    if folder.config() != replace(recipe.config(preset), seed=seed):
        command = str(summary["command"])
        return command if command.startswith("s4 ") else f"python benchmarks/{command}"
    seeded = f" --seed {seed}" if seed else ""
    return f"s4 train {recipe.name}{'' if preset == 'cpu' else f' --preset {preset}'}{seeded}"


def card(name: str, recipe: Recipe, preset: Preset, summary: dict[str, Any], dataset: str) -> str:
    """What somebody has to know before using the weights."""
    metric, machine = recipe.metric, summary["machine"]
    key = f"test_{metric.name}"
    is_bundled = dataset == "(bundled)"
    data = catalogue.find("mnist" if is_bundled else dataset)
    part = "; of these, what comes with torchs4" if is_bundled else ""
    lines = [
        f"# {name}",
        "",
        f"{recipe.title}, preset `{preset}`: {summary['parameters']:,} parameters.",
        "",
        f"- Result: {metric.tell(summary[key])} on {summary['test_examples']:,} test examples, "
        f"`s4 evaluate {name}`",
        *(
            f"- Keeping one of {rate} samples, not trained so: {metric.tell(scores[key])}"
            for rate, scores in summary.get("rates", {}).items()
        ),
        f"- Use: `torchs4.load_model({name!r})`",
        f"- Data: {data.name}, {data.title}{part}",
        f"- Licence of the data: {data.licence}",
        f"- Licence of the weights: {_LICENCE_OF_WEIGHTS}",
        *([f"- What differs from the paper: {recipe.differs}"] if recipe.differs else []),
        f"- Command: `{summary['command']}`",
        f"- Commit: {summary.get('commit') or 'unknown'}, {summary['date'][:10]}",
        f"- Machine: {machine['processor']}, threads: {summary['threads']}, "
        f"{summary['training_seconds'] / 60:.0f} minutes",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--rates", type=int, nargs="*", default=())
    parser.add_argument("--again", action="store_true", help="measure the test examples with today's code")
    parser.add_argument("--data-dir", type=Path)
    chosen = parser.parse_args()
    folder = RunFolder(chosen.run)
    summary = measured_summary(folder, tuple(chosen.rates), chosen.data_dir, chosen.again)
    print(keep_numbers(folder, summary))
    if chosen.name is not None:
        print(bundle(folder, chosen.name, summary))


if __name__ == "__main__":
    main()
