"""Our attentions against those of `transformers`, with the same weights: where those work, both agree."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention_oracle import assert_close, build, inputs

from torchs4.layers.attention import FNetConfig, LongformerConfig, NystromformerConfig, ReformerConfig

pytest.importorskip("transformers", reason="compares with the package transformers, which is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

# They compute their softmax in float32.
FLOAT32_TOLERANCE = 1e-6


def copy_projections(layer: Any, theirs: Any) -> None:
    with torch.no_grad():
        for number, part in enumerate((theirs.query, theirs.key, theirs.value)):
            rows = slice(8 * number, 8 * number + 8)
            part.weight.copy_(layer.query_key_value.weight[rows])
            part.bias.copy_(layer.query_key_value.bias[rows])


def test_longformer() -> None:
    from transformers import LongformerConfig as TheirConfig
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    layer, x = build(LongformerConfig(heads=2, reach=4, global_positions=2)), inputs(length=24)
    config = TheirConfig(
        hidden_size=8, num_attention_heads=2, attention_window=[8], attention_probs_dropout_prob=0.0
    )
    theirs = LongformerSelfAttention(config, layer_id=0).double().eval()
    copy_projections(layer, theirs)
    with torch.no_grad():
        theirs.query_global.load_state_dict(layer.global_query.state_dict())
        for number, part in enumerate((theirs.key_global, theirs.value_global)):
            part.weight.copy_(layer.global_key_value.weight[8 * number : 8 * number + 8])
            part.bias.copy_(layer.global_key_value.bias[8 * number : 8 * number + 8])
        # The second sequence ends after 17 positions; they take multiples of the window only.
        kinds = torch.zeros(2, 24, dtype=torch.float64)
        kinds[:, :2], kinds[1, 17:] = 10_000, -10_000
        y = theirs(x, kinds, kinds < 0, kinds > 0, True)[0]
        ours = layer(x, lengths=[24, 17])
    assert_close(ours[0], layer.output(y)[0], FLOAT32_TOLERANCE)
    assert_close(ours[1, :17], layer.output(y)[1, :17], FLOAT32_TOLERANCE)


def test_nystromformer() -> None:
    from transformers import NystromformerConfig as TheirConfig
    from transformers.models.nystromformer.modeling_nystromformer import NystromformerSelfAttention

    # Theirs scales its inverse by the whole batch and all heads, so there is one of each.
    layer, x = build(NystromformerConfig(heads=1, landmarks=6, skip_kernel=5)), inputs(1, 24)
    config = TheirConfig(
        hidden_size=8,
        num_attention_heads=1,
        num_landmarks=6,
        segment_means_seq_len=24,
        conv_kernel_size=5,
        attention_probs_dropout_prob=0.0,
    )
    theirs = NystromformerSelfAttention(config).double().eval()
    copy_projections(layer, theirs)
    theirs.conv.load_state_dict(layer.skip.state_dict())
    with torch.no_grad():
        assert_close(layer(x), layer.output(theirs(x)[0]), 1e-8)


def test_fnet() -> None:
    from transformers import FNetConfig as TheirConfig
    from transformers.models.fnet.modeling_fnet import FNetBasicFourierTransform

    x = inputs(length=24)
    theirs = FNetBasicFourierTransform(TheirConfig(hidden_size=8))
    assert_close(build(FNetConfig())(x) * (24 * 8) ** 0.5, theirs(x)[0])


def test_reformer() -> None:
    from transformers import ReformerConfig as TheirConfig
    from transformers.models.reformer.modeling_reformer import LSHSelfAttention

    # One chunk: theirs takes no other lengths without padding, and its chunks are a circle.
    layer, x = build(ReformerConfig(heads=2, buckets=4, rounds=2, chunk=24)), inputs(length=24)
    config = TheirConfig(
        hidden_size=8,
        num_attention_heads=2,
        attention_head_size=4,
        lsh_attn_chunk_length=24,
        num_buckets=4,
        num_hashes=2,
        is_decoder=False,
        lsh_attention_probs_dropout_prob=0.0,
    )
    theirs = LSHSelfAttention(config).double().eval()
    with torch.no_grad():
        layer.query_key.bias.zero_()
        layer.value.bias.zero_()
        theirs.query_key.weight.copy_(layer.query_key.weight)
        theirs.value.weight.copy_(layer.value.weight)
        y = theirs(x).hidden_states
        # Theirs adds a millionth before it divides by a key's size.
        assert_close(layer(x), layer.output(y), 1e-5)
