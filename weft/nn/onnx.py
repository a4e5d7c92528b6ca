"""Models in ONNX files: `OnnxRunner`.

In: a path, bytes or a Tensor. Out: outputs by name. A facade over `weft.graphs`, with the names
that programs import from here.

>>> from weft.nn.onnx import onnx_ops
>>> sorted(version.version for version in onnx_ops["Softmax"])
[1, 13]
"""

from __future__ import annotations

from weft.graphs.model import OnnxPBParser
from weft.graphs.run import OnnxRunner
from weft.graphs.table import onnx_ops
from weft.graphs.types import Domain, OnnxDataType, OnnxValue, OpSetId

__all__ = [
    "Domain",
    "OnnxDataType",
    "OnnxPBParser",
    "OnnxRunner",
    "OnnxValue",
    "OpSetId",
    "onnx_ops",
]
