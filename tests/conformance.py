"""Every layer, block, stack and model that the conformance suite runs, each as a case.

A new layer or model joins the suite by adding a line here. Each case goes through some thirty tests, so
options that may touch each other meet in some case, but not all combinations occur.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from torchs4 import (
    LSSL,
    S4,
    S4D,
    BlockStack,
    LanguageModel,
    LSSLConfig,
    LSTMConfig,
    S4Block,
    S4BlockConfig,
    S4Config,
    S4DConfig,
    SequenceModel,
    TransformerConfig,
    UNetModel,
)
from torchs4.layers.attention import (
    BigBirdConfig,
    FNetConfig,
    LinearTransformerConfig,
    LinformerConfig,
    LocalAttentionConfig,
    LongformerConfig,
    LunaConfig,
    NystromformerConfig,
    PerformerConfig,
    ReformerConfig,
    SinkhornConfig,
    SparseTransformerConfig,
    SynthesizerConfig,
)
from torchs4.layers.attention.kernel_attention import KernelAttentionConfig
from torchs4.layers.norms import ScalarLayerNorm

if TYPE_CHECKING:
    from collections.abc import Callable

FEATURES = 3
# Heads of two columns each, the smallest.
EVEN_FEATURES = 4
STATE_SIZE = 8
VOCABULARY_SIZE = 11
# Memories between 5 and 200 samples: shorter and longer than the sequences of the suite.
STEP_SIZES = {"min_step_size": 0.005, "max_step_size": 0.2}


@dataclass(frozen=True)
class Case:
    """Something that maps sequences.

    input_features: None for tokens. growing: its state has an entry for each position, and none at first.
    weighs_nothing_at_first: its first state is an empty memory, which has no weight beside a key.
    own_operators: whether anything of torchs4.ops is in it. samples_per_frame: of a stem.
    """

    name: str
    make: Callable[[], nn.Module]
    output_features: int = FEATURES
    input_features: int | None = FEATURES
    pooled: bool = False
    causal: bool = True
    growing: bool = False
    weighs_nothing_at_first: bool = False
    own_operators: bool = True
    samples_per_frame: int = 1

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
        if isinstance(norm, ScalarLayerNorm):
            nn.init.uniform_(norm.s, 0.5, 1.5)
            nn.init.normal_(norm.m)
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


def _baseline(name: str, features: int, layer: Any, output_features: int) -> Case:
    return Case(
        name,
        lambda: layer.build(features),
        output_features=output_features,
        input_features=features,
        causal=not layer.bidirectional,
        growing=isinstance(layer, TransformerConfig),
        weighs_nothing_at_first=isinstance(layer, KernelAttentionConfig),
        own_operators=False,
    )


def _around(name: str, layer: Any, make: Callable[[int], nn.Module]) -> Case:
    features = EVEN_FEATURES if hasattr(layer, "heads") else FEATURES
    return Case(
        name,
        lambda: make(features),
        output_features=features,
        input_features=features,
        causal=not layer.bidirectional,
        growing=isinstance(layer, TransformerConfig),
        weighs_nothing_at_first=isinstance(layer, KernelAttentionConfig),
    )


def _block(name: str, layer: Any, **options: Any) -> Case:
    config = S4BlockConfig(layer=layer, dropout=0.1, **options)
    return _around(f"block-{name}", layer, lambda features: S4Block(features, config))


def _stack(name: str, layer: Any, **options: Any) -> Case:
    config = S4BlockConfig(layer=layer, **options)
    return _around(f"stack-{name}", layer, lambda features: BlockStack(features, 2, config))


def _model(
    name: str, layer: Any, pooling: str, tokens: bool = False, stem: tuple[int, ...] = (), **options: Any
) -> Case:
    block = S4BlockConfig(layer=layer, dropout=0.1, **options)
    vocabulary_size = VOCABULARY_SIZE if tokens else None

    def make() -> SequenceModel:
        return SequenceModel(
            output_size=5,
            input_features=2,
            vocabulary_size=vocabulary_size,
            features=EVEN_FEATURES,
            num_layers=2,
            block=block,
            pooling=pooling,
            stem=stem,
        )

    return Case(
        f"model-{name}",
        make,
        output_features=5,
        input_features=None if tokens else 2,
        pooled=pooling != "none",
        causal=not layer.bidirectional,
        growing=isinstance(layer, TransformerConfig),
        weighs_nothing_at_first=isinstance(layer, KernelAttentionConfig),
        samples_per_frame=math.prod(stem),
    )


def _unet(name: str, layer: Any, pools: tuple[int, ...], tokens: bool = False, **options: Any) -> Case:
    pooling = options.pop("pooling", "none")
    block = S4BlockConfig(layer=layer, dropout=0.1, **options)

    def make() -> UNetModel:
        return UNetModel(
            output_size=5,
            input_features=2,
            vocabulary_size=VOCABULARY_SIZE if tokens else None,
            features=EVEN_FEATURES,
            num_layers=1,
            block=block,
            pooling=pooling,
            pools=pools,
            growth=1.5,
        )

    return Case(
        f"unet-{name}",
        make,
        output_features=5,
        input_features=None if tokens else 2,
        pooled=pooling != "none",
        causal=not layer.bidirectional,
        growing=isinstance(layer, TransformerConfig),
        samples_per_frame=math.prod(pools),
    )


def _language(name: str, layer: Any, cutoffs: tuple[int, ...], feed_forward: int = 2) -> Case:
    def make() -> LanguageModel:
        return LanguageModel(
            vocabulary_size=VOCABULARY_SIZE,
            features=EVEN_FEATURES,
            num_layers=3,
            block=S4BlockConfig(layer=layer, dropout=0.1),
            cutoffs=cutoffs,
            feed_forward=feed_forward,
        )

    return Case(
        f"language-{name}",
        make,
        output_features=VOCABULARY_SIZE,
        input_features=None,
        causal=not layer.bidirectional,
        growing=isinstance(layer, TransformerConfig),
    )


S4_CONFIG = S4Config(state_size=STATE_SIZE, **STEP_SIZES)
S4D_CONFIG = S4DConfig(state_size=STATE_SIZE, **STEP_SIZES)
LSSL_CONFIG = LSSLConfig(state_size=STATE_SIZE, **STEP_SIZES)
LSTM_CONFIG = LSTMConfig()
TRANSFORMER_CONFIG = TransformerConfig(heads=2)
USUAL_CONFIGS = {
    "s4": S4_CONFIG,
    "s4d": S4D_CONFIG,
    "lssl": LSSL_CONFIG,
    "lstm": LSTM_CONFIG,
    "transformer": TRANSFORMER_CONFIG,
}
# Blocks, windows and landmarks that no length of the suite is a multiple of.
ATTENTION_CONFIGS = {
    "linear-transformer": LinearTransformerConfig(heads=2, projection=6),
    "performer": PerformerConfig(heads=2, random_features=7),
    "local-attention": LocalAttentionConfig(heads=2, window=15),
    "sparse-transformer": SparseTransformerConfig(heads=2, window=8, summaries=3),
    "longformer": LongformerConfig(heads=2, reach=9, global_positions=2),
    "bigbird": BigBirdConfig(heads=2, window=8, random_blocks=1),
    "linformer": LinformerConfig(heads=2, projections=5, max_length=200),
    "reformer": ReformerConfig(heads=2, buckets=4, rounds=2, chunk=12),
    "sinkhorn": SinkhornConfig(heads=2, window=12),
    "synthesizer": SynthesizerConfig(heads=2, score_rank=3, max_length=200),
    "nystromformer": NystromformerConfig(heads=2, landmarks=4, skip_kernel=3),
    "luna": LunaConfig(heads=2, packed=5),
}
LAYER_CONFIGS = {**USUAL_CONFIGS, **ATTENTION_CONFIGS, "fnet": FNetConfig()}

LAYERS = [
    _layer("s4-legs", S4),
    _layer("s4-legt-channels2", S4, start="legt", channels=2),
    _layer("s4-legt-rank3-per-feature", S4, start="legt", rank=3, per_feature=True),
    _layer("s4-random-smallest-per-feature", S4, start="random", state_size=2, per_feature=True),
    _layer("s4-rank2-bidirectional-channels2", S4, rank=2, bidirectional=True, channels=2),
    _layer("s4d-legs-zoh", S4D),
    _layer("s4d-lin-bilinear-channels2", S4D, start="lin", discretization="bilinear", channels=2),
    _layer("s4d-inv-bilinear", S4D, start="inv", discretization="bilinear"),
    _layer("s4d-real-zoh-channels2-per-feature", S4D, start="real", channels=2, per_feature=True),
    _layer("s4d-random-bidirectional", S4D, start="random", bidirectional=True),
    _layer("lssl-legs", LSSL),
    _layer("lssl-legt-zoh", LSSL, start="legt", discretization="zoh"),
    _layer("lssl-gaussian-channels2-odd", LSSL, start="gaussian", channels=2, state_size=7),
    _layer(
        "lssl-diagonal-per-feature-bidirectional",
        LSSL,
        start="diagonal",
        per_feature=True,
        bidirectional=True,
    ),
    _baseline("lstm", FEATURES, LSTM_CONFIG, FEATURES),
    _baseline("lstm-bidirectional-wide", FEATURES, LSTMConfig(hidden_size=5, bidirectional=True), 10),
    _baseline("transformer", EVEN_FEATURES, TRANSFORMER_CONFIG, EVEN_FEATURES),
    _baseline(
        "transformer-bidirectional-materialised",
        6,
        TransformerConfig(heads=1, bidirectional=True, attention="materialised", projection=4),
        6,
    ),
    # FNet has no weights, so most of the suite can say something about it only within a block.
    *(_baseline(kind, EVEN_FEATURES, layer, EVEN_FEATURES) for kind, layer in ATTENTION_CONFIGS.items()),
    _baseline("performer-bidirectional", 6, PerformerConfig(heads=1, bidirectional=True), 6),
]

# The usual block with each layer; then each norm before and after, and the other options, spread over layers.
BLOCKS = [
    *(_block(kind, layer) for kind, layer in USUAL_CONFIGS.items()),
    _block("s4-layer-post-linear", S4_CONFIG, pre_norm=False, mixing="linear"),
    _block("s4d-batch-pre-silu-tied", S4D_CONFIG, norm="batch", activation="silu", tied_dropout=True),
    _block("lssl-batch-post-channels2", replace(LSSL_CONFIG, channels=2), norm="batch", pre_norm=False),
    _block("s4d-unmixed", S4D_CONFIG, mixing="none"),
    _block("s4-none-relu-no-residual", S4_CONFIG, norm="none", activation="relu", residual=False),
    _block(
        "lstm-wide-batch-linear-tied",
        LSTMConfig(hidden_size=5),
        norm="batch",
        mixing="linear",
        tied_dropout=True,
    ),
    _block(
        "transformer-layer-post-plain", TRANSFORMER_CONFIG, pre_norm=False, activation="none", residual=False
    ),
    _block("s4-bidirectional-batch", replace(S4_CONFIG, bidirectional=True), norm="batch"),
    _block("fnet", FNetConfig()),
    _block("bigbird-batch", ATTENTION_CONFIGS["bigbird"], norm="batch"),
    _block("lstm-bidirectional-none-post", LSTMConfig(bidirectional=True), norm="none", pre_norm=False),
]

STACKS = [
    _stack("s4", S4_CONFIG),
    _stack("s4d-batch-pre", S4D_CONFIG, norm="batch"),
    _stack("lssl-batch-post", LSSL_CONFIG, norm="batch", pre_norm=False),
    _stack("s4-scalar-post", S4_CONFIG, norm="scalar", pre_norm=False),
    _stack("lstm", LSTM_CONFIG),
    _stack("transformer", TRANSFORMER_CONFIG),
    _stack("performer", ATTENTION_CONFIGS["performer"]),
    _stack("s4d-bidirectional", replace(S4D_CONFIG, bidirectional=True)),
]

MODELS = [
    _model("s4-mean", S4_CONFIG, "mean"),
    _model("s4-shares-unmixed", S4_CONFIG, "shares", mixing="none"),
    _model("s4d-tokens-last", S4D_CONFIG, "last", tokens=True),
    _model("s4-batch-post-none", S4_CONFIG, "none", norm="batch", pre_norm=False),
    _model("lssl-linear-last", LSSL_CONFIG, "last", mixing="linear"),
    _model("lstm-tokens-mean", LSTM_CONFIG, "mean", tokens=True),
    _model("transformer-tokens-none", TRANSFORMER_CONFIG, "none", tokens=True),
    _model("linear-transformer-stem-none", ATTENTION_CONFIGS["linear-transformer"], "none", stem=(3,)),
    _model("performer-tokens-batch-mean", ATTENTION_CONFIGS["performer"], "mean", tokens=True, norm="batch"),
    _model("longformer-tokens-mean", ATTENTION_CONFIGS["longformer"], "mean", tokens=True),
    _model("s4-stem-mean", S4_CONFIG, "mean", stem=(2, 2)),
    _model("s4d-tokens-stem-none", S4D_CONFIG, "none", tokens=True, stem=(3, 1)),
    _model("s4-bidirectional-stem-last", replace(S4_CONFIG, bidirectional=True), "last", stem=(2,)),
    _model("s4-bidirectional-batch-mean", replace(S4_CONFIG, bidirectional=True), "mean", norm="batch"),
    _model("transformer-bidirectional-last", replace(TRANSFORMER_CONFIG, bidirectional=True), "last"),
    _unet("s4-tokens", S4_CONFIG, (3, 2), tokens=True),
    _unet("s4d-batch-linear-mean", S4D_CONFIG, (2,), norm="batch", mixing="linear", pooling="mean"),
    _unet("s4-bidirectional", replace(S4_CONFIG, bidirectional=True), (3,)),
    _language("s4-bands", S4_CONFIG, (3, 6)),
    _language("s4d-plain", S4D_CONFIG, (), feed_forward=0),
    _language("transformer", TRANSFORMER_CONFIG, (4,)),
]

CASES = [*LAYERS, *BLOCKS, *STACKS, *MODELS]
