"""Teaches an S4 model to read handwritten digits one pixel at a time, then streams one digit through it.

The first half is `s4 train digits`. Takes about three minutes on two CPU cores. Needs the extra packages of:
pip install "torchs4[train]"
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.table import Table

from torchs4 import S4Block, SequenceModel, cli
from torchs4.data import LabeledDigits, load_digits
from torchs4.plots import plot_forming_prediction, plot_kernels
from torchs4.training.run_folder import free_folder

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

SIDE = 28
PIXELS = SIDE * SIDE
# Convolution and recurrence round differently in float32, by about 1e-5; a wrong state would be far off.
TOLERANCE = 1e-3

console = Console(highlight=False)


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
    plot_kernels(kernels, [f"Δ = {size:.4f}" for size in step_sizes[some]]).savefig(output / "memories.png")


def show_streaming(output: Path) -> int:
    """The second half; returns the exit code."""
    model = SequenceModel.from_pretrained(output / "best")
    image, label = first_read_right(model, load_digits().test)
    console.print(
        f"\nThe same weights as a recurrence, one pixel per step, on the first digit read right: a {label}."
    )
    streamed = stream(model, image)
    difference = compare(model, image, streamed)
    console.print(f"Largest difference between recurrence and convolution: {difference:.1e}\n")
    draw(model, image, streamed, label, output)
    console.print(f"Saved in {output}:", soft_wrap=True)
    console.print("  prediction.png  how the prediction forms while the digit is read")
    console.print("  memories.png    what eight features of the first layer remember, for how long")
    console.print("  summary.json    the result; config.json, metrics.jsonl and curves.png say how it came")
    console.print("  best            the trained model; SequenceModel.from_pretrained loads it")
    console.print("Next: `s4 list` shows all experiments, `s4 train digits --help` every option.")
    if not difference < TOLERANCE:
        print(f"Recurrence and convolution disagree: {difference:.1e} > {TOLERANCE}.", file=sys.stderr)
        return 1
    return 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0],
        epilog="Further options are those of `s4 train digits --help`.",
    )
    parser.add_argument("--output", type=Path, default=None, help="where to save (runs/quickstart)")
    options, rest = parser.parse_known_args(arguments)
    output = options.output or free_folder(Path("runs"), "quickstart")
    console.print("The first steps ever on a machine compile the operators, which takes up to a minute.")
    return cli.main(["train", "digits", "--output", str(output), *rest]) or show_streaming(output)


if __name__ == "__main__":
    sys.exit(main())
