"""Which operators PyTorch takes apart before weft sees them.

In: PyTorch's table of decompositions to core ATen. Out: that table without what weft lowers better
whole. Sits beside `backend`.
Invariant: an operator that has a row of its own in the table of lowerings is not taken apart,
unless it is named in `TAKEN_APART`.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, get_decompositions

from weft.torch.table import TABLE

# lowered for whoever keeps them, but as good in parts
TAKEN_APART: frozenset[str] = frozenset()
# what core ATen keeps whole, and weft takes in parts
_MORE = (
    "grid_sampler_2d",
    "index_add",
    "index_copy",
    "addr",
    "_trilinear",
    "searchsorted",
)


@functools.cache
def decompositions() -> dict[Any, Any]:
    """The table for AOTAutograd."""
    found = dict(core_aten_decompositions())
    more = [getattr(torch.ops.aten, name) for name in _MORE if hasattr(torch.ops.aten, name)]
    for operator, function in get_decompositions(more).items():
        found.setdefault(operator, function)
    return {
        operator: function for operator, function in found.items() if not _is_kept(str(operator))
    }


def _is_kept(name: str) -> bool:
    space, _, operator = name.partition(".")
    packet = operator.partition(".")[0]
    if space != "aten" or packet in TAKEN_APART:
        return False
    return operator in TABLE or packet in TABLE
