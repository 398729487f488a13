"""Fetching files and unpacking archives: the one place of the package that talks to the network.

Whatever goes wrong, nothing half-done ever lies where a finished file or folder is expected.
"""

from __future__ import annotations

import errno
import hashlib
import os
import posixpath
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path, PureWindowsPath
from typing import IO, TYPE_CHECKING, Literal
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from http.client import HTTPResponse

    Progress = Callable[[int, int], None]

_GZIP_MAGIC = b"\x1f\x8b"
_ZIP_MAGIC = (b"PK\3\4", b"PK\5\6")
_PIECE = 2**20
_TIMEOUT_SECONDS = 30
_CONTINUES = "run the same command again: it continues where it stopped."


class DownloadError(OSError):
    """A file could not be fetched; the message says what to do."""


def download(
    url: str,
    target: Path,
    *,
    sha256: str | None = None,
    size: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Fetch a file to `target`, which appears only when it is complete and has the right checksum.

    What has arrived waits in `target.part`, and the next call continues there. A target that is already
    there and right is left alone. `progress` gets the bytes so far and in all (0 when nobody knows).
    """
    if target.is_file() and _difference(target, sha256, size) is None:
        return
    part = target.with_name(f"{target.name}.part")
    if size is not None and part.is_file() and part.stat().st_size > size:
        part.unlink()
    if size is None or not part.is_file() or part.stat().st_size < size:
        with _folder_for(part):
            _fetch(url, part, size, progress)
    if difference := _difference(part, sha256, size):
        part.unlink()
        raise ValueError(
            f"{url} does not give the expected file: {difference}. It was deleted. Run the same command "
            f"again; if this repeats, the file on the server has changed or something on the way alters it."
        )
    os.replace(part, target)


@contextmanager
def _folder_for(file: Path) -> Iterator[None]:
    """Make the folder of a file; if nothing arrives there, it is gone again."""
    folder = file.parent
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"Cannot create {folder} ({error.strerror}): choose another data folder.") from error
    try:
        yield
    finally:
        for place in made:
            # The first one that is not empty ends it: those above hold it.
            if any(place.iterdir()):
                break
            place.rmdir()


def _fetch(url: str, part: Path, size: int | None, progress: Progress | None) -> None:
    """Let `part` grow to the whole file, or raise and leave what has arrived."""
    start = part.stat().st_size if part.is_file() else 0
    response = _open(url, start)
    if response is None:
        # The server's file is as long as ours: everything has arrived.
        return
    with response:
        # A server may ignore the wish for the rest and send everything.
        continues = response.status == 206
        done = start if continues else 0
        announced = response.headers.get("Content-Length")
        total = done + int(announced) if announced else size or 0
        try:
            with part.open("ab" if continues else "wb") as file:
                for piece in _pieces(response, url):
                    file.write(piece)
                    done += len(piece)
                    if progress:
                        progress(done, total)
        except DownloadError:
            raise
        except OSError as error:
            raise _writing_failed(error, part.parent, f"and {_CONTINUES}") from error
    if done < total:
        raise DownloadError(
            f"The connection to {url} broke off after {done:,} of {total:,} bytes. Check the connection and "
            f"{_CONTINUES}"
        )


def _open(url: str, start: int) -> HTTPResponse | None:
    """The answer to a request for everything from byte `start` on; None when the file ends there."""
    headers = {"User-Agent": "torchs4"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        response: HTTPResponse = urlopen(Request(url, headers=headers), timeout=_TIMEOUT_SECONDS)
    except HTTPError as error:
        error.close()
        if error.code == 416 and start:
            return None if error.headers.get("Content-Range") == f"bytes */{start}" else _open(url, 0)
        raise DownloadError(
            f"The server refused {url}: HTTP status {error.code} ({error.reason}). Try again later; if it "
            f"stays so, the file has moved."
        ) from error
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise DownloadError(
            f"Could not reach {url}: {reason}. Check the connection and {_CONTINUES}"
        ) from error
    given = response.headers.get("Content-Range", "")
    if start and response.status == 206 and not given.startswith(f"bytes {start}-"):
        response.close()
        return _open(url, 0)
    return response


def _pieces(response: HTTPResponse, url: str) -> Iterator[bytes]:
    while True:
        try:
            piece = response.read(_PIECE)
        except (OSError, HTTPException) as error:
            raise DownloadError(
                f"The connection to {url} broke off: {error}. Check the connection and {_CONTINUES}"
            ) from error
        if not piece:
            return
        yield piece


def _difference(path: Path, sha256: str | None, size: int | None) -> str | None:
    """What is wrong with the file; None when all that is known of it fits."""
    if size is not None and path.stat().st_size != size:
        return f"it has {path.stat().st_size:,} bytes instead of {size:,}"
    if sha256 is not None:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != sha256:
            return f"its sha256 is {found} instead of {sha256}"
    return None


def extract(archive: Path, folder: Path, progress: Progress | None = None) -> None:
    """Unpack a tar, tar.gz or zip archive into `folder`, all of it or nothing.

    What the archive holds at its top appears in `folder` and replaces entries of the same name. Anything that
    would land elsewhere is refused: absolute paths, "..", links to outside, devices. Links to files inside
    become copies. `progress` gets how far it is and the end, in bytes.
    """
    beside = folder if folder.is_dir() else folder.parent
    try:
        beside.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f"{archive.name}.unfinished-", dir=beside))
    except OSError as error:
        raise _writing_failed(error, beside, "and run the same command again.") from error
    try:
        contents = unfinished / "contents"
        contents.mkdir()
        with archive.open("rb") as file:
            magic = file.read(4)
        if magic.startswith(_ZIP_MAGIC):
            _unpack_zip(archive, contents, progress)
        else:
            _unpack_tar(archive, contents, "r:gz" if magic.startswith(_GZIP_MAGIC) else "r:", progress)
        _move_into_place(contents, folder, unfinished)
    # zipfile raises a RuntimeError for what it cannot read, like encryption.
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, RuntimeError) as error:
        raise _damaged(archive, error) from error
    except OSError as error:
        # gzip reports damage as an error of the system without a number.
        if error.errno is None:
            raise _damaged(archive, error) from error
        raise _writing_failed(error, beside, "and run the same command again.") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _unpack_tar(
    archive: Path, contents: Path, mode: Literal["r:", "r:gz"], progress: Progress | None
) -> None:
    size = archive.stat().st_size
    links: list[tuple[Path, Path, str]] = []
    with archive.open("rb") as file, tarfile.open(fileobj=file, mode=mode) as tar:
        while (member := tar.next()) is not None:
            place = _place_inside(contents, member.name, archive)
            if member.isdir():
                place.mkdir(parents=True, exist_ok=True)
            elif member.isfile() and (source := tar.extractfile(member)) is not None:
                _write_file(source, place)
            elif member.islnk() or member.issym():
                goal = member.linkname
                if member.issym():
                    # A hard link names its goal from the top of the archive, a symbolic one from where it is.
                    goal = posixpath.normpath(posixpath.join(posixpath.dirname(member.name), goal))
                links.append((place, _place_inside(contents, goal, archive), member.name))
            else:
                raise _refused(archive, member.name, "is a device or another special file")
            # tarfile remembers every member, which for millions of files is gigabytes.
            tar.members.clear()  # type: ignore[attr-defined]
            if progress:
                progress(file.tell(), size)
        if mode == "r:gz":
            # The sum at the end of a compressed file is checked only by reading to that end.
            while tar.fileobj is not None and tar.fileobj.read(_PIECE):
                pass
        else:
            # tarfile takes a damaged header for the end, which by rule is a block of zeros.
            file.seek(tar.offset)
            if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                raise tarfile.ReadError("no end mark after its last whole member")
    for place, goal_place, name in links:
        if not goal_place.is_file():
            raise _refused(archive, name, "is a link to something that is not a file of the archive")
        with goal_place.open("rb") as source:
            _write_file(source, place)


def _unpack_zip(archive: Path, contents: Path, progress: Progress | None) -> None:
    with zipfile.ZipFile(archive) as zipped:
        members = zipped.infolist()
        total, done = sum(member.file_size for member in members), 0
        for member in members:
            place = _place_inside(contents, member.filename, archive)
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _refused(archive, member.filename, "is a link or another special file")
            if member.is_dir():
                place.mkdir(parents=True, exist_ok=True)
            else:
                with zipped.open(member) as source:
                    _write_file(source, place)
            done += member.file_size
            if progress:
                progress(done, total)


def _place_inside(contents: Path, name: str, archive: Path) -> Path:
    # Windows' reading of a name finds every separator and drive that any system knows.
    path = PureWindowsPath(name)
    if path.drive or path.root or ".." in path.parts or "\0" in name:
        raise _refused(archive, name, "leads out of the folder")
    return contents.joinpath(*path.parts)


def _write_file(source: IO[bytes], place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("wb") as file:
        shutil.copyfileobj(source, file, _PIECE)


def _move_into_place(contents: Path, folder: Path, unfinished: Path) -> None:
    if not folder.exists():
        os.replace(contents, folder)
        return
    replaced = unfinished / "replaced"
    replaced.mkdir()
    for entry in sorted(contents.iterdir()):
        goal = folder / entry.name
        if goal.exists():
            os.replace(goal, replaced / entry.name)
        os.replace(entry, goal)


def _refused(archive: Path, name: str, reason: str) -> ValueError:
    return ValueError(
        f"{archive} is not safe to unpack: its member {name!r} {reason}. Nothing was unpacked; delete the "
        f"archive and get it from its official place."
    )


def _damaged(archive: Path, error: Exception) -> ValueError:
    return ValueError(
        f"{archive} is damaged or truncated, or no archive ({error}). Nothing was unpacked; delete it and "
        f"run the same command again."
    )


def _writing_failed(error: OSError, folder: Path, then: str) -> OSError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OSError(f"The disk of {folder} is full. Free some space {then}")
    return OSError(f"Cannot write to {folder} ({error}). Mend that {then}")
