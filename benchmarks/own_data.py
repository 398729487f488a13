"""The README's lines about your own data, run as they stand: their pictures, how good and how long.

python benchmarks/own_data.py

Writes results/digits.png, results/forecast.png and results/own_data.json.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from harness import RESULTS, record, show

from torchs4.data import data_folder

README = RESULTS.parents[1] / "README.md"


def main() -> None:
    torch.set_num_threads(1)
    blocks = re.findall(
        r"^```py\n(.*?)^```", README.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    series = (data_folder() / "ETT-small" / "ETTh1.csv").resolve()
    results: dict[str, Any] = {}
    with TemporaryDirectory() as place:
        os.chdir(place)
        Path("ETTh1.csv").symlink_to(series)
        for block in blocks:
            names: dict[str, Any] = {}
            (picture,) = re.findall(r'savefig\("(.*?)"', block)
            started = time.process_time()
            exec(block, names)
            results[Path(picture).stem] = {"cpu_seconds": round(time.process_time() - started, 1)}
            if "classifier" in names:
                accuracy = names["classifier"].score(names["X_test"], names["y_test"])
                results[Path(picture).stem]["test_accuracy"] = round(float(accuracy), 4)
            shutil.copy(picture, RESULTS / picture)
        os.chdir(RESULTS)
    record("own_data", results)
    show("README", ["picture", "result"], [[name, str(found)] for name, found in results.items()])


if __name__ == "__main__":
    main()
