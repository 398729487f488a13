"""Figure 2, for a trained model that reads pictures: kernels of its first and last layer, as pictures.

python benchmarks/kernel_pictures.py lra-image [MODEL …] [--data-dir FOLDER]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from harness import RESULTS

from torchs4 import load_model
from torchs4.data import data_folder
from torchs4.models.bundled import model_folder
from torchs4.training.finish import kernel_picture
from torchs4.training.run_folder import RunFolder


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="+", help="names of bundled models, or RUN/best")
    parser.add_argument("--data-dir", type=Path)
    chosen = parser.parse_args()
    for name in chosen.models:
        folder = model_folder(name)
        run = folder.parent
        data = RunFolder(run).config().data.load(data_folder(chosen.data_dir))
        picture = kernel_picture(load_model(folder), data.input)
        if picture is None or data.input.image is None:
            raise SystemExit(f"{name} has no kernels over pictures.")
        path = RESULTS / f"kernels_{run.name}.png"
        picture.savefig(path, dpi=120)
        print(path)


if __name__ == "__main__":
    main()
