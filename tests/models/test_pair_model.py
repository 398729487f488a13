"""A network that reads two texts and compares them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch

from torchs4 import S4BlockConfig, S4Config, SequenceModel
from torchs4.models import PairModel, load_model

if TYPE_CHECKING:
    from pathlib import Path

# Float32 through two layers.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


def build(**options: Any) -> PairModel:
    torch.manual_seed(0)
    block = S4BlockConfig(layer=S4Config(state_size=8, bidirectional=options.pop("bidirectional", False)))
    return PairModel(
        **{"vocabulary_size": 9, "output_size": 3, "features": 6, "num_layers": 2, "block": block, **options}
    ).eval()


def tokens(batch: int = 4, length: int = 20) -> torch.Tensor:
    return torch.randint(1, 9, (batch, 2, length), generator=torch.Generator().manual_seed(1))


def test_one_prediction_for_each_pair() -> None:
    assert build()(tokens()).shape == (4, 3)
    assert build(output_size=2)(tokens(1, 7)).shape == (1, 2)


@pytest.mark.parametrize("pooling", ["mean", "last"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_padding_does_not_change_the_answer(pooling: str, bidirectional: bool) -> None:
    model = build(pooling=pooling, bidirectional=bidirectional)
    x = tokens()
    lengths = torch.tensor([[20, 11], [3, 20], [1, 1], [20, 20]])
    padded = torch.nn.functional.pad(x, (0, 12))
    together = model(padded, lengths=lengths)
    noise = torch.randint_like(padded, 1, 9)
    is_real = torch.arange(32) < lengths[..., None]
    torch.testing.assert_close(
        model(torch.where(is_real, padded, noise), lengths=lengths), together, **TOLERANCE
    )
    torch.testing.assert_close(model(x[3:]), together[3:], **TOLERANCE)
    torch.testing.assert_close(model(x[2:3, :, :1]), together[2:3], **TOLERANCE)


def test_both_texts_go_through_one_reader() -> None:
    model = build()
    x = tokens()
    first, second = model.reader(x[:, 0]), model.reader(x[:, 1])
    expected = model.head(torch.cat([first, second, first - second, first * second], dim=-1))
    torch.testing.assert_close(model(x), expected, **TOLERANCE)
    assert not torch.allclose(model(x), model(x.flip(1)))


def test_a_text_of_one_pair_does_not_touch_another_pair() -> None:
    model = build()
    x = tokens()
    changed = x.clone()
    changed[1] = 1
    torch.testing.assert_close(model(changed)[[0, 2, 3]], model(x)[[0, 2, 3]], **TOLERANCE)
    assert not torch.allclose(model(changed)[1], model(x)[1])


def test_every_parameter_gets_a_gradient() -> None:
    model = build().train()
    model(tokens(), lengths=torch.full((4, 2), 15)).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_save_and_load(tmp_path: Path) -> None:
    model, x = build(), tokens()
    model.save_pretrained(tmp_path)
    for loaded in (PairModel.from_pretrained(tmp_path), load_model(tmp_path)):
        assert isinstance(loaded, PairModel)
        assert loaded.config == model.config
        assert not loaded.training
        assert torch.equal(loaded(x), model(x))
    with pytest.raises(ValueError, match=r"describes a PairModel, not a SequenceModel"):
        SequenceModel.from_pretrained(tmp_path)


def test_load_model_finds_out_what_a_folder_holds(tmp_path: Path) -> None:
    SequenceModel(features=4, num_layers=1).save_pretrained(tmp_path / "sequence")
    assert isinstance(load_model(tmp_path / "sequence"), SequenceModel)
    with pytest.raises(ValueError, match="There is no folder"):
        load_model(tmp_path / "nowhere")
    file = tmp_path / "sequence" / "config.json"
    for text, match in (
        ("{", "is not readable JSON"),
        ("[]", "was not written by save_pretrained"),
        (json.dumps({"format": 1, "model": "Transformer", "config": {}}), "describes a Transformer"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=match):
            load_model(tmp_path / "sequence")


def test_wrong_shapes_are_refused() -> None:
    model = build()
    for x in (tokens()[:, 0], tokens()[:, :1], tokens()[..., None]):
        with pytest.raises(ValueError, match=r"expected pairs of tokens, \(batch, 2, length\)"):
            model(x)
    with pytest.raises(ValueError, match=r"expected two for each pair, \(4, 2\)"):
        model(tokens(), lengths=torch.full((4,), 5))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"pooling": "none"}, "pooling is 'none'; choose one of"),
        ({"num_layers": 0}, "num_layers is 0; it must be at least 1"),
        ({"width": 3}, "PairModelConfig has no option 'width'"),
    ],
    ids=["pooling", "layers", "unknown"],
)
def test_wrong_options_are_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        build(**options)
