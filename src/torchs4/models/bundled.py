"""Trained models that come with the package, by name: each is a small run folder with a card."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parents[1] / "pretrained"
CARD_FILE = "card.md"
# Of a run folder: where its best model is.
_BEST = "best"


def bundled_names() -> list[str]:
    """Which there are."""
    return sorted(path.parent.name for path in FOLDER.glob(f"*/{CARD_FILE}"))


def bundled_run(name: str | Path) -> Path | None:
    """The run folder of a bundled model, or None if there is none of that name."""
    return FOLDER / name if str(name) in bundled_names() else None


def model_folder(place: str | Path) -> Path:
    """The folder of a saved model: the place itself if it is a folder, else the bundled one of that name."""
    path = Path(place)
    if path.is_dir():
        return path
    run = bundled_run(place)
    if run is None:
        raise ValueError(
            f"There is no folder {path}. Pass the folder that save_pretrained wrote, or the name of a model "
            f"that comes with torchs4: {', '.join(bundled_names())}."
        )
    return run / _BEST
