"""Tiling: how a product of matrices is cut, as the arguments of an action.

In: which axes are rows and columns, how many warps and fragments there are along each. Out:
`Tiling`, and the action (OptOps.TC) that says the same. Between `gpu_tiles.py`, which chooses, and
`fragments.py`, which cuts.
Invariant: `Tiling.from_opt(tiling.opt(axis)) == tiling`; numbers that make no sense are refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.codegen.opt.opt import AxisName, Opt, OptError, OptOps


@dataclass(frozen=True)
class Tiling:
    """How a product is cut: which axes, and how many warps and fragments along each."""

    fragment: int  # its number among the target's
    rows: tuple[int | tuple[int, ...], ...]  # output axes of the first operand, flattened
    columns: tuple[int | tuple[int, ...], ...]  # and of the second
    row_warps: int
    column_warps: int
    row_fragments: int  # of each warp
    column_fragments: int
    term_fragments: int  # that are staged at once
    depth: int  # blocks of terms that are in memory

    def opt(self, axis: AxisName) -> Opt:
        """The action, on an axis of the reduction."""
        warps = (self.fragment, self.row_warps, self.column_warps)
        fragments = (self.row_fragments, self.column_fragments, self.term_fragments, self.depth)
        return Opt(OptOps.TC, axis, (*warps, *fragments, len(self.rows), *self.rows, *self.columns))

    @staticmethod
    def from_opt(opt: Opt) -> Tiling:
        """The inverse of `opt`."""
        arg = opt.arg
        if not isinstance(arg, tuple) or len(arg) < 10:
            raise OptError(f"TC needs a tiling: seven numbers and the axes, found {arg!r}")
        numbers = [n for n in arg[:8] if isinstance(n, int)]
        if len(numbers) < 8 or min(numbers) < 0 or min(numbers[1:]) < 1:
            raise OptError(f"TC needs positive numbers of warps and fragments, found {arg[:8]}")
        fragment, *sizes, count = numbers
        names = arg[8:]
        if not 0 < count < len(names):
            raise OptError(f"TC needs axes of rows and of columns, found {names}")
        return Tiling(fragment, names[:count], names[count:], *sizes)
