"""Streams give what whole sequences give, keep their size, and survive restarts and bad calls."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from cases import CASES, build, samples
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from torchs4 import LSSLConfig, PairModel, S4BlockConfig, S4Config
from torchs4.inference import Stream
from torchs4.models.states import named_tensors

if TYPE_CHECKING:
    from pathlib import Path

every_case = pytest.mark.parametrize("case", CASES)
# The same numbers in float64, summed in another order.
TOLERANCE = 1e-11


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=TOLERANCE, atol=TOLERANCE)


def whole(model: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return model(x)


@every_case
@pytest.mark.parametrize("cuts", [(), (1, 2, 3), (70,), (64, 80, 85), (5, 139)])
def test_chunks_of_any_length_give_what_the_whole_sequence_gives(case: str, cuts: tuple[int, ...]) -> None:
    model = build(case)
    x = samples(model, 1, 151)
    stream = Stream(model)
    outputs = [stream.push(chunk) for chunk in np.split(x[0].numpy(), cuts)]
    expected = whole(model, x)[0]
    assert_close(torch.cat(outputs) if model.config.pooling == "none" else outputs[-1], expected)
    assert stream.positions == 151


@every_case
def test_single_samples_give_what_the_whole_sequence_gives(case: str) -> None:
    model = build(case)
    x = samples(model, 1, 20)
    stream = Stream(model)
    for length, sample in enumerate(x[0], 1):
        expected = whole(model, x[:, :length])[0]
        prediction = stream.push(sample)
        assert prediction.shape == (model.config.output_size,)
        assert_close(prediction, expected[-1] if model.config.pooling == "none" else expected)
    assert_close(stream.prediction, prediction)


@every_case
def test_a_prediction_can_be_had_for_each_sample(case: str) -> None:
    model = build(case)
    x = samples(model, 2, 20)
    stream, other = Stream(model, batch_size=2), Stream(model, batch_size=2)
    other.push(x[:, :7])
    stream.push(x[:, :7])
    each = stream.push_each(x[:, 7:])
    expected = torch.stack([other.push(x[:, position]) for position in range(7, 20)], dim=1)
    assert_close(each, expected)
    assert_close(stream.prediction, other.prediction)
    assert stream.push_each(x[:, 0]).shape == (2, model.config.output_size)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 200), min_size=1, max_size=6), st.sampled_from(["s4", "stem-none", "tokens"]))
def test_however_a_sequence_is_cut_a_stream_ends_the_same(lengths: list[int], case: str) -> None:
    model = build(case)
    x = samples(model, 1, sum(lengths))
    stream = Stream(model)
    for chunk in x[0].split(lengths):
        stream.push(chunk)
    expected = whole(model, x)[0]
    assert_close(stream.prediction, expected[-1] if model.config.pooling == "none" else expected)


@pytest.mark.parametrize("case", ["s4", "stem", "stem-none"])
def test_another_sampling_rate_is_the_models_rate(case: str) -> None:
    model = build(case)
    x = samples(model, 1, 150)
    with torch.inference_mode():
        expected = model(x, rate=2.0)[0]
    assert_close(Stream(model, rate=2.0).push(x[0]), expected)


def test_lists_and_other_precisions_are_read() -> None:
    model = build("s4", dtype=torch.float32)
    expected = Stream(model).push(np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert expected.dtype == torch.float32
    torch.testing.assert_close(Stream(model).push([[1, 2], [3, 4]]), expected)
    tokens = build("tokens")
    assert Stream(tokens).push(3).shape == (11,)
    assert Stream(tokens).push(np.array([3, 4], np.uint8)).shape == (2, 11)


def test_a_stream_keeps_no_graph() -> None:
    stream = Stream(build())
    assert not stream.push(torch.randn(70, 2, dtype=torch.float64, requires_grad=True)).requires_grad
    assert not any(tensor.requires_grad for _, tensor in named_tensors(stream.state))


@pytest.mark.parametrize("case", ["s4", "s4-none", "stem", "lstm"])
def test_what_is_remembered_does_not_grow(case: str) -> None:
    model = build(case)
    stream = Stream(model)
    x = samples(model, 1, 1001)[0]

    def held() -> list[int]:
        return [tensor.untyped_storage().nbytes() for _, tensor in named_tensors(stream.state)]

    before = held()
    for _ in range(3):
        stream.push(x)
        assert held() == before
    assert stream.prediction.untyped_storage().nbytes() == 5 * 8


LONG = """
import resource, numpy as np, torch
from torchs4 import SequenceModel
from torchs4.inference import Stream

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

stream = Stream(SequenceModel(features=4, num_layers=1, input_features=2).eval())
# A broadcast array: it has two million rows without taking their room.
samples = np.broadcast_to(np.array([0.1, -0.2], np.float32), (2_000_000, 2))
stream.push(samples[:100_000])
before = peak()
prediction = stream.push(samples)
assert stream.positions == 2_100_000 and torch.isfinite(prediction).all()
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems count memory in other units")
def test_two_million_samples_in_one_call_need_no_more_memory_than_few() -> None:
    # In a process of its own: the largest memory so far counts everything before.
    result = subprocess.run([sys.executable, "-W", "ignore", "-c", LONG], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    # In kilobytes. The samples alone would take 16,000.
    assert int(result.stdout) < 4000


@every_case
@pytest.mark.parametrize("batch_size", [None, 2])
def test_a_stream_goes_on_after_a_restart(case: str, batch_size: int | None, tmp_path: Path) -> None:
    model = build(case)
    x = samples(model, batch_size or 1, 30)
    x = x if batch_size else x[0]
    first, second = x.split([17, 13], dim=1 if batch_size else 0)
    stream = Stream(model, batch_size=batch_size)
    stream.push(first)
    stream.save(tmp_path / "state")
    again = Stream.load(tmp_path / "state", build(case))
    assert (again.positions, again.batch_size) == (17, batch_size)
    assert torch.equal(again.prediction, stream.prediction)
    assert torch.equal(again.push(second), stream.push(second))


def test_a_fresh_stream_and_its_rate_are_saved_too(tmp_path: Path) -> None:
    model = build()
    Stream(model, rate=2.0).save(tmp_path / "state")
    again = Stream.load(tmp_path / "state", model)
    assert (again.rate, again.positions) == (2.0, 0)
    with pytest.raises(ValueError, match="Nothing has come yet"):
        _ = again.prediction


def test_the_state_of_another_model_is_refused(tmp_path: Path) -> None:
    Stream(build(seed=0)).save(tmp_path / "state")
    with pytest.raises(ValueError, match="state of another model"):
        Stream.load(tmp_path / "state", build(seed=1))
    with pytest.raises(ValueError, match="state of another model"):
        Stream.load(tmp_path / "state", build(seed=0, names=("a", "b", "c", "d", "e")))


def test_files_that_are_no_states_are_refused_in_clear_words(tmp_path: Path) -> None:
    model, path = build(), tmp_path / "state"
    with pytest.raises(ValueError, match="There is no file"):
        Stream.load(path, model)
    Stream(model).save(path)
    content = path.read_bytes()
    for cut in (0, 5, 100, len(content) - 1):
        path.write_bytes(content[:cut])
        with pytest.raises(ValueError, match="cut short"):
            Stream.load(path, model)
    path.write_bytes(content[:-9] + bytes([content[-9] ^ 64]) + content[-8:])
    with pytest.raises(ValueError, match="is damaged"):
        Stream.load(path, model)
    path.write_text("a letter from somebody else, which is long enough to be read as a header")
    with pytest.raises(ValueError, match="cut short, damaged or no state"):
        Stream.load(path, model)
    save_file({"weight": torch.zeros(3)}, path)
    with pytest.raises(ValueError, match="not the state of a stream"):
        Stream.load(path, model)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("position", [0, 100, 9000])
def test_a_call_with_nan_is_refused_and_changes_nothing(bad: float, position: int) -> None:
    model = build(dtype=torch.float32)
    stream, other = Stream(model), Stream(model)
    x = samples(model, 1, 9100)[0]
    spoilt = x.clone()
    spoilt[position, 1] = bad
    for verb in (stream.push, stream.push_each):
        with pytest.raises(ValueError, match=f"Sample {position} of this call is {bad} in column 1"):
            verb(spoilt)
    assert stream.positions == 0
    assert torch.equal(stream.push(x), other.push(x))


def test_nan_is_passed_on_if_wanted() -> None:
    stream = Stream(build(), allow_nan=True)
    assert stream.push(np.array([[np.nan, 0.0]])).isnan().any()


@pytest.mark.parametrize(
    ("case", "bad", "words"),
    [
        ("s4", np.zeros((0, 2)), "length 0"),
        ("s4", np.zeros((4, 3)), r"shape \(4, 3\); expected \(length, 2\), or \(2,\) for one"),
        ("s4", np.zeros((1, 4, 2)), "expected"),
        ("s4", np.zeros((4, 2), complex), "real numbers"),
        ("s4", [["a", "b"]], "real numbers"),
        ("s4", [[1.0], [1.0, 2.0]], "no array of numbers"),
        ("s4", torch.zeros(4, 2, dtype=torch.complex64), "real numbers"),
        ("tokens", np.zeros(3), "integers"),
        ("tokens", [3, 11], "knows 0 to 10"),
        ("tokens", np.zeros((3, 1), int), "expected"),
    ],
)
def test_samples_that_do_not_fit_are_refused_and_change_nothing(case: str, bad: Any, words: str) -> None:
    model = build(case)
    stream, other = Stream(model), Stream(model)
    x = samples(model, 1, 9)[0]
    stream.push(x)
    other.push(x)
    with pytest.raises(ValueError, match=words):
        stream.push(bad)
    assert stream.positions == 9
    assert torch.equal(stream.push(x), other.push(x))


def test_a_signal_without_its_axis_of_columns_is_explained() -> None:
    with pytest.raises(ValueError, match=r"Add an axis: samples\[..., None\]"):
        Stream(build(input_features=1)).push(np.zeros(16))


def test_models_that_cannot_stream_are_refused() -> None:
    bidirectional = build(block=S4BlockConfig(layer=S4Config(state_size=8, bidirectional=True)))
    with pytest.raises(ValueError, match="bidirectional"):
        Stream(bidirectional)
    with pytest.raises(ValueError, match=r"model.eval\(\)"):
        Stream(build().train())
    with pytest.raises(ValueError, match="Two texts that are compared"):
        Stream(PairModel(vocabulary_size=5, features=4))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"model is a str; .* load_model"):
        Stream("digits")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="batch_size"):
        Stream(build(), batch_size=0)
    with pytest.raises(ValueError, match="rate"):
        Stream(build(), rate=0.0)


def test_probabilities_have_the_names_of_the_classes() -> None:
    model = build(names=("a", "b", "c", "d", "e"))
    stream = Stream(model, batch_size=2)
    predictions = stream.push(samples(model, 2, 9))
    for row in range(2):
        expected = dict(zip("abcde", predictions[row].softmax(-1).tolist(), strict=True))
        assert stream.probabilities(row) == pytest.approx(expected)
    with pytest.raises(ValueError, match="sequences: say which one"):
        stream.probabilities()
    assert list(_probabilities("s4-none")) == ["0", "1", "2", "3", "4"]
    with pytest.raises(ValueError, match="predicts values"):
        _probabilities("scaled")


def _probabilities(case: str) -> dict[str, float]:
    model = build(case)
    stream = Stream(model)
    stream.push(samples(model, 1, 9)[0])
    return stream.probabilities()


@pytest.mark.parametrize("layer", [S4Config(state_size=8), LSSLConfig(state_size=8)], ids=["s4", "lssl"])
def test_threads_with_streams_of_their_own_share_a_model(layer: Any) -> None:
    model = build(block=S4BlockConfig(layer=layer))
    signals = [samples(model, 1, 300, seed)[0] for seed in range(4)]

    def run(signal: torch.Tensor) -> torch.Tensor:
        stream = Stream(model)
        return torch.stack([stream.push(chunk) for chunk in signal.split([1, 2, 64, 1, 100, 132])])

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(run, signals))
    for outputs, signal in zip(together, signals, strict=True):
        assert torch.equal(outputs, run(signal))
