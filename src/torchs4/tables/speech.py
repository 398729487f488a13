"""Speech Commands, ten words: Table 5."""

from __future__ import annotations

from torchs4.tables.table import Column, PublishedTable, row

TABLE = PublishedTable(
    name="speech",
    title="Speech Commands, ten words (Table 5)",
    columns=(Column("MFCC", "sc10-mfcc"), Column("Raw", "sc10-raw"), Column("0.5×", "sc10-raw", rate=2)),
    rows=(
        row("Transformer", "90.75 X X", 5),
        row("Performer", "80.85 30.77 30.68", 5),
        row("ODE-RNN", "65.9 X X", 5),
        row("NRDE", "89.8 16.49 15.12", 5),
        row("ExpRNN", "82.13 11.6 10.8", 5),
        row("LipschitzRNN", "88.38 X X", 5),
        row("CKConv", "95.3 71.66 65.96", 5),
        row("WaveGAN-D", "X 96.25 X", 5),
        row("LSSL", "93.58 X X", 5, state_space=True),
        row("S4", "93.96 98.32 96.30", 5, state_space=True),
    ),
)
