"""Weights trained with the S4 authors' public code become modules of this library.

Axes: H features, n = N/2 stored modes, S copies of the modes, R rank, M rows of C (channels and directions).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchs4 import ops
from torchs4.configuration import require_choice
from torchs4.layers import S4Block, S4BlockConfig, S4Config, S4DConfig
from torchs4.models import Backbone

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jaxtyping import Float

    Module = TypeVar("Module", bound=nn.Module)

StepSizeTransform = Literal["exp", "softplus"]

# Version 3 held the kernel one module deeper and the block's layer one module less deep, under other names.
_VERSION_3_KEY = re.compile(r"(layers\.\d+\.layer\.)?(?:kernel\.kernel\.(\w+)|(D))")
_VERSION_3_NAMES = {"inv_w_real": "A_real", "log_w_real": "A_real", "w_imag": "A_imag", "L": "l_kernel"}


def from_authors(
    state_dict: Mapping[str, Any], *, dt_transform: StepSizeTransform = "exp"
) -> S4Block | Backbone:
    """The block or backbone of S4 or S4D layers whose weights these are, on the CPU, in evaluation mode.

    state_dict: tensors or arrays by name. Names may start with `model.`, as in training checkpoints (whose
    weights are in `checkpoint["state_dict"]`); `encoder.` and `decoder.` are left out, because they differ
    by task: only the backbone between them is returned.
    dt_transform: how that code made a positive step size: "exp" in its standalone file, "softplus" in its
    training configurations. The weights do not tell; a wrong choice gives wrong outputs and no error.

    A backbone is a model like any other: it can be saved, streamed and exported.

    Other things that weights do not tell are taken to be that code's defaults: GELU, a plain residual and,
    for S4D, zero-order hold. Unlike there, kernels are never cut: outputs beyond the length that the layer
    was built for (or, with a rate, beyond that length / rate) see all of the past.
    """
    require_choice("dt_transform", dt_transform, get_args(StepSizeTransform))
    checkpoint = _Checkpoint(state_dict)
    module: S4Block | Backbone
    if checkpoint.any_below("layers."):
        module = _read_backbone(checkpoint, dt_transform)
    elif checkpoint.any_below("layer.kernel."):
        layer, weights = _read_block(checkpoint, "", dt_transform)
        module = _filled(S4Block(_features(weights), layer=layer, norm="none", residual=False), weights)
    else:
        raise ValueError(
            f"No S4 weights found: the names are {_first_few(state_dict)}; expected such as layer.kernel.C "
            f"(a block) or layers.0.layer.layer.kernel.C (a backbone), with or without model. before them. "
            f'Of a training checkpoint, pass checkpoint["state_dict"].'
        )
    checkpoint.require_all_read()
    return module


class _Checkpoint:
    """The weights by their version 4 names; remembers which were not read yet."""

    def __init__(self, state_dict: Mapping[str, Any]) -> None:
        self._weights = {
            _version_4_key(key.removeprefix("model.")): _as_tensor(key, value)
            for key, value in state_dict.items()
            if not key.startswith(("encoder.", "decoder."))
        }
        self._unread = set(self._weights)

    def __contains__(self, key: str) -> bool:
        return key in self._weights

    def any_below(self, prefix: str) -> bool:
        return any(key.startswith(prefix) for key in self._weights)

    def count_layers(self) -> int:
        numbers = [re.match(r"layers\.(\d+)\.", key) for key in self._weights]
        return 1 + max((int(match[1]) for match in numbers if match), default=0)

    def take(self, key: str, *shape: int | str) -> Tensor:
        """The weight; an axis of the shape that is a word may have any size."""
        if key not in self._weights:
            above = key.rpartition(".")[0] + "."
            beside = _first_few(other for other in self._weights if other.startswith(above))
            raise ValueError(
                f"{key} is missing; beside it there is {beside}. from_authors reads S4 and S4D blocks with "
                f"GLU mixing, and backbones of them with BatchNorm or LayerNorm. Check that this is one."
            )
        self._unread.discard(key)
        value = self._weights[key]
        sizes = zip(value.shape, shape, strict=False)
        if value.ndim != len(shape) or any(isinstance(want, int) and have != want for have, want in sizes):
            raise ValueError(
                f"{key} has shape {tuple(value.shape)}; expected ({', '.join(map(str, shape))}), to fit the "
                f"weights beside it. Check that all weights come from one model."
            )
        return value

    def take_number(self, key: str) -> Tensor:
        """A weight that is one number, with or without an axis; here it has one."""
        return self.take(key, *(1,) * (self._weights[key].ndim if key in self else 1)).reshape(1)

    def require_all_read(self) -> None:
        if self._unread:
            raise ValueError(
                f"The weights hold {_first_few(self._unread)}, for which torchs4 has no place. Remove them "
                f"if the outputs do not depend on them; otherwise this model cannot be imported."
            )


def _first_few(keys: Iterable[str]) -> str:
    ordered = sorted(keys)
    return ", ".join(ordered[:5]) + (f" and {len(ordered) - 5} more" if len(ordered) > 5 else "") or "nothing"


def _version_4_key(key: str) -> str:
    match = _VERSION_3_KEY.fullmatch(key)
    if match is None:
        return key
    above, name, _ = match.groups(default="")
    return f"{above}layer." + (f"kernel.{_VERSION_3_NAMES.get(name, name)}" if name else "D")


def _as_tensor(key: str, value: Any) -> Tensor:
    try:
        tensor = value.detach().cpu() if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
        # Version 3 wrote (H,) at first and (H, 1) later.
        return tensor[:, None] if key.endswith(".log_dt") and tensor.ndim == 1 else tensor
    except TypeError as error:
        raise ValueError(
            f"{key} is a {type(value).__name__}; expected a tensor or a numeric array. "
            f'Of a training checkpoint, pass checkpoint["state_dict"].'
        ) from error


def _read_backbone(checkpoint: _Checkpoint, dt_transform: StepSizeTransform) -> Backbone:
    # Post-norm backbones have no final norm: their last block has normalised already.
    pre_norm = checkpoint.any_below("norm.")
    norm = _norm_kind(checkpoint)
    num_layers = checkpoint.count_layers()
    weights: dict[str, Tensor] = {}
    kinds = []
    for index in range(num_layers):
        layer, block = _read_block(checkpoint, f"layers.{index}.layer.", dt_transform)
        kinds.append((_features(block), layer))
        block |= _read_norm(checkpoint, f"layers.{index}.norm.", norm, _features(block))
        weights |= {f"blocks.{index}.{name}": value for name, value in block.items()}
    for index, kind in enumerate(kinds):
        if kind != kinds[0]:
            raise ValueError(
                f"Layer {index} has {kind[0]} features and {kind[1]}, but layer 0 has {kinds[0][0]} and "
                f"{kinds[0][1]}; a backbone has equal blocks. Import every layer as a block of its own: "
                f"the weights below layers.{index}.layer. without that prefix."
            )
    features, layer = kinds[0]
    if pre_norm:
        weights |= _read_norm(checkpoint, "norm.", norm, features)
    backbone = Backbone(
        input_features=features,
        output_size=features,
        features=features,
        num_layers=num_layers,
        block=S4BlockConfig(layer=layer, norm=norm, pre_norm=pre_norm),
        pooling="none",
    )
    return _filled(backbone, {f"stack.{name}": value for name, value in weights.items()})


def _norm_kind(checkpoint: _Checkpoint) -> Literal["batch", "layer", "scalar"]:
    if "layers.0.norm.norm.running_mean" in checkpoint:
        return "batch"
    return "scalar" if "layers.0.norm.norm.m" in checkpoint else "layer"


def _read_block(
    checkpoint: _Checkpoint, prefix: str, dt_transform: StepSizeTransform
) -> tuple[S4Config | S4DConfig, dict[str, Tensor]]:
    config, weights = _read_layer(checkpoint, f"{prefix}layer.", dt_transform)
    features = weights["D"].shape[1]
    linear = f"{prefix}output_linear.0."
    mixing = {
        "mixing.weight": checkpoint.take(f"{linear}weight", 2 * features, config.channels * features),
        "mixing.bias": checkpoint.take(f"{linear}bias", 2 * features),
    }
    return config, {f"layer.{name}": value for name, value in weights.items()} | mixing


def _read_layer(
    checkpoint: _Checkpoint, prefix: str, dt_transform: StepSizeTransform
) -> tuple[S4Config | S4DConfig, dict[str, Tensor]]:
    kernel = f"{prefix}kernel."
    C = checkpoint.take(f"{kernel}C", "rows", "features", "modes", 2)
    rows, features, modes, _ = C.shape
    D = checkpoint.take(f"{prefix}D", "channels", features)
    channels = D.shape[0]
    # D has a row for each channel, C one for each channel and direction: so the shapes tell the directions.
    if rows not in (channels, 2 * channels):
        raise ValueError(
            f"{kernel}C has {rows} rows and {prefix}D has {channels}; C must have as many, or twice as many "
            f"if the layer is bidirectional. Check that all weights come from one model."
        )
    A_real = checkpoint.take(f"{kernel}A_real", "copies", modes)
    copies = A_real.shape[0]
    if features % copies:
        raise ValueError(
            f"{kernel}A_real has {copies} copies for {features} features; their number must divide the "
            f"features. Check that all weights come from one model."
        )
    # Feature h uses copy h mod S: the copies are tiled, not repeated one by one. A single one stays shared.
    times = features // copies if copies > 1 else 1
    # Version 4 stores -Im Λ; version 3, which has a log_dt, stores Im Λ.
    sign = 1 if f"{kernel}log_dt" in checkpoint else -1
    weights = {
        "log_decay": A_real.repeat(times, 1),
        "frequency": sign * checkpoint.take(f"{kernel}A_imag", copies, modes).repeat(times, 1),
        "B": checkpoint.take(f"{kernel}B", 1, copies, modes, 2)[0].repeat(times, 1, 1),
        "C": C,
        "D": D,
        "log_step_size": _read_log_step_size(checkpoint, kernel, features, dt_transform),
    }
    options: dict[str, Any] = {
        "state_size": 2 * modes,
        "per_feature": copies > 1,
        "channels": channels,
        "bidirectional": rows > channels,
    }
    if f"{kernel}P" not in checkpoint:
        return S4DConfig(**options, discretization="zoh"), weights
    weights["P"] = checkpoint.take(f"{kernel}P", "rank", copies, modes, 2).repeat(1, times, 1, 1)
    length = int(checkpoint.take(f"{kernel}l_kernel"))
    if length > 0:
        weights["C"] = _untied_from_length(weights, length)
    return S4Config(**options, rank=weights["P"].shape[0]), weights


def _read_log_step_size(
    checkpoint: _Checkpoint, kernel: str, features: int, dt_transform: StepSizeTransform
) -> Float[Tensor, " H"]:
    name = "log_dt" if f"{kernel}log_dt" in checkpoint else "inv_dt"
    stored = checkpoint.take(f"{kernel}{name}", features, 1)[:, 0]
    if dt_transform == "exp":
        return stored
    if name == "log_dt":
        raise ValueError(
            f"dt_transform is {dt_transform!r}, but {kernel}log_dt (version 3) is a logarithm. Pass 'exp'."
        )
    return F.softplus(stored.double()).log()


def _untied_from_length(weights: dict[str, Tensor], length: int) -> Float[Tensor, "M H n 2"]:
    """C from C̃ = C (I - Ā^L), which that code stores for a length L; ours serves every length.

    Ā does not map the stored half of the modes to itself, so C is solved for as a real row of N entries, in
    float64 because Ā^L is close to I for small step sizes.
    """
    log_decay, frequency, P, B, C_tilde, log_step_size = (
        weights[name].double() for name in ("log_decay", "frequency", "P", "B", "C", "log_step_size")
    )
    features = log_step_size.shape[0]
    A = torch.stack([-log_decay.exp(), frequency], dim=-1).expand(features, -1, -1)
    B, P = B.expand(features, -1, -1), P.expand(-1, features, -1, -1)
    A_bar = ops.dense_transition(ops.discretize_dplr(A, P, P, B, log_step_size.exp()))
    correction = torch.eye(A_bar.shape[-1], dtype=A_bar.dtype) - torch.linalg.matrix_power(A_bar, length)
    rows = ops.output_row(C_tilde).transpose(0, 1)
    rows = torch.linalg.solve(correction, rows, left=False).transpose(0, 1)
    # output_row takes c to (2·Re c, -2·Im c).
    return rows.unflatten(-1, (-1, 2)) / rows.new_tensor([2, -2])


def _read_norm(checkpoint: _Checkpoint, prefix: str, kind: str, features: int) -> dict[str, Tensor]:
    if kind == "scalar":
        return {f"norm.{name}": checkpoint.take_number(f"{prefix}norm.{name}") for name in ("m", "s")}
    names = ["weight", "bias"] + (["running_mean", "running_var"] if kind == "batch" else [])
    weights = {f"norm.norm.{name}": checkpoint.take(f"{prefix}norm.{name}", features) for name in names}
    if kind == "batch":
        count = f"{prefix}norm.num_batches_tracked"
        weights["norm.norm.num_batches_tracked"] = (
            checkpoint.take(count) if count in checkpoint else torch.tensor(0)
        )
    return weights


def _features(block: dict[str, Tensor]) -> int:
    return block["layer.D"].shape[1]


def _filled(module: Module, weights: dict[str, Tensor]) -> Module:
    # Some weights were computed in float64; D is as it was given.
    module.to(next(value.dtype for name, value in weights.items() if name.endswith("layer.D")))
    module.load_state_dict(weights)
    return module.eval()
