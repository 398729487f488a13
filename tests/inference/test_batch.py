"""Streams in a batch join and leave at any time, and each equals the one that runs alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from cases import CASES, build, samples

from torchs4.inference import Stream, StreamBatch

# The same numbers in float64, summed in another order.
TOLERANCE = 1e-11


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("case", CASES)
def test_streams_that_join_and_leave_at_any_time_equal_those_that_run_alone(case: str) -> None:
    model = build(case)
    draw = np.random.default_rng(0)
    batch: StreamBatch[int] = StreamBatch(model)
    alone: dict[int, Stream] = {}
    for moment in range(30):
        if moment % 3 == 0:
            batch.join(moment)
            alone[moment] = Stream(model)
        if moment % 7 == 6:
            leaver = int(draw.choice(list(batch)))
            left = batch.leave(leaver)
            chunk = samples(model, 1, 5, seed=moment)[0]
            assert_close(left.push(chunk), alone[leaver].push(chunk))
            # Half of them come back.
            if moment % 2:
                batch.join(leaver, left)
        pushed = {
            key: samples(model, 1, int(draw.choice([1, 1, 1, 4, 70])), seed=100 * moment + key)[0]
            for key in batch
            if draw.random() < 0.8
        }
        outputs = batch.push(pushed)
        assert list(outputs) == list(pushed)
        for key, chunk in pushed.items():
            assert_close(outputs[key], alone[key].push(chunk))
            assert batch[key].positions == alone[key].positions


def test_streams_of_a_batch_hold_no_memory_of_the_others() -> None:
    model = build()
    batch: StreamBatch[str] = StreamBatch(model)
    for key in "abc":
        batch.join(key)
    batch.push({key: samples(model, 1, 3)[0] for key in "abc"})
    (state,) = batch.leave("b").state["blocks"][:1]
    assert state.untyped_storage().nbytes() == state.numel() * state.element_size()


def test_a_bad_chunk_names_its_stream_and_changes_none() -> None:
    model = build()
    batch: StreamBatch[str] = StreamBatch(model)
    batch.join("good")
    batch.join("bad")
    x = samples(model, 1, 4)[0]
    for spoilt, words in ((x * float("nan"), "Stream 'bad': Sample 0"), (x[:0], "Stream 'bad': .*length 0")):
        with pytest.raises(ValueError, match=words):
            batch.push({"good": x, "bad": spoilt})
    assert batch["good"].positions == batch["bad"].positions == 0
    assert_close(batch.push({"good": x})["good"], Stream(model).push(x))


def test_single_samples_of_different_types_go_together() -> None:
    model = build()
    batch: StreamBatch[str] = StreamBatch(model)
    batch.join("list")
    batch.join("array")
    outputs = batch.push({"list": [1, 2], "array": np.array([[1.0, 2.0]], np.float32)})
    assert_close(outputs["list"], outputs["array"])


def test_keys_are_checked() -> None:
    model = build()
    batch: StreamBatch[str] = StreamBatch(model)
    batch.join("a")
    with pytest.raises(ValueError, match="stream 'a' already"):
        batch.join("a")
    with pytest.raises(ValueError, match="no stream 'b'"):
        batch.push({"b": samples(model, 1, 4)[0]})
    with pytest.raises(ValueError, match="no stream 'b'"):
        batch.leave("b")
    for stranger in (Stream(build(seed=1)), Stream(model, rate=2.0), Stream(model, batch_size=1)):
        with pytest.raises(ValueError, match="cannot join"):
            batch.join("c", stranger)
    assert ("a" in batch, "b" in batch, len(batch)) == (True, False, 1)
    assert batch.push({}) == {}
