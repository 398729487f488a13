"""The folder of an exported page: what is in it, which view it gets, what is refused; no browser needed."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from cases import build

from torchs4 import S4BlockConfig, S4Config, SequenceModel, recipes
from torchs4.cli import main
from torchs4.data import CIFAR10, MNIST, load_digits
from torchs4.data.cifar import COLOUR_SCALING
from torchs4.description import Scaling
from torchs4.inference import Pictures
from torchs4.inference.views import choose_view
from torchs4.tasks import ACCURACY, MSE
from torchs4.training.checkpoints import replace_folder
from torchs4.training.run_folder import RunFolder

pytest.importorskip("onnx")

from torchs4.inference import export_web
from torchs4.inference.web import find_runtime

if TYPE_CHECKING:
    from pathlib import Path

CHARACTERS = ("<padding>", "<unknown>", "<end of text>", *"abcdefg ")
RUNTIME_FILES = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm")
NAMES = ("one", "two", "three", "four", "five")


def small(**options: Any) -> SequenceModel:
    return build("s4", dtype=torch.float32, **{"input_features": 1, "names": NAMES, **options})


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Something that looks like onnxruntime-web, where npm would put it, with more than is needed."""
    folder = tmp_path / "project" / "node_modules" / "onnxruntime-web"
    (folder / "dist").mkdir(parents=True)
    for name in (*RUNTIME_FILES, "ort.webgpu.min.mjs"):
        (folder / "dist" / name).write_text(f"// {name}")
    (folder / "package.json").write_text('{"name": "onnxruntime-web", "version": "1.2.3"}')
    return folder


def test_a_bundled_model_becomes_a_folder_with_all_it_needs(
    tmp_path: Path, package: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (package.parents[1] / "below").mkdir()
    monkeypatch.chdir(package.parents[1] / "below")
    assert main(["export", "digits", "--to", "web"]) == 0
    assert "s4 serve digits-web" in capsys.readouterr().out
    folder = package.parents[1] / "below" / "digits-web"
    names = {path.name for path in folder.iterdir()}
    assert {
        "index.html",
        "page.css",
        "page.js",
        "page.json",
        "model.json",
        "step.onnx",
        *RUNTIME_FILES,
    } <= names
    assert "ort.webgpu.min.mjs" not in names
    page = json.loads((folder / "page.json").read_text())
    assert page["title"] == "digits (cpu)"
    assert page["onnxruntime_web"] == "1.2.3"
    assert (page["view"]["kind"], page["view"]["side"], page["view"]["chunk"]) == ("drawing", 28, 28)
    digits = load_digits().test
    for digit, example in enumerate(page["examples"]):
        first = digits.images[digits.labels == digit][0, :, 0]
        assert list(base64.b64decode(example)) == (first * 255).round().int().tolist()
    # Whatever the page loads is in its folder: there is no network where it runs.
    for path in folder.glob("*.[hjc][ts]*"):
        assert "http" not in path.read_text(encoding="utf-8").replace("http-equiv", ""), path


@pytest.mark.parametrize(
    ("options", "pictures", "kind", "chunk"),
    [
        ({}, Pictures(12), "drawing", 12),
        ({"stem": (2, 3)}, Pictures(12), "drawing", 6),
        ({"input_features": 3}, Pictures(32, "photograph", COLOUR_SCALING), "photograph", 32),
        ({"sample_rate": 8000.0}, None, "sound", 64),
        ({"sample_rate": 16000.0, "stem": (5, 5)}, None, "sound", 75),
        ({"vocabulary_size": 11, "input_names": CHARACTERS}, None, "text", 64),
        (
            {"vocabulary_size": 11, "output_size": 11, "names": CHARACTERS, "pooling": "none"},
            None,
            "writing",
            64,
        ),
    ],
)
def test_a_view_follows_from_what_a_model_reads(
    options: dict[str, Any], pictures: Pictures | None, kind: str, chunk: int
) -> None:
    view = choose_view(small(**options), pictures)
    assert (view.kind, view.chunk) == (kind, chunk)
    if kind in ("text", "writing"):
        assert view.characters == CHARACTERS


@pytest.mark.parametrize(
    ("options", "pictures", "words"),
    [
        ({}, None, "nothing to say whether they are pixels or a sound"),
        ({"names": ()}, Pictures(28), "predicts values"),
        ({"output_scaling": Scaling((0.0,) * 5, (1.0,) * 5)}, Pictures(28), "predicts values"),
        ({"input_features": 3}, Pictures(28), "reads 3 numbers at each position; for a drawing"),
        ({"vocabulary_size": 11}, Pictures(28), "reads tokens at each position"),
        ({"vocabulary_size": 11, "input_names": ("[MAX",) * 11}, None, "no characters"),
        ({"vocabulary_size": 11}, None, "no characters"),
        ({"sample_rate": 50.0}, None, "1 numbers at 50 positions per second"),
        ({"sample_rate": 16000.0, "input_features": 2}, None, "sounds of one channel"),
        (
            {"block": S4BlockConfig(layer=S4Config(state_size=4, bidirectional=True))},
            Pictures(28),
            "bidirectional: every prediction needs the whole",
        ),
    ],
)
def test_what_no_view_fits_is_refused_with_the_reason(
    options: dict[str, Any], pictures: Pictures | None, words: str, tmp_path: Path, package: Path
) -> None:
    with pytest.raises(ValueError, match=words):
        export_web(small(**options), tmp_path / "page", pictures=pictures, onnxruntime_web=package)
    assert not (tmp_path / "page").exists()


def test_pictures_without_pixels_are_refused() -> None:
    with pytest.raises(ValueError, match="side is 1"):
        Pictures(1)
    with pytest.raises(ValueError, match="kind is 'painting'"):
        Pictures(28, "painting")  # type: ignore[arg-type]


def test_a_missing_or_foreign_runtime_is_told(tmp_path: Path, package: Path) -> None:
    assert find_runtime(start=package / "dist").version == "1.2.3"
    with pytest.raises(FileNotFoundError, match="npm install onnxruntime-web"):
        find_runtime(start=tmp_path)
    with pytest.raises(ValueError, match="is not the npm package onnxruntime-web"):
        find_runtime(tmp_path)
    (package / "dist" / RUNTIME_FILES[0]).unlink()
    with pytest.raises(ValueError, match=r"version 1\.2\.3, lacks dist/ort\.wasm"):
        find_runtime(package)
    (package / "package.json").write_text('{"name": "left-pad", "version": "1.0.0"}')
    with pytest.raises(ValueError, match="is the npm package 'left-pad'"):
        find_runtime(package)


def test_the_command_knows_the_pictures_of_a_run(
    tmp_path: Path, package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def exported(data: Any, metric: Any, *more: str, **options: Any) -> int:
        run = RunFolder(tmp_path / str(len(list(tmp_path.iterdir()))))
        config = recipes.find("digits").config("cpu")
        run.start("test", config.__class__(data=data), [metric])
        replace_folder(run.best, small(**options).save_pretrained)
        page = ["--to", "web", "-o", str(tmp_path / "page"), "--onnxruntime-web", str(package)]
        return main(["export", str(run.path), *page, *more])

    assert exported(CIFAR10(), ACCURACY, input_features=3) == 0
    view = json.loads((tmp_path / "page" / "page.json").read_text())["view"]
    assert (view["kind"], tuple(view["shift"])) == ("photograph", COLOUR_SCALING.shift)
    assert exported(MNIST(permutation="random"), ACCURACY, "--side", "6") == 0
    page = json.loads((tmp_path / "page" / "page.json").read_text())
    assert (page["view"]["side"], page["examples"]) == (6, [])
    capsys.readouterr()
    for data, metric, more, words in (
        (MNIST(permutation="random"), ACCURACY, (), "nothing to say whether"),
        (MNIST(), MSE, (), "predicts values: it is measured by"),
        (MNIST(), ACCURACY, ("--chunk", "3"), "--chunk goes with --to onnx"),
        (MNIST(), ACCURACY, ("--rate", "2"), "--rate goes with --to onnx"),
    ):
        assert exported(data, metric, *more) == 1
        assert words in capsys.readouterr().err
    assert main(["export", "nothing", "--to", "web"]) == 1
    told = capsys.readouterr().err
    assert "name of a model that comes with torchs4: characters, " in told
    assert " digits, " in told
    assert main(["export", "lra-text", "--to", "web"]) == 1
    assert "bidirectional" in capsys.readouterr().err
    assert main(["export", "digits", "--side", "28"]) == 1
    assert "--side goes with --to web" in capsys.readouterr().err
