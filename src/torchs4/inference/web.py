"""A model as a folder that shows it in a browser: its graphs, a page, and the runtime that computes there."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torchs4.data.mnist import DIGITS, SIDE
from torchs4.inference.export import onnx_files, write_files
from torchs4.inference.samples import require_streaming
from torchs4.inference.views import Pictures, View, choose_view

if TYPE_CHECKING:
    from torchs4.models import SequenceModel

# Raised when pages of an older format no longer work with the files beside them.
FORMAT = 1
PAGE_FILE, INDEX_FILE = "page.json", "index.html"

_PAGE = Path(__file__).parent / "page"
_PACKAGE = "onnxruntime-web"
# Computes on the processor, in one thread, so that any web server will do: no headers for isolation.
_RUNTIME_FILES = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm")


class Runtime(NamedTuple):
    """An installed onnxruntime-web."""

    folder: Path
    version: str


def export_web(
    model: SequenceModel,
    path: str | Path,
    *,
    title: str = "",
    pictures: Pictures | None = None,
    onnxruntime_web: str | Path | None = None,
) -> Path:
    """Write a folder that any web server can show; `s4 serve FOLDER` does on this machine.

    pictures: what pictures the model reads, which it does not know itself; texts and sounds need nothing.
    onnxruntime_web: the folder of that npm package; by default it is looked for in node_modules, here and in
        the folders above.
    """
    require_streaming(model)
    view = choose_view(model, pictures)
    runtime = find_runtime(onnxruntime_web)
    files = onnx_files(model, view.chunk)
    files |= {page.name: page.read_bytes() for page in sorted(_PAGE.iterdir()) if page.is_file()}
    files |= {name: (runtime.folder / "dist" / name).read_bytes() for name in _RUNTIME_FILES}
    about: dict[str, Any] = {
        "format": FORMAT,
        "title": title,
        "view": asdict(view),
        "examples": _examples(model, view),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "onnxruntime_web": runtime.version,
    }
    files[PAGE_FILE] = (json.dumps(about, indent=1) + "\n").encode()
    return write_files(Path(path), files)


def find_runtime(given: str | Path | None = None, start: Path | None = None) -> Runtime:
    """The package onnxruntime-web: a given folder, or the nearest node_modules above where one starts."""
    if given is not None:
        return _checked(Path(given))
    start = (start or Path.cwd()).absolute()
    for parent in (start, *start.parents):
        folder = parent / "node_modules" / _PACKAGE
        if folder.is_dir():
            return _checked(folder)
    raise FileNotFoundError(
        f"The page computes with the npm package {_PACKAGE}, and no node_modules here or above holds it. "
        f"Get it with: npm install {_PACKAGE}. If it is elsewhere, name its folder: --onnxruntime-web FOLDER."
    )


def _checked(folder: Path) -> Runtime:
    again = f"Get it anew with: npm install {_PACKAGE}@latest"
    try:
        package = json.loads((folder / "package.json").read_text(encoding="utf-8"))
        name, version = package["name"], str(package["version"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{folder} is not the npm package {_PACKAGE}: its package.json says nothing ({error!r}). {again}."
        ) from error
    if name != _PACKAGE:
        raise ValueError(f"{folder} is the npm package {name!r}; expected {_PACKAGE}. {again}.")
    for file in _RUNTIME_FILES:
        if not (folder / "dist" / file).is_file():
            raise ValueError(f"{folder}, version {version}, lacks dist/{file}. {again}.")
    return Runtime(folder, version)


def _examples(model: SequenceModel, view: View) -> list[str]:
    """One bundled digit of each class to try, as base64 of grey values, for models that read digits."""
    if view.kind != "drawing" or view.side != SIDE or model.config.names != DIGITS:
        return []
    from torchs4.data.digits import load_digits

    images, labels = load_digits().test
    first = [int((labels == digit).nonzero()[0]) for digit in range(len(DIGITS))]
    grey = (images[first, :, 0] * 255).round().byte().numpy()
    return [base64.b64encode(row.tobytes()).decode() for row in grey]
