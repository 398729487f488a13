"""Figure 2, for a trained model that reads pictures: kernels of its first and last layer, as pictures.

python benchmarks/kernel_pictures.py lra-image [MODEL …] [--data-dir FOLDER]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from harness import RESULTS

from torchs4.cli.models import best_model, named_run
from torchs4.data import data_folder
from torchs4.training.finish import kernel_picture


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="+", help="names of bundled models, or folders of runs")
    parser.add_argument("--data-dir", type=Path)
    chosen = parser.parse_args()
    for name in chosen.models:
        run = named_run(Path(name))
        data = run.config().data.load(data_folder(chosen.data_dir))
        picture = kernel_picture(best_model(run), data.input)
        if picture is None or data.input.image is None:
            raise SystemExit(f"{name} has no kernels over pictures.")
        path = RESULTS / f"kernels_{run.path.name}.png"
        picture.savefig(path, dpi=120)
        print(path)


if __name__ == "__main__":
    main()
