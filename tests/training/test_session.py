"""`torchs4.train`: data in memory or in files, any task, one folder, and runs that continue."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from rich.console import Console

import torchs4
from torchs4 import SequenceModel, SequenceModelConfig
from torchs4.data import Pathfinder, TextFile, from_arrays
from torchs4.recipes import network
from torchs4.training import session
from torchs4.training.config import BudgetOptions, OptimizerOptions
from torchs4.training.display import Display
from torchs4.training.loop import Trainer, TrainingInterrupted
from torchs4.training.run_folder import RunFolder

if TYPE_CHECKING:
    from pathlib import Path

SMALL = network(layers=1, features=4, state_size=4, dropout=0.2)
OPTIM = OptimizerOptions(lr=0.01, batch_size=8)
BUDGET = BudgetOptions(epochs=2)


def signals(n: int = 40, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(3.0, 2.0, (n, 20)).astype(np.float32)


def classes() -> Any:
    x = signals()
    return from_arrays(x, np.where(x.mean(1) > 3, "high", "low"), validation=0.2, test=0.2)


def values() -> Any:
    x = signals()
    return from_arrays(x, x.mean(1), validation=0.2, test=0.2)


def positions() -> Any:
    x = [row[: 5 + index % 10] for index, row in enumerate(signals())]
    return from_arrays(x, [np.cumsum(row) for row in x], validation=0.2)


def text(folder: Path) -> TextFile:
    path = folder / "book.txt"
    path.write_text("the quick brown fox jumps over the lazy dog. " * 60)
    return TextFile(str(path), length=16)


def data_of(kind: str, folder: Path) -> Any:
    makers: dict[str, Any] = {"classes": classes, "values": values, "positions": positions}
    return text(folder) if kind == "text" else makers[kind]()


def run(folder: Path, data: Any, **options: Any) -> Any:
    arguments = {"optim": OPTIM, "budget": BUDGET, "checkpoint_seconds": 0.0, "quiet": True, **options}
    return torchs4.train(
        arguments.pop("model", SMALL), data, output=folder, data_dir=folder.parent, **arguments
    )


@pytest.mark.parametrize("kind", ["classes", "values", "positions", "text"])
def test_every_task_trains_and_continues_bit_for_bit(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(tmp_path / "whole", data_of(kind, tmp_path))
    steps = whole.summary["steps"]
    step, taken = Trainer._step, []

    def dies(self: Trainer, *arguments: Any) -> Any:
        taken.append(1)
        if len(taken) == steps // 2 + 1:
            raise RuntimeError("killed")
        return step(self, *arguments)

    monkeypatch.setattr(Trainer, "_step", dies)
    with pytest.raises(RuntimeError, match="killed"):
        run(tmp_path / "killed", data_of(kind, tmp_path))
    resumed = run(tmp_path / "killed", data_of(kind, tmp_path), resume=True)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], tensor), name
    metric = whole.summary["metrics"][0]["name"]
    best = f"best_validation_{metric}"
    assert resumed.summary[best] == whole.summary[best]
    assert json.loads((tmp_path / "killed" / "summary.json").read_text())["steps"] == steps


def test_a_run_leaves_what_a_person_and_a_program_need(tmp_path: Path) -> None:
    finished = run(tmp_path / "run", classes())
    names = {path.name for path in finished.folder.iterdir()}
    assert {"config.json", "metrics.jsonl", "summary.json", "curves.png", "kernels.png", "best"} <= names
    model = SequenceModel.from_pretrained(finished.folder / "best")
    assert model.config.names == ("high", "low")
    assert model.config.input_scaling is not None
    assert model.config.input_scaling.shift[0] == pytest.approx(3.0, abs=0.3)
    x = torch.from_numpy(signals(4, seed=1))[..., None]
    torch.testing.assert_close(model(x), finished.model(x))


def test_whoever_stops_the_last_measuring_may_go_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(session, "finish", stopped)
        with pytest.raises(TrainingInterrupted):
            run(tmp_path / "stopped", classes())
    assert RunFolder(tmp_path / "stopped").summary() is None
    resumed = run(tmp_path / "stopped", classes(), resume=True)
    whole = run(tmp_path / "whole", classes())
    for key in ("steps", "best_validation_accuracy", "test_accuracy"):
        assert resumed.summary.get(key) == whole.summary.get(key)


def test_where_nothing_can_be_redrawn_long_work_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with Display(Console(force_terminal=False)) as display:
        display.counting("measuring")(1, 2)
    with Display(Console(force_terminal=False), quiet=True) as display:
        display.counting("nothing")(1, 2)
    assert capsys.readouterr().out == "measuring …\n"


@pytest.mark.parametrize(
    ("every", "told"),
    [
        (10, "the task's own come after 20 of them, in epoch 2."),
        (40, "come after 80 of them, but this run shows only 32: it never comes to its task."),
    ],
)
def test_a_run_tells_when_its_examples_have_grown(
    every: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = Pathfinder(count=20, grow_from=12, grow_every=every)
    data = config.load(tmp_path)
    finished = run(tmp_path / "run", data, quiet=False)
    assert told in " ".join(capsys.readouterr().out.split())
    assert finished.summary["training_examples"] == 16


def test_a_simple_question_is_learned(tmp_path: Path) -> None:
    x = signals(300)
    data = from_arrays(x, 100 + 10 * x.mean(1), test=0.2)
    optim = OptimizerOptions(lr=0.01, ssm_lr=0.01, batch_size=16)
    finished = run(
        tmp_path / "run",
        data,
        model=network(layers=1, features=16, state_size=8),
        optim=optim,
        budget=BudgetOptions(epochs=12),
    )
    # In units of the answers' own deviation.
    assert finished.summary["test_mse"] < 0.2
    predicted = finished.model(torch.from_numpy(x[:5, :, None])).detach().numpy()[:, 0]
    assert np.abs(predicted - (100 + 10 * x[:5].mean(1))).max() < 10


def test_a_run_continues_only_with_what_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "run", classes())
    with pytest.raises(ValueError, match="is there already"):
        run(tmp_path / "run", classes())
    with pytest.raises(ValueError, match=r"begun with other arguments: data\.fingerprint was"):
        run(tmp_path / "run", values(), resume=True)
    with pytest.raises(ValueError, match="begun with other arguments: seed was 0, now it is 1"):
        run(tmp_path / "run", classes(), resume=True, seed=1)
    with pytest.raises(ValueError, match="which run to continue"):
        torchs4.train(SMALL, classes(), resume=True)


def test_a_complete_run_is_extended_as_if_it_had_been_begun_so(tmp_path: Path) -> None:
    constant = OptimizerOptions(lr=0.01, batch_size=8, schedule="constant")
    whole = run(tmp_path / "whole", classes(), optim=constant, budget=BudgetOptions(epochs=4))
    first = run(tmp_path / "run", classes(), optim=constant, budget=BudgetOptions(epochs=2))
    steps = first.summary["steps"]
    with pytest.raises(ValueError, match=rf"has taken {steps} steps already, and its new budget .*epochs=1"):
        run(tmp_path / "run", classes(), optim=constant, budget=BudgetOptions(epochs=1), resume=True)
    assert (tmp_path / "run" / "summary.json").is_file()
    longer = run(tmp_path / "run", classes(), optim=constant, budget=BudgetOptions(epochs=4), resume=True)
    assert longer.summary["steps"] == 2 * steps
    for name in ("best", "last"):
        expected = torchs4.load_model(tmp_path / "whole" / name).state_dict()
        for key, tensor in torchs4.load_model(tmp_path / "run" / name).state_dict().items():
            assert torch.equal(tensor, expected[key]), f"{name}: {key}"
    assert longer.summary["best_validation_accuracy"] == whole.summary["best_validation_accuracy"]
    kept = json.loads((tmp_path / "run" / f"summary-{steps}-steps.json").read_text())
    assert kept["steps"] == steps
    assert RunFolder(tmp_path / "run").config().budget.epochs == 4


def test_an_extended_run_has_the_schedule_of_its_new_length(tmp_path: Path) -> None:
    run(tmp_path / "run", classes())
    run(tmp_path / "run", classes(), budget=BudgetOptions(epochs=4), resume=True)
    rates = [record["learning_rate"] for record in RunFolder(tmp_path / "run").metrics()]
    assert rates[2] > rates[1]
    assert rates[2] > rates[3]


def test_an_extended_run_that_is_killed_continues_to_its_new_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "run", classes())
    longer = BudgetOptions(epochs=3)

    def dies(*arguments: Any) -> Any:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", dies)
        with pytest.raises(RuntimeError, match="killed"):
            run(tmp_path / "run", classes(), budget=longer, resume=True)
    assert RunFolder(tmp_path / "run").summary() is None
    assert run(tmp_path / "run", classes(), budget=longer, resume=True).summary["epochs"] == 3


def test_a_second_process_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("fcntl", reason="this system has no such locks")
    folder = RunFolder(tmp_path / "run")
    with folder.locked():
        with pytest.raises(ValueError, match="Another process is training in"):
            run(folder.path, classes())
        assert [path.name for path in folder.path.iterdir()] == [".lock"]
    run(folder.path, classes())
    before = (folder.path / "metrics.jsonl").read_bytes()
    with folder.locked(), pytest.raises(ValueError, match="Another process is training in"):
        run(folder.path, classes(), resume=True, budget=BudgetOptions(epochs=4))
    assert (folder.path / "metrics.jsonl").read_bytes() == before
    assert not (folder.path / ".lock").exists()


def test_a_model_is_trained_further(tmp_path: Path) -> None:
    first = run(tmp_path / "first", classes())
    before = first.model.state_dict()["head.weight"].clone()
    second = run(tmp_path / "second", classes(), model=first.model)
    assert not torch.equal(second.model.state_dict()["head.weight"], before)
    assert second.model.config == first.model.config


def test_training_ends_early_when_validation_no_longer_improves(tmp_path: Path) -> None:
    optim = OptimizerOptions(lr=0.0, ssm_lr=0.0, batch_size=8)
    finished = run(tmp_path / "run", classes(), optim=optim, budget=BudgetOptions(epochs=50, early_stop=3))
    # The first epoch is the best, and nothing changes after it.
    assert finished.summary["epochs"] == 4


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"model is a Linear; expected SequenceModelConfig\(…\)"):
        run(tmp_path / "run", classes(), model=torch.nn.Linear(1, 1))
    assert not (tmp_path / "run").exists()
    assert isinstance(SMALL, SequenceModelConfig)
