"""The density of CIFAR-10, in bits per dimension: Table 7."""

from __future__ import annotations

from torchs4.recipes.density import METRIC
from torchs4.tables.table import Column, PublishedTable, Row


def _row(model: str, bits: str, state_space: bool = False) -> Row:
    return Row(model, (bits,), (7,), state_space)


TABLE = PublishedTable(
    name="density",
    title="CIFAR-10, the density of pictures (Table 7)",
    columns=(Column("CIFAR-10", "cifar-density"),),
    metric=METRIC,
    rows=(
        _row("Transformer", "3.47"),
        _row("Linear Transformer", "3.40"),
        _row("PixelCNN (2D)", "3.14"),
        _row("Row PixelRNN (2D)", "3.00"),
        _row("PixelCNN++ (2D)", "2.92"),
        _row("Image Transformer (2D)", "2.90"),
        _row("PixelSNAIL (2D)", "2.85"),
        _row("Sparse Transformer (2D)", "2.80"),
        _row("S4, large", "2.85", state_space=True),
        _row("S4, base", "2.92", state_space=True),
    ),
    note="(2D): the model knows which pixels are neighbours; the others read a sequence.",
)
