"""Every layer, block, stack and model that the conformance suite runs, each as a case.

A new layer or model joins the suite by adding a line here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from torchs4 import (
    LSSL,
    S4,
    S4D,
    BlockStack,
    LSSLConfig,
    S4Block,
    S4BlockConfig,
    S4Config,
    S4DConfig,
    SequenceModel,
)

if TYPE_CHECKING:
    from collections.abc import Callable

FEATURES = 3
STATE_SIZE = 8
VOCABULARY_SIZE = 11
# Memories between 5 and 200 samples: shorter and longer than the sequences of the suite.
STEP_SIZES = {"min_step_size": 0.005, "max_step_size": 0.2}


@dataclass(frozen=True)
class Case:
    """Something that maps sequences; `input_features` is None for tokens."""

    name: str
    make: Callable[[], nn.Module]
    output_features: int = FEATURES
    input_features: int | None = FEATURES
    pooled: bool = False
    causal: bool = True

    def build(self, dtype: torch.dtype = torch.float32, seed: int = 0) -> Any:
        """The module in evaluation mode, with norms that are not the identity."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self.make()
            disturb_norms(module)
        return module.to(dtype).eval()

    def inputs(self, batch: int, length: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> Tensor:
        """Random sequences of the kind that the module reads."""
        generator = torch.Generator().manual_seed(seed)
        if self.input_features is None:
            return torch.randint(VOCABULARY_SIZE, (batch, length), generator=generator)
        shape = (batch, length, self.input_features)
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    def garbage(self, batch: int, length: int, dtype: torch.dtype) -> Tensor:
        """What padding might hold: other tokens, or numbers that would drown every signal."""
        noise = self.inputs(batch, length, dtype, seed=2)
        return noise if self.input_features is None else 1e6 * noise


def disturb_norms(module: nn.Module) -> None:
    """Give every norm statistics, scales and shifts as training would leave them."""
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm1d | nn.LayerNorm):
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.normal_(norm.bias)
        if isinstance(norm, nn.BatchNorm1d):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2.0)


def assert_close(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    """Equal up to a fraction of the expected values' scale."""
    assert actual.shape == expected.shape
    scale = expected.detach().abs().max().double()
    error = (actual.detach().double() - expected.detach().double()).abs().max()
    # Written so that NaN fails.
    assert error <= tolerance * scale, f"error {error / scale:.2e} of the scale, allowed {tolerance:.2e}"


def run_steps(module: Any, x: Tensor, state: Any = None, rate: float = 1.0) -> tuple[Tensor, Any]:
    """Step through a sequence: the outputs, stacked over time, and the last state."""
    state = module.initial_state(x.shape[0]) if state is None else state
    outputs = []
    for position in range(x.shape[1]):
        y_t, state = module.step(x[:, position], state, rate=rate)
        outputs.append(y_t)
    return torch.stack(outputs, dim=1), state


def run_chunks(
    module: Any, x: Tensor, cuts: list[int], pooled: bool = False, rate: float = 1.0
) -> tuple[Tensor, Any]:
    """Prefill chunk by chunk: the outputs (with pooling, the last one) and the last state."""
    state, outputs = None, []
    for start, stop in zip([0, *cuts], [*cuts, x.shape[1]], strict=True):
        y, state = module.prefill(x[:, start:stop], state, rate=rate)
        outputs.append(y)
    return outputs[-1] if pooled else torch.cat(outputs, dim=1), state


def _layer(name: str, layer: type, channels: int = 1, bidirectional: bool = False, **options: Any) -> Case:
    settings = {"state_size": STATE_SIZE, **STEP_SIZES, **options}
    return Case(
        name,
        lambda: layer(FEATURES, channels=channels, bidirectional=bidirectional, **settings),
        output_features=channels * FEATURES,
        causal=not bidirectional,
    )


def _block(name: str, layer: Any, **options: Any) -> Case:
    config = S4BlockConfig(layer=layer, dropout=0.1, **options)
    return Case(name, lambda: S4Block(FEATURES, config), causal=not layer.bidirectional)


def _stack(name: str, layer: Any, **options: Any) -> Case:
    config = S4BlockConfig(layer=layer, **options)
    return Case(name, lambda: BlockStack(FEATURES, 2, config), causal=not layer.bidirectional)


def _model(name: str, layer: Any, pooling: str, tokens: bool = False, **options: Any) -> Case:
    block = S4BlockConfig(layer=layer, dropout=0.1, **options)
    vocabulary_size = VOCABULARY_SIZE if tokens else None

    def make() -> SequenceModel:
        return SequenceModel(
            output_size=5,
            input_features=2,
            vocabulary_size=vocabulary_size,
            features=4,
            num_layers=2,
            block=block,
            pooling=pooling,
        )

    return Case(
        name,
        make,
        output_features=5,
        input_features=None if tokens else 2,
        pooled=pooling != "none",
        causal=not layer.bidirectional,
    )


S4_CONFIG = S4Config(state_size=STATE_SIZE, **STEP_SIZES)
S4D_CONFIG = S4DConfig(state_size=STATE_SIZE, **STEP_SIZES)
LSSL_CONFIG = LSSLConfig(state_size=STATE_SIZE, **STEP_SIZES)
LAYER_CONFIGS = {"s4": S4_CONFIG, "s4d": S4D_CONFIG, "lssl": LSSL_CONFIG}

LAYERS = [
    _layer("s4-legs", S4),
    _layer("s4-legt", S4, start="legt"),
    _layer("s4-random", S4, start="random"),
    _layer("s4-rank3", S4, rank=3),
    _layer("s4-legt-rank3-per-feature", S4, start="legt", rank=3, per_feature=True),
    _layer("s4-channels2", S4, channels=2),
    _layer("s4-per-feature", S4, per_feature=True),
    _layer("s4-smallest", S4, state_size=2),
    _layer("s4-bidirectional", S4, bidirectional=True),
    _layer("s4-bidirectional-channels2", S4, bidirectional=True, channels=2),
    *(
        _layer(f"s4d-{start}-{rule}", S4D, start=start, discretization=rule)
        for start, rule in product(("legs", "lin", "inv", "real"), ("zoh", "bilinear"))
    ),
    _layer("s4d-random", S4D, start="random"),
    _layer("s4d-channels2-per-feature", S4D, channels=2, per_feature=True),
    _layer("s4d-bidirectional", S4D, bidirectional=True),
    *(_layer(f"lssl-{start}", LSSL, start=start) for start in ("legs", "legt", "gaussian", "diagonal")),
    _layer("lssl-zoh", LSSL, discretization="zoh"),
    _layer("lssl-channels2-per-feature-odd", LSSL, channels=2, per_feature=True, state_size=7),
    _layer("lssl-bidirectional", LSSL, bidirectional=True),
]

BLOCKS = [
    *(
        _block(f"block-{kind}-{norm}-{'pre' if pre_norm else 'post'}", layer, norm=norm, pre_norm=pre_norm)
        for (kind, layer), norm, pre_norm in product(
            LAYER_CONFIGS.items(), ("layer", "batch", "none"), (True, False)
        )
    ),
    *(_block(f"block-{kind}-linear", layer, mixing="linear") for kind, layer in LAYER_CONFIGS.items()),
    _block("block-relu-no-residual", S4D_CONFIG, activation="relu", residual=False),
    _block("block-silu-tied-dropout", S4D_CONFIG, activation="silu", tied_dropout=True),
    _block("block-channels2", replace(S4_CONFIG, channels=2), activation="none"),
    _block("block-bidirectional", replace(S4_CONFIG, bidirectional=True), norm="batch"),
]

STACKS = [
    *(_stack(f"stack-{kind}", layer) for kind, layer in LAYER_CONFIGS.items()),
    _stack("stack-batch-pre", S4_CONFIG, norm="batch"),
    _stack("stack-batch-post", S4_CONFIG, norm="batch", pre_norm=False),
    _stack("stack-bidirectional", replace(S4D_CONFIG, bidirectional=True)),
]

MODELS = [
    *(_model(f"model-s4-{pooling}", S4_CONFIG, pooling) for pooling in ("mean", "last", "none")),
    *(
        _model(f"model-tokens-{pooling}", S4D_CONFIG, pooling, tokens=True)
        for pooling in ("mean", "last", "none")
    ),
    _model("model-s4d-batch-mean", S4D_CONFIG, "mean", norm="batch"),
    _model("model-s4-batch-post-none", S4_CONFIG, "none", norm="batch", pre_norm=False),
    _model("model-lssl-last", LSSL_CONFIG, "last", mixing="linear"),
    _model("model-bidirectional-mean", replace(S4_CONFIG, bidirectional=True), "mean", norm="batch"),
    _model("model-tokens-bidirectional-none", replace(S4D_CONFIG, bidirectional=True), "none", tokens=True),
]

CASES = [*LAYERS, *BLOCKS, *STACKS, *MODELS]
