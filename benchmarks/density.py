"""Bits per dimension of a trained density beside what lossless compressors need for the same test pictures.

python benchmarks/density.py cifar-density runs/cifar-density-cpu
python benchmarks/density.py mnist-density runs/mnist-density-cpu
python benchmarks/density.py cifar-density                        # the compressors alone, for 15 minutes

Writes results/density_NAME.json, from which it takes what the same versions of the compressors needed before.
A density's figure is the one that its finished run measured on all test pictures; a compressor based on it
would need less than 0.01 bits more. Files have headers, which weigh much with pictures this small: so
compressors are also given pictures of a hundred, one below the other, which is in their favour twice: one
header, and statistics of a hundred. JPEG XL needs `pip install pillow-jxl-plugin`.
"""

from __future__ import annotations

import argparse
import io
import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import PIL
from harness import RESULTS, record, show
from PIL import Image
from rich.progress import track

from torchs4 import recipes
from torchs4.data import data_folder
from torchs4.data.density import PictureSplit
from torchs4.training.run_folder import RunFolder

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The strongest setting of each.
COMPRESSORS: dict[str, dict[str, Any]] = {
    "PNG": {"format": "PNG", "optimize": True},
    "WebP, lossless": {"format": "WEBP", "lossless": True, "quality": 100, "method": 6, "exact": True},
}
JPEG_XL = {"format": "JXL", "lossless": True, "effort": 9}
TOGETHER = 100


def bits_per_dimension(pictures: NDArray[np.uint8], options: dict[str, Any], what: str) -> float:
    """What files of these pictures take; each is read again and has to be the same."""
    taken = 0
    for picture in track(pictures, description=what):
        grey = picture.shape[-1] == 1
        file = io.BytesIO()
        Image.fromarray(picture[..., 0] if grey else picture).save(file, **options)
        with Image.open(file) as again:
            same = np.asarray(again.convert("L" if grey else "RGB")).reshape(picture.shape)
        if not np.array_equal(same, picture):
            raise ValueError(f"{what} is not lossless.")
        taken += len(file.getvalue())
    return 8 * taken / pictures.size


def compressors() -> dict[str, dict[str, Any]]:
    try:
        import pillow_jxl  # noqa: F401
    except ImportError:
        return COMPRESSORS
    return {**COMPRESSORS, "JPEG XL, lossless": JPEG_XL}


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def known(path: Path, versions: dict[str, Any]) -> dict[str, Any]:
    """What compressors needed, if it was measured with the same versions."""
    if not path.is_file():
        return {}
    results = json.loads(path.read_text(encoding="utf-8"))["results"]
    return results["compressors"] if results["versions"] == versions else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("recipe", choices=["cifar-density", "mnist-density"])
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--data-dir", type=Path)
    chosen = parser.parse_args()
    test = recipes.recipe_config(chosen.recipe).data.load(data_folder(chosen.data_dir)).test
    assert isinstance(test, PictureSplit)
    pictures = test.pictures(np.arange(len(test)))
    count, height, width, channels = pictures.shape
    columns = pictures.reshape(count // TOGETHER, TOGETHER * height, width, channels)
    versions = {"pillow": PIL.__version__, "pillow-jxl-plugin": installed("pillow-jxl-plugin")}
    results: dict[str, Any] = {"pictures": count, "versions": versions, "compressors": {}, "densities": {}}
    name_of_result = f"density_{chosen.recipe.partition('-')[0]}"
    before = known(RESULTS / f"{name_of_result}.json", versions)
    for name, options in compressors().items():
        results["compressors"][name] = before.get(name) or {
            "options": options,
            "each": bits_per_dimension(pictures, options, name),
            "hundred_together": bits_per_dimension(columns, options, f"{name}, a hundred together"),
        }
    for path in chosen.runs:
        folder = RunFolder(path)
        summary = folder.summary()
        if summary is None or summary["test_examples"] != count:
            raise SystemExit(f"{path} is not finished: s4 train --resume {path}")
        wanted = ("name", "test_bits", "parameters", "steps", "epochs", "training_seconds", "commit")
        results["densities"][path.name] = {key: summary[key] for key in wanted}
    rows = [
        [name, f"{one['each']:.3f}", f"{one['hundred_together']:.3f}"]
        for name, one in results["compressors"].items()
    ]
    rows += [[one["name"], f"{one['test_bits']:.3f}", ""] for one in results["densities"].values()]
    show(
        f"{chosen.recipe}: bits per dimension of {count:,} test pictures",
        ["", "each", "hundred together"],
        rows,
    )
    record(name_of_result, results)


if __name__ == "__main__":
    main()
