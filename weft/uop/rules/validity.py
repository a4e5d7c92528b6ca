"""Where an index is valid: conditions around loads, and indices under their conditions.

What comes in: a kernel's WHERE, INDEX, LOAD, STORE, SINK. What goes out: loads that touch no memory
where their value is not wanted, indices simplified by what their validity says, no dead stores.
Where it sits: last of the simplification rules; only kernels have these nodes.
The one invariant: an index is changed only where its validity is false; a LOAD of an invalid index
is 0 and a STORE to one writes nothing, so what the index is there does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakKeyDictionary

from weft.dtype import dtypes
from weft.uop.matcher import PatternMatcher
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.pattern import UPat
from weft.uop.rules import polynomial as poly
from weft.uop.rules.compare import Interval, intervals_of
from weft.uop.rules.shaped import clauses, conjunction, is_number, logical_not
from weft.uop.rules.simplify import simplify

# what an index must contain for its validity to be of help
_REDUCIBLE = frozenset({Ops.IDIV, Ops.MOD, Ops.MAX, Ops.WHERE, Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE})
_CLAUSES_AT_MOST = 16


# ------------------------------------------------------------ conditional loads
def fold_where_on_load(x: UOp, y: UOp, z: UOp, node: UOp) -> UOp | None:
    """where(c, LOAD(INDEX(buf, i)), 0) -> LOAD(INDEX(buf, i, c)), also with a cast between

    where(c, 0, LOAD(...)) -> the same with not c
    where(c, LOAD(INDEX(buf, i)), a) -> where(c, LOAD(INDEX(buf, i, c)), a)
    """
    if node.dtype.count > 1:
        return None
    load = _load_below(y)
    if load is not None:
        guarded = _guard(load, clauses(x))
        if guarded is not None:
            return _finish(node, y, z, load, guarded, first=True)
    load = _load_below(z)
    if load is not None:
        guarded = _guard(load, [logical_not(part) for part in clauses(x, Ops.OR)])
        if guarded is not None:
            return _finish(node, z, y, load, guarded, first=False)
    return None


def _load_below(value: UOp) -> UOp | None:
    """The LOAD that a value is, or is a cast of."""
    if value.op in (Ops.CAST, Ops.BITCAST):
        value = value.src[0]
    if value.op is Ops.LOAD and len(value.src) == 1 and value.src[0].op is Ops.INDEX:
        return value if value.dtype.count == 1 else None
    return None


def _guard(load: UOp, parts: list[UOp]) -> tuple[UOp, list[UOp]] | None:
    """The load under those conditions that may move into it, and the ones that may not.

    A condition on axes that the address does not have stays outside, or the load could no longer
    leave their loops; so does a condition that is loaded itself: it would only delay the load.
    """
    index = load.src[0]
    moved: list[UOp] = []
    stay: list[UOp] = []
    for part in parts:
        may_move = part.ranges <= index.src[1].ranges and not _loads(part)
        (moved if may_move else stay).append(part)
    known = clauses(index.src[2]) if index.src[2:] else []
    if all([part in known for part in moved]):
        return None
    before = simplify_valid(simplify(index.src[2])) if index.src[2:] else None
    valid = simplify_valid(simplify(conjunction(*index.src[2:], *moved)))
    if before is not None and set(clauses(before)) == set(clauses(valid)):
        # the index knows it already, in other words
        return None
    return load.with_src((index.with_src((*index.src[:2], valid)),)), stay


def _loads(condition: UOp) -> bool:
    return any(node.op is Ops.LOAD for node in condition.toposort())


def _finish(
    node: UOp, value: UOp, other: UOp, load: UOp, guarded: tuple[UOp, list[UOp]], first: bool
) -> UOp:
    masked, stay = guarded
    value = masked if value is load else value.with_src((masked,))
    if not is_number(other, 0):
        return node.with_src((node.src[0], value, other) if first else (node.src[0], other, value))
    if not stay:
        return value
    return node.with_src((conjunction(*stay), value, other))


def fold_load(node: UOp, x: UOp) -> UOp | None:
    """LOAD(INDEX(buf, i, False)) -> 0"""
    if len(x.src) < 3 or x.src[2].op is not Ops.CONST or x.src[2].arg:
        return None
    return UOp.const(node.dtype, 0)


def drop_dead_stores(node: UOp) -> UOp | None:
    """SINK(STORE(INDEX(buf, i, False), v), ...) -> SINK(...)"""
    kept = tuple([s for s in node.src if not _is_dead(s)])
    return None if len(kept) == len(node.src) else node.with_src(kept)


def _is_dead(store: UOp) -> bool:
    if store.op is not Ops.STORE or store.src[0].op is not Ops.INDEX:
        return False
    valid = store.src[0].src[2:]
    return bool(valid) and valid[0].op is Ops.CONST and not valid[0].arg


# ------------------------------------------------------------ indices under their validity
def simplify_index(node: UOp) -> UOp | None:
    """INDEX(buf, r % 3, r < 3) -> INDEX(buf, r, r < 3); clauses that others imply are dropped"""
    memory, idx, valid = node.src
    if valid.op is Ops.CONST:
        return node.with_src((memory, idx)) if valid.arg else None
    if valid.dtype.count > 1 or idx.dtype.count > 1:
        return None
    new_valid = simplify_valid(valid)
    new_idx = simplify_index_under(new_valid, idx)
    if new_valid is valid and new_idx is idx:
        return None
    return node.with_src((memory, new_idx, new_valid))


def simplify_valid(valid: UOp) -> UOp:
    """r0 < 2 & r0*4 + r1 < 10 -> r0 < 2, where r1 < 4"""
    parts = clauses(valid)
    if not 1 < len(parts) <= _CLAUSES_AT_MOST:
        return valid
    if valid in _simple_valids:
        found = _simple_valids[valid]
        return valid if found is None else found
    result = _drop_implied(valid, parts)
    _simple_valids[valid] = None if result is valid else result
    return result


# what a validity becomes; None stands for itself, or the entry would keep its own key alive
_simple_valids: WeakKeyDictionary[UOp, UOp | None] = WeakKeyDictionary()


def _drop_implied(valid: UOp, parts: list[UOp]) -> UOp:
    kept = list(parts)
    # the longer ones first: they are the ones that the others may imply
    for part in sorted(parts, key=lambda clause: -len(clause.toposort())):
        others = [clause for clause in kept if clause is not part]
        if not others:
            break
        found = _under(intervals_of(conjunction(*others)), part)
        if found.op is Ops.CONST:
            if not found.arg:
                return found
            kept = others
    return valid if len(kept) == len(parts) else conjunction(*kept)


def simplify_index_under(valid: UOp, idx: UOp) -> UOp:
    """The index, as plain as it can be where `valid` is true."""
    nodes = idx.toposort()
    if not any(u.op in _REDUCIBLE for u in nodes) or any(u.op is Ops.LOAD for u in nodes):
        # a load inside the index happens whether it is valid or not: it must not change
        return idx
    return _under(intervals_of(valid), idx)


def _under(facts: dict[UOp, Interval], expression: UOp) -> UOp:
    """The expression simplified by one fact after another."""
    for number, fact in enumerate(facts.values()):
        expression = _under_one(fact, expression, number)
        if expression.op is Ops.CONST:
            break
    return expression


def _under_one(fact: Interval, expression: UOp, number: int) -> UOp:
    """The expression, where value is known to lie in an interval.

    One atom of the value, t = value - rest, is replaced by `narrow - rest`, with a variable
    `narrow` that has the interval's bounds; what comes out holds there, and the value is put back.
    """
    value = fact.value
    low, high = max(fact.low, value.vmin), min(fact.high, value.vmax)
    if value.dtype is not dtypes.weakint or low > high or (low, high) == value._min_max:
        return expression
    terms = poly.polynomial(value)
    inside = expression.toposort()
    fixed = _inside_sizes(inside)
    pivots = [t for t, k in terms.items() if len(t) == 1 and abs(k) == 1 and t[0] in inside]
    pivots = [t for t in pivots if t[0] not in fixed]
    if not pivots:
        return expression
    # the innermost atom: the others stay what they are, with their own bounds
    pivot = max(pivots, key=poly.monomial_key)
    if not _is_reduced_over(pivot[0], inside):
        return expression
    sign = terms.pop(pivot)
    narrow = UOp.variable(f"narrow {number}", int(low), int(high))
    instead = poly.build(poly.add({(narrow,): sign}, terms, -sign), value.dtype)
    simple = simplify(expression.substitute({pivot[0]: instead}))
    result = simplify(simple.substitute({narrow: value}))
    return result if _cost(result) < _cost(expression) else expression


def _is_reduced_over(atom: UOp, nodes: Iterable[UOp]) -> bool:
    """Whether something that bounds can fold is made of the atom; `nodes` are sources first. In
    plain sums and products it would only be put back."""
    above = {atom}
    for node in nodes:
        if not above.isdisjoint(node.src):
            if node.op in _REDUCIBLE:
                return True
            above.add(node)
    return False


def _inside_sizes(nodes: Iterable[UOp]) -> set[UOp]:
    """What sizes of axes are made of: replaced there, an axis would become another one."""
    found: set[UOp] = set()
    for node in nodes:
        if node.op is Ops.RANGE and node.src[0].op is not Ops.CONST:
            found.update(node.src[0].toposort())
    return found


def _cost(expression: UOp) -> tuple[int, int]:
    """Divisions count first."""
    nodes = expression.toposort()
    return sum(u.op in _REDUCIBLE for u in nodes), len(nodes)


# ------------------------------------------------------------ axes
def fold_unit_range(x: UOp) -> UOp | None:
    """RANGE(1) -> 0"""
    return UOp.const(dtypes.weakint, 0) if x.arg == 1 else None


def drop_unit_ranges(node: UOp) -> UOp | None:
    """What is left of axes of size 1 among the axes of STORE, REDUCE and STAGE"""
    first = 2 if node.op is Ops.STORE else 1
    axes = tuple([axis for axis in node.src[first:] if axis.op is not Ops.CONST])
    if len(axes) == len(node.src) - first:
        return None
    if not axes and node.op is Ops.REDUCE:
        return node.src[0]
    return node.with_src((*node.src[:first], *axes))


_x, _y, _z = UPat.var("x"), UPat.var("y"), UPat.var("z")

validity = PatternMatcher(
    [
        (UPat(Ops.WHERE, src=(_x, _y, _z), name="node"), fold_where_on_load),
        (UPat(Ops.INDEX, src=(UPat(), UPat(), UPat()), name="node"), simplify_index),
        (UPat(Ops.LOAD, src=(UPat(Ops.INDEX, name="x"),), name="node"), fold_load),
        (UPat(Ops.SINK, name="node"), drop_dead_stores),
    ]
)

unit_ranges = PatternMatcher(
    [
        (UPat(Ops.RANGE, src=(UPat.cvar("x"),)), fold_unit_range),
        (UPat((Ops.STORE, Ops.REDUCE, Ops.STAGE), name="node"), drop_unit_ranges),
    ]
)
