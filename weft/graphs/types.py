"""The element types of ONNX, and what describes a value of a graph.

In: numbers and names out of a file. Out: `OnnxDataType`, `OnnxValue`, `OpSetId`, `Domain`.
Sits below `model`. Invariant: every type of ONNX has a weft dtype that holds its values exactly,
but strings (NumPy objects) and complex numbers (refused); the types of less than a byte are held
in the next wider one, and a `Narrow` rule says how a value becomes one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple

from weft.dtype import DType, dtypes
from weft.errors import DataError, UnsupportedError


class OnnxDataType(IntEnum):
    """Element types, numbered as in the files."""

    UNDEFINED = 0
    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    UINT16 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    STRING = 8
    BOOL = 9
    FLOAT16 = 10
    DOUBLE = 11
    UINT32 = 12
    UINT64 = 13
    COMPLEX64 = 14
    COMPLEX128 = 15
    BFLOAT16 = 16
    FLOAT8E4M3FN = 17
    FLOAT8E4M3FNUZ = 18
    FLOAT8E5M2 = 19
    FLOAT8E5M2FNUZ = 20
    UINT4 = 21
    INT4 = 22
    FLOAT4E2M1 = 23
    FLOAT8E8M0 = 24
    UINT2 = 25
    INT2 = 26

    def to_dtype(self) -> DType:
        """The weft dtype that holds values of this type.

        >>> OnnxDataType.INT4.to_dtype().name
        'int8'
        """
        found = _HELD_IN.get(self)
        if found is None:
            raise UnsupportedError(
                f"tensors of {self.name} have no weft dtype; real numbers, integers and bools do"
            )
        return found

    @property
    def bits(self) -> int:
        """Bits that one element takes in a file."""
        return _BITS.get(self, self.to_dtype().itemsize * 8)


def data_type(number: int, where: str) -> OnnxDataType:
    """The type of a number out of a file."""
    try:
        return OnnxDataType(number)
    except ValueError:
        raise DataError(f"{where}: {number} is no element type; ONNX has 1 to 26") from None


_HELD_IN = {
    OnnxDataType.FLOAT: dtypes.float32,
    OnnxDataType.UINT8: dtypes.uint8,
    OnnxDataType.INT8: dtypes.int8,
    OnnxDataType.UINT16: dtypes.uint16,
    OnnxDataType.INT16: dtypes.int16,
    OnnxDataType.INT32: dtypes.int32,
    OnnxDataType.INT64: dtypes.int64,
    OnnxDataType.BOOL: dtypes.bool,
    OnnxDataType.FLOAT16: dtypes.float16,
    OnnxDataType.DOUBLE: dtypes.float64,
    OnnxDataType.UINT32: dtypes.uint32,
    OnnxDataType.UINT64: dtypes.uint64,
    OnnxDataType.BFLOAT16: dtypes.bfloat16,
    OnnxDataType.FLOAT8E4M3FN: dtypes.fp8e4m3,
    OnnxDataType.FLOAT8E4M3FNUZ: dtypes.fp8e4m3fnuz,
    OnnxDataType.FLOAT8E5M2: dtypes.fp8e5m2,
    OnnxDataType.FLOAT8E5M2FNUZ: dtypes.fp8e5m2fnuz,
    OnnxDataType.UINT4: dtypes.uint8,
    OnnxDataType.INT4: dtypes.int8,
    OnnxDataType.UINT2: dtypes.uint8,
    OnnxDataType.INT2: dtypes.int8,
    OnnxDataType.FLOAT4E2M1: dtypes.float32,
    OnnxDataType.FLOAT8E8M0: dtypes.float32,
}
_BITS = {
    OnnxDataType.UINT4: 4,
    OnnxDataType.INT4: 4,
    OnnxDataType.FLOAT4E2M1: 4,
    OnnxDataType.UINT2: 2,
    OnnxDataType.INT2: 2,
    OnnxDataType.FLOAT8E8M0: 8,
}
# types that a wider dtype holds: what a value is must be remembered beside it
NARROW = frozenset(_BITS)
TYPE_OF_DTYPE = {dtype: kind for kind, dtype in _HELD_IN.items() if kind not in NARROW}


class Domain(Enum):
    """Who defines an operator."""

    ONNX = "ai.onnx"
    ONNX_ML = "ai.onnx.ml"
    ONNX_TRAINING = "ai.onnx.preview.training"
    MICROSOFT = "com.microsoft"

    @classmethod
    def from_onnx(cls, name: str | None) -> Domain:
        """The domain of a node; the empty name is ONNX's own.

        >>> Domain.from_onnx("")
        <Domain.ONNX: 'ai.onnx'>
        """
        for domain in cls:
            if domain.value == (name or "ai.onnx"):
                return domain
        known = ", ".join(domain.value for domain in cls)
        raise UnsupportedError(f"operators of the domain {name!r} are unknown; there are {known}")


class OpSetId(NamedTuple):
    """A domain and a version of its operators."""

    domain: Domain
    version: int


@dataclass(frozen=True)
class OnnxValue:
    """An input or output of a graph: its shape (text for a free size, None for an unknown rank),
    the dtype that holds it, and whether it is a sequence or optional."""

    shape: tuple[int | str, ...] | None
    dtype: DType | None
    is_optional: bool = False
    is_sequence: bool = False
    onnx_type: OnnxDataType = OnnxDataType.UNDEFINED
