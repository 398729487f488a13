"""Images pixel by pixel: Tables 6 and 12."""

from __future__ import annotations

from torchs4.tables.table import Column, PublishedTable, row

TABLE = PublishedTable(
    name="images",
    title="Images, pixel by pixel (Tables 6 and 12)",
    columns=(Column("sMNIST", "smnist"), Column("pMNIST", "pmnist"), Column("sCIFAR", "scifar")),
    rows=(
        row("Transformer", "98.9 97.9 62.2", 6, 12),
        row("CKConv", "99.32 98.54 63.74", 6, 12),
        row("TrellisNet", "99.20 98.13 73.42", 6, 12),
        row("TCN", "99.0 97.2 -", 6, 12),
        row("LSTM", "98.9 95.11 63.01", 6, 12),
        row("r-LSTM", "98.4 95.2 72.2", 6, 12),
        row("Dilated GRU", "99.0 94.6 -", 12),
        row("Dilated RNN", "98.0 96.1 -", 12),
        row("IndRNN", "99.0 96.0 -", 12),
        row("expRNN", "98.7 96.6 -", 12),
        row("UR-LSTM", "99.28 96.96 71.00", 6, 12),
        row("UR-GRU", "99.27 96.51 74.4", 6, 12),
        row("LMU", "- 97.15 -", 12),
        row("HiPPO-RNN", "98.9 98.3 61.1", 6, 12),
        row("UNIcoRNN", "- 98.4 -", 12),
        row("LMU-FFT", "- 98.49 -", 6, 12),
        row("LipschitzRNN", "99.4 96.3 64.2", 6, 12),
        row("LSSL", "99.53 98.76 84.65", 6, state_space=True),
        row("S4", "99.63 98.70 91.13", 6, 12, state_space=True),
    ),
)
