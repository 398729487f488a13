"""Recorded steps without a device to record on: a recorder that repeats operations on the same memory."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torchs4 import LSTMConfig, S4BlockConfig, S4Config, S4DConfig, SequenceModel, TransformerConfig, ops
from torchs4.inference import RecordedSteps, recorded_steps

# The same operations, repeated.
EXACT = {"rtol": 0, "atol": 0}


class Recorder(TorchDispatchMode):
    """Like a graph of a device: knows operations and addresses, nothing of Python, and reads no numbers."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("A recorded step must not read numbers.")
        result = function(*args, **(kwargs or {}))
        if not function.is_view:
            self.calls.append((function, args, kwargs or {}, result))
        return result

    def replay(self):
        for function, args, kwargs, results in self.calls:
            again = function(*args, **kwargs)
            for old, new in zip(tree_leaves(results), tree_leaves(again), strict=True):
                if new is not old:
                    old.copy_(new)


@pytest.fixture(autouse=True)
def records_on_the_cpu(monkeypatch):
    def record(run, device):
        with Recorder() as recorder:
            run()
        return recorder.replay

    monkeypatch.setitem(recorded_steps._RECORDERS, "cpu", record)
    before = ops.get_implementation()
    ops.set_implementation("portable")
    yield
    ops.set_implementation(before)


def build(layer, **options):
    torch.manual_seed(0)
    block = S4BlockConfig(layer=layer, norm=options.pop("norm", "layer"))
    if "vocabulary_size" not in options:
        options["input_features"] = 3
    return SequenceModel(output_size=5, features=8, num_layers=2, block=block, **options).eval()


@torch.no_grad()
@pytest.mark.parametrize(
    ("layer", "options"),
    [
        (S4Config(state_size=4), {}),
        (S4Config(state_size=4, start="legt"), {"pooling": "none", "norm": "batch"}),
        (S4DConfig(state_size=4), {"pooling": "last"}),
        (LSTMConfig(), {}),
        (S4Config(state_size=4), {"vocabulary_size": 7, "pooling": "none"}),
    ],
)
def test_recorded_steps_are_the_models(layer, options):
    model = build(layer, **options)
    tokens = model.config.vocabulary_size is not None
    x = torch.randint(7, (20, 2)) if tokens else torch.randn(20, 2, 3)
    if tokens:
        # A CPU checks tokens, which a device does by itself.
        model._require_tokens = lambda tokens: None
    steps, state = RecordedSteps(model, batch_size=2), model.initial_state(2)
    places = [tensor.data_ptr() for _, tensor in recorded_steps.named_tensors(steps._state)]
    for x_t in x:
        expected, state = model.step(x_t, state)
        torch.testing.assert_close(steps.step(x_t), expected, **EXACT)
    torch.testing.assert_close(steps.state, state, **EXACT)
    assert places == [tensor.data_ptr() for _, tensor in recorded_steps.named_tensors(steps._state)]


@torch.no_grad()
def test_a_prompt_comes_first_and_predictions_stay():
    model, x = build(S4Config(state_size=4)), torch.randn(2, 30, 3)
    steps = RecordedSteps(model, batch_size=2)
    _, steps.state = model.prefill(x[:, :27])
    first, second, third = (steps.step(x[:, t]) for t in (27, 28, 29))
    torch.testing.assert_close(third, model(x), rtol=1e-4, atol=1e-5)
    assert not torch.equal(first, second)


@torch.no_grad()
def test_new_weights_are_recorded_anew():
    model, x = build(S4Config(state_size=4)), torch.randn(4, 1, 3)
    steps, state = RecordedSteps(model), model.initial_state(1)
    for x_t in x[:2]:
        _, state = model.step(x_t, state)
        steps.step(x_t)
    for parameter in model.parameters():
        parameter.mul_(1.1)
    for x_t in x[2:]:
        expected, state = model.step(x_t, state)
        torch.testing.assert_close(steps.step(x_t), expected, **EXACT)


def test_what_cannot_be_recorded_is_refused_in_words(monkeypatch):
    model = build(S4Config(state_size=4))
    steps = RecordedSteps(model, batch_size=2)
    with pytest.raises(ValueError, match=r"x_t has shape \(1, 3\); expected \(2, 3\)"):
        steps.step(torch.zeros(1, 3))
    with pytest.raises(ValueError, match=r"dtype torch\.int64; expected torch\.float32"):
        steps.step(torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match="no state of 2 sequences"):
        steps.state = model.initial_state(3)
    with pytest.raises(ValueError, match="grows with every step"):
        RecordedSteps(build(TransformerConfig(heads=2))).step(torch.zeros(1, 3))
    monkeypatch.setattr(recorded_steps, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="needs the package triton"):
        RecordedSteps(model, in_triton=True)
    monkeypatch.setattr(recorded_steps, "find_spec", lambda name: name)
    for other in (build(LSTMConfig()), build(S4Config(state_size=4)).double()):
        with pytest.raises(ValueError, match="in_triton=True is for blocks of S4 or S4D"):
            RecordedSteps(other, in_triton=True)
    with pytest.raises(ValueError, match=r"Call model\.eval"):
        RecordedSteps(model.train())
    monkeypatch.undo()
    with pytest.raises(ValueError, match="takes a CUDA device"):
        RecordedSteps(model.eval())
