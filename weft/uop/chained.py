"""Chained products: a sum of products one factor of which is made of other products, as attention.

In: a STORE of a kernel, and the fragments of a target. Out: a `Chain`: the products inside, the
reductions of whole rows of them (statistics), and the sum around. Asked by the schedule, which lets
such a kernel exist, and by the optimiser, which computes it without storing what is in between.
Invariant: what a chain says is what the kernel computes, up to the order of sums and up to where
factors of whole rows are multiplied: `sum(p[k]*r*v[k])` is `sum(p[k]*v[k])*r`, also where `p*r` was
rounded to a narrow type before.

    O[q, d] = sum(f(sum(Q[q, e]*K[k, e], e), rows of it)*V[k, d], k)
    -> products  S = sum(Q*K, e)
       statistics  m = max(x(S), k), l = sum(p(S, m), k)
       sum         O = sum(p(S, m)*V, k) / l

Expressions of a chain are over the output axes, its one `key` axis, and placeholders (NOOPs) for
products, statistics and the sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from weft.dtype import DType, dtypes
from weft.fragment import Fragment
from weft.uop.chained_powers import fused, is_minus_infinity, multiplied, scaled
from weft.uop.infer import CLOSES
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops
from weft.uop.products import Product, narrowed, product_of

Axes = tuple[UOp, ...]
_PLAIN = GroupOp.Elementwise | {Ops.LOAD, Ops.INDEX, Ops.PARAM, Ops.BUFFER, Ops.AFTER, Ops.CONST}
_KNOWN = _PLAIN | {Ops.RANGE, Ops.VARIABLE, Ops.BIND, Ops.REDUCE}


@dataclass(frozen=True)
class Inner:
    """A product inside: `left` is of rows, `right` of keys, both over `terms`."""

    node: UOp  # what stands for it
    left: UOp
    right: UOp
    terms: Axes


@dataclass(frozen=True)
class Statistic:
    """A reduction of whole rows: of a value over rows and keys."""

    node: UOp  # what stands for it
    op: Ops
    value: UOp


@dataclass(frozen=True)
class Power:
    """2**(value*scale - maximum*scale), which another maximum of a row scales by a factor."""

    node: UOp
    maximum: UOp
    scale: UOp


@dataclass(frozen=True)
class Chain:
    """A kernel of chained products."""

    fragment: int  # its number among the target's
    key: UOp
    rows: Axes
    columns: Axes
    products: tuple[Inner, ...]
    statistics: tuple[Statistic, ...]
    left: UOp | None  # the factor of rows and keys, in the fragment's dtype or in float32
    right: UOp | None  # the factor of keys and columns; None: there are statistics only
    sum: UOp  # what stands for the sum of their products
    factors: tuple[tuple[Ops, UOp], ...]  # what it is multiplied with, or divided by, row by row
    value: UOp  # what is stored
    power: Power | None = None  # what sums are made of that a maximum runs along with
    scaled: frozenset[UOp] = field(default_factory=frozenset)  # sums of powers
    # keys behind `row + last` and before `row + first` change nothing
    first: int | None = None
    last: int | None = None


def find_chain(store: UOp, fragments: Sequence[Fragment]) -> Chain | None:
    """The chain that a STORE computes, if it is one."""
    near = [u for u in store.src[1].toposort(gate=_is_no_reduce) if u.op is Ops.REDUCE]
    outer = [u for u in near if _has_reduce(u.src[0]) and len(u.src) == 2]
    if not outer:
        return None
    for number, fragment in enumerate(fragments):
        # what a lane has of a sum is what it needs of a factor, out of registers
        if fragment.in_shared or fragment.a != fragment.c:
            continue
        if fragment.a_dtype is not fragment.b_dtype:
            continue
        for main in outer:
            factors = _factors_of(main, fragment)
            if factors is not None:
                found = _Finder(store, main, factors, number, fragment).run()
                if found is not None:
                    return found
        found = _Finder(store, outer[0], None, number, fragment).run()
        if found is not None:
            return found
    return None


def _is_no_reduce(node: UOp) -> bool:
    return node.op is not Ops.REDUCE


def _factors_of(main: UOp, fragment: Fragment) -> tuple[UOp, UOp] | None:
    """Of a sum of products, the factor with products inside and the other one; None for others.

    The first may be a float32, if the fragment's dtype has the same range: two of them hold it.
    """
    if main.arg is not Ops.ADD or main.src[0].op is not Ops.MUL:
        return None
    if main.dtype is not fragment.c_dtype or not fragment.exact:
        return None
    left, right = main.src[0].src
    if _has_reduce(right):
        left, right = right, left
    if _has_reduce(right) or not _has_reduce(left):
        return None
    narrow, other = narrowed(left, fragment.a_dtype), narrowed(right, fragment.b_dtype)
    if narrow is None and left.dtype is dtypes.float32 and fragment.a_dtype is dtypes.bfloat16:
        narrow = left
    return None if narrow is None or other is None else (narrow, other)


def _has_reduce(value: UOp) -> bool:
    return any([u.op is Ops.REDUCE for u in value.toposort()])


class _Finder:
    """One kernel while it is looked at."""

    def __init__(
        self,
        store: UOp,
        main: UOp,
        factors: tuple[UOp, UOp] | None,
        number: int,
        fragment: Fragment,
    ) -> None:
        self.store = store
        self.main = main if factors is not None else None
        self.number = number
        self.fragment = fragment
        self.outputs = store.src[CLOSES[Ops.STORE] :]
        self.key = main.src[1]
        self.left: UOp | None = None
        self.right: UOp | None = None
        if factors is not None:
            self.left, self.right = factors
        self.products: dict[tuple[UOp, UOp], Inner] = {}
        self.statistics: dict[tuple[Ops, UOp], Statistic] = {}
        self.terms: dict[tuple[UOp, ...], Axes] = {}
        self.names: dict[UOp, UOp] = {}
        self.rows: Axes = ()
        self.columns: Axes = ()
        self.total = _placeholder("sum", 0, main.dtype)

    def run(self) -> Chain | None:
        if not self._find_axes() or not self._rename():
            return None
        done = self._rebuild()
        if done is None:
            return None
        # an axis that keys depend on as well is one of batches
        keyed = [product.right.ranges for product in self.products.values()]
        self.rows = tuple([a for a in self.rows if not any([a in ranges for ranges in keyed])])
        if self.left is None:
            # a reduction of a row computes its products once, not once for each output
            lefts = [product.left.ranges for product in self.products.values()]
            if not all([any([axis in ranges for ranges in lefts]) for axis in self.rows]):
                return None
        stored = done[self.store.src[1]]
        whole = None if self.left is None else done[self.left]
        whole, stored = self._with_powers(whole, stored)
        left, factors = (None, []) if whole is None else self._pulled(whole, [])
        chain = Chain(
            self.number,
            self.key,
            self.rows,
            self.columns,
            tuple(self.products.values()),
            tuple(self.statistics.values()),
            left,
            self.right,
            self.total,
            tuple(factors),
            stored,
        )
        return _with_bounds(_coupled(chain)) if self._is_whole(chain) else None

    def _find_axes(self) -> bool:
        if self.left is None or self.right is None:
            self.rows = tuple([a for a in self.outputs if a.src[0].op is Ops.CONST])
            return self.key.src[0].vmin >= 1
        left, right = self.left.ranges, self.right.ranges
        if self.key not in left or self.key not in right:
            return False
        self.columns = tuple([a for a in self.outputs if a in right and a not in left])
        self.rows = tuple([a for a in self.outputs if a in left and a not in right])
        axes = (*self.rows, *self.columns)
        return bool(self.columns) and all([axis.src[0].op is Ops.CONST for axis in axes])

    def _rename(self) -> bool:
        """One name for the keys of all reductions, and for the terms of all products."""
        self.inner: dict[UOp, Product] = {}
        for node in self.store.src[1].toposort():
            if node.op not in _KNOWN:
                return False
            if node.op is not Ops.REDUCE or node is self.main:
                continue
            if not _has_reduce(node.src[0]) and (product := product_of(node, self.fragment)):
                self.inner[node] = product
                sizes = tuple([axis.src[0] for axis in product.terms])
                if any([size.op is not Ops.CONST for size in sizes]):
                    return False
                known = self.terms.setdefault(sizes, product.terms)
                self.names.update(zip(product.terms, known, strict=True))
                continue
            axes = node.src[1:]
            if len(axes) != 1 or axes[0].src[0] is not self.key.src[0] or self.key in node.ranges:
                return False
            self.names[axes[0]] = self.key
        return bool(self.inner)

    def _rebuild(self) -> dict[UOp, UOp] | None:
        """All expressions with placeholders; None where a product is not of rows and keys."""
        done: dict[UOp, UOp] = {}
        roots = (self.store.src[1],) if self.left is None else (self.store.src[1], self.left)
        for node in UOp.sink(*roots).toposort():
            if node in self.names:
                done[node] = self.names[node]
                continue
            src = tuple([done[s] for s in node.src])
            if node is self.main:
                done[node] = self.total
            elif node in self.inner:
                found = self._product(node, done)
                if found is None:
                    return None
                done[node] = found.node
            elif node.op is Ops.REDUCE:
                known = (node.arg, src[0])
                if known not in self.statistics:
                    mark = _placeholder("statistic", len(self.statistics), node.dtype)
                    self.statistics[known] = Statistic(mark, *known)
                done[node] = self.statistics[known].node
            else:
                done[node] = node if src == node.src else node.with_src(src)
        return done

    def _product(self, node: UOp, done: dict[UOp, UOp]) -> Inner | None:
        product = self.inner[node]
        left, right = [_renamed(side, self.names) for side in (product.left, product.right)]
        if self.key in left.ranges:
            left, right = right, left
        if self.key in left.ranges or self.key not in right.ranges:
            return None
        if not (left.ranges | right.ranges).isdisjoint(self.columns):
            return None
        if (left, right) not in self.products:
            terms = tuple([self.names[axis] for axis in product.terms])
            mark = _placeholder("product", len(self.products), node.dtype)
            self.products[left, right] = Inner(mark, left, right, terms)
        return self.products[left, right]

    def _with_powers(self, left: UOp | None, stored: UOp) -> tuple[UOp | None, UOp]:
        """The left factor and what is stored, with fewer operations; statistics as well."""
        products = {product.node for product in self.products.values()}
        marks = list(self.statistics.values())
        values = [multiplied(s.value, products) for s in marks]
        maxima = [(s, v) for s, v in zip(marks, values, strict=True) if s.op is Ops.MAX]
        maximum: tuple[UOp, UOp, float] | None = None
        if len(maxima) == 1:
            (statistic, value) = maxima[0]
            maximum = (statistic.node, value, scaled(value)[1])
        values = [fused(value, products, maximum) for value in values]
        self.statistics = {}
        for statistic, value in zip(marks, values, strict=True):
            if maximum is not None and statistic.node is maximum[0]:
                value = scaled(value)[0]
            found = Statistic(statistic.node, statistic.op, value)
            self.statistics[statistic.op, value] = found
        if left is not None:
            left = fused(multiplied(left, products), products, maximum)
        return left, fused(stored, products, maximum)

    def _pulled(
        self, value: UOp, factors: list[tuple[Ops, UOp]]
    ) -> tuple[UOp, list[tuple[Ops, UOp]]]:
        """A factor of keys without what is the same for a whole row and known only at its end."""
        marks = {s.node for s in self.statistics.values() if s.op is not Ops.MAX}
        if not marks or marks.isdisjoint(value.toposort()):
            return value, factors
        if value.op is Ops.CAST and dtypes.is_float(value.src[0].dtype):
            inner, factors = self._pulled(value.src[0], factors)
            return value.with_src((inner,)), factors
        if value.op is Ops.WHERE and _is_zero(value.src[2]):
            inner, factors = self._pulled(value.src[1], factors)
            return value.with_src((value.src[0], inner, value.src[2])), factors
        if value.op in (Ops.MUL, Ops.FDIV):
            left, right = value.src
            if value.op is Ops.MUL and self._is_of_row(left):
                left, right = right, left
            if self._is_of_row(right):
                return self._pulled(left, [*factors, (value.op, right)])
            inner, factors = self._pulled(left, factors)
            return value.with_src((inner, right)), factors
        return value, factors

    def _is_of_row(self, value: UOp) -> bool:
        marks = {product.node for product in self.products.values()}
        return self.key not in value.ranges and marks.isdisjoint(value.toposort())

    def _is_whole(self, chain: Chain) -> bool:
        """Whether sums that a maximum runs along with are of its powers, and nothing else is."""
        maxima = [s for s in chain.statistics if s.op is Ops.MAX]
        sums = [s for s in chain.statistics if s.op is Ops.ADD]
        if len(maxima) > 1 or len(maxima) + len(sums) != len(chain.statistics):
            return False
        marks = {s.node for s in chain.statistics}
        inside = {s.node for s in sums}
        left = [] if chain.left is None else [chain.left]
        for value in (*left, *[s.value for s in sums]):
            if not inside.isdisjoint(value.toposort()):
                return False
        if not maxima:
            return True
        if not marks.isdisjoint(maxima[0].value.toposort()):
            return False
        degrees = [_degree(v, maxima[0]) for v in (*left, *[s.value for s in sums])]
        return all([degree in (0, 1) for degree in degrees])


def _placeholder(name: str, number: int, dtype: DType) -> UOp:
    return UOp(Ops.NOOP, dtype, (), (name, number))


def _renamed(value: UOp, names: dict[UOp, UOp]) -> UOp:
    return value.substitute({axis: new for axis, new in names.items() if axis is not new})


def _is_zero(value: UOp) -> bool:
    return value.op is Ops.CONST and value.arg == 0


def _power_of(node: UOp, maximum: Statistic) -> Power | None:
    """2**(x*c - max(x)*c)."""
    if node.op is not Ops.EXP2 or node.src[0].op is not Ops.MULADD:
        return None
    value, scale, start = node.src[0].src
    if value is not maximum.value or start is not -(maximum.node * scale):
        return None
    return Power(node, maximum.node, scale)


def _degree(root: UOp, maximum: Statistic) -> int | None:
    """How often the powers of a maximum are factors of a value; None where they are something
    else."""
    degrees: dict[UOp, int | None] = {}
    for node in root.toposort():
        if node is maximum.node:
            degrees[node] = None
            continue
        found = [degrees[s] for s in node.src]
        if _power_of(node, maximum) is not None:
            degrees[node] = 1
        elif all([degree == 0 for degree in found]):
            degrees[node] = 0
        elif node.op is Ops.MUL and None not in found:
            degrees[node] = sum([degree for degree in found if degree is not None])
        elif node.op is Ops.FDIV and found[1] == 0 or node.op is Ops.NEG:
            degrees[node] = found[0]
        elif node.op is Ops.CAST and dtypes.is_float(node.dtype):
            degrees[node] = found[0]
        elif node.op is Ops.ADD and found[0] == found[1]:
            degrees[node] = found[0]
        elif node.op is Ops.WHERE and found[0] == 0:
            sides = {d for d, s in zip(found[1:], node.src[1:], strict=True) if not _is_zero(s)}
            degrees[node] = sides.pop() if len(sides) == 1 else None
        else:
            degrees[node] = None
    return degrees[root]


def _coupled(chain: Chain) -> Chain:
    """With the powers that sums are made of, if a maximum runs along with them."""
    maximum = next((s for s in chain.statistics if s.op is Ops.MAX), None)
    if maximum is None:
        return chain
    values = {s.node: s.value for s in chain.statistics if s.op is Ops.ADD}
    if chain.left is not None:
        values[chain.sum] = chain.left
    scaled = [node for node, value in values.items() if _degree(value, maximum) == 1]
    powers = [
        power
        for node in scaled
        for u in values[node].toposort()
        if (power := _power_of(u, maximum)) is not None
    ]
    if len({power.scale for power in powers}) != 1:
        # of a maximum alone
        return chain
    return replace(chain, power=powers[0], scaled=frozenset(scaled))


# ------------------------------------------------------------ keys that change nothing
def _with_bounds(chain: Chain) -> Chain:
    """Keys that a mask takes out of every sum and every maximum, by their distance from the row."""
    if len(chain.rows) != 1:
        return chain
    row, first, last = chain.rows[0], None, None
    for node in UOp.sink(*[value for _, value in _values_of(chain)]).toposort():
        if node.op is not Ops.WHERE or node.src[0].op is not Ops.CMPLT:
            continue
        for place, masked in ((1, True), (2, False)):
            if not is_minus_infinity(node.src[place]):
                continue
            left, right = [_axis_and_offset(side) for side in node.src[0].src]
            if left is None or right is None or not _vanishes(chain, node):
                continue
            # masked: left < right; else where not, so that right < left + 1
            if not masked:
                left, right = right, (left[0], left[1] + 1)
            if left[0] is row and right[0] is chain.key:
                bound = left[1] - right[1]
                last = bound if last is None else min(last, bound)
            elif left[0] is chain.key and right[0] is row:
                bound = right[1] - left[1]
                first = bound if first is None else max(first, bound)
    return replace(chain, first=first, last=last)


def _values_of(chain: Chain) -> list[tuple[Ops, UOp]]:
    """All that is reduced over keys, and by what."""
    found = [(s.op, s.value) for s in chain.statistics]
    return found if chain.left is None else [(Ops.ADD, chain.left), *found]


def _vanishes(chain: Chain, mask: UOp) -> bool:
    """Whether minus infinity in the place of a value makes zeros of all terms."""
    low, zero = {mask}, set()
    values = _values_of(chain)
    for node in UOp.sink(*[value for _, value in values]).toposort():
        if node is mask:
            continue
        if node.op is Ops.ADD and any([s in low for s in node.src]):
            low.add(node)
        elif node.op is Ops.MUL and node.src[0] in low and _is_positive(node.src[1]):
            low.add(node)
        elif node.op is Ops.MULADD and node.src[0] in low and _is_positive(node.src[1]):
            low.add(node)
        elif node.op is Ops.EXP2 and node.src[0] in low:
            zero.add(node)
        elif node.op is Ops.MUL and any([s in zero for s in node.src]):
            zero.add(node)
        elif node.op in (Ops.FDIV, Ops.NEG) and node.src[0] in zero:
            zero.add(node)
        elif node.op is Ops.CAST and dtypes.is_float(node.dtype):
            for some in (low, zero):
                if node.src[0] in some:
                    some.add(node)
        elif node.op is Ops.WHERE and all([s in zero or _is_zero(s) for s in node.src[1:]]):
            zero.add(node)
    return all([value in (low if op is Ops.MAX else zero) for op, value in values])


def _is_positive(node: UOp) -> bool:
    return node.op is Ops.CONST and 0 < node.arg < math.inf


def _axis_and_offset(node: UOp) -> tuple[UOp, int] | None:
    """axis + constant, perhaps converted to another integer type."""
    offset = 0
    while node.op in (Ops.CAST, Ops.ADD):
        if node.op is Ops.CAST:
            if node.dtype.kind != "int" and node.dtype not in dtypes.weaks:
                return None
            node = node.src[0]
        elif node.src[1].op is Ops.CONST:
            offset += int(node.src[1].arg)
            node = node.src[0]
        else:
            return None
    return (node, offset) if node.op is Ops.RANGE else None
