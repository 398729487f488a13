"""`s4 doctor`: what this machine has, and whether every operator works on it."""

import os
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import torch
import tyro
from rich.table import Table

from torchs4.cli.consoles import console
from torchs4.ops.implementation import Implementation, implementation_on
from torchs4.ops.self_test import GRADIENT_TOLERANCE, OUTPUT_TOLERANCE, self_test
from torchs4.training.devices import available_devices, default_device
from torchs4.training.provenance import provenance

_PACKAGES = ("torchs4", "torch", "numba", "numpy", "accelerate", "triton", "safetensors")
_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "NUMBA_CACHE_DIR",
    "ACCELERATE_USE_CPU",
    "CUDA_VISIBLE_DEVICES",
)


@dataclass(frozen=True)
class DoctorArguments:
    """Show devices, versions and settings, and try every operator on every device.

    Paste what it prints when you report a problem, or to say that a device works.

    Attributes:
        tests: whether to try the operators: about ten seconds; longer where they have to be compiled first.
    """

    tests: bool = True


def doctor(arguments: list[str]) -> int:
    """Look at everything; 1 if an operator does not give what it should."""
    chosen = tyro.cli(DoctorArguments, prog="s4 doctor", args=arguments)
    _show_machine()
    _show_devices()
    if not chosen.tests:
        return 0
    passed = [_try(device, name) for device in available_devices() for name in _implementations(device)]
    return 0 if all(passed) else 1


def _show_machine() -> None:
    machine = provenance()["machine"]
    table = Table.grid(padding=(0, 2))
    table.add_row("machine", f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gb']} GB")
    table.add_row("system", f"{machine['system']}, Python {platform.python_version()}")
    table.add_row("versions", ", ".join(f"{name} {found}" for name in _PACKAGES if (found := _version(name))))
    table.add_row("threads", f"PyTorch uses {torch.get_num_threads()}")
    given = [f"{name}={os.environ[name]}" for name in _VARIABLES if name in os.environ]
    table.add_row("environment", ", ".join(given) or "nothing set that matters here")
    table.add_row("compiled code", _code_cache())
    console.print(table)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _code_cache() -> str:
    chosen, found = os.environ.get("NUMBA_CACHE_DIR"), find_spec("torchs4.ops.cpu")
    if found is None or found.origin is None:
        return "none"
    folder = Path(chosen) if chosen else Path(found.origin).parent / "__pycache__"
    files = [path for path in folder.rglob("*") if path.suffix in (".nbi", ".nbc")]
    size = sum(path.stat().st_size for path in files) / 1e6
    writable = os.access(folder if folder.exists() else folder.parent, os.W_OK)
    return f"{len(files)} files, {size:.1f} MB in {folder} ({'can be written' if writable else 'read-only'})"


def _show_devices() -> None:
    table = Table(title="Devices", title_justify="left")
    for column in ("device", "what it is", "memory", "float64", "bfloat16", "operators run by"):
        table.add_column(column)
    chosen = default_device()
    for device in available_devices():
        mark = " (training takes this one)" if device.type == chosen.type and not device.index else ""
        table.add_row(f"{device}{mark}", *_describe(device), implementation_on(device))
    console.print(table)


def _describe(device: torch.device) -> tuple[str, str, str, str]:
    """Its name and memory, and whether it has float64 and bfloat16."""
    if device.type == "cpu":
        capability = torch.backends.cpu.get_cpu_capability()
        machine = provenance()["machine"]
        return f"{machine['processor']} ({capability})", f"{machine['memory_gb']} GB", "yes", "yes"
    if device.type == "mps":
        return "Apple GPU", f"{torch.mps.recommended_max_memory() / 1e9:.1f} GB", "no", "yes"
    properties = torch.get_device_module(device).get_device_properties(device)
    wide = "yes" if getattr(properties, "has_fp64", True) else "no"
    half = "yes" if device.type != "cuda" or torch.cuda.is_bf16_supported() else "no"
    return properties.name, f"{properties.total_memory / 1e9:.1f} GB", wide, half


def _implementations(device: torch.device) -> tuple[Implementation, ...]:
    return ("cpu", "portable") if device.type == "cpu" else ("portable",)


def _try(device: torch.device, implementation: Implementation) -> bool:
    table = Table(
        title=f"{implementation} on {device}, single precision beside float64",
        title_justify="left",
        caption=f"ok: off by at most {OUTPUT_TOLERANCE:g} of the largest, gradients {GRADIENT_TOLERANCE:g}",
        caption_justify="left",
    )
    for column in ("operator", "largest error", "of gradients", "time"):
        table.add_column(column, justify="left" if column == "operator" else "right")
    table.add_column("")
    passed = True
    with console.status(f"trying {implementation} on {device} …"):
        for check in self_test(device, implementation):
            passed = passed and check.passed
            table.add_row(
                check.operator,
                f"{check.output_error:.1e}",
                f"{check.gradient_error:.1e}",
                f"{check.milliseconds:.1f} ms",
                "ok" if check.passed else f"[red]wrong[/red] {check.problem}",
            )
    console.print(table)
    return passed
