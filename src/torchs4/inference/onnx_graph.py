"""An ONNX graph, written node by node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from torchs4.inference.onnx_package import onnx

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The first set of operators with GELU, and the file format that came with it.
_OPERATORS, _FILE_FORMAT = 20, 10


class Graph:
    """Inputs, constants, nodes and outputs. What a node gives is known by a name, which other nodes take.

    prefix: of all names, for a graph that stands inside another one.
    """

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._public: dict[str, str] = {}

    def add_input(self, name: str, dtype: np.dtype[Any], shape: Sequence[int | str]) -> str:
        """A tensor that comes from outside; an axis with a name may be of any size."""
        name = self._prefix + name
        self._inputs.append(_value(name, dtype, shape))
        return name

    def add_output(self, name: str, source: str, dtype: np.dtype[Any], shape: Sequence[int | str]) -> None:
        """Give what a node makes to the outside, under this name."""
        name = self._prefix + name
        self._public[source] = name
        self._outputs.append(_value(name, dtype, shape))

    def constant(self, values: Tensor | Sequence[int], dtype: np.dtype[Any] | None = None) -> str:
        """Numbers that never change: real ones as float32, whole ones as int64, unless a type is given."""
        array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.array(values)
        if dtype is None:
            dtype = np.dtype(np.float32 if array.dtype.kind == "f" else np.int64)
        name = f"{self._prefix}constant_{len(self._constants)}"
        self._constants.append(onnx.numpy_helper.from_array(np.array(array, dtype, order="C"), name))
        return name

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """What an operator makes of its inputs."""
        return self.nodes(operator, *inputs, outputs=1, **attributes)[0]

    def nodes(self, operator: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """The several things that an operator makes of its inputs."""
        names = [f"{self._prefix}{operator.lower()}_{len(self._nodes)}_{index}" for index in range(outputs)]
        self._nodes.append(onnx.helper.make_node(operator, list(inputs), names, **attributes))
        return names

    def cast(self, x: str, dtype: np.dtype[Any]) -> str:
        """The same numbers in another type."""
        return self.node("Cast", x, to=onnx.helper.np_dtype_to_tensor_dtype(dtype))

    def zeros(self, like: str, dtype: np.dtype[Any], shape: Sequence[int]) -> str:
        """Zeros of that shape for each of the examples that another tensor holds."""
        batch = self.node("Slice", self.node("Shape", like), self.constant([0]), self.constant([1]))
        sizes = self.node("Concat", batch, self.constant(list(shape)), axis=0)
        zero = onnx.numpy_helper.from_array(np.zeros(1, dtype))
        return self.node("ConstantOfShape", sizes, value=zero)

    def loop_body(self, name: str) -> Any:
        """The graph of a step, as an operator that repeats it wants it: states first, what comes in last."""
        return self._made(name, [*self._inputs[1:], self._inputs[0]], [*self._outputs[1:], self._outputs[0]])

    def written(self, name: str, notes: Mapping[str, str] | None = None) -> bytes:
        """The graph as a file's content, checked by ONNX's own rules, with notes as its metadata."""
        graph = self._made(name, self._inputs, self._outputs)
        model = onnx.helper.make_model(
            graph,
            opset_imports=[onnx.helper.make_opsetid("", _OPERATORS)],
            ir_version=_FILE_FORMAT,
            producer_name="torchs4",
        )
        onnx.helper.set_model_props(model, dict(notes or {}))
        onnx.checker.check_model(model, full_check=True)
        content: bytes = model.SerializeToString()
        return content

    def _made(self, name: str, inputs: list[Any], outputs: list[Any]) -> Any:
        for node in self._nodes:
            node.input[:] = [self._public.get(source, source) for source in node.input]
            node.output[:] = [self._public.get(source, source) for source in node.output]
        return onnx.helper.make_graph(self._nodes, name, inputs, outputs, self._constants)


def _value(name: str, dtype: np.dtype[Any], shape: Sequence[int | str]) -> Any:
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(dtype), shape)
