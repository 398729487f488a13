import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

from torchs4 import SequenceModel
from torchs4.data import Digits, LabeledDigits, load_digits

SCRIPT = Path(__file__).parents[1] / "examples" / "quickstart.py"


@pytest.fixture(scope="module")
def quickstart() -> ModuleType:
    spec = importlib.util.spec_from_file_location("quickstart", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def few_digits() -> Digits:
    return Digits(*(LabeledDigits(split.images[:20], split.labels[:20]) for split in load_digits()))


def test_quickstart_trains_streams_and_saves(
    quickstart: ModuleType, few_digits: Digits, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert quickstart.run(few_digits, epochs=1, seed=0, output=tmp_path) == 0
    printed = capsys.readouterr().out
    assert "Epoch 1 of 1" in printed
    assert "Of 20 test digits" in printed
    assert "Largest difference between recurrence and convolution" in printed
    for name in ("prediction.png", "kernels.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    model = SequenceModel.from_pretrained(tmp_path / "model")
    assert model(few_digits.test.images[:2]).shape == (2, 10)


def test_quickstart_fails_when_recurrence_and_convolution_disagree(
    quickstart: ModuleType, few_digits: Digits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quickstart, "train", lambda *arguments: None)
    monkeypatch.setattr(quickstart, "stream", lambda model, image: torch.zeros(784, 10))
    assert quickstart.run(few_digits, epochs=1, seed=0, output=tmp_path) == 1


def test_same_seed_gives_the_same_model(quickstart: ModuleType, few_digits: Digits) -> None:
    weights = []
    for _ in range(2):
        torch.manual_seed(1)
        model = quickstart.build_model()
        quickstart.train(model, few_digits, epochs=1)
        weights.append(torch.cat([parameter.flatten() for parameter in model.parameters()]))
    torch.testing.assert_close(*weights)


def test_help_names_the_options(quickstart: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        quickstart.main(["--help"])
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    for option in ("--epochs", "--seed", "--output"):
        assert option in printed


def test_no_epochs_are_refused(quickstart: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        quickstart.main(["--epochs", "0"])
    assert stop.value.code == 2
    assert "at least 1" in capsys.readouterr().err
