"""Tensor: what a user holds. A storage (its Cell) and the movement ops that make a view of it.

In: Python numbers, lists, arrays, files; other tensors. Out: UOp graphs, and values when asked.
Sits at the top of the compiler: everything below is reached through `realize`.
Invariant: building an expression never computes. `tensor.uop` is its cell's value with the moves
applied, so assigning to a storage is seen by every view of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Self

from weft.device import Device
from weft.dtype import (
    DType,
    dtypes,
    least_upper_dtype,
    strong_dtype,
    to_dtype,
    weak_dtype,
)
from weft.engine import host, realize as engine
from weft.engine.cell import Cell
from weft.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from weft.helpers import prod
from weft.knobs import Context
