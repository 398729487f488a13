"""`s4 serve`: an exported page, for this machine only."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from torchs4.cli import main
from torchs4.cli.serve import page_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import ThreadingHTTPServer
    from pathlib import Path


@pytest.fixture
def page(tmp_path: Path) -> Path:
    folder = tmp_path / "page"
    (folder / "below").mkdir(parents=True)
    for name in ("index.html", "page.json", "model.json", "page.js", "a.mjs", "a.wasm", "page.css", "a.onnx"):
        (folder / name).write_text(name)
    (tmp_path / "secret").write_text("secret")
    return folder


@contextmanager
def serving(folder: Path) -> Iterator[ThreadingHTTPServer]:
    server = page_server(folder, 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answer(server: ThreadingHTTPServer, path: str, host: str | None = None) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    response = connection.getresponse()
    response.body = response.read()  # type: ignore[attr-defined]
    connection.close()
    return response


def test_files_come_with_the_types_that_browsers_insist_on(page: Path) -> None:
    with serving(page) as server:
        for path, kind in (
            ("/", "text/html; charset=utf-8"),
            ("/page.js", "text/javascript; charset=utf-8"),
            ("/a.mjs", "text/javascript; charset=utf-8"),
            ("/a.wasm", "application/wasm"),
            ("/page.css", "text/css; charset=utf-8"),
            ("/page.json", "application/json"),
            ("/a.onnx", "application/octet-stream"),
        ):
            response = answer(server, path)
            assert (response.status, response.headers["Content-Type"]) == (200, kind)
            assert response.headers["Cache-Control"] == "no-cache"


def test_nobody_else_is_served(page: Path) -> None:
    with serving(page) as server:
        assert server.server_address[0] == "127.0.0.1"
        assert answer(server, "/", f"localhost:{server.server_port}").status == 200
        # A foreign name for this machine's address is how a web site would get in.
        assert answer(server, "/", "elsewhere.example").status == 403
        for path in ("/../secret", "/%2e%2e/secret", "/below/", "/nothing.js"):
            response = answer(server, path)
            assert response.status == 404, path


def test_a_taken_port_is_told_and_passed_over_where_none_was_asked_for(
    page: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["serve", str(page), "--port", str(port)]) == 1
        assert f"Port {port} is taken" in capsys.readouterr().err
        monkeypatch.setattr("torchs4.cli.serve._FIRST_PORT", port)
        with page_server(page, None) as server:
            assert port < server.server_port <= port + 20
    assert main(["serve", str(page), "--port", "70000"]) == 1
    assert "between 0" in capsys.readouterr().err


def test_a_folder_that_is_no_page_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in (tmp_path, tmp_path / "nothing"):
        assert main(["serve", str(folder)]) == 1
        assert "is no exported page: it lacks index.html, page.json, model.json" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals differ")
def test_ctrl_c_ends_it_cleanly(page: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "torchs4.cli", "serve", str(page), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
        # Shells have what they start in the background ignore Ctrl-C, these tests perhaps.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    # Comes before anything is asked for.
    assert f"{page} is at http://127.0.0.1:" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    printed = process.communicate(timeout=60)[0]
    assert process.returncode == 0, printed
    # Interrupted while it prints the address, it may print that again.
    assert printed.splitlines()[-1] == "Stopped."
