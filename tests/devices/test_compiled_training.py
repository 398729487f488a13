"""Whole models train as one graph, whatever the batch and the length: a GPU gets fused passes from it."""

import copy

import pytest
import torch
from torch._dynamo.utils import counters

from torchs4 import S4BlockConfig, S4Config, S4DConfig, SequenceModel, ops

# The same operations, traced; those of one graph may be taken in another order.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-6}
# Batch and length: both change, alone and together.
SIZES = [(4, 100), (5, 100), (5, 130), (3, 257), (2, 64)]


@pytest.fixture(autouse=True)
def runs_portable():
    before = ops.get_implementation()
    ops.set_implementation("portable")
    torch.compiler.reset()
    counters.clear()
    yield
    ops.set_implementation(before)
    torch.compiler.reset()


# Of PyTorch's own making.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("layer", "norm", "padded"),
    [(S4Config(state_size=8), "batch", True), (S4DConfig(state_size=8), "layer", False)],
)
def test_one_graph_serves_every_batch_and_length(layer, norm, padded):
    torch.manual_seed(0)
    block = S4BlockConfig(layer=layer, norm=norm)
    model = SequenceModel(input_features=3, output_size=5, features=6, num_layers=1, block=block)
    plain = copy.deepcopy(model)
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
    for batch, length in SIZES:
        x = torch.randn(batch, length, 3)
        lengths = torch.randint(2, length + 1, (batch,)) if padded else None
        results = []
        for module in (compiled, plain):
            module.zero_grad()
            y = module(x, lengths=lengths)
            y.square().mean().backward()
            results.append([y.detach(), *(p.grad.clone() for p in module.parameters()), *module.buffers()])
        for ours, theirs in zip(*results, strict=True):
            torch.testing.assert_close(ours, theirs, **TOLERANCE)
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]


def test_a_half_precision_model_keeps_its_state_spaces_in_full_precision_under_autocast():
    torch.manual_seed(0)
    model = SequenceModel(input_features=3, output_size=5, features=6, num_layers=1)
    x = torch.randn(2, 500, 3)
    exact = model(x)
    for dtype in (torch.bfloat16, torch.float16):
        seen = []
        handle = model.stack.blocks[0].layer.register_forward_hook(
            lambda module, inputs, output, seen=seen: seen.append(module.kernel(500).dtype)
        )
        with torch.autocast("cpu", dtype=dtype):
            y = model(x)
        handle.remove()
        assert seen == [torch.float32]
        assert y.dtype == dtype
        # Rounding of the mixing's and the head's products: 2^-8 and 2^-11 of numbers around 1.
        torch.testing.assert_close(y.float(), exact, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("implementation", ["cpu", "portable"])
@pytest.mark.parametrize("way", ["convolution", "chunks"])
def test_going_backward_inside_autocast_rounds_no_gradient_of_a_state_space(way, implementation):
    torch.manual_seed(0)
    ops.set_implementation(implementation)
    layer, x = S4Config(state_size=8).build(4), torch.randn(2, 300, 4)

    def gradients(inside):
        layer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = layer(x) if way == "convolution" else layer.prefill(x)[0]
            loss = y.square().sum()
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        return [p.grad.clone() for p in layer.parameters()]

    torch.testing.assert_close(gradients(True), gradients(False), rtol=0, atol=0)
