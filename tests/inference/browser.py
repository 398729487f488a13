"""A real browser, headless, driven through ChromeDriver's HTTP interface: nothing to install in Python."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
# Calls nobody, works as root, and hears beeps for a microphone.
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
)
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_PATIENCE_SECONDS = 60.0


class Browser:
    """One window of Chromium."""

    def __init__(self, profile: Path) -> None:
        assert DRIVER is not None
        self._process = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        port = None
        for line in self._process.stdout:
            if "started successfully on port" in line:
                port = line.rpartition("port ")[2].strip(" .\n")
                break
        self._address = f"http://127.0.0.1:{port}"
        options = {"binary": CHROMIUM, "args": [*_FLAGS, f"--user-data-dir={profile}"]}
        wanted = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
            "timeouts": {"script": round(1000 * _PATIENCE_SECONDS)},
        }
        try:
            session = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        except BaseException:
            self._end()
            raise
        self._session = f"/session/{session['sessionId']}"

    def close(self) -> None:
        """End the browser and its driver."""
        try:
            self._ask("DELETE", self._session)
        finally:
            self._end()

    def _end(self) -> None:
        self._process.terminate()
        self._process.wait(20)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def open(self, address: str) -> None:
        """Load a page and wait until it says that it is ready."""
        self._do("url", {"url": address})
        self.wait("document.body.dataset.state !== 'loading'")
        assert self.run("return document.body.dataset.state") == "ready", self.messages()

    def run(self, script: str, *arguments: Any) -> Any:
        """The value that a script returns; promises are waited for."""
        return self._do("execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, condition: str) -> None:
        """Until a condition holds in the page."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not self.run(f"return Boolean({condition})"):
            assert time.monotonic() < deadline, f"{condition} never came true: {self.messages()}"
            time.sleep(0.05)

    def messages(self) -> list[str]:
        """What the page wrote to its console since the last time, warnings and errors only."""
        entries = self._do("se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] in ("WARNING", "SEVERE")]

    def draw(self, selector: str, points: Sequence[tuple[float, float]], pointer: str = "mouse") -> None:
        """A stroke with the mouse, or by "touch"; points are shares of the element's width and height."""
        box = self.run(
            "const e = document.querySelector(arguments[0]); e.scrollIntoView({block: 'center'});"
            "const b = e.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]",
            selector,
        )
        moves = [
            {
                "type": "pointerMove",
                "duration": 0,
                "x": round(box[0] + x * box[2]),
                "y": round(box[1] + y * box[3]),
            }
            for x, y in points
        ]
        actions = [
            moves[0],
            {"type": "pointerDown", "button": 0},
            *moves[1:],
            {"type": "pointerUp", "button": 0},
        ]
        source = {
            "type": "pointer",
            "id": pointer,
            "parameters": {"pointerType": pointer},
            "actions": actions,
        }
        self._do("actions", {"actions": [source]})

    def click(self, selector: str) -> None:
        """With the mouse, as a person."""
        self._do(f"element/{self._find(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        """Type into an element; for a chooser of files, the file's path."""
        self._do(f"element/{self._find(selector)}/value", {"text": text})

    def _find(self, selector: str) -> str:
        found = self._do("element", {"using": "css selector", "value": selector})
        return str(found[_ELEMENT])

    def look(self, width: int, height: int, dark: bool = False) -> None:
        """The size of the screen and the colours that its owner prefers."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._devtools("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._devtools("Emulation.setEmulatedMedia", {"features": [scheme]})

    def screenshot(self, path: Path) -> None:
        """What the whole page looks like, as a PNG file."""
        picture = self._devtools("Page.captureScreenshot", {"captureBeyondViewport": True})
        path.write_bytes(base64.b64decode(picture["data"]))

    def _devtools(self, command: str, parameters: dict[str, Any]) -> Any:
        return self._do("goog/cdp/execute", {"cmd": command, "params": parameters})

    def _do(self, verb: str, content: dict[str, Any]) -> Any:
        return self._ask("POST", f"{self._session}/{verb}", content)

    def _ask(self, method: str, path: str, content: dict[str, Any] | None = None) -> Any:
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self._address + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=2 * _PATIENCE_SECONDS) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(error.read().decode()[:1000]) from None
