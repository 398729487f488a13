"""Teaches an S4 model to read handwritten digits one pixel at a time, then streams one digit through it.

Takes about three minutes on two CPU cores. Needs the extra packages of: pip install "torchs4[train]"
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from torch.nn import functional as F

from torchs4 import S4Block, S4BlockConfig, S4Config, SequenceModel, parameter_groups
from torchs4.data import Digits, LabeledDigits, load_digits
from torchs4.plots import plot_forming_prediction, plot_kernels

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor

BATCH_SIZE = 25
LEARNING_RATE = 0.01
SIDE = 28
PIXELS = SIDE * SIDE
# Convolution and recurrence round differently in float32, by about 1e-5; a wrong state would be far off.
TOLERANCE = 1e-3

console = Console(highlight=False)


def build_model() -> SequenceModel:
    # Batch norm learns far faster here than layer norm.
    block = S4BlockConfig(layer=S4Config(state_size=32), norm="batch")
    return SequenceModel(input_features=1, output_size=10, features=64, num_layers=2, block=block)


def train(model: SequenceModel, digits: Digits, epochs: int) -> None:
    images, labels = digits.train
    steps = epochs * math.ceil(len(labels) / BATCH_SIZE)
    # The usual, lower rate for the state-space parameters would not get far in so few steps.
    groups = parameter_groups(model, lr=LEARNING_RATE, weight_decay=0.05, ssm_lr=LEARNING_RATE)
    optimizer = torch.optim.AdamW(groups)
    # Up during the first tenth, then down along a cosine.
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, 10 * (step + 1) / steps) * (1 + math.cos(math.pi * step / steps)) / 2
    )
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("training", total=steps)
        for epoch in range(1, epochs + 1):
            model.train()
            for batch in torch.randperm(len(labels)).split(BATCH_SIZE):
                predictions = model(images[batch], lengths=cut_half_short(len(batch)))
                loss = F.cross_entropy(predictions, labels[batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                progress.update(bar, advance=1, description=f"epoch {epoch}, loss {loss.item():.2f}")
            right = accuracy(model, digits.validation)
            console.print(f"Epoch {epoch} of {epochs}: reads {right:.1%} of the validation digits right.")


def cut_half_short(count: int) -> Int[Tensor, " count"]:
    """How much to show of each digit: half of them whole, half up to any pixel, to learn to guess early."""
    cut = torch.randint(SIDE, PIXELS + 1, (count,))
    return torch.where(torch.rand(count) < 0.5, cut, PIXELS)


@torch.no_grad()
def accuracy(model: SequenceModel, split: LabeledDigits) -> float:
    model.eval()
    predictions = torch.cat([model(images).argmax(dim=1) for images in split.images.split(100)])
    return (predictions == split.labels).float().mean().item()


@torch.no_grad()
def first_read_right(model: SequenceModel, split: LabeledDigits) -> tuple[Float[Tensor, "L 1"], int]:
    """A digit worth watching; without any, the first one."""
    right = model(split.images[:100]).argmax(dim=1) == split.labels[:100]
    index = int(right.int().argmax())
    return split.images[index], int(split.labels[index])


@torch.no_grad()
def stream(model: SequenceModel, image: Float[Tensor, "L 1"]) -> Float[Tensor, "L classes"]:
    """What the model says after each pixel; all it keeps of the past is a state of constant size."""
    state = model.initial_state(batch_size=1)
    outputs = []
    for pixel in image:
        output, state = model.step(pixel[None], state)
        outputs.append(output[0])
    return torch.stack(outputs)


@torch.no_grad()
def compare(model: SequenceModel, image: Float[Tensor, "L 1"], streamed: Float[Tensor, "L classes"]) -> float:
    """Show how the prediction forms; return how far it is from the convolution's, at most."""
    table = Table("pixels read", "prediction", "probability", "difference to convolution")
    differences = []
    for seen in range(4 * SIDE, PIXELS + 1, 4 * SIDE):
        convolved = model(image[None, :seen])[0]
        differences.append((convolved - streamed[seen - 1]).abs().max().item())
        probability, guess = streamed[seen - 1].softmax(dim=0).max(dim=0)
        table.add_row(str(seen), str(guess.item()), f"{probability:.0%}", f"{differences[-1]:.0e}")
    console.print(table)
    return max(differences)


@torch.no_grad()
def draw(model: SequenceModel, image: Tensor, streamed: Tensor, label: int, output: Path) -> None:
    prediction = plot_forming_prediction(image.view(SIDE, SIDE), streamed.softmax(dim=1), label)
    prediction.savefig(output / "prediction.png")
    block = model.stack.blocks[0]
    assert isinstance(block, S4Block)
    # A small step size Δ is a slow clock: the memories get shorter from panel to panel.
    step_sizes, order = block.layer.log_step_size.exp().sort()
    some = torch.linspace(0, len(order) - 1, 8).long()
    kernels = block.layer.kernel(PIXELS)[0, order[some]]
    plot_kernels(kernels, [f"Δ = {size:.4f}" for size in step_sizes[some]]).savefig(output / "kernels.png")


def run(digits: Digits, epochs: int, seed: int, output: Path) -> int:
    """Everything; returns the exit code."""
    torch.manual_seed(seed)
    model = build_model()
    size, count = sum(weight.numel() for weight in model.parameters()), len(digits.train.labels)
    console.print(f"{size:,} parameters learn from {count:,} digits, each a sequence of {PIXELS} pixels.")
    console.print("The first steps ever on a machine compile the operators, which takes up to a minute.")
    start = time.perf_counter()
    train(model, digits, epochs)
    console.print(f"Training took {time.perf_counter() - start:.0f} s.")
    right, count = accuracy(model, digits.test), len(digits.test.labels)
    console.print(f"[bold]Of {count:,} test digits, never seen before, {right:.1%} are read right.[/bold]\n")

    image, label = first_read_right(model, digits.test)
    console.print(
        f"The same weights as a recurrence, one pixel per step, on the first digit read right: a {label}."
    )
    streamed = stream(model, image)
    difference = compare(model, image, streamed)
    console.print(f"Largest difference between recurrence and convolution: {difference:.1e}\n")

    model.save_pretrained(output / "model")
    draw(model, image, streamed, label, output)
    console.print(f"Saved in {output}:", soft_wrap=True)
    console.print("  prediction.png  how the prediction forms while the digit is read")
    console.print("  kernels.png     what eight features of the first layer remember, for how long")
    console.print("  model           the trained model; SequenceModel.from_pretrained loads it")
    console.print("Next: python examples/quickstart.py --epochs 10, or change build_model in this script.")
    if not difference < TOLERANCE:
        print(f"Recurrence and convolution disagree: {difference:.1e} > {TOLERANCE}.", file=sys.stderr)
        return 1
    return 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=4, help="passes through the digits (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers (%(default)s)")
    parser.add_argument("--output", type=Path, default=Path("quickstart"), help="where to save (%(default)s)")
    options = parser.parse_args(arguments)
    if options.epochs < 1:
        parser.error(f"--epochs is {options.epochs}; it must be at least 1.")
    return run(load_digits(), options.epochs, options.seed, options.output)


if __name__ == "__main__":
    sys.exit(main())
