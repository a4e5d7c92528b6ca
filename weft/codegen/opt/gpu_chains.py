"""GPU chains: which kernels are chains of products, and how they are cut.

In: a nest of a kernel, and a target that describes fragments. Out: the action that computes it as
a chain, or None. A part of the GPU heuristic.
Invariant: a choice is made by what the machine's description says (fragments, shared memory,
registers), never by what a kernel is called or by a size that someone measures.

A warp reads all keys for its rows, so more rows of a warp are fewer reads of shared memory, as long
as all that is in between stays in registers. Groups are small, so that two of them share a core:
one multiplies while the other takes powers.
"""

from __future__ import annotations

from weft.codegen.opt.axes import size_of
from weft.codegen.opt.chained import ChainTiling
from weft.codegen.opt.opt import Opt
from weft.fragment import Fragment
from weft.helpers import prod
from weft.knobs import USE_TC
from weft.machine import Target
from weft.uop.chained import Chain, find_chain
from weft.uop.node import UOp
from weft.uop.opset import Ops

# warps of a group, and blocks of keys in memory (bench.cuda, causal attention D128 on an H200,
# TFLOP/s: 4 warps 281, 8 warps 263; 3 blocks deep 213)
_WARPS, _DEPTH = 4, 2
# fragments of rows of a warp and of keys of a block, the best first (D64: 2 of rows 275, 1 of rows
# 223; 8 of keys 221)
_FRAGMENTS = ((2, 4), (1, 4), (1, 2), (1, 1))
# registers of a thread beside sums and operands: addresses, statistics, what is being computed
_OTHER_REGISTERS = 40


def plan_chain(stores: list[UOp], target: Target) -> Opt | None:
    """The action for the nest of these stores."""
    if not target.fragments or not USE_TC or len(stores) != 1:
        return None
    if sum(u.op is Ops.REDUCE for u in stores[0].toposort()) < 2:
        return None
    chain = find_chain(stores[0], target.fragments)
    if chain is None:
        return None
    fragment = target.fragments[chain.fragment]
    rows = prod(size_of(axis) for axis in chain.rows)
    for row_fragments, key_fragments in _FRAGMENTS:
        warps = _WARPS
        while warps > 1 and (warps - 1) * row_fragments * fragment.m >= rows:
            warps //= 2
        if row_fragments > 1 and row_fragments * fragment.m >= rows:
            continue
        tiling = ChainTiling(warps, row_fragments, key_fragments, _DEPTH)
        if key_fragments == 1 or _fits(chain, tiling, fragment, target):
            return tiling.opt(chain.key)
    return None


def _fits(chain: Chain, tiling: ChainTiling, fragment: Fragment, target: Target) -> bool:
    """Whether a thread's share of the tiles stays in registers, and two groups on a core."""
    if _registers(chain, tiling, fragment) > target.thread_registers:
        return False
    shared = tiling.shared_bytes(chain, fragment)
    return shared <= min(target.most_shared_bytes, target.core_shared_bytes // 2)


def _registers(chain: Chain, tiling: ChainTiling, fragment: Fragment) -> int:
    """Words of a thread: sums, operands of rows, and products of a block with what is made of
    them."""
    words = 4 // fragment.a_dtype.itemsize
    columns = prod(size_of(axis) for axis in chain.columns) if chain.columns else 0
    terms = sum(prod(size_of(axis) for axis in inner.terms) for inner in chain.products)
    keys = tiling.key_fragments * fragment.n
    row = columns + terms // words + keys * len(chain.products)
    if chain.columns:
        row += keys // words
    rows = tiling.row_fragments * fragment.m
    return rows * row // fragment.lanes + _OTHER_REGISTERS
