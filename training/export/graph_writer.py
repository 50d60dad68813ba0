"""ONNX graphs written operator by operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET = 20
"""Version of ONNX's operators in every graph that is written here."""

IR_VERSION = 10
"""IR version that torch's exporter writes."""


class GraphWriter:
    """ONNX graph under construction: operators and the constants that they read, in the order of their addition.

    Args:
        prefix: Text before the names of outputs and constants, which tells a graph within a graph from the outer one.
    """

    def __init__(self, prefix: str = "") -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._prefix = prefix

    def add(self, operator: str, *inputs: str | np.ndarray | np.generic, **attributes: Any) -> str:
        """Append an operator over earlier outputs and constants, and return the name of its output."""
        return self.add_many(operator, 1, *inputs, **attributes)[0]

    def add_many(
        self, operator: str, outputs: int, *inputs: str | np.ndarray | np.generic, **attributes: Any
    ) -> list[str]:
        """Append an operator with several outputs, and return their names."""
        names = [f"{self._prefix}{operator}_{len(self.nodes)}" + (f"_{n}" if n else "") for n in range(outputs)]
        sources = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        self.nodes.append(helper.make_node(operator, sources, names, **attributes))
        return names

    def constant(self, value: np.ndarray | np.generic) -> str:
        """Append a constant, and return its name."""
        name = f"{self._prefix}constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name))
        return name

    def cast(self, value: str, dtype: Any) -> str:
        """Append a conversion to a NumPy type."""
        return self.add("Cast", value, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
