"""torch.export and torch.compile take whole models, by every verb, for batches of any size."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cases import build, samples
from torch import nn
from torch.utils._pytree import tree_map

CASES = ("s4", "s4d-batch-norm", "lssl", "tokens")
VERBS = ("forward", "prefill", "step")
TOLERANCE = {"rtol": 1e-9, "atol": 1e-10}


class Verb(nn.Module):
    """A model by one of its verbs: exporters take forward alone."""

    def __init__(self, model: nn.Module, verb: str) -> None:
        super().__init__()
        self.model = model
        self.verb = verb

    def forward(self, *arguments: Any) -> Any:
        return getattr(self.model, self.verb)(*arguments)


def prepare(case: str, verb: str, batch: int) -> tuple[Verb, tuple[Any, ...]]:
    model = build(case)
    x = samples(model, batch, 70)
    with torch.no_grad():
        # Not the first state, which is all zeros.
        _, state = model.prefill(x[:, :5])
    arguments = {"forward": (x,), "prefill": (x, state), "step": (x[:, 0], state)}
    return Verb(model, verb), arguments[verb]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_torch_export_takes_every_verb_for_any_batch(case: str, verb: str) -> None:
    module, arguments = prepare(case, verb, batch=2)
    batch = torch.export.Dim("batch", min=2, max=64)
    shapes = (tree_map(lambda tensor: {0: batch}, arguments),)
    exported = torch.export.export(module, arguments, dynamic_shapes=shapes).module()
    for size in (2, 5):
        _, others = prepare(case, verb, size)
        torch.testing.assert_close(exported(*others), module(*others), **TOLERANCE)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("case", ["s4", "tokens"])
@torch.no_grad()
def test_torch_compile_takes_every_verb_as_one_graph(case: str, verb: str) -> None:
    torch.compiler.reset()
    module, arguments = prepare(case, verb, batch=2)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*arguments), module(*arguments), **TOLERANCE)
