"""`s4 serve FOLDER`: an exported page, shown on this machine only."""

import errno
import sys
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import tyro

from torchs4.cli.consoles import console

HOST = "127.0.0.1"
# What `s4 export --to web` writes, whatever the model.
_NEEDED = ("index.html", "page.json", "model.json")
# Not the system's table, which may know neither modules nor WebAssembly.
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".wasm": "application/wasm",
}
_FIRST_PORT, _PORTS_TRIED, _LAST_PORT = 8000, 20, 65535


@dataclass(frozen=True)
class ServeArguments:
    """Show a page that `s4 export RUN --to web` wrote, on this machine only, until Ctrl-C.

    Attributes:
        folder: the page's folder.
        port: where to listen; by default 8000, or the next one that is free.
    """

    folder: tyro.conf.Positional[Path]
    port: int | None = None


class PageHandler(SimpleHTTPRequestHandler):
    """Gives the files of a folder, with types that browsers insist on, to this machine's own pages."""

    def guess_type(self, path: Any) -> str:
        return _TYPES.get(Path(path).suffix, "application/octet-stream")

    def send_head(self) -> Any:
        # A foreign site may give its own name this machine's address, to read what is served here.
        name = self.headers.get("Host", "").partition(":")[0]
        if name not in (HOST, "localhost"):
            self.send_error(HTTPStatus.FORBIDDEN, "This page is for this machine only")
            return None
        return super().send_head()

    def list_directory(self, path: Any) -> None:
        self.send_error(HTTPStatus.NOT_FOUND, "Nothing here")

    def end_headers(self) -> None:
        # A new export is seen at once.
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, *arguments: Any) -> None:
        """Says nothing: the browser tells what it misses."""


def serve(arguments: list[str]) -> int:
    """Serve until Ctrl-C."""
    chosen = tyro.cli(ServeArguments, prog="s4 serve", args=arguments)
    with page_server(chosen.folder, chosen.port) as server:
        address = f"http://{HOST}:{server.server_port}/"
        try:
            console.print(f"{chosen.folder} is at {address} (Ctrl-C ends it)", markup=False, soft_wrap=True)
            # In a pipe, whoever waits for the address needs it now.
            sys.stdout.flush()
            server.serve_forever()
        except KeyboardInterrupt:
            # How everybody ends it, so no failure.
            console.print("Stopped.")
    return 0


def page_server(folder: Path, port: int | None) -> ThreadingHTTPServer:
    """A server of an exported page that listens already, at a free port if none is asked for."""
    missing = [name for name in _NEEDED if not (folder / name).is_file()]
    if missing:
        raise ValueError(
            f"{folder} is no exported page: it lacks {', '.join(missing)}. Make one with: s4 export RUN --to "
            f"web --output {folder}"
        )
    if port is not None and not 0 <= port <= _LAST_PORT:
        raise ValueError(f"--port is {port}; it must be between 0 (any that is free) and {_LAST_PORT:,}.")
    handler = partial(PageHandler, directory=str(folder))
    tried = range(_FIRST_PORT, _FIRST_PORT + _PORTS_TRIED) if port is None else (port,)
    for candidate in tried:
        try:
            return _Server((HOST, candidate), handler)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
    raise OSError(
        f"Port {tried[0]} is taken, or not for you. Choose another with --port; 0 takes any that is free."
        if port is not None
        else f"The ports {tried[0]} to {tried[-1]} are all taken. Choose another with --port; 0 takes any."
    )


class _Server(ThreadingHTTPServer):
    # Elsewhere than on Windows it only means that a port is free again as soon as its server has ended; there
    # it would let two servers share one.
    allow_reuse_address = sys.platform != "win32"
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A browser that leaves in the middle of a file is no error of the page.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)
