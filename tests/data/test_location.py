import pickle
from pathlib import Path

import pytest

from torchs4.data.location import DatasetMissingError, data_folder


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty environment on Linux, with this folder as the user's own."""
    for name in ("TORCHS4_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    return tmp_path


def test_chosen_folder_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHS4_DATA", "elsewhere")
    assert data_folder("here") == Path("here")
    assert data_folder(Path("here")) == Path("here")


def test_environment_wins_over_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHS4_DATA", "elsewhere")
    assert data_folder() == Path("elsewhere")


def test_empty_variables_count_as_absent(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHS4_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert data_folder() == home / ".cache" / "torchs4"


def test_tilde_means_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert data_folder("~/data") == home / "data"
    monkeypatch.setenv("TORCHS4_DATA", "~/other")
    assert data_folder() == home / "other"


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [
        ("linux", None, ".cache/torchs4"),
        ("linux", "XDG_CACHE_HOME", "own/torchs4"),
        ("darwin", None, "Library/Caches/torchs4"),
        ("win32", None, "AppData/Local/torchs4"),
        ("win32", "LOCALAPPDATA", "own/torchs4"),
    ],
)
def test_default_is_the_users_cache_of_each_system(
    home: Path, monkeypatch: pytest.MonkeyPatch, platform: str, variable: str | None, expected: str
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    if variable:
        monkeypatch.setenv(variable, str(home / "own"))
    assert data_folder() == home / expected


def test_nothing_is_made(home: Path) -> None:
    data_folder()
    assert list(home.iterdir()) == []


def test_missing_dataset_is_a_missing_file_and_says_what_to_do() -> None:
    error = DatasetMissingError("mnist", Path("data") / "mnist")
    assert isinstance(error, FileNotFoundError)
    assert str(error) == (
        f"mnist is not in the data folder: {Path('data/mnist')} does not exist. Run `s4 data get mnist`, or "
        "point --data-dir or TORCHS4_DATA to a folder that has it."
    )


def test_missing_dataset_may_carry_its_own_advice() -> None:
    message = str(DatasetMissingError("retrieval", Path("lra"), "Download it from its authors"))
    assert "does not exist. Download it from its authors, or point --data-dir" in message
    assert "s4 data get" not in message


def test_missing_dataset_can_be_reported_from_another_process() -> None:
    error = DatasetMissingError("mnist", Path("mnist"), "Ask for it")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is DatasetMissingError
    assert str(again) == str(error)
