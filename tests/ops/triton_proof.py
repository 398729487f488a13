"""Runs or compiles the steps in Triton without a GPU; prints a line for each thing that went through."""

from __future__ import annotations

import sys
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from torchs4 import S4BlockConfig, S4Config, S4DConfig, SequenceModel, ops
from torchs4.inference import RecordedSteps, recorded_steps
from torchs4.ops import reference
from torchs4.ops.portable import triton_blocks

LAYERS = {
    "s4, layer norm": (S4Config(state_size=8), "layer", 6),
    "s4 of rank 2, batch norm": (S4Config(state_size=8, start="legt"), "batch", 7),
    "s4, two channels": (S4Config(state_size=4, channels=2), "layer", 5),
    "s4d": (S4DConfig(state_size=6), "layer", 9),
    "more features than columns": (S4Config(state_size=2), "layer", 130),
}
TARGETS = (GPUTarget("cuda", 80, 32), GPUTarget("cuda", 90, 32), GPUTarget("hip", "gfx942", 64))


@torch.no_grad()
def interpret() -> None:
    ops.set_implementation("portable")
    for name, (layer, norm, features) in LAYERS.items():
        torch.manual_seed(0)
        block = S4BlockConfig(layer=layer, norm=norm)
        model = SequenceModel(input_features=3, output_size=2, features=features, num_layers=2, block=block)
        # Means and variances of its own.
        model(torch.randn(8, 50, 3))
        stack = model.eval().stack
        x, states = torch.randn(3, features), list(stack.initial_state(3))
        stack.step(x, tuple(states))
        prepared: Any = next(iter(stack._fused_steps._cache._slots["steps"].values()))
        fused = triton_blocks.TritonBlocks(prepared._blocks, prepared._final_norm)
        plain = reference.PreparedBlocks(prepared._blocks, prepared._final_norm)
        theirs = list(states)
        for _ in range(4):
            y, states = fused.step(x, states)
            expected, theirs = plain.step(x, theirs)
            torch.testing.assert_close([y, *states], [expected, *theirs], rtol=1e-5, atol=1e-6)
            x = torch.randn(3, features)
        print("interpreted:", name)
    recorded_steps._RECORDERS["cpu"] = lambda run, device: run
    for in_triton in (True, False):
        steps = RecordedSteps(model, batch_size=3, in_triton=in_triton)
        predictions = [steps.step(x) for x in torch.ones(3, 3, 3)]
        found = next(reversed(stack._fused_steps._cache._slots["steps"].values()))
        assert isinstance(found, triton_blocks.TritonBlocks) == in_triton
        expected = predictions if in_triton else expected
    torch.testing.assert_close(predictions, expected, rtol=1e-5, atol=1e-6)
    print("interpreted: what RecordedSteps would record")


def compile_for_gpus() -> None:
    tensors = [
        "x",
        "weight",
        "bias",
        "mean",
        "variance",
        "a",
        "p",
        "q",
        "b",
        "C",
        "D",
        "state",
        "new_state",
        "y",
    ]
    sizes = {"RANK": 1, "CHANNELS": 1, "ROW": 256, "MODES": 32, "FEATURES": 4}
    for by_batch in (False, True):
        for rank in (1,) if by_batch else (0, 2):
            compile_kernel(
                triton_blocks.advance,
                tensors,
                {"epsilon": "fp32", "H": "i32", "N": "i32"},
                {**sizes, "BATCH_NORM": by_batch, "RANK": rank},
            )
    compile_kernel(
        triton_blocks.mix,
        ["y", "weight", "bias", "residual", "x"],
        {"H": "i32", "K": "i32"},
        {"FEATURES": 4, "COLUMNS": 128},
    )


def compile_kernel(
    kernel: Any, tensors: list[str], numbers: dict[str, str], constants: dict[str, Any]
) -> None:
    kinds = {**dict.fromkeys(tensors, "*fp32"), **numbers, **dict.fromkeys(constants, "constexpr")}
    for target in TARGETS:
        signature = {name: kinds[name] for name in kernel.arg_names}
        made = triton.compile(ASTSource(kernel, signature=signature, constexprs=constants), target=target)
        code = made.asm["ptx" if target.backend == "cuda" else "amdgcn"]
        assert kernel.__name__ in code
        print("compiled:", kernel.__name__, target.arch)


if __name__ == "__main__":
    interpret() if sys.argv[1] == "interpret" else compile_for_gpus()
