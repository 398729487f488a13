"""Saving and loading: config.json says what a model is, model.safetensors holds its weights. No pickle."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from safetensors.torch import save
from torch import Tensor, nn

from torchs4.configuration import from_plain, to_plain
from torchs4.models.bundled import model_folder
from torchs4.models.weights_file import misfits, read_header, read_weights

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# Raised when older files stop meaning what they say.
FORMAT = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
# Under which name the weights carry the digest of the description that belongs to them.
_DIGEST = "config_sha256"

Config = TypeVar("Config", bound="DataclassInstance")


class PretrainedModel(nn.Module, Generic[Config]):
    """A module that is fully described by a frozen configuration, and can be saved and loaded."""

    config_class: ClassVar[type]
    config: Config

    def save_pretrained(self, directory: str | Path) -> None:
        """Write config.json and model.safetensors; an interrupted save leaves the old model or the new one.

        A configuration that could not be loaded again, such as a layer that is not registered, is refused.
        """
        directory = Path(directory)
        if directory.exists() and not directory.is_dir():
            raise ValueError(f"{directory} is a file; save_pretrained writes a folder. Choose another name.")
        description = {"format": FORMAT, "model": type(self).__name__, "config": to_plain(self.config)}
        directory.mkdir(parents=True, exist_ok=True)
        weights = {name: tensor.cpu().contiguous() for name, tensor in self.state_dict().items()}
        # Both files are written whole beside the old ones before either takes its place.
        new_weights, new_config = (
            directory / f".{name}.{os.getpid()}" for name in (WEIGHTS_FILE, CONFIG_FILE)
        )
        try:
            # Not safetensors' own writing to a file: that would let only the owner read it.
            new_weights.write_bytes(save(weights, {_DIGEST: _digest(description)}))
            new_config.write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
            os.replace(new_weights, directory / WEIGHTS_FILE)
        except BaseException:
            new_weights.unlink(missing_ok=True)
            new_config.unlink(missing_ok=True)
            raise
        # From here on the model is the new one: its weights find their description under either name.
        os.replace(new_config, directory / CONFIG_FILE)

    @classmethod
    def from_pretrained(cls, directory: str | Path) -> Self:
        """The model that save_pretrained wrote, or a bundled one by its name, in evaluation mode."""
        directory = model_folder(directory)
        for name in (CONFIG_FILE, WEIGHTS_FILE):
            if not (directory / name).is_file():
                inside = directory / "best"
                advice = (
                    f"{inside}, a run's best model"
                    if inside.is_dir()
                    else "the folder that save_pretrained wrote"
                )
                raise ValueError(f"{directory} holds no {name}. Pass {advice}.")
        header = read_header(directory / WEIGHTS_FILE)
        path = directory / CONFIG_FILE
        description = _read_description(path)
        digest = header.notes.get(_DIGEST)
        is_own = digest in (None, _digest(description))
        if not is_own and (kept := _kept_description(directory, digest)) is not None:
            path, description, is_own = *kept, True
        config = cls._config_of(description, path)
        if problems := list(misfits(config, header.shapes)):
            raise _other_model(directory, problems)
        model = cls(config)
        weights = read_weights(directory / WEIGHTS_FILE)
        _require_same_weights(model.state_dict(), weights, directory)
        if not is_own:
            raise _other_model(
                directory, ["it was changed, or replaced by that of another model, after saving"]
            )
        dtypes = {tensor.dtype for tensor in weights.values() if tensor.is_floating_point()}
        if dtypes:
            # Of a model in half precision, state spaces have kept their weights in float32.
            model = model.to(min(dtypes, key=lambda dtype: dtype.itemsize))
        model.load_state_dict(weights)
        return model.eval()

    @classmethod
    def _config_of(cls, description: dict[str, Any], path: Path) -> Any:
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
        try:
            return from_plain(cls.config_class, description["config"], path)
        except RecursionError as error:
            raise _too_deep(path) from error


def _read_description(path: Path) -> dict[str, Any]:
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not readable JSON ({error}). Save the model again.") from error
    except RecursionError as error:
        raise _too_deep(path) from error
    if not isinstance(description, dict) or not {"format", "model", "config"} <= set(description):
        raise ValueError(f"{path} was not written by save_pretrained: it lacks format, model or config.")
    return description


def _too_deep(path: Path) -> ValueError:
    return ValueError(f"{path} is nested too deeply to be a model's JSON. Save the model again.")


def _digest(description: dict[str, Any]) -> str:
    """Of what it says, not of how it is laid out: somebody may have formatted the file."""
    try:
        return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()
    except RecursionError:
        return "nested too deeply"


def _kept_description(directory: Path, digest: str | None) -> tuple[Path, dict[str, Any]] | None:
    """The description that a killed save had written, but not yet given its name."""
    for path in directory.glob(f".{CONFIG_FILE}.*"):
        try:
            description = _read_description(path)
        except ValueError:
            continue
        if _digest(description) == digest:
            return path, description
    return None


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
        raise _other_model(directory, problems)


def _other_model(directory: Path, problems: list[str]) -> ValueError:
    return ValueError(
        f"The weights in {directory} belong to another model than its {CONFIG_FILE} describes: "
        f"{'; '.join(problems)}. Restore the file that was saved with them, or save the model again."
    )
