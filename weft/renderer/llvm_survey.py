"""What the LLVM renderers want to know of a whole program before it writes the first line.

In: a linear program. Out: the registers that loops change, and how addresses are best written.
Sits below `llvm_base` and `llvmir`, its users.
Invariant: how an address is written decides how long LLVM looks at it, never what it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft.dtype import DType
from weft.errors import CompileError
from weft.machine import Target
from weft.uop.node import UOp
from weft.uop.opset import Ops

# accesses of one loop from which on their addresses are better not looked into
_MANY, _MANY_GUARDED = 24, 8
_REGION_OPS = frozenset({Ops.RANGE, Ops.END, Ops.IF, Ops.ENDIF, Ops.ACC_SET})


# bytes of a line of the caches, and of vectors whose stores may go past them
LINE_BYTES = 64
_STREAMED_BYTES = (16, 32, 64)


def streamed_stores(uops: Sequence[UOp], target: Target) -> set[UOp]:
    """Stores of whole vectors to memory that is larger than the caches and is not read here.

    Through the caches each line would be read before it is written, and push out what is of use.
    Every vector starts at a multiple of its size, counted from where the memory begins.
    """
    if not target.has_streaming:
        return set()
    read = {u.src[0].src[0] for u in uops if u.op is Ops.LOAD and u.src[0].op is Ops.INDEX}
    found: set[UOp] = set()
    for uop in uops:
        if uop.op is not Ops.STORE:
            continue
        place, dtype = uop.src[0], uop.src[1].dtype
        memory = place.src[0]
        if memory.op is not Ops.PARAM or memory in read or len(place.src) > 2:
            continue
        if memory.arg.size * memory.dtype.itemsize <= target.l3 or place.src[1].dtype.count > 1:
            continue
        if dtype.itemsize in _STREAMED_BYTES and _is_multiple(place.src[1], dtype.count):
            found.add(uop)
    return found


def factor_of(index: UOp, most: int) -> int:
    """The greatest power of two up to `most` that an index is known to be a multiple of."""
    while most > 1 and not _is_multiple(index, most):
        most //= 2
    return most


def _is_multiple(index: UOp, of: int) -> bool:
    """Whether an index is known to be a multiple of a power of two."""
    pending = [(index, of)]
    while pending:
        node, number = pending.pop()
        if number == 1 or (node.op is Ops.CONST and node.arg % number == 0):
            continue
        if node.op is Ops.ADD:
            pending += [(source, number) for source in node.src]
        elif node.op is Ops.CAST:
            pending.append((node.src[0], number))
        elif node.op is Ops.MUL and node.src[1].op is Ops.CONST:
            pending.append((node.src[0], number // math.gcd(number, node.src[1].arg)))
        elif node.op is Ops.SHL and node.src[1].op is Ops.CONST:
            pending.append((node.src[0], max(1, number >> node.src[1].arg)))
        else:
            return False
    return True


def registers_changed(uops: Sequence[UOp]) -> dict[UOp, list[UOp]]:
    """For each RANGE and IF, the ACCs that are set between it and its end, in order."""
    found: dict[UOp, dict[UOp, None]] = {}
    open_regions: list[UOp] = []
    for uop in [u for u in uops if u.op in _REGION_OPS]:
        if uop.op in (Ops.RANGE, Ops.IF):
            found[uop] = {}
            open_regions.append(uop)
        elif uop.op in (Ops.END, Ops.ENDIF):
            if not open_regions or open_regions[-1] is not uop.src[0]:
                raise CompileError(f"{uop.op.name} does not close what was opened last")
            inner = found[open_regions.pop()]
            if open_regions:
                found[open_regions[-1]].update(inner)
        elif uop.op is Ops.ACC_SET and open_regions:
            found[open_regions[-1]][uop.src[0]] = None
    return {uop: list(registers) for uop, registers in found.items()}


def offsets(uops: Sequence[UOp], index_dtypes: tuple[DType, ...]) -> set[UOp]:
    """Sums with a constant that only addresses use, and which are written as part of those."""
    found: set[UOp] = set()
    others: set[UOp] = set()
    for uop in uops:
        if uop.op is Ops.INDEX:
            idx = uop.src[1]
            if idx.op is Ops.ADD and idx.src[1].op is Ops.CONST and idx.dtype in index_dtypes:
                found.add(idx)
            others.update(uop.src[2:])
        elif uop.dtype.kind != "float" or uop.op in (Ops.CAST, Ops.BITCAST):
            # what else gives floats has no use for an index
            others.update(uop.src)
    return found - others


def crowded(uops: Sequence[UOp]) -> set[UOp]:
    """The places of loops with many accesses, or in which some are guarded.

    LLVM takes all addresses apart to see how they change from round to round, and for a guarded one
    it also chooses between two: the more there are, the longer each of them takes.
    """
    found: set[UOp] = set()
    open_regions: list[list[UOp]] = [[]]
    for uop in uops:
        if uop.op is Ops.INDEX:
            open_regions[-1].append(uop)
        elif uop.op in (Ops.RANGE, Ops.IF):
            open_regions.append([])
        elif uop.op in (Ops.END, Ops.ENDIF):
            places = open_regions.pop()
            guarded = [place for place in places if len(place.src) > 2]
            if len(places) >= _MANY or len(guarded) >= _MANY_GUARDED:
                found.update(places)
    return found
