"""Bind axes: GLOBAL, LOCAL and WARP axes become hardware indices.

In: an expanded kernel. Out: the same kernel as one thread runs it: such axes are SPECIALs (gidx0 is
the group's place along x, lidx0 the thread's in its group), and the threads of a group fill shared
memory together. Sits after expand, because only then it is known what is left to fill, and before
lower_index, because SPECIALs are indices.
Invariant: each element of an output or a stage is written by one thread. Guards of whole nests
depend on the group alone, so that all its threads reach the same barriers.

    STORE(p[i*32 + j], v, i GLOBAL, j LOCAL)  ->  STORE(p[gidx0*32 + lidx0], v)
    STORE(LOCAL[f], w, f: 64)                 ->  STORE(LOCAL[k*32 + lidx0], w, k: 2)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.codegen.loops import FreshAxes, own_axes
from weft.codegen.open_grid import nests_of
from weft.codegen.share_reduces import THREAD_KINDS
from weft.dtype import dtypes
from weft.errors import CompileError
from weft.helpers import prod
from weft.renderer.base import Target
from weft.uop.args import AxisType
from weft.uop.node import UOp, sint
from weft.uop.opset import Ops

_BOUND = (AxisType.GLOBAL, *THREAD_KINDS)
_NO_LIMIT = (1 << 31) - 1


def bind_axes(sink: UOp, target: Target) -> UOp:
    """The kernel as one thread of the launch runs it."""
    order = sink.toposort()
    if not any([u.op is Ops.RANGE and u.arg.kind in _BOUND for u in order]):
        return sink
    nests = [_nest(stores) for stores in nests_of(sink)]
    grid = _number([nest.groups for nest in nests], "gidx", target.grid_limits)
    threads = _count_threads(sink, target)
    group = _number([nest.threads for nest in nests], "lidx", target.group_limits, threads)
    return _Binding(sink, nests, grid, group).run()


# ------------------------------------------------------------ axes -> hardware indices
@dataclass(frozen=True)
class _Nest:
    """Stores that share axes, and the axes of theirs that run at once."""

    stores: list[UOp]
    groups: tuple[UOp, ...]
    threads: tuple[UOp, ...]


def _nest(stores: list[UOp]) -> _Nest:
    axes = own_axes(stores[0])
    groups = [axis for axis in axes if axis.arg.kind is AxisType.GLOBAL]
    threads = [axis for axis in axes if axis.arg.kind is AxisType.LOCAL]
    # the lanes of a warp are neighbours among the threads of a group
    threads += [axis for axis in axes if axis.arg.kind is AxisType.WARP]
    return _Nest(stores, tuple(groups), tuple(threads))


@dataclass
class _Numbers:
    """Hardware indices of one kind: what the groups, or the threads of a group, are numbered by."""

    flat: UOp
    total: sint
    values: dict[UOp, UOp] = field(default_factory=dict)  # of the axes
    is_exact: bool = True  # there are no more than `total`


def _number(
    tuples: list[tuple[UOp, ...]], name: str, limits: tuple[int, ...], least: int = 1
) -> _Numbers:
    """The axes of all nests in terms of at most three indices."""
    shapes = {tuple([axis.src[0] for axis in axes]) for axes in tuples if axes}
    total = _largest([least, *[_product(shape) for shape in shapes]])
    if len(shapes) == 1:
        (shape,) = shapes
        direct = _direct(shape, name, limits) if _product(shape) == total else None
        if direct is not None:
            for axes in tuples:
                direct.values.update(zip(axes, _values(direct), strict=True) if axes else ())
            return direct
    numbers = _flat(total, name, limits)
    for axes in tuples:
        count = _product(tuple([axis.src[0] for axis in axes]))
        # threads without work of their own repeat that of others, and store nothing
        repeats = name == "lidx" and count != total
        flat = numbers.flat % count if repeats else numbers.flat
        numbers.values.update(zip(axes, _digits(flat, axes), strict=True))
    return numbers


def _direct(shape: tuple[UOp, ...], name: str, limits: tuple[int, ...]) -> _Numbers | None:
    """An index per axis, the innermost along x, if there are few enough and they fit."""
    places = range(len(shape) - 1, -1, -1)
    pairs = list(zip(places, shape, strict=True))
    if len(shape) > 3 or any([size.vmax > _limit(limits, place) for place, size in pairs]):
        return None
    flat = UOp.const(dtypes.weakint, 0)
    values: dict[UOp, UOp] = {}
    for place, size in pairs:
        special = _special(f"{name}{place}", size)
        values[UOp.range(size, place)] = special
        flat = flat * size + special
    return _Numbers(flat.simplify(), _product(shape), values)


def _values(numbers: _Numbers) -> list[UOp]:
    return []


def _flat(total: sint, name: str, limits: tuple[int, ...]) -> _Numbers:
    """One number, along x; along y too where x is too short."""
    size = total if isinstance(total, UOp) else UOp.const(dtypes.weakint, total)
    most = _limit(limits, 0)
    if size.vmax <= most:
        return _Numbers(_special(f"{name}0", size), total)
    width = most
    if isinstance(total, int):
        # a divisor leaves nobody without work
        width = next((n for n in range(most, most // 2, -1) if total % n == 0), most)
    rows = ((size + (width - 1)) // width).simplify()
    if rows.vmax > _limit(limits, 1):
        raise CompileError(f"a launch of {size.render()} groups is more than the target can number")
    across = _special(f"{name}0", UOp.const(dtypes.weakint, width))
    flat = _special(f"{name}1", rows) * width + across
    return _Numbers(flat, total, is_exact=isinstance(total, int) and total % width == 0)
