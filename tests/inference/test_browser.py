"""Exported pages in a real browser: what they read and say is what PyTorch reads and says."""

from __future__ import annotations

import struct
import threading
import wave
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from browser import CHROMIUM, DRIVER, Browser
from cases import build
from handwriting import strokes

from torchs4 import SequenceModel
from torchs4.cli.serve import page_server
from torchs4.data import load_digits
from torchs4.data.cifar import COLOUR_SCALING
from torchs4.inference import Pictures, Stream

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("onnx")

from torchs4.inference import export_web
from torchs4.inference.web import find_runtime

ROOT = Path(__file__).parents[2]
# Single precision in two runtimes, after hundreds of steps.
TOLERANCE = 1e-4
NAMES = ("one", "two", "three", "four", "five")
CHARACTERS = ("<padding>", "<unknown>", "<end of text>", *"abcdefg ")
RATE = 8000
NARROW, WIDE = (390, 844), (1100, 900)


def missing() -> str | None:
    if CHROMIUM is None or DRIVER is None:
        return "needs Chromium and its driver; on Debian: apt-get install chromium chromium-driver"
    try:
        find_runtime(start=ROOT)
    except (OSError, ValueError) as error:
        return str(error)
    return None


REASON = missing()
pytestmark = [pytest.mark.browser, pytest.mark.skipif(REASON is not None, reason=str(REASON))]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    try:
        yield browser
    finally:
        browser.close()


@contextmanager
def served(folder: Path) -> Iterator[str]:
    server = page_server(folder, 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def opened(browser: Browser, folder: Path, model: SequenceModel, **options: Any) -> Iterator[None]:
    """A model's page; nothing may come from elsewhere, stick out of a narrow screen or complain."""
    export_web(model, folder, onnxruntime_web=find_runtime(start=ROOT).folder, **options)
    with served(folder) as address:
        browser.look(*WIDE)
        browser.open(address)
        # Tests watch faster than people.
        browser.run("document.getElementById('speed').value = 2")
        yield
        loaded = browser.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
        assert all(name.startswith((address, "blob:", "data:")) for name in loaded), loaded
        browser.screenshot(folder.parent / "wide.png")
        browser.look(*NARROW, dark=True)
        assert browser.run("return document.documentElement.scrollWidth") <= NARROW[0]
        browser.screenshot(folder.parent / "narrow-and-dark.png")
        assert browser.messages() == []


def course(model: SequenceModel, samples: Any) -> torch.Tensor:
    """The probabilities after each sample, by PyTorch."""
    return Stream(model).push_each(samples).double().softmax(-1)


def assert_close(shown: Any, expected: torch.Tensor) -> None:
    torch.testing.assert_close(torch.tensor(shown).double(), expected, rtol=0, atol=TOLERANCE)


def small(**options: Any) -> SequenceModel:
    return build("s4", dtype=torch.float32, **{"input_features": 1, "names": NAMES, **options})


def test_a_digit_is_drawn_and_read(browser: Browser, tmp_path: Path) -> None:
    model = SequenceModel.from_pretrained("digits")
    images, labels = load_digits().test
    with opened(browser, tmp_path / "page", model, pictures=Pictures(28), title="digits"):
        for number in (3, 17):
            assert_close(
                browser.run("return torchs4.read(arguments[0])", images[number, :, 0].tolist()),
                course(model, images[number]),
            )
        # Its own pixels, chosen with a click: the last digit of the shelf is a nine.
        browser.click("#examples button:last-child")
        browser.wait("document.body.dataset.state === 'reading'")
        browser.wait("document.body.dataset.state === 'done'")
        nine = images[labels == 9][0]
        assert browser.run("return torchs4.samples()") == pytest.approx(nine[:, 0].tolist(), abs=1e-7)
        assert_close(browser.run("return torchs4.course()"), course(model, nine))
        # A pen's way through another one, prepared by the page.
        number = int((labels == 3).nonzero()[1])
        for stroke in strokes(images[number].view(28, 28).numpy()):
            browser.draw("#pad", stroke)
        browser.wait("document.body.dataset.state === 'reading'")
        browser.wait("document.body.dataset.state === 'done'")
        pixels = torch.tensor(browser.run("return torchs4.samples()"))
        expected = course(model, pixels[:, None])
        assert_close(browser.run("return torchs4.course()"), expected)
        assert_close(browser.run("return torchs4.probabilities()"), expected[-1])
        assert int(expected[-1].argmax()) == 3
        assert browser.run("return document.querySelector('#verdict-name').textContent") == "3"
        assert_prepared_like_mnist(pixels.view(28, 28))
        browser.screenshot(tmp_path / "read.png")
        browser.click("#clear")
        assert browser.run("return torchs4.probabilities()") is None
        browser.look(*NARROW)
        browser.draw("#pad", [(0.5, 0.1 + 0.08 * step) for step in range(11)], "touch")
        browser.wait("document.body.dataset.state === 'reading'")
        browser.wait("document.body.dataset.state === 'done'")
        assert browser.run("return document.querySelector('#verdict-name').textContent") == "1"
        browser.screenshot(tmp_path / "read-narrow.png")


def assert_prepared_like_mnist(image: torch.Tensor) -> None:
    rows, columns = image.sum(1).nonzero()[:, 0], image.sum(0).nonzero()[:, 0]
    size = max(rows.max() - rows.min(), columns.max() - columns.min()) + 1
    # 20 pixels, which may begin and end within one.
    assert 20 <= size <= 21
    place = torch.arange(28) + 0.5
    for axis in (0, 1):
        assert float((image.sum(axis) * place).sum() / image.sum()) == pytest.approx(14, abs=0.1)
    assert torch.allclose(image * 255, (image * 255).round(), atol=1e-4)
    assert image.max() == 1


def test_a_photograph_is_read_in_the_units_of_the_data(browser: Browser, tmp_path: Path) -> None:
    model = small(input_features=3)
    colours = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    (tmp_path / "picture.png").write_bytes(png(colours))
    pictures = Pictures(8, "photograph", COLOUR_SCALING)
    with opened(browser, tmp_path / "page", model, pictures=pictures):
        browser.type("#file", str(tmp_path / "picture.png"))
        browser.wait("document.body.dataset.state === 'done'")
        x = torch.from_numpy(colours).float().view(64, 3) / 255
        x = (x - torch.tensor(COLOUR_SCALING.shift)) / torch.tensor(COLOUR_SCALING.scale)
        assert browser.run("return torchs4.samples()") == pytest.approx(x.flatten().tolist(), abs=1e-5)
        assert_close(browser.run("return torchs4.course()"), course(model, x))


@pytest.mark.parametrize("stem", [(), (2, 2)])
def test_a_recording_is_heard_at_the_models_rate(
    browser: Browser, tmp_path: Path, stem: tuple[int, ...]
) -> None:
    model = small(sample_rate=float(RATE), stem=stem)
    time = np.arange(2 * RATE + 37) / (2 * RATE)
    samples = (12000 * np.sin(2 * np.pi * 300 * time) * np.exp(-3 * time)).astype(np.int16)
    for rate in (RATE, 2 * RATE):
        record(tmp_path / f"{rate}.wav", samples, rate)
    with opened(browser, tmp_path / "page", model):
        browser.type("#file", str(tmp_path / f"{RATE}.wav"))
        browser.wait("document.body.dataset.state === 'done'")
        x = torch.from_numpy(samples).float() / 2**15
        heard = torch.tensor(browser.run("return torchs4.samples()"))
        torch.testing.assert_close(heard, x, rtol=0, atol=2**-15)
        # Behind a stem, silence fills the last chunk.
        x = heard if not stem else torch.nn.functional.pad(heard, (0, -len(heard) % 64))
        stream = Stream(model)
        stream.push(x[:, None])
        shown = browser.run("return torchs4.probabilities()")
        assert shown == pytest.approx(list(stream.probabilities().values()), abs=TOLERANCE)
        browser.type("#file", str(tmp_path / f"{2 * RATE}.wav"))
        browser.wait(f"Math.abs(torchs4.samples().length - {len(samples) / 2}) < 1")
        browser.wait("document.body.dataset.state === 'done'")


def test_a_voice_is_heard_as_it_comes(browser: Browser, tmp_path: Path) -> None:
    model = small(sample_rate=float(RATE))
    with opened(browser, tmp_path / "page", model):
        browser.click("#speak")
        browser.wait(f"torchs4.samples().length > {RATE}")
        assert browser.run("return document.body.dataset.state") == "listening"
        browser.click("#speak")
        browser.wait("document.body.dataset.state === 'done'")
        # What was on its way is still read.
        browser.run("return new Promise((resolve) => setTimeout(resolve, 300))")
        heard = torch.tensor(browser.run("return torchs4.samples()"))
        assert heard.abs().max() > 0.01
        stream = Stream(model)
        stream.push(heard[:, None])
        shown = browser.run("return torchs4.probabilities()")
        assert shown == pytest.approx(list(stream.probabilities().values()), abs=TOLERANCE)


def test_a_text_is_classified_with_its_end(browser: Browser, tmp_path: Path) -> None:
    model = small(vocabulary_size=11, input_names=CHARACTERS)
    with opened(browser, tmp_path / "page", model):
        browser.type("#words", "a bad xé cab")
        browser.wait("document.body.dataset.state === 'done'")
        tokens = [3, 10, 4, 3, 6, 10, 1, 1, 10, 5, 3, 4, 2]
        assert browser.run("return torchs4.samples()") == tokens
        assert_close(browser.run("return torchs4.course()"), course(model, torch.tensor(tokens)))


def test_a_writer_says_what_comes_next(browser: Browser, tmp_path: Path) -> None:
    model = small(vocabulary_size=11, output_size=11, names=CHARACTERS, pooling="none")
    with opened(browser, tmp_path / "page", model):
        browser.type("#words", "bad cab")
        browser.wait("document.body.dataset.state === 'done'")
        tokens = [2, 4, 3, 6, 10, 5, 3, 4]
        assert browser.run("return torchs4.samples()") == tokens
        expected = course(model, torch.tensor(tokens))
        assert_close(browser.run("return torchs4.course()"), expected)
        # Each character is as red as it was unlikely, and says how likely it was.
        told = browser.run(
            "return [...document.querySelectorAll('#read-text span[title]')].map((e) => e.title)"
        )
        chances = expected[range(7), tokens[1:]]
        assert told == [f"{100 * chance:.1f} %" for chance in chances.tolist()]


def test_a_page_whose_graph_is_damaged_says_so(browser: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "page"
    export_web(small(), folder, pictures=Pictures(6), onnxruntime_web=find_runtime(start=ROOT).folder)
    (folder / "step.onnx").write_bytes(b"nothing")
    with served(folder) as address:
        with pytest.raises(AssertionError):
            browser.open(address)
        assert "Something went wrong" in browser.run("return document.querySelector('#lead').textContent")


def png(pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    )
    parts = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def record(path: Path, samples: np.ndarray[Any, np.dtype[np.int16]], rate: int) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
