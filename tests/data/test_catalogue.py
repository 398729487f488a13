import io
import os
import tarfile
from dataclasses import replace
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path
from urllib.error import URLError

import pytest

from torchs4.data import archives, catalogue
from torchs4.data.catalogue import SOURCES, RemoteFile, find, get, is_present, status


def archive_of(files):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
    return content.getvalue()


@pytest.fixture
def web(monkeypatch):
    """Addresses and what they give; whatever is fetched is noted in `fetched`."""

    class Web(dict):
        fetched = ()

    web = Web()

    def download(url, target, *, sha256, size, progress):
        web.fetched += (url,)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(web[url])
        if progress:
            progress(len(web[url]), len(web[url]))

    monkeypatch.setattr(catalogue, "download", download)
    return web


def offer(web, name, files, top=""):
    """Let the one archive of a dataset hold these files."""
    (file,) = find(name).files
    web[file.url] = archive_of({top + path: text for path, text in files.items()})


CIFAR_FILES = {
    f"cifar-10-batches-bin/{name}.bin": name.encode()
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
}
SPEECH_FILES = {
    "./yes/a.wav": b"a",
    "./go/b.wav": b"b",
    "./validation_list.txt": b"yes/a.wav",
    "./testing_list.txt": b"go/b.wav",
}


def test_every_dataset_is_described_and_its_files_come_safely():
    assert len({source.name for source in SOURCES}) == len(SOURCES)
    for source in SOURCES:
        assert source.title
        assert source.licence
        assert source.markers
        assert source.size_mb > 0
        assert source.generated == (not source.files and not source.page)
        assert "first use" in source.note or not source.generated
        for file in source.files:
            assert file.url.startswith("https://")
            assert file.sha256 is None or len(bytes.fromhex(file.sha256)) == 32
            assert file.sha256 or "no checksum" in source.note
            assert not Path(file.target).is_absolute()
        known = [file.size for file in source.files if file.size]
        if known:
            assert source.size_mb == pytest.approx(sum(known) / 1e6, abs=1)


def test_plain_files_go_where_their_loader_looks(tmp_path, web):
    for file in find("mnist").files:
        web[file.url] = file.name.encode()
    get("mnist", tmp_path)
    assert (tmp_path / "mnist/t10k-labels-idx1-ubyte.gz").read_bytes() == b"t10k-labels-idx1-ubyte.gz"
    assert len(list((tmp_path / "mnist").iterdir())) == 4
    assert is_present(find("mnist"), tmp_path)


def test_archives_are_unpacked_where_their_loader_looks_and_removed(tmp_path, web):
    offer(web, "cifar10", CIFAR_FILES)
    offer(web, "speech-commands", SPEECH_FILES)
    get("cifar10", tmp_path)
    get("speech-commands", tmp_path)
    assert (tmp_path / "cifar-10-batches-bin/data_batch_5.bin").read_bytes() == b"data_batch_5"
    assert (tmp_path / "SpeechCommands/speech_commands_v0.02/go/b.wav").read_bytes() == b"b"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["SpeechCommands", "cifar-10-batches-bin"]


def test_both_versions_of_speech_commands_live_side_by_side(tmp_path, web):
    for name in ("speech-commands", "speech-commands-v0.01"):
        offer(web, name, SPEECH_FILES)
        get(name, tmp_path)
    found = sorted(path.name for path in (tmp_path / "SpeechCommands").iterdir())
    assert found == ["speech_commands_v0.01", "speech_commands_v0.02"]


def test_what_is_there_is_not_fetched_unless_asked_for_again(tmp_path, web):
    offer(web, "cifar10", CIFAR_FILES)
    get("cifar10", tmp_path)
    damaged = tmp_path / "cifar-10-batches-bin/test_batch.bin"
    damaged.write_bytes(b"damaged")
    get("cifar10", tmp_path)
    assert len(web.fetched) == 1
    assert damaged.read_bytes() == b"damaged"
    mine, other = tmp_path / "prepared" / "cifar10-grey-v1", tmp_path / "prepared" / "mnist-v1"
    for prepared in (mine, other):
        prepared.mkdir(parents=True)
        (prepared / "train_images.npy").touch()
    get("cifar10", tmp_path, again=True)
    assert len(web.fetched) == 2
    # What was made of the damaged files is made anew; what is of other datasets stays.
    assert not mine.exists()
    assert (other / "train_images.npy").is_file()
    assert damaged.read_bytes() == b"test_batch"


def test_checksum_and_size_of_the_table_are_handed_on(tmp_path, monkeypatch):
    content = archive_of(CIFAR_FILES)
    calls = {}

    def download(url, target, **options):
        calls.update(options)
        target.parent.mkdir(parents=True)
        target.write_bytes(content)

    monkeypatch.setattr(catalogue, "download", download)
    source = find("cifar10")
    file = replace(source.files[0], sha256=sha256(content).hexdigest(), size=len(content))
    monkeypatch.setattr(catalogue, "SOURCES", (replace(source, files=(file,)),))
    get("cifar10", tmp_path)
    assert calls == {"sha256": file.sha256, "size": file.size, "progress": None}


def test_progress_says_what_is_being_done(tmp_path, web):
    offer(web, "cifar10", CIFAR_FILES)
    calls = []
    get("cifar10", tmp_path, lambda *at: calls.append(at))
    assert calls[0][0] == "Fetching cifar-10-binary.tar.gz"
    assert calls[-1][0] == "Unpacking cifar-10-binary.tar.gz"
    assert all(0 < done <= total for _, done, total in calls)


def test_damaged_archive_leaves_the_data_folder_as_it_was(tmp_path, web):
    web[find("cifar10").files[0].url] = archive_of(CIFAR_FILES)[:-20]
    with pytest.raises(ValueError, match="damaged or truncated"):
        get("cifar10", tmp_path)
    assert not is_present(find("cifar10"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["downloads"]


def test_archive_with_other_contents_is_told(tmp_path, web):
    offer(web, "cifar10", {"cifar-10-batches-bin/readme.html": b""})
    with pytest.raises(ValueError, match=r"cifar10 was fetched, but .*data_batch_1\.bin is not in it"):
        get("cifar10", tmp_path)


def test_status_tells_presence_and_size(tmp_path, web):
    offer(web, "cifar10", CIFAR_FILES)
    get("cifar10", tmp_path)
    generated = tmp_path / "prepared/listops-generated-1-1-1-seed0-v1"
    generated.mkdir(parents=True)
    (generated / "tokens.npy").write_bytes(bytes(77))
    found = {row.source.name: row for row in status(tmp_path)}
    assert found.keys() == {source.name for source in SOURCES}
    assert {name for name, row in found.items() if row.present} == {"cifar10", "listops"}
    assert found["cifar10"].size_on_disk == sum(map(len, CIFAR_FILES.values()))
    assert found["listops"].size_on_disk == 77
    assert found["mnist"].size_on_disk == 0


def test_incomplete_dataset_is_not_present(tmp_path, web):
    offer(web, "cifar10", CIFAR_FILES)
    get("cifar10", tmp_path)
    (tmp_path / "cifar-10-batches-bin/data_batch_3.bin").unlink()
    assert not is_present(find("cifar10"), tmp_path)


def test_unfinished_download_does_not_count_as_present(tmp_path):
    (tmp_path / "mnist").mkdir()
    for file in find("mnist").files:
        (tmp_path / f"{file.target}.part").write_bytes(b"half")
    assert not is_present(find("mnist"), tmp_path)


def test_status_of_a_folder_that_is_not_there_is_empty(tmp_path):
    assert not any(row.present or row.size_on_disk for row in status(tmp_path / "absent"))


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("cifar", "Did you mean cifar10"),
        ("CIFAR-10", "Did you mean cifar10"),
        ("speech", "Did you mean speech-commands"),
        ("imbd", "Did you mean imdb"),
    ],
)
def test_unknown_name_gets_the_closest_suggestion(tmp_path, name, suggestion):
    with pytest.raises(ValueError, match=suggestion):
        get(name, tmp_path)


def test_name_like_no_other_gets_the_list():
    with pytest.raises(ValueError, match=r"no dataset 'zzzz'\. There are: mnist, cifar10"):
        find("zzzz")


@pytest.mark.parametrize("name", ["weather", "electricity"])
def test_what_has_to_be_fetched_by_hand_says_where(tmp_path, name):
    with pytest.raises(
        ValueError, match=rf"{name} has to be fetched by hand.*github.com/zhouhaoyi/Informer2020"
    ):
        get(name, tmp_path)


def test_generated_datasets_need_no_getting(tmp_path):
    with pytest.raises(ValueError, match="generated on first use"):
        get("listops", tmp_path)


def test_name_of_a_file_is_the_end_of_its_address():
    assert RemoteFile("https://host/a/b.tar.gz", "x", archive=True).name == "b.tar.gz"


@pytest.mark.parametrize("name", ["mnist", "ett"])
def test_real_files_have_the_checksums_of_the_table(name):
    folder = Path(os.environ.get("TORCHS4_DATA", "/nowhere"))
    if not is_present(find(name), folder):
        pytest.skip(f"needs {name} in the folder that TORCHS4_DATA names")
    for file in find(name).files:
        content = (folder / file.target).read_bytes()
        assert (sha256(content).hexdigest(), len(content)) == (file.sha256, file.size)


def test_arrays_prepared_from_a_dataset_are_known_by_name():
    """Each loader's prepared names, as in the sources of `torchs4.data`."""
    made = {
        "mnist": ["mnist-v1"],
        "cifar10": ["cifar10-grey-v1", "cifar10-colour-v1"],
        "imdb": ["imdb-characters-15-v1"],
        "ett": ["ett-ETTh1-v1"],
        "weather": ["weather-v1"],
        "electricity": ["electricity-ECL_first6-v1"],
        "wikitext-2": ["wikitext-2-characters-3-v1", "wikitext-2-words-1-v1"],
        "wikitext-103": ["wikitext-103-words-1-v1"],
        "speech-commands": ["speech-commands-0.02-0123456789ab-raw-1"],
        "speech-commands-v0.01": ["speech-commands-0.01-0123456789ab-mfcc-1"],
        "lra": ["listops-official-v1", "retrieval-characters-4000-15-v1", "pathfinder32-official-v1"],
    }
    fetched = [source for source in SOURCES if not source.generated]
    assert {source.name for source in fetched} == set(made)
    for source in fetched:
        for name, names in made.items():
            for prepared in names:
                found = any(fnmatch(prepared, pattern) for pattern in source.prepared)
                assert found == (name == source.name), (source.name, prepared)


def test_an_offline_machine_is_left_as_it_was(tmp_path, monkeypatch):
    def offline(*arguments, **options):
        raise URLError("no network")

    monkeypatch.setattr(archives, "urlopen", offline)
    for name in ("mnist", "cifar10"):
        with pytest.raises(archives.DownloadError, match="Could not reach"):
            get(name, tmp_path / "some" / "data")
    assert not list(tmp_path.iterdir())
