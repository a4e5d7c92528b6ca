"""Which elements the rounds of a loop nest touch: proofs that no two of them meet.

In: the STOREs and INDEXes of kernels. Out: whether every round of a STORE writes to an element of
its own, and whether two accesses can never be of one element.
Sits above the simplifier; the schedule and the optimiser of targets with many threads ask it.
Invariant: True is a proof, for all values of variables. False only says that none was found.

An index is read as a number of mixed radix: a sum of digits, each with a step beyond what all the
smaller ones reach together. Digits are axes, or parts `(x // a) % b` of an expression x that names
the axes in turn.

    r0*12 + r1*4 + r2, r1: 3, r2: 4        apart
    (r0 // 5)*8 + r0 % 5                   apart: r0 // 5 and r0 % 5 give r0
    r0*n + r1, r1: n                       apart, whatever n is
    r0 // 2, or r0 + r1                    not
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from weft.dtype import dtypes
from weft.uop.args import DISTINCT, OVERLAPPING, Unordered
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.rules.polynomial import Polynomial, polynomial
from weft.uop.rules.shaped import clauses


def writes_apart(store: UOp) -> bool:
    """Whether rounds of a kernel's STORE write to different elements, or the same to one, or join
    what they write in any order.

    Its arg or tag may say so already; else the index must differ in all of them.
    """
    if isinstance(store.arg, Unordered) or store.tag in (DISTINCT, OVERLAPPING):
        return True
    return names_each_round(store.src[0], store.src[2:])


def names_each_round(place: UOp, axes: Iterable[UOp]) -> bool:
    """Whether an INDEX is of another element in all rounds of loops over axes in which it is valid.

    A condition that an axis is less than a number makes it as short as that.
    """
    open_axes = {axis for axis in axes if axis.vmax > 0}
    return open_axes <= named_axes(place, open_axes)


def named_axes(place: UOp, axes: set[UOp]) -> set[UOp]:
    """The axes that an INDEX tells: in rounds that differ in them it is of different elements.

    p1[r0]*8 + r1, r1: 8 tells r1, whatever is in p1.
    """
    index, *valid = place.src[1:]
    shorter = _shortened(valid)
    # what is known once the index is: bases of digits, and at last the axes
    pending, named = [index.simplify()] if axes else [], set[UOp]()
    while pending:
        for base in _digits(polynomial(pending.pop()), axes, shorter):
            if base.op is Ops.RANGE:
                named.add(base)
            else:
                pending.append(base)
    return named


def _shortened(valid: Iterable[UOp]) -> dict[UOp, int]:
    """The sizes that axes are below in rounds that count."""
    found: dict[UOp, int] = {}
    for condition in valid:
        for part in clauses(condition):
            if part.op is Ops.CMPLT and part.src[0].op is Ops.RANGE and _is_number(part.src[1]):
                found[part.src[0]] = int(part.src[1].arg)
    return found


def _digits(terms: Polynomial, axes: set[UOp], shorter: Mapping[UOp, int]) -> list[UOp]:
    """What a sum of digits tells: axes, and expressions whose parts are its digits.

    Nothing if it is no such sum.
    """
    steps: dict[UOp, UOp] = {}
    for term, factor in terms.items():
        moving = [atom for atom in term if not atom.ranges.isdisjoint(axes)]
        if not moving:
            continue
        if len(moving) > 1 or any([atom.ranges for atom in term if atom is not moving[0]]):
            return []
        step = UOp.const(dtypes.weakint, factor)
        for atom in term:
            step = step if atom is moving[0] else step * atom
        known = steps.get(moving[0])
        steps[moving[0]] = step if known is None else known + step
    return _bases(steps) if _are_apart(steps, shorter) else []


def _are_apart(steps: Mapping[UOp, UOp], shorter: Mapping[UOp, int]) -> bool:
    """Whether the step of each atom is more than what all those with smaller steps reach."""
    sized: list[tuple[UOp, UOp]] = []
    for atom, step in steps.items():
        size = step.simplify()
        if size.vmax < 0:
            size = (size * -1).simplify()
        if size.vmin <= 0:
            return False
        sized.append((size, atom))
    reach = UOp.const(dtypes.weakint, 0)
    for step, atom in sorted(sized, key=lambda pair: (pair[0].vmax, pair[0].vmin)):
        if (step - reach).simplify().vmin <= 0:
            return False
        reach = reach + step * _extent(atom, shorter)
    return True


def _extent(atom: UOp, shorter: Mapping[UOp, int]) -> UOp | int:
    """By how much an atom varies at most."""
    if atom in shorter:
        return min(shorter[atom], int(atom.vmax) + 1) - 1
    if atom.op is Ops.RANGE:
        return atom.src[0] - 1
    return int(atom.vmax - atom.vmin)


def _bases(atoms: Iterable[UOp]) -> list[UOp]:
    """What atoms name: themselves if they are axes, else what they are all digits of."""
    found: list[UOp] = []
    parts: dict[UOp, list[tuple[int, int | None]]] = {}
    for atom in atoms:
        if atom.op is Ops.RANGE:
            found.append(atom)
            continue
        part = _part_of(atom)
        if part is not None:
            base, start, size = part
            parts.setdefault(base, []).append((start, size))
    for base, places in parts.items():
        if base.vmin >= 0 and _are_all_places(places, int(base.vmax)):
            found.append(base)
    return found


def _part_of(atom: UOp) -> tuple[UOp, int, int | None] | None:
    """(x, a, b) of an atom (x // a) % b; b is None where nothing is taken off above."""
    size: int | None = None
    if atom.op is Ops.MOD and _is_number(atom.src[1]):
        atom, size = atom.src[0], int(atom.src[1].arg)
    start = 1
    if atom.op is Ops.IDIV and _is_number(atom.src[1]):
        atom, start = atom.src[0], int(atom.src[1].arg)
    return None if start == 1 and size is None else (atom, start, size)


def _is_number(node: UOp) -> bool:
    return node.op is Ops.CONST and node.arg > 0


def _are_all_places(places: list[tuple[int, int | None]], most: int) -> bool:
    """Whether parts (x // a) % b follow each other from 1 on to beyond the greatest x."""
    reached = 1
    for start, size in sorted(places, key=lambda place: place[0]):
        if start != reached:
            return False
        if size is None:
            return True
        reached = start * size
    return reached > most


# ------------------------------------------------------------ two accesses
def never_meet(left: UOp, right: UOp) -> bool:
    """Whether two INDEXes of one memory are of different elements, in whatever rounds.

    One ends before the other begins; or both are so many times n, and what is left over differs:

        r0 and r1 + 8, r0: 8           r0*2 and r1*2 + 1          r0*7 + r1, r1: 6 and r2*7 + 6
    """
    if left.src[1].vmax < right.src[1].vmin or right.src[1].vmax < left.src[1].vmin:
        return True
    sums = [(polynomial(p.src[1].simplify()), _shortened(p.src[2:])) for p in (left, right)]
    steps = {abs(step) for terms, _ in sums for term, step in terms.items() if term}
    return any([_differ_by_rest(sums, n) for n in {0, *steps} if n != 1])


def _differ_by_rest(sums: list[tuple[Polynomial, dict[UOp, int]]], n: int) -> bool:
    """Whether the terms that are no multiples of n (all of them for 0) lie apart, modulo n."""
    bounds = [_rest_bounds(terms, shorter, n) for terms, shorter in sums]
    (low, high), (other_low, other_high) = bounds
    if n == 0:
        return high < other_low or other_high < low
    if high - low >= n or other_high - other_low >= n:
        return False
    # the multiples of n that bring the second as near as it can be, from either side
    first = -(-(low - other_high) // n) * n
    return not other_low + first <= high


def _rest_bounds(terms: Polynomial, shorter: Mapping[UOp, int], n: int) -> tuple[int, int]:
    low = high = 0
    for term, step in terms.items():
        if not term or (n and step % n == 0):
            low, high = low + (0 if term else step), high + (0 if term else step)
            continue
        product = [int(step), int(step)]
        for atom in term:
            bounds = (int(atom.vmin), min(int(atom.vmax), shorter.get(atom, atom.vmax + 1) - 1))
            corners = [x * y for x in product for y in bounds]
            product = [min(corners), max(corners)]
        low, high = low + product[0], high + product[1]
    return low, high
