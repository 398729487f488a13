"""Saving and loading: config.json says what a model is, model.safetensors holds its weights. No pickle."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from torchs4.configuration import from_plain, to_plain

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# Raised when older files stop meaning what they say.
FORMAT = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"

Config = TypeVar("Config", bound="DataclassInstance")


class PretrainedModel(nn.Module, Generic[Config]):
    """A module that is fully described by a frozen configuration, and can be saved and loaded."""

    config_class: ClassVar[type]
    config: Config

    def save_pretrained(self, directory: str | Path) -> None:
        """Write config.json and model.safetensors; an interrupted save leaves the old files whole.

        A configuration that could not be loaded again, such as a layer that is not registered, is refused.
        """
        directory = Path(directory)
        if directory.exists() and not directory.is_dir():
            raise ValueError(f"{directory} is a file; save_pretrained writes a folder. Choose another name.")
        description = {"format": FORMAT, "model": type(self).__name__, "config": to_plain(self.config)}
        directory.mkdir(parents=True, exist_ok=True)
        weights = {name: tensor.contiguous() for name, tensor in self.state_dict().items()}
        # Both files are written whole beside the old ones before either takes its place.
        new = {name: directory / f".{name}.{os.getpid()}" for name in (WEIGHTS_FILE, CONFIG_FILE)}
        try:
            # Not safetensors' own writing to a file: that would let only the owner read it.
            new[WEIGHTS_FILE].write_bytes(save(weights))
            new[CONFIG_FILE].write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
            for name, path in new.items():
                os.replace(path, directory / name)
        finally:
            for path in new.values():
                path.unlink(missing_ok=True)

    @classmethod
    def from_pretrained(cls, directory: str | Path) -> Self:
        """The model that save_pretrained wrote, in evaluation mode."""
        directory = Path(directory)
        if not directory.is_dir():
            raise ValueError(f"There is no folder {directory}. Pass the folder that save_pretrained wrote.")
        for name in (CONFIG_FILE, WEIGHTS_FILE):
            if not (directory / name).is_file():
                raise ValueError(f"{directory} holds no {name}. Pass the folder that save_pretrained wrote.")
        config = cls._read_config(directory / CONFIG_FILE)
        weights = _read_weights(directory / WEIGHTS_FILE)
        model = cls(config)
        _require_same_weights(model.state_dict(), weights, directory)
        dtypes = {tensor.dtype for tensor in weights.values() if tensor.is_floating_point()}
        if len(dtypes) == 1:
            model = model.to(dtypes.pop())
        model.load_state_dict(weights)
        return model.eval()

    @classmethod
    def _read_config(cls, path: Path) -> Any:
        try:
            description = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is not readable JSON ({error}). Save the model again.") from error
        if not isinstance(description, dict) or not {"format", "model", "config"} <= set(description):
            raise ValueError(f"{path} was not written by save_pretrained: it lacks format, model or config.")
        if description["format"] != FORMAT:
            raise ValueError(
                f"{path} has format {description['format']}; this version of torchs4 reads format {FORMAT}. "
                f"Install the version that wrote it, or save the model again."
            )
        if description["model"] != cls.__name__:
            raise ValueError(
                f"{path} describes a {description['model']}, not a {cls.__name__}. "
                f"Call {description['model']}.from_pretrained instead."
            )
        return from_plain(cls.config_class, description["config"], path)


def _read_weights(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged or cut short ({error}). Copy or download it again.") from error


def _require_same_weights(expected: dict[str, Tensor], received: dict[str, Tensor], directory: Path) -> None:
    missing = sorted(set(expected) - set(received))
    surplus = sorted(set(received) - set(expected))
    differing = [
        f"{name} {tuple(received[name].shape)} instead of {tuple(tensor.shape)}"
        for name, tensor in expected.items()
        if name in received and received[name].shape != tensor.shape
    ]
    problems = [
        f"{label} {', '.join(names[:3])}{' …' if len(names) > 3 else ''}"
        for label, names in (("missing", missing), ("unknown", surplus), ("shapes", differing))
        if names
    ]
    if problems:
        raise ValueError(
            f"The weights in {directory} belong to another model than its {CONFIG_FILE} describes: "
            f"{'; '.join(problems)}."
        )
