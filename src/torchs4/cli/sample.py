"""`s4 sample RUN`: pictures that a density draws, or goes on with."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from torchs4.cli.consoles import console
from torchs4.cli.models import best_model, named_run
from torchs4.configuration import require_whole
from torchs4.data import data_folder
from torchs4.data.density import PictureSplit
from torchs4.inference import Sampling, complete, draw
from torchs4.inference.drawing import picture_shape
from torchs4.models import UNetModel
from torchs4.training.display import Display
from torchs4.training.run_folder import RunFolder

# Pixels between two pictures, and how white they are; small pictures are enlarged to about so many pixels.
_GAP, _PAPER, _SHOWN_SIDE = 4, 255, 96
# Whatever has eight bits for each channel.
_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA")


@dataclass(frozen=True)
class SampleArguments:
    """Pictures that a run's best model draws, value by value.

    Attributes:
        run: a folder that `s4 train cifar-density` or `s4 train mnist-density` wrote; or just cifar-density
            or mnist-density, for the models that come with the package.
        count: how many pictures; files to complete count themselves.
        complete: pictures whose upper half is kept and whose lower half is drawn: PNG files, or the word
            "test" for the first ones of the run's test set. The picture then shows originals, halves and
            completions, one below the other.
        rows: how many rows are kept of those; by default half of them.
        output: the PNG file to write.
        temperature: 1 takes the model at its word, less makes likely values likelier, 0 always takes the
            likeliest.
        top_k: only the k likeliest values may be drawn.
        top_p: only the likeliest values may be drawn that together have at least this probability.
        seed: the same number gives the same pictures; by default they are others every time.
        data_dir: where datasets lie; by default where the run found them.
    """

    run: tyro.conf.Positional[Path]
    count: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 16
    complete: tuple[str, ...] = ()
    rows: int | None = None
    output: Path = Path("samples.png")
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    data_dir: Path | None = None


def sample(arguments: list[str]) -> int:
    """Draw."""
    chosen = tyro.cli(SampleArguments, prog="s4 sample", args=arguments)
    require_whole("count", chosen.count, 1)
    sampling = Sampling(chosen.temperature, chosen.top_k, chosen.top_p)
    if chosen.rows is not None and not chosen.complete:
        raise ValueError(
            "rows says how much of a picture is kept, but nothing is to be completed: --complete."
        )
    if chosen.output.suffix.lower() != ".png":
        raise ValueError(
            f"output is {str(chosen.output)!r}; what is written is a PNG file: call it NAME.png."
        )
    if not chosen.output.absolute().parent.is_dir():
        raise ValueError(f"There is no folder {chosen.output.absolute().parent} to write to. Make it first.")
    folder = named_run(chosen.run)
    model = best_model(folder)
    shape = picture_shape(model)
    assert isinstance(model, UNetModel)
    with Display(console, quiet=False) as display:
        progress = display.counting("values drawn of each picture")
        if not chosen.complete:
            drawn = draw(model, chosen.count, sampling=sampling, seed=chosen.seed, progress=progress)
            grid = side_by_side(drawn, round(chosen.count**0.5))
        else:
            given = _given(chosen, folder, shape)
            drawn = complete(
                model, given, chosen.rows, sampling=sampling, seed=chosen.seed, progress=progress
            )
            halves = given.copy()
            halves[:, shape[0] // 2 if chosen.rows is None else chosen.rows :] = 128
            grid = side_by_side(np.concatenate([given, halves, drawn]), 3)
    written(grid).save(chosen.output, "PNG")
    several = "" if len(drawn) == 1 else "s"
    told = (
        f"original{several}, what was kept of them, and completions"
        if chosen.complete
        else f"picture{several}"
    )
    console.print(f"{chosen.output}: {len(drawn)} {told}.", soft_wrap=True, markup=False)
    return 0


def side_by_side(pictures: NDArray[np.uint8], rows: int) -> NDArray[np.uint8]:
    """Pictures in so many rows, enlarged so that people see them; (height, width, channels)."""
    count, height, width, channels = pictures.shape
    rows = max(1, rows)
    columns = -(-count // rows)
    factor = max(1, _SHOWN_SIDE // max(height, width))
    tall, wide = factor * height + _GAP, factor * width + _GAP
    grid = np.full((rows * tall + _GAP, columns * wide + _GAP, channels), _PAPER, np.uint8)
    for number, picture in enumerate(pictures):
        top, left = _GAP + number // columns * tall, _GAP + number % columns * wide
        large = picture.repeat(factor, axis=0).repeat(factor, axis=1)
        grid[top : top + factor * height, left : left + factor * width] = large
    return grid


def written(picture: NDArray[np.uint8]) -> Image.Image:
    """A picture as image libraries have it."""
    return Image.fromarray(picture[..., 0] if picture.shape[2] == 1 else picture)


def _given(chosen: SampleArguments, folder: RunFolder, shape: tuple[int, int, int]) -> NDArray[np.uint8]:
    if chosen.complete != ("test",):
        return np.stack([read_picture(Path(path), shape) for path in chosen.complete])
    split = folder.config().data.load(data_folder(chosen.data_dir or folder.data_dir())).test
    assert isinstance(split, PictureSplit)
    return split.pictures(np.arange(min(chosen.count, len(split))))


def read_picture(path: Path, shape: tuple[int, int, int]) -> NDArray[np.uint8]:
    """A picture of a file, cut to its middle and resized where it has another size than the model's."""
    height, width, channels = shape
    try:
        with Image.open(path) as file:
            if file.mode not in _MODES:
                raise ValueError(
                    f"{path} has pixels of kind {file.mode!r}, which go beyond 0 to 255. Save it with eight "
                    f"bits for each channel first."
                )
            image = file.convert("L" if channels == 1 else "RGB")
    except (FileNotFoundError, IsADirectoryError) as error:
        raise ValueError(
            f"There is no picture {path}. Pass files, or the word test for the run's test set."
        ) from error
    except (UnidentifiedImageError, OSError) as error:
        raise ValueError(f"{path} is no picture that can be read ({error}). Pass a PNG file.") from error
    if image.size != (width, height):
        scale = min(image.width / width, image.height / height)
        left, top = (image.width - scale * width) / 2, (image.height - scale * height) / 2
        box = left, top, left + scale * width, top + scale * height
        image = image.resize((width, height), Image.Resampling.LANCZOS, box=box)
    return np.asarray(image).reshape(shape)
