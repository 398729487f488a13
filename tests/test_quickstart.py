import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

from torchs4 import SequenceModel

SCRIPT = Path(__file__).parents[1] / "examples" / "quickstart.py"
# The whole way, but with a model and a training that take seconds.
SHORT = ["--model.layers", "1", "--model.features", "4", "--model.state-size", "4", "--budget.max-steps", "2"]
SHORT += ["--budget.validation-examples", "20"]


@pytest.fixture(scope="module")
def quickstart() -> ModuleType:
    spec = importlib.util.spec_from_file_location("quickstart", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_quickstart_trains_streams_and_saves(
    quickstart: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "run"
    assert quickstart.main(["--output", str(output), *SHORT]) == 0
    printed = capsys.readouterr().out
    assert "Test accuracy" in printed
    assert "Largest difference between recurrence and convolution" in printed
    for name in ("prediction.png", "memories.png", "curves.png", "kernels.png"):
        assert (output / name).read_bytes().startswith(b"\x89PNG")
    model = SequenceModel.from_pretrained(output / "best")
    assert model(torch.zeros(2, 784, 1)).shape == (2, 10)


def test_quickstart_fails_when_recurrence_and_convolution_disagree(
    quickstart: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SequenceModel(features=4, num_layers=1).save_pretrained(tmp_path / "best")
    monkeypatch.setattr(quickstart, "stream", lambda model, image: torch.zeros(784, 10))
    assert quickstart.show_streaming(tmp_path) == 1


def test_help_names_the_options(quickstart: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        quickstart.main(["--help"])
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    assert "--output" in printed
    assert "s4 train digits --help" in printed
