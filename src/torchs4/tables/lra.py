"""The Long Range Arena: Tables 4 and 10."""

from __future__ import annotations

from torchs4.tables.table import Column, PublishedTable, row

TABLE = PublishedTable(
    name="lra",
    title="Long Range Arena (Tables 4 and 10)",
    columns=(
        Column("ListOps", "lra-listops"),
        Column("Text", "lra-text"),
        Column("Retrieval", "lra-retrieval"),
        Column("Image", "lra-image"),
        Column("Pathfinder", "lra-pathfinder"),
        Column("Path-X", "lra-path-x"),
        # Of the six; a model that fails on Path-X counts there as guessing.
        Column("Avg"),
    ),
    rows=(
        row("Random", "10.00 50.00 50.00 10.00 50.00 50.00 36.67", 10),
        row("Transformer", "36.37 64.27 57.46 42.44 71.40 X 53.66", 4, 10),
        row("Local Attention", "15.82 52.98 53.39 41.46 66.63 X 46.71", 10),
        row("Sparse Trans.", "17.07 63.58 59.59 44.24 71.71 X 51.03", 10),
        row("Longformer", "35.63 62.85 56.89 42.22 69.71 X 52.88", 10),
        row("Linformer", "35.70 53.94 52.27 38.56 76.34 X 51.14", 10),
        row("Reformer", "37.27 56.10 53.40 38.07 68.50 X 50.56", 4, 10),
        row("Sinkhorn Trans.", "33.67 61.20 53.83 41.23 67.45 X 51.23", 10),
        row("Synthesizer", "36.99 61.68 54.67 41.61 69.45 X 52.40", 10),
        row("BigBird", "36.05 64.02 59.29 40.83 74.87 X 54.17", 4, 10),
        row("Linear Trans.", "16.13 65.90 53.09 42.34 75.30 X 50.46", 4, 10),
        row("Performer", "18.01 65.40 53.82 42.77 77.05 X 51.18", 4, 10),
        row("FNet", "35.33 65.11 59.61 38.67 77.80 X 54.42", 4, 10),
        row("Nyströmformer", "37.15 65.52 79.56 41.58 70.94 X 57.46", 4, 10),
        row("Luna-256", "37.25 64.57 79.29 47.38 77.72 X 59.37", 4, 10),
        row("S4 (original)", "58.35 76.02 87.09 87.26 86.05 88.10 80.48", 10, state_space=True),
        row("S4 (updated)", "59.60 86.82 90.90 88.65 94.20 96.35 86.09", 4, 10, state_space=True),
    ),
)
