"""`__array_namespace_info__`: what the namespace can do, for programs that ask.

In: nothing. Out: an object with the standard's questions.
Sits beside the families of the namespace.
"""

from __future__ import annotations

from typing import Any

from weft.array_api import types
from weft.array_api.types import AnyDType
from weft.device import Device
from weft.dtype import dtypes


class Info:
    """The answers."""

    def capabilities(self) -> dict[str, Any]:
        """Shapes may depend on values; an array has at most so many axes."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> str:
        """Where arrays are made."""
        return str(Device.DEFAULT)

    def devices(self) -> list[str]:
        """Where arrays may be."""
        return [str(Device.DEFAULT)]

    def default_dtypes(self, *, device: Any = None) -> dict[str, AnyDType]:
        """The dtypes of what is made without one."""
        return {
            "real floating": types.default_float(),
            "complex floating": types.default_complex(),
            "integral": dtypes.int64,
            "indexing": types.INDEX,
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, AnyDType]:
        """The dtypes of a kind, or all."""
        return {
            name: dtype
            for name, dtype in types.ALL.items()
            if kind is None or types.is_kind(dtype, kind)
        }


def __array_namespace_info__() -> Info:
    """What the namespace can do.

    >>> __array_namespace_info__().default_dtypes()["indexing"]
    dtypes.long
    """
    return Info()
