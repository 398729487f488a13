"""Where a run trains, and with which precision."""

import math
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from rich.console import Console

from torchs4.cli import main
from torchs4.data import BundledDigits
from torchs4.models import load_model
from torchs4.ops import mixing
from torchs4.ops.self_test import self_test
from torchs4.recipes import network
from torchs4.training.config import BudgetOptions, OptimizerOptions, TrainingConfig
from torchs4.training.devices import (
    available_devices,
    default_device,
    device_random_state,
    open_accelerator,
    require_device,
    set_device_random_state,
    slowness,
)
from torchs4.training.display import Display
from torchs4.training.loop import Trainer, TrainingDivergedError
from torchs4.training.run_folder import RunFolder


def test_a_device_that_is_not_there_is_named_with_those_that_are():
    if torch.accelerator.is_available():
        pytest.skip("this machine has an accelerator")
    assert default_device() == torch.device("cpu")
    assert available_devices() == [torch.device("cpu")]
    with pytest.raises(ValueError, match=r"device is 'cuda:1', but this PyTorch .* sees only cpu.*s4 doctor"):
        open_accelerator("float32", "cuda:1")
    with pytest.raises(ValueError, match="device is 'gpu', which PyTorch does not know"):
        require_device("gpu")


def test_the_cpu_can_be_asked_for_and_has_no_fast_float16():
    assert open_accelerator("float32", "cpu").device == torch.device("cpu")
    with pytest.raises(ValueError, match=r"'float16'.*choose 'bfloat16'"):
        open_accelerator("float16", "cpu")


@pytest.mark.parametrize("has_fast_products", [True, False])
def test_a_processor_that_would_be_slow_at_bfloat16_is_told_of(has_fast_products, monkeypatch):
    monkeypatch.setattr(mixing, "bfloat16_is_fast", lambda: has_fast_products)
    told = slowness("bfloat16", torch.device("cpu"))
    assert told is None if has_fast_products else "--precision float32" in told
    assert slowness("float32", torch.device("cpu")) is None
    assert slowness("bfloat16", torch.device("cuda")) is None


@pytest.mark.parametrize("instruction", ["avx512bf16", "amx-bf16", "bf16", "avx512f"])
@pytest.mark.parametrize("has_library", [True, False])
def test_fast_products_in_bfloat16_take_an_instruction_and_a_library(instruction, has_library, monkeypatch):
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_features", lambda: {instruction: True})
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: has_library)
    assert mixing.bfloat16_is_fast.__wrapped__() == (has_library and instruction != "avx512f")


@pytest.mark.parametrize("kind", ["cuda", "mps", "xpu"])
def test_the_random_state_of_every_kind_of_device_is_kept(kind, monkeypatch):
    class Module:
        """A device's module, of which Apple's has one device only."""

        state = torch.arange(4, dtype=torch.uint8)

        def get_rng_state(self, *device):
            assert len(device) == (kind != "mps")
            return self.state.clone()

        def set_rng_state(self, state, *device):
            assert len(device) == (kind != "mps")
            self.state = state

    module, device = Module(), torch.device(kind)
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    state = device_random_state(device)
    module.state = torch.zeros(4, dtype=torch.uint8)
    set_device_random_state(device, state)
    assert torch.equal(module.state, torch.arange(4, dtype=torch.uint8))
    assert device_random_state(torch.device("cpu")) is None


def make_trainer(folder: Path, scale: float, resume: bool = False) -> Trainer:
    config = TrainingConfig(
        data=BundledDigits(),
        model=network(layers=1, features=4, state_size=4),
        optim=OptimizerOptions(batch_size=8),
        budget=BudgetOptions(max_steps=2, validation_examples=8),
    )
    data, run = config.data.load(Path("nowhere")), RunFolder(folder)
    if not resume:
        run.start("digits", config, data.task.metrics)
    accelerator = Accelerator(cpu=True)
    # What accelerate makes for float16, which it refuses to make for a CPU.
    accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=1000)
    return Trainer(config, data, run, Display(Console(quiet=True)), accelerator, math.inf)


def test_gradients_that_float16_cannot_hold_are_left_out_and_the_scale_falls_and_is_kept(tmp_path):
    trainer = make_trainer(tmp_path / "run", scale=3e38)
    before = {name: p.clone() for name, p in trainer.bare_model.named_parameters()}
    batch = trainer.data.train.batch(range(8))
    trainer._step(batch, range(8))
    assert all(torch.equal(p, before[name]) for name, p in trainer.bare_model.named_parameters())
    assert trainer.accelerator.scaler.get_scale() == pytest.approx(1.5e38)
    trainer.save()
    again = make_trainer(tmp_path / "run", scale=2.0, resume=True)
    again.resume()
    assert again.accelerator.scaler.get_scale() == pytest.approx(1.5e38)
    scaler = again.accelerator.scaler
    scaler.load_state_dict({**scaler.state_dict(), "scale": 1024.0})
    again._step(batch, range(8))
    assert any(not torch.equal(p, before[name]) for name, p in again.bare_model.named_parameters())
    assert load_model(tmp_path / "run" / "last") is not None


def test_gradients_that_no_scale_helps_stop_the_run(tmp_path):
    trainer = make_trainer(tmp_path / "run", scale=1e-4)
    with torch.no_grad():
        trainer.bare_model.head.weight[0, 0] = torch.nan
    with pytest.raises(TrainingDivergedError):
        trainer._step(trainer.data.train.batch(range(8)), range(8))


def test_every_operator_passes_the_self_test():
    for implementation in ("cpu", "portable"):
        checks = list(self_test(torch.device("cpu"), implementation))
        assert len(checks) == 7
        assert all(check.passed for check in checks), checks


def test_the_self_test_notices_a_wrong_operator(monkeypatch):
    from torchs4.ops import portable

    right = portable.gated_residual
    monkeypatch.setattr(portable, "gated_residual", lambda *inputs: 1.001 * right(*inputs))
    failed = [check.operator for check in self_test(torch.device("cpu"), "portable") if not check.passed]
    assert failed == ["gated residual"]


def test_the_doctor_shows_devices_and_what_runs_on_them(capsys):
    assert main(["doctor", "--no-tests"]) == 0
    shown = capsys.readouterr().out
    assert "Devices" in shown
    assert "torch " in shown
    assert "compiled code" in shown
