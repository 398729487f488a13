"""`s4 evaluate` measures a run as it was trained."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from accelerate.state import AcceleratorState

from torchs4 import S4BlockConfig, S4Config, SequenceModel, recipes
from torchs4.cli import main
from torchs4.tasks import ACCURACY
from torchs4.training.checkpoints import replace_folder
from torchs4.training.run_folder import RunFolder

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_run_is_measured_in_the_precision_that_it_was_trained_in(
    precision: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder(tmp_path / "run")
    run.start("test", replace(recipes.find("digits").config("cpu"), precision=precision), [ACCURACY])
    block = S4BlockConfig(layer=S4Config(state_size=4))
    model = SequenceModel(input_features=1, output_size=10, features=2, num_layers=1, block=block)
    replace_folder(run.best, model.save_pretrained)
    rounds, forward = set(), SequenceModel.forward

    def watched(self: SequenceModel, *inputs: Any, **options: Any) -> torch.Tensor:
        rounds.add(torch.is_autocast_enabled("cpu"))
        return forward(self, *inputs, **options)

    monkeypatch.setattr(SequenceModel, "forward", watched)
    # accelerate keeps a precision for the whole process.
    AcceleratorState._reset_state()
    try:
        assert main(["evaluate", str(run.path)]) == 0
    finally:
        AcceleratorState._reset_state()
    assert rounds == {precision == "bfloat16"}
