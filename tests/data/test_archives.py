import errno
import gzip
import hashlib
import io
import re
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from torchs4.data import archives
from torchs4.data.archives import DownloadError, download, extract

CONTENT = np.random.default_rng(0).bytes(100_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server:
    """A web server on this machine that gives CONTENT, in the ways that a test asks for."""

    def __init__(self):
        self.honours_range = True
        self.announces_size = True
        self.dies_after = None
        self.status = None
        self.wrong_range = False
        self.requests = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                server.answer(self)

            def log_message(self, *arguments):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/file.bin"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def answer(self, handler):
        wish = handler.headers.get("Range")
        self.requests.append(wish)
        if self.status:
            handler.send_error(self.status)
            return
        start = int(re.fullmatch(r"bytes=(\d+)-", wish)[1]) if wish and self.honours_range else 0
        if start >= len(CONTENT):
            handler.send_response(416)
            handler.send_header("Content-Range", f"bytes */{len(CONTENT)}")
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        handler.send_response(206 if start else 200)
        if start:
            first = start + 1 if self.wrong_range else start
            handler.send_header("Content-Range", f"bytes {first}-{len(CONTENT) - 1}/{len(CONTENT)}")
        if self.announces_size:
            handler.send_header("Content-Length", str(len(CONTENT) - start))
        handler.end_headers()
        handler.wfile.write(CONTENT[start : self.dies_after])

    def close(self):
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def server(monkeypatch):
    # A proxy set for the rest of the world does not know this server.
    monkeypatch.setenv("no_proxy", "*")
    server = Server()
    yield server
    server.close()


@pytest.fixture
def target(tmp_path):
    return tmp_path / "new" / "file.bin"


def part_of(target):
    return target.with_name("file.bin.part")


def leave_part(target, content):
    target.parent.mkdir(parents=True)
    part_of(target).write_bytes(content)


def test_download_brings_the_file_and_tells_how_far_it_is(server, target, monkeypatch):
    monkeypatch.setattr(archives, "_PIECE", 30_000)
    calls = []
    download(server.url, target, sha256=SHA256, size=len(CONTENT), progress=lambda *at: calls.append(at))
    assert target.read_bytes() == CONTENT
    assert not part_of(target).exists()
    assert calls[-1] == (100_000, 100_000)
    assert [done for done, _ in calls] == sorted({done for done, _ in calls})
    assert len(calls) >= 4


def test_download_works_when_the_size_is_unknown(server, target):
    server.announces_size = False
    calls = []
    download(server.url, target, sha256=SHA256, progress=lambda *at: calls.append(at))
    assert target.read_bytes() == CONTENT
    assert calls[-1] == (100_000, 0)


def test_interrupted_download_continues_where_it_stopped(server, target):
    server.dies_after = 40_000
    with pytest.raises(
        DownloadError, match=r"broke off after 40,000 of 100,000 bytes.*continues where it stopped"
    ):
        download(server.url, target, sha256=SHA256)
    assert not target.exists()
    assert part_of(target).read_bytes() == CONTENT[:40_000]
    server.dies_after = None
    calls = []
    download(server.url, target, sha256=SHA256, progress=lambda *at: calls.append(at))
    assert target.read_bytes() == CONTENT
    assert server.requests == [None, "bytes=40000-"]
    assert calls[0][0] > 40_000
    assert calls[-1] == (100_000, 100_000)


def test_server_that_ignores_the_wish_for_the_rest_is_read_from_the_start(server, target):
    server.honours_range = False
    leave_part(target, CONTENT[:40_000])
    download(server.url, target, sha256=SHA256)
    assert target.read_bytes() == CONTENT


def test_server_that_sends_another_rest_is_asked_for_everything(server, target):
    server.wrong_range = True
    leave_part(target, CONTENT[:40_000])
    download(server.url, target, sha256=SHA256)
    assert target.read_bytes() == CONTENT
    assert server.requests == ["bytes=40000-", None]


@pytest.mark.parametrize("size", [None, len(CONTENT)])
def test_complete_part_is_not_fetched_again(server, target, size):
    leave_part(target, CONTENT)
    download(server.url, target, sha256=SHA256, size=size)
    assert target.read_bytes() == CONTENT
    assert server.requests == ([] if size else ["bytes=100000-"])


@pytest.mark.parametrize("size", [None, len(CONTENT)])
def test_part_that_is_too_long_is_fetched_anew(server, target, size):
    leave_part(target, CONTENT + b"surplus")
    download(server.url, target, sha256=SHA256, size=size)
    assert target.read_bytes() == CONTENT


def test_wrong_part_is_deleted_so_that_the_next_try_starts_clean(server, target):
    leave_part(target, bytes(40_000))
    with pytest.raises(ValueError, match=f"sha256 is .* instead of {SHA256}"):
        download(server.url, target, sha256=SHA256)
    assert list(target.parent.iterdir()) == []
    download(server.url, target, sha256=SHA256)
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ({"sha256": "0" * 64}, "its sha256 is"),
        ({"size": 100_001}, "100,000 bytes instead of 100,001"),
        ({"size": 99_999}, "100,000 bytes instead of 99,999"),
    ],
)
def test_wrong_file_is_refused_and_deleted(server, target, expected, message):
    with pytest.raises(ValueError, match=message) as caught:
        download(server.url, target, **expected)
    assert server.url in str(caught.value)
    assert list(target.parent.iterdir()) == []


def test_right_file_is_left_alone_and_a_wrong_one_replaced(server, target):
    target.parent.mkdir()
    target.write_bytes(CONTENT)
    download(server.url, target, sha256=SHA256)
    assert server.requests == []
    target.write_bytes(CONTENT[:-1])
    download(server.url, target, sha256=SHA256)
    assert target.read_bytes() == CONTENT


def test_http_status_is_told(server, target):
    server.status = 404
    with pytest.raises(DownloadError, match="HTTP status 404"):
        download(server.url, target)
    assert not target.exists()


def test_offline_is_told_plainly(server, target):
    server.close()
    try:
        with pytest.raises(
            DownloadError, match=r"Could not reach http.*Check the connection and run the same command again"
        ):
            download(server.url, target)
    finally:
        server.close = lambda: None
    with pytest.raises(DownloadError, match="Could not reach"):
        download("http://name.invalid/file", target)


def test_connection_that_breaks_while_reading_keeps_what_arrived(server, target, monkeypatch):
    pieces = iter([CONTENT[:10], ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")])

    def read(response, size):
        piece = next(pieces)
        if isinstance(piece, Exception):
            raise piece
        return piece

    monkeypatch.setattr("http.client.HTTPResponse.read", read)
    with pytest.raises(DownloadError, match=r"broke off: .*reset by peer.*continues where it stopped"):
        download(server.url, target)
    assert part_of(target).read_bytes() == CONTENT[:10]


class FullDisk:
    """A file that takes some bytes and then has no space left."""

    def __init__(self, file, space):
        self.file = file
        self.space = space

    def write(self, piece):
        self.file.write(piece[: self.space])
        if len(piece) > self.space:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.space -= len(piece)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()


@pytest.fixture
def full_disk(monkeypatch):
    original = Path.open

    def opened(path, mode="r", *arguments, **options):
        file = original(path, mode, *arguments, **options)
        return FullDisk(file, 5000) if mode in ("ab", "wb") else file

    monkeypatch.setattr(Path, "open", opened)
    return monkeypatch


def test_full_disk_while_downloading_is_told_and_can_continue(server, target, full_disk):
    with pytest.raises(OSError, match=r"disk of .* is full. Free some space and run the same command again"):
        download(server.url, target, sha256=SHA256)
    assert not target.exists()
    assert part_of(target).read_bytes() == CONTENT[:5000]
    full_disk.undo()
    full_disk.setenv("no_proxy", "*")
    download(server.url, target, sha256=SHA256)
    assert server.requests[-1] == "bytes=5000-"
    assert target.read_bytes() == CONTENT


# Archives

FILES = {"top/a.txt": b"alpha", "top/deep/b.bin": CONTENT[:50_000], "top/deep/empty": b""}


def write_tar(path, files, mode="w:gz", extra=()):
    with tarfile.open(path, mode) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for member in extra:
            tar.addfile(member)
    return path


def write_zip(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, content in files.items():
            zipped.writestr(name, content)
    return path


def special(name, kind, linkname=""):
    member = tarfile.TarInfo(name)
    member.type = kind
    member.linkname = linkname
    return member


def files_in(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.fixture(params=["tar", "tar.gz", "zip"])
def archive(request, tmp_path):
    path = tmp_path / f"archive.{request.param}"
    if request.param == "zip":
        return write_zip(path, FILES)
    return write_tar(path, FILES, "w" if request.param == "tar" else "w:gz")


def test_archive_is_unpacked_whole(archive, tmp_path):
    calls = []
    extract(archive, tmp_path / "data", lambda *at: calls.append(at))
    assert files_in(tmp_path / "data") == FILES
    assert sorted(path.name for path in tmp_path.iterdir()) == [archive.name, "data"]
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert calls[-1][0] <= calls[-1][1]


def test_unpacking_beside_other_things_replaces_only_its_own(archive, tmp_path):
    data = tmp_path / "data"
    for name in ("top/old.txt", "other/kept.txt"):
        (data / name).parent.mkdir(parents=True)
        (data / name).write_text("old")
    extract(archive, data)
    assert files_in(data) == FILES | {"other/kept.txt": b"old"}
    assert sorted(path.name for path in data.iterdir()) == ["other", "top"]


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9, 0.99])
def test_truncated_archive_leaves_nothing(archive, tmp_path, kept):
    # Zeros at the end of a plain tar only fill it up.
    content = archive.read_bytes().rstrip(b"\0")
    archive.write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(ValueError, match="damaged or truncated") as caught:
        extract(archive, tmp_path / "data")
    assert str(archive) in str(caught.value)
    assert list(tmp_path.iterdir()) == [archive]


def test_altered_archive_leaves_nothing(archive, tmp_path):
    content = bytearray(archive.read_bytes())
    # In a plain tar only headers carry sums: the second one begins after a header and a block.
    place = 1024 + 100 if archive.suffix == ".tar" else len(content) // 2
    content[place] ^= 255
    archive.write_bytes(content)
    with pytest.raises(ValueError, match="damaged or truncated"):
        extract(archive, tmp_path / "data")
    assert list(tmp_path.iterdir()) == [archive]


def test_wrong_sum_at_the_end_of_a_compressed_file_is_noticed(tmp_path):
    archive = write_tar(tmp_path / "archive.tar.gz", FILES)
    content = bytearray(archive.read_bytes())
    content[-8] ^= 1
    archive.write_bytes(content)
    with pytest.raises(ValueError, match="CRC"):
        extract(archive, tmp_path / "data")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "content", [b"", b"<html>Not found</html>", gzip.compress(b"no tar", mtime=0), b"PK\3\4junk"]
)
def test_what_is_no_archive_is_refused(tmp_path, content):
    archive = tmp_path / "archive.tar.gz"
    archive.write_bytes(content)
    with pytest.raises(ValueError, match="no archive"):
        extract(archive, tmp_path / "data")
    assert list(tmp_path.iterdir()) == [archive]


@pytest.mark.parametrize("write", [write_tar, write_zip])
@pytest.mark.parametrize(
    "name", ["../evil", "top/../../evil", "..\\evil", "C:/evil", "\\\\host\\share\\evil"]
)
def test_names_that_lead_out_are_refused(tmp_path, write, name):
    archive = write(tmp_path / "archive", {"top/a.txt": b"alpha", name: b"evil"})
    with pytest.raises(ValueError, match="leads out of the folder"):
        extract(archive, tmp_path / "data" / "inner")
    assert files_in(tmp_path).keys() == {"archive"}


def test_absolute_names_are_refused(tmp_path):
    evil = tmp_path / "evil"
    archive = write_tar(tmp_path / "archive", {str(evil): b"evil"})
    with pytest.raises(ValueError, match="leads out of the folder"):
        extract(archive, tmp_path / "data")
    assert not evil.exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
@pytest.mark.parametrize("goal", ["/etc/passwd", "../../outside", "top/../../outside"])
def test_links_to_outside_are_refused(tmp_path, kind, goal):
    (tmp_path / "outside").write_text("secret")
    archive = write_tar(tmp_path / "archive", FILES, extra=[special("link", kind, goal)])
    with pytest.raises(ValueError, match="leads out of the folder"):
        extract(archive, tmp_path / "data")
    assert files_in(tmp_path).keys() == {"archive", "outside"}


def test_writing_through_a_link_is_impossible(tmp_path):
    """The classic attack: a link to a folder outside, then a file below that link."""
    with tarfile.open(tmp_path / "archive", "w") as tar:
        tar.addfile(special("door", tarfile.SYMTYPE, str(tmp_path)))
        member = tarfile.TarInfo("door/evil")
        member.size = 4
        tar.addfile(member, io.BytesIO(b"evil"))
    with pytest.raises(ValueError, match="not safe to unpack"):
        extract(tmp_path / "archive", tmp_path / "data")
    assert files_in(tmp_path).keys() == {"archive"}


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_are_refused(tmp_path, kind):
    archive = write_tar(tmp_path / "archive", FILES, extra=[special("device", kind)])
    with pytest.raises(ValueError, match="device"):
        extract(archive, tmp_path / "data")
    assert list(tmp_path.iterdir()) == [archive]


def test_links_inside_become_copies(tmp_path):
    links = [
        special("top/deep/soft", tarfile.SYMTYPE, "../a.txt"),
        special("hard", tarfile.LNKTYPE, "top/a.txt"),
    ]
    extract(write_tar(tmp_path / "archive", FILES, extra=links), tmp_path / "data")
    assert files_in(tmp_path / "data") == FILES | {"top/deep/soft": b"alpha", "hard": b"alpha"}
    assert not any(path.is_symlink() for path in (tmp_path / "data").rglob("*"))


def test_links_to_nothing_are_refused(tmp_path):
    archive = write_tar(tmp_path / "archive", FILES, extra=[special("link", tarfile.SYMTYPE, "absent")])
    with pytest.raises(ValueError, match="not a file of the archive"):
        extract(archive, tmp_path / "data")
    assert list(tmp_path.iterdir()) == [archive]


def test_links_in_a_zip_are_refused(tmp_path):
    archive = tmp_path / "archive.zip"
    member = zipfile.ZipInfo("link")
    member.external_attr = 0o120777 << 16
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr(member, "/etc/passwd")
    with pytest.raises(ValueError, match="is a link"):
        extract(archive, tmp_path / "data")
    assert list(tmp_path.iterdir()) == [archive]


def test_full_disk_while_unpacking_leaves_nothing(archive, tmp_path, full_disk):
    with pytest.raises(OSError, match=r"is full. Free some space and run the same command again"):
        extract(archive, tmp_path / "data")
    assert list(tmp_path.iterdir()) == [archive]
