"""GGUF by the names that users of tinygrad's `llm` package know.

In: a path, Tensor or bytes; blocks of bytes. Out: values and tensors. A facade of `nn.formats`.
"""

from __future__ import annotations

from weft.errors import DataError
from weft.helpers import prod
from weft.nn.formats.dequantise import FORMATS, PlainFormat
from weft.nn.formats.gguf import gguf_load
from weft.tensor import Tensor

__all__ = ["ggml_data_to_tensor", "gguf_load"]


def ggml_data_to_tensor(t: Tensor, n: int, ggml_type: int) -> Tensor:
    """The first `n` values of bytes in a format of ggml.

    >>> ggml_data_to_tensor(Tensor([0, 0, 128, 63], dtype="uint8"), 1, 0).tolist()
    [1.0]
    """
    layout = FORMATS.get(ggml_type)
    if layout is None:
        raise DataError(f"the type {ggml_type} of ggml; read are {sorted(FORMATS)}")
    if isinstance(layout, PlainFormat):
        return t[: n * layout.dtype.itemsize].bitcast(layout.dtype)
    if n % layout.count or prod(t.shape) * layout.count < n * layout.nbytes:
        raise DataError(
            f"{n} values of {layout.name}: blocks have {layout.count} values in {layout.nbytes} "
            f"bytes, and there are {prod(t.shape)} bytes"
        )
    blocks = t[: n // layout.count * layout.nbytes].reshape(-1, layout.nbytes)
    return layout.dequantise(blocks).reshape(n)
