"""Saving and loading: two readable files, and clear words when one of them is wrong."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from torchs4 import LSSLConfig, S4BlockConfig, S4Config, S4DConfig, SequenceModel, load_model

if TYPE_CHECKING:
    from pathlib import Path

FILES = {"config.json", "model.safetensors"}
LAYERS = {
    "s4": S4Config(state_size=8, start="legt", rank=3),
    "s4d": S4DConfig(state_size=8, start="inv", discretization="bilinear", channels=2),
    "lssl": LSSLConfig(state_size=7, per_feature=True, train_state_matrix=False),
}


def build(seed: int = 0, kind: str = "s4", **options: Any) -> SequenceModel:
    torch.manual_seed(seed)
    block = S4BlockConfig(layer=LAYERS[kind], norm="batch", dropout=0.1)
    model = SequenceModel(**{"output_size": 3, "features": 4, "num_layers": 2, "block": block, **options})
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_()
    return model.eval()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(2, 9, 1, generator=torch.Generator().manual_seed(3))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a saved model."""
    build().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def refuses(*pieces: str) -> Any:
    """A ValueError whose text has these pieces in this order."""
    return pytest.raises(ValueError, match="(?s)" + ".*".join(map(re.escape, pieces)))


def edit(folder: Path, change: Any) -> None:
    """Change config.json."""
    path = folder / "config.json"
    description = json.loads(path.read_text(encoding="utf-8"))
    change(description)
    path.write_text(json.dumps(description), encoding="utf-8")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind", list(LAYERS))
def test_a_loaded_model_is_the_saved_one(
    kind: str, dtype: torch.dtype, x: torch.Tensor, tmp_path: Path
) -> None:
    model = build(kind=kind).to(dtype)
    model.save_pretrained(tmp_path)
    loaded = SequenceModel.from_pretrained(tmp_path)
    assert loaded.config == model.config
    assert not loaded.training
    saved, received = model.state_dict(), loaded.state_dict()
    assert saved.keys() == received.keys()
    for name, tensor in saved.items():
        assert received[name].dtype == tensor.dtype
        assert torch.equal(received[name], tensor), name
    for ours, theirs in zip(model.parameters(), loaded.parameters(), strict=True):
        assert ours.requires_grad == theirs.requires_grad
    assert torch.equal(loaded(x.to(dtype)), model(x.to(dtype)))


def test_a_token_model_is_saved_and_loaded(tmp_path: Path) -> None:
    model = build(vocabulary_size=7, pooling="none")
    model.save_pretrained(str(tmp_path))
    tokens = torch.tensor([[1, 2, 6, 0]])
    assert torch.equal(SequenceModel.from_pretrained(str(tmp_path))(tokens), model(tokens))


def test_a_loaded_model_streams_and_trains(folder: Path, x: torch.Tensor) -> None:
    loaded = SequenceModel.from_pretrained(folder)
    assert torch.equal(loaded.prefill(x)[0], build().prefill(x)[0])
    loaded.train()(x).sum().backward()
    assert all(parameter.grad is not None for parameter in loaded.parameters())


def test_a_training_model_loads_in_evaluation_mode(tmp_path: Path) -> None:
    model = build().train()
    model.save_pretrained(tmp_path)
    assert model.training
    assert not SequenceModel.from_pretrained(tmp_path).training


def test_exactly_two_files_are_written_and_neither_is_a_pickle(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == FILES
    description = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert set(description) == {"format", "model", "config"}
    for path in folder.iterdir():
        # Pickles begin with this byte; PyTorch's own files are zip archives.
        assert not path.read_bytes().startswith((b"\x80", b"PK"))
    assert set(load_file(folder / "model.safetensors")) == set(build().state_dict())


def test_saving_again_replaces_the_model(folder: Path, x: torch.Tensor) -> None:
    other = build(seed=1, kind="s4d", num_layers=1)
    other.save_pretrained(folder)
    assert torch.equal(SequenceModel.from_pretrained(folder)(x), other(x))
    assert {path.name for path in folder.iterdir()} == FILES


def test_folders_are_made(tmp_path: Path) -> None:
    build().save_pretrained(tmp_path / "a" / "b")
    assert {path.name for path in (tmp_path / "a" / "b").iterdir()} == FILES


def test_a_run_folder_is_told_from_the_model_in_it(tmp_path: Path) -> None:
    build().save_pretrained(tmp_path / "run" / "best")
    (tmp_path / "run" / "config.json").write_text("{}")
    for load in (SequenceModel.from_pretrained, load_model):
        with refuses("holds no model.safetensors", f"Pass {tmp_path / 'run' / 'best'}, a run's best model"):
            load(tmp_path / "run")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with refuses("no folder", "nowhere", "save_pretrained"):
        SequenceModel.from_pretrained(tmp_path / "nowhere")


def test_a_saved_model_can_be_read_by_others(folder: Path) -> None:
    modes = {path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert len(modes) == 1
    assert modes != {0o600}


def test_saving_onto_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("something else")
    with refuses("is a file", "Choose another name"):
        build().save_pretrained(tmp_path / "model")


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with refuses(str(folder), name):
        SequenceModel.from_pretrained(folder)


@pytest.mark.parametrize("kept", [0, 4, 100, -1], ids=["empty", "header", "start", "all-but-one-byte"])
def test_truncated_weights_are_refused(folder: Path, kept: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with refuses("model.safetensors", "damaged or cut short"):
        SequenceModel.from_pretrained(folder)


@pytest.mark.parametrize("content", [b"", b"{", b'{"format": 1,', b"\xff\xfe\x00"])
def test_unreadable_json_is_refused(folder: Path, content: bytes) -> None:
    (folder / "config.json").write_bytes(content)
    with refuses("config.json", "JSON"):
        SequenceModel.from_pretrained(folder)


@pytest.mark.parametrize("content", ["[]", "3", "{}", '{"format": 1}', "null"])
def test_json_of_something_else_is_refused(folder: Path, content: str) -> None:
    (folder / "config.json").write_text(content, encoding="utf-8")
    with refuses("config.json", "not written by save_pretrained"):
        SequenceModel.from_pretrained(folder)


@pytest.mark.parametrize("config", [[], 3, None, "S4"])
def test_a_config_that_is_no_table_is_refused(folder: Path, config: Any) -> None:
    edit(folder, lambda description: description.update(config=config))
    with refuses("config.json"):
        SequenceModel.from_pretrained(folder)


@pytest.mark.parametrize("number", [0, 99, "1", None])
def test_another_format_is_refused(folder: Path, number: Any) -> None:
    edit(folder, lambda description: description.update(format=number))
    with refuses(f"format {number}", "reads format 1"):
        SequenceModel.from_pretrained(folder)


def test_another_model_is_refused(folder: Path) -> None:
    edit(folder, lambda description: description.update(model="UNet"))
    with refuses("describes a UNet", "not a SequenceModel", "UNet.from_pretrained"):
        SequenceModel.from_pretrained(folder)


def test_an_unknown_field_is_refused(folder: Path) -> None:
    edit(folder, lambda description: description["config"].update(wings=2))
    with refuses("SequenceModelConfig has no field wings", "another version"):
        SequenceModel.from_pretrained(folder)


def test_an_unknown_nested_field_is_refused(folder: Path) -> None:
    edit(folder, lambda description: description["config"]["block"]["layer"].update(wings=2))
    with refuses("S4Config has no field wings", "another version"):
        SequenceModel.from_pretrained(folder)


@pytest.mark.parametrize("kind", ["S7Config", None, ["S4Config"], "os.system"])
def test_an_unknown_nested_kind_is_refused(folder: Path, kind: Any) -> None:
    edit(folder, lambda description: description["config"]["block"]["layer"].update(kind=kind))
    with refuses("layer is of kind", repr(kind), "knows S4Config"):
        SequenceModel.from_pretrained(folder)


def test_a_known_kind_in_the_wrong_place_is_refused(folder: Path) -> None:
    edit(folder, lambda description: description["config"].update(block={"kind": "S4Config"}))
    with refuses("block", "S4Config"):
        SequenceModel.from_pretrained(folder)


def test_a_config_without_its_block_config_is_refused(folder: Path) -> None:
    edit(folder, lambda description: description["config"].update(block="S4Block"))
    with refuses("block", "S4Block"):
        SequenceModel.from_pretrained(folder)


def test_an_impossible_value_is_refused(folder: Path) -> None:
    edit(folder, lambda description: description["config"].update(pooling="max"))
    with refuses("pooling is 'max'", "'mean'"):
        SequenceModel.from_pretrained(folder)


def test_a_value_of_another_type_is_refused(folder: Path) -> None:
    edit(folder, lambda description: description["config"].update(features="many"))
    with refuses("features", "many"):
        SequenceModel.from_pretrained(folder)


@pytest.mark.parametrize(
    ("options", "pieces"),
    [
        ({"features": 6}, ("features is 4, but the weights are for 6",)),
        ({"num_layers": 1}, ("num_layers is 2, but there are weights for 1",)),
        ({"num_layers": 3}, ("num_layers is 2, but there are weights for 3",)),
        ({"output_size": 5}, ("shapes", "head.weight (5, 4) instead of (3, 4)")),
        ({"kind": "lssl"}, ("missing", "frequency")),
    ],
    ids=["width", "depth", "deeper", "answers", "kind"],
)
def test_weights_of_another_model_are_refused(
    folder: Path, tmp_path: Path, options: dict[str, Any], pieces: tuple[str, ...]
) -> None:
    build(**options).save_pretrained(tmp_path / "other")
    (tmp_path / "other" / "model.safetensors").replace(folder / "model.safetensors")
    with refuses("belong to another model", *pieces):
        SequenceModel.from_pretrained(folder)


def test_one_weight_of_another_shape_is_named(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["head.weight"] = torch.zeros(3, 5)
    save_file(weights, folder / "model.safetensors")
    with refuses("head.weight (3, 5) instead of (3, 4)"):
        SequenceModel.from_pretrained(folder)


class PulledPlugError(Exception):
    """Stands for a full disk or a pulled plug."""


def test_a_save_interrupted_while_writing_weights_leaves_the_old_model(
    folder: Path, x: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_whole = type(folder).write_bytes

    def write_half(path: Path, data: bytes) -> None:
        write_whole(path, data[: len(data) // 2])
        raise PulledPlugError

    monkeypatch.setattr(type(folder), "write_bytes", write_half)
    with pytest.raises(PulledPlugError):
        build(seed=1).save_pretrained(folder)
    assert {path.name for path in folder.iterdir()} == FILES
    assert torch.equal(SequenceModel.from_pretrained(folder)(x), build()(x))


def test_a_save_interrupted_while_writing_the_config_leaves_the_old_model(
    folder: Path, x: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise PulledPlugError

    with monkeypatch.context() as patch:
        patch.setattr(type(folder), "write_text", fail)
        with pytest.raises(PulledPlugError):
            # Another shape: these weights beside the old config would be of no use.
            build(seed=1, num_layers=1).save_pretrained(folder)
    assert {path.name for path in folder.iterdir()} == FILES
    assert torch.equal(SequenceModel.from_pretrained(folder)(x), build()(x))


@pytest.mark.parametrize("other", [{"seed": 1}, {"seed": 1, "num_layers": 1}], ids=["alike", "another shape"])
@pytest.mark.parametrize("moment", [0, 1])
def test_a_save_killed_at_a_rename_leaves_one_whole_model(
    folder: Path, x: torch.Tensor, moment: int, other: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, done = os.replace, []
    # Weights of the same shapes, and other outputs.
    block = dataclasses.replace(build().config.block, activation="relu")
    new = build(**other, block=block)

    def killed(*places: Any) -> None:
        if len(done) == moment:
            raise PulledPlugError
        done.append(replace(*places))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(PulledPlugError):
            new.save_pretrained(folder)
    assert torch.equal(SequenceModel.from_pretrained(folder)(x), (build(), new)[moment](x))
    new.save_pretrained(folder)
    assert torch.equal(SequenceModel.from_pretrained(folder)(x), new(x))
    assert {path.name for path in folder.iterdir()} == FILES


def test_a_description_of_equal_shapes_that_is_not_the_weights_own_is_refused(folder: Path) -> None:
    edit(folder, lambda description: description["config"]["block"].update(activation="relu"))
    with refuses("belong to another model", "changed", "Restore the file"):
        SequenceModel.from_pretrained(folder)


def test_a_description_may_be_laid_out_anew(folder: Path, x: torch.Tensor) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()), sort_keys=True))
    assert torch.equal(SequenceModel.from_pretrained(folder)(x), build()(x))


def test_weights_without_a_digest_load_with_their_description(folder: Path, x: torch.Tensor) -> None:
    """Older files have none."""
    save_file(load_file(folder / "model.safetensors"), folder / "model.safetensors")
    assert torch.equal(SequenceModel.from_pretrained(folder)(x), build()(x))


@pytest.mark.parametrize("depth", [900, 200_000])
@pytest.mark.parametrize("place", ["whole", "stem", "layer"])
def test_deep_nesting_is_refused(folder: Path, place: str, depth: int) -> None:
    path = folder / "config.json"
    nest, text = "[" * depth + "]" * depth, path.read_text()
    if place == "stem":
        nest = text.replace('"stem": []', f'"stem": {nest}')
    elif place == "layer":
        nest = text.replace('"state_size": 8', '"state_size": ' + '{"kind":' * depth + "1" + "}" * depth)
    path.write_text(nest)
    for load in (SequenceModel.from_pretrained, load_model):
        with refuses("config.json"):
            load(folder)


@pytest.mark.parametrize("size", [10**6, 10**12, 10**400])
@pytest.mark.parametrize(
    "name", ["features", "num_layers", "output_size", "input_features", "vocabulary_size", "stem"]
)
def test_absurd_sizes_are_refused_before_anything_is_built(
    folder: Path, name: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    value: Any = [size] if name == "stem" else size
    edit(folder, lambda description: description["config"].update({name: value}))
    monkeypatch.setattr(SequenceModel, "_build", None)
    with refuses(f"{name} is {size}"):
        SequenceModel.from_pretrained(folder)


@pytest.mark.parametrize("size", [1000, 10**12])
@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind in LAYERS for name in ("state_size", "channels")] + [("s4", "rank")],
)
def test_absurd_layers_are_refused_before_anything_is_built(
    kind: str, name: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(kind=kind).save_pretrained(tmp_path)
    edit(tmp_path, lambda description: description["config"]["block"]["layer"].update({name: size}))
    monkeypatch.setattr(SequenceModel, "_build", None)
    with refuses("belong to another model", f"{name} is {size}, but a block has"):
        SequenceModel.from_pretrained(tmp_path)


def test_a_whole_number_larger_than_any_float_is_refused(folder: Path) -> None:
    edit(folder, lambda description: description["config"]["block"].update(dropout=10**400))
    with refuses("dropout is 1000", "expected float"):
        SequenceModel.from_pretrained(folder)
