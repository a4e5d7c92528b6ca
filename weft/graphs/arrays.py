"""What users give as inputs, made into values of a graph; and values described in words.

In: arrays, Tensors, lists, numbers. Out: Tensors, arrays of strings, lists of those, None.
Sits below `run`. Invariant: an input has the type that the model says; nothing is cast silently
but Python's own numbers.
"""

from __future__ import annotations

from typing import Any

import numpy

from weft.dtype import dtypes, from_numpy_dtype
from weft.errors import DataError, DTypeError, ShapeError, WeftError
from weft.graphs.types import OnnxDataType, OnnxValue
from weft.tensor import Tensor

# NumPy's extensions for types of less than a byte, and the types that hold their values
_WIDER = {
    "int4": "int8",
    "uint4": "uint8",
    "int2": "int8",
    "uint2": "uint8",
    "float4_e2m1fn": "float32",
    "float8_e8m0fnu": "float32",
}


def as_input(name: str, value: Any, wanted: OnnxValue, sizes: dict[str, tuple[int, str]]) -> Any:
    """One input of a model, checked against what the model says of it."""
    if value is None and wanted.is_optional:
        return None
    if wanted.is_sequence:
        if not isinstance(value, (list, tuple)):
            raise DataError(
                f"the input {name!r} is a sequence; give a list, found {describe(value)}"
            )
        return [as_value(name, one, wanted) for one in value]
    found = as_value(name, value, wanted)
    _check_shape(name, found.shape, wanted, sizes)
    return found


def as_value(name: str, value: Any, wanted: OnnxValue) -> Any:
    """A Tensor of the wanted type, or an array of strings."""
    if wanted.onnx_type is OnnxDataType.STRING:
        return numpy.array(value, dtype=object)
    dtype = wanted.dtype
    if isinstance(value, (bool, int, float, list, tuple)):
        return Tensor(
            numpy.array(value) if isinstance(value, (list, tuple)) else value, dtype=dtype
        )
    if not isinstance(value, Tensor):
        try:
            value = _tensor_of(value)
        except WeftError as error:
            raise DataError(f"the input {name!r}: {error}") from error
    if value.dtype in dtypes.weaks and dtype is not None:
        value = value.cast(dtype)
    if dtype is not None and value.dtype is not dtype:
        raise DTypeError(
            f"the input {name!r} is of {value.dtype.name}, but the model takes {dtype.name}: "
            "cast it"
        )
    if value.device is None and value.numel():
        # a constant is part of the expression that uses it: in memory it is an input like others
        return Tensor(value.numpy(), dtype=value.dtype)
    return value.realize()


def _tensor_of(value: Any) -> Tensor:
    if hasattr(value, "dtype") and hasattr(value, "__array__") and not hasattr(value, "__dlpack__"):
        value = numpy.asarray(value)
    if isinstance(value, (numpy.ndarray, numpy.generic)):
        array = numpy.asarray(value)
        array = array.astype(_WIDER.get(array.dtype.name, array.dtype), copy=False)
        if array.size == 0:
            return Tensor.empty(*array.shape, dtype=from_numpy_dtype(array.dtype))
        return Tensor(numpy.ascontiguousarray(array).reshape(array.shape))
    return Tensor(value)


def _check_shape(
    name: str, shape: tuple[Any, ...], wanted: OnnxValue, sizes: dict[str, tuple[int, str]]
) -> None:
    if wanted.shape is None:
        return
    if len(shape) != len(wanted.shape):
        raise ShapeError(
            f"the input {name!r} has {len(shape)} axes, but the model takes {len(wanted.shape)}: "
            f"({', '.join(str(s or '?') for s in wanted.shape)})"
        )
    for axis, (found, size) in enumerate(zip(shape, wanted.shape, strict=True)):
        if isinstance(size, int) and found != size:
            raise ShapeError(
                f"the input {name!r} has size {found} on axis {axis}, but the model takes {size}"
            )
        # exporters call sizes that they do not know "?", each of them
        if isinstance(size, str) and size not in ("", "?"):
            known = sizes.setdefault(size, (found, name))
            if known[0] != found:
                raise ShapeError(
                    f"the size {size!r} is {known[0]} in the input {known[1]!r} and {found} in "
                    f"{name!r}, axis {axis}"
                )


def as_text(kind: OnnxDataType) -> str:
    """The name of a type as users know it."""
    return kind.name.lower()


def describe(value: Any) -> str:
    """A value in a few words, for messages."""
    if isinstance(value, Tensor):
        return f"{value.dtype.name}[{', '.join(str(size) for size in value.shape)}]"
    if isinstance(value, numpy.ndarray):
        texts = value.dtype == object and all(isinstance(v, str) for v in value.reshape(-1))
        kind = "string" if texts else value.dtype.name
        few = f" {value.tolist()}" if value.size <= 8 else ""
        return f"{kind}[{', '.join(str(size) for size in value.shape)}]{few:.100}"
    if isinstance(value, list):
        return f"a sequence of {len(value)}"
    return "nothing" if value is None else f"a {type(value).__name__}"
