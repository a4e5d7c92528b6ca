"""UPat, a pattern of nodes: the left-hand side of a rewrite rule.

What comes in: ops, dtypes, sources, args, names, or an expression over other patterns, such as
`UPat.var("x") * 1`. What goes out: an immutable description, which `compile_pattern.py` compiles.
Where it sits: between the node and the matcher.
The one invariant: one name means one node, wherever it stands in the pattern.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from types import EllipsisType
from typing import Any, TypeAlias

from weft.dtype import ConstFloat, DType
from weft.errors import ArgumentError
from weft.mixin.arith import ArithMixin
from weft.uop.match_pattern import matches
from weft.uop.opset import OPSET, Ops
from weft.uop.spelling import ABSENT, Spelling

OpsLike: TypeAlias = Ops | Collection[Ops] | None
DTypeLike: TypeAlias = DType | Collection[DType] | None
Location: TypeAlias = tuple[str, int]

# Frames of these files are not where a pattern was written.
_OWN_FILES = {__file__, sys.modules[ArithMixin.__module__].__file__}


def caller_location() -> Location:
    """File and line of the nearest caller that is not one of the pattern-building files."""
    frame = sys._getframe(2)
    while frame.f_code.co_filename in _OWN_FILES and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


class UPat(ArithMixin):
    """What a node must look like.

    - `op`: the op, or a collection of them; None is any.
    - `dtype`: the dtype, or a collection of them; a scalar dtype also stands for vectors of it.
    - `src`: a tuple is matched place by place, a list in any order, a single pattern stands for
      every source. A tuple's length must be the node's; `allow_any_len` lets more follow.
    - `arg`: equal to the node's (None is any); numbers by value and sign of zero.
    - `tag`: equal to the node's; `...` (the default) is any, None is "untagged".
    - `name`: the rule gets the node under that name. A name that comes again is the same node.

    Operators build patterns as they build nodes, numbers become constants matched by value, and
    commutative ops match in both orders.
    """

    __slots__ = (
        "allow_any_len",
        "alternatives",
        "arg",
        "dtype",
        "early_reject",
        "is_repeat",
        "is_unordered",
        "location",
        "name",
        "op",
        "src",
        "tag",
    )
    op: frozenset[Ops] | None
    dtype: frozenset[DType] | None
    src: tuple[UPat, ...] | None
    alternatives: tuple[UPat, ...]

    def __init__(
        self,
        op: OpsLike | Spelling = None,
        dtype: DTypeLike = None,
        src: tuple[UPat, ...] | list[UPat] | UPat | None = None,
        arg: Any = None,
        name: str | None = None,
        allow_any_len: bool = False,
        custom_early_reject: Collection[Ops] | None = None,
        location: Location | None = None,
        is_any: bool = False,
        tag: Any = ...,
    ) -> None:
        if isinstance(op, Spelling):
            op, src, tag = _spelled(op, src, tag)
        self.op = frozenset((op,)) if isinstance(op, Ops) else _frozen(op)
        self.dtype = frozenset((dtype,)) if isinstance(dtype, DType) else _frozen(dtype)
        self.is_repeat = isinstance(src, UPat)
        # one pattern repeated in a list is the same in any order
        self.is_unordered = isinstance(src, list) and any(s is not src[0] for s in src)
        self.src = (src,) if isinstance(src, UPat) else None if src is None else tuple(src)
        self.arg = arg
        self.name = name
        self.allow_any_len = allow_any_len
        self.tag: Any | EllipsisType = tag
        self.alternatives = ()
        self.location = location or caller_location()
        if is_any:
            self.alternatives, self.src = self.src or (), None
        # tinygrad's name for the ops that sources must have; the matcher's own index needs no hint
        only = [source.op for source in self.src or () if isinstance(source, UPat)]
        sure = [op for ops in only if ops is not None and len(ops) == 1 for op in ops]
        self.early_reject = frozenset(sure if custom_early_reject is None else custom_early_reject)
        self._check()

    def _check(self) -> None:
        for source in self.src or ():
            if not isinstance(source, UPat):
                raise ArgumentError(f"the sources of a pattern are UPats, found {source!r}")
        name = self.name
        if name is not None and (name == "ctx" or not name.isidentifier()):
            raise ArgumentError(
                f"{name!r} cannot be a pattern's name: a rule takes names as its parameters, "
                "and ctx is the rewrite's own"
            )
        if self.allow_any_len and (self.is_unordered or self.is_repeat):
            raise ArgumentError(
                "allow_any_len goes with a tuple of sources: they are the first ones"
            )

    # ------------------------------------------------------------ leaves
    @staticmethod
    def var(name: str | None = None, dtype: DTypeLike = None) -> UPat:
        """Any node."""
        return UPat(dtype=dtype, name=name)

    @staticmethod
    def cvar(
        name: str | None = None, dtype: DTypeLike = None, vec: bool = False, arg: Any = None
    ) -> UPat:
        """Any constant; with `vec` also a vector of constants: a VECTORIZE, its lanes the src."""
        scalar = UPat(Ops.CONST, dtype, name=name, arg=arg)
        if not vec:
            return scalar
        return UPat.any(scalar, UPat(Ops.VECTORIZE, dtype, UPat(Ops.CONST), name=name))

    @staticmethod
    def const(dtype: Any, value: Any = None) -> UPat:
        """The constant of that value; 0 is not -0.0, and NaN is NaN. Either order will do."""
        if isinstance(dtype, (int, float)):
            dtype, value = value, dtype
        exact = ConstFloat(value) if isinstance(value, float) else value
        return UPat(Ops.CONST, dtype, arg=exact)

    @staticmethod
    def any(*patterns: UPat) -> UPat:
        """What one of the patterns matches; they are tried in order."""
        if not patterns:
            raise ArgumentError("UPat.any needs at least one pattern")
        either = UPat()
        either.alternatives = patterns
        return either

    # ------------------------------------------------------------ changing and wrapping
    def named(self, name: str) -> UPat:
        """The same pattern under a name."""
        named = self._copy()
        named.name = name
        named._check()
        return named

    def _copy(self) -> UPat:
        other = object.__new__(UPat)
        for slot in UPat.__slots__:
            setattr(other, slot, getattr(self, slot))
        return other

    def or_casted(self, name: str | None = None) -> UPat:
        """This, or a CAST of it; `name` is the whole, cast included."""
        either = UPat.any(self, UPat(Ops.CAST, src=(self,)))
        return either if name is None else either.named(name)

    def or_after(self, name: str | None = None) -> UPat:
        """This, or AFTER of it; `name` is the whole."""
        either = UPat.any(self, UPat(Ops.AFTER, src=(self,), allow_any_len=True))
        return either if name is None else either.named(name)

    def f(self, op: OpsLike, *others: UPat, **fields: Any) -> UPat:
        """A node of that op whose first source this is; `fields` as of the constructor."""
        return UPat(op, src=(self, *others), **fields)

    def cast(self, dtype: DTypeLike = None, **fields: Any) -> UPat:
        """A CAST of this."""
        return self.f(Ops.CAST, dtype=dtype, **fields)

    def bitcast(self, dtype: DTypeLike = None, **fields: Any) -> UPat:
        """A BITCAST of this."""
        return self.f(Ops.BITCAST, dtype=dtype, **fields)

    def index(self, idx: UPat, valid: UPat | None = None, **fields: Any) -> UPat:
        """An element of this memory. Without `valid` the INDEX has none."""
        return self.f(Ops.INDEX, idx, *(() if valid is None else (valid,)), **fields)

    def load(self, *others: UPat, **fields: Any) -> UPat:
        """A LOAD from this place."""
        return self.f(Ops.LOAD, *others, **fields)

    def store(self, *others: UPat, **fields: Any) -> UPat:
        """A STORE to this place; ranges may follow the value."""
        return self.f(Ops.STORE, *others, **{"allow_any_len": True, **fields})

    def reduce(self, *ranges: UPat, **fields: Any) -> UPat:
        """A REDUCE of this value; without `ranges` over any number of them."""
        return self.f(Ops.REDUCE, *ranges, **{"allow_any_len": not ranges, **fields})

    def gep(self, lanes: int | tuple[int, ...] | None = None, **fields: Any) -> UPat:
        """Lanes of this vector."""
        lanes = (lanes,) if isinstance(lanes, int) else lanes
        return self.f(Ops.GEP, arg=lanes, **fields)

    def sink(self, *others: UPat, **fields: Any) -> UPat:
        """A SINK of this."""
        return self.f(Ops.SINK, *others, **fields)

    def after(self, *others: UPat, **fields: Any) -> UPat:
        """This once effects happened; without `others` after any."""
        return self.f(Ops.AFTER, *others, **{"allow_any_len": not others, **fields})

    def contiguous(self, **fields: Any) -> UPat:
        """This stored in row-major order."""
        return self.f(Ops.CONTIGUOUS, **fields)

    # ------------------------------------------------------------ expressions
    def const_like(self, b: Any, dtype: DType | None = None) -> UPat:
        """A number as a pattern; a pattern stays."""
        return b if isinstance(b, UPat) else UPat.const(dtype, b)

    def alu(self, op: Ops, *src: Any) -> UPat:
        """One elementwise op over this and others; both orders if it commutes."""
        operands = (self, *[self.const_like(s) for s in src])
        return UPat(op, src=list(operands) if OPSET[op].commutative else operands)

    def where(self, x: Any, y: Any) -> UPat:
        """x where this is true, else y."""
        return self.alu(Ops.WHERE, x, y)

    # Rules written for tinygrad know these in other forms: each pattern stands for all of them.
    def mul(self, x: Any, reverse: bool = False) -> UPat:
        """`x * y`, and of -1 also NEG, the form that negation has here."""
        if isinstance(x, (int, float)) and x == -1:
            return UPat.any(self.alu(Ops.MUL, x), self.alu(Ops.NEG))
        return super().mul(x, reverse)

    def ne(self, x: Any) -> UPat:
        """`x != y`, and of True also `x == False`, the form that `not` has here."""
        if x is True:
            return UPat.any(self.alu(Ops.CMPNE, x), self.alu(Ops.CMPEQ, False))
        return super().ne(x)

    def reciprocal(self) -> UPat:
        """`1 / x`."""
        return UPat.const(None, 1.0).alu(Ops.FDIV, self)

    def sqrt(self) -> UPat:
        """SQRT of this."""
        return self.alu(Ops.SQRT)

    def exp2(self) -> UPat:
        """EXP2 of this."""
        return self.alu(Ops.EXP2)

    def log2(self) -> UPat:
        """LOG2 of this."""
        return self.alu(Ops.LOG2)

    def sin(self) -> UPat:
        """SIN of this."""
        return self.alu(Ops.SIN)

    def trunc(self) -> UPat:
        """TRUNC of this."""
        return self.alu(Ops.TRUNC)

    # A pattern does not know whether it stands for bools, ints or floats, so each of these is the
    # one form named here; write the other forms with `UPat.any`.
    def neg(self) -> UPat:
        """NEG, of a number."""
        return self.alu(Ops.NEG)

    def bitwise_not(self) -> UPat:
        """`x ^ -1`, of an int; of a bool it is `logical_not`."""
        return self.alu(Ops.XOR, -1)

    def _at_least(self, x: Any) -> UPat:
        """`(x < y) == False`, of ints."""
        return self.alu(Ops.CMPLT, x).logical_not()

    # ------------------------------------------------------------ looking at it
    def match(self, uop: Any, store: dict[str, Any]) -> list[dict[str, Any]]:
        """The names bound by each way in which the node matches, beside those of `store`."""
        return matches(self, uop, store)

    def names(self) -> tuple[set[str], set[str]]:
        """The names that every match binds, and the ones that only some do (inside `any`)."""
        always: set[str] = set() if self.name is None else {self.name}
        sometimes: set[str] = set()
        for source in self.src or ():
            below, maybe = source.names()
            always |= below
            sometimes |= maybe
        if self.alternatives:
            found = [pattern.names() for pattern in self.alternatives]
            always |= set.intersection(*[below for below, _ in found])
            sometimes = sometimes.union(*[below | maybe for below, maybe in found])
        return always, sometimes - always

    def __ne__(self, other: object) -> Any:
        """The comparison of values as a pattern: patterns themselves are told apart by `is`."""
        return self.ne(other)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        if self.alternatives:
            text = f"UPat.any({', '.join(map(repr, self.alternatives))})"
            return text if self.name is None else f"{text}.named({self.name!r})"
        fields = [
            ("op", _listed(self.op, "Ops.")),
            ("dtype", _listed(self.dtype, "dtypes.")),
            ("src", self._src_text()),
            ("arg", None if self.arg is None else repr(self.arg)),
            ("name", None if self.name is None else repr(self.name)),
            ("allow_any_len", "True" if self.allow_any_len else None),
            ("tag", None if self.tag is ... else repr(self.tag)),
        ]
        return f"UPat({', '.join(f'{key}={text}' for key, text in fields if text is not None)})"

    def _src_text(self) -> str | None:
        if self.src is None:
            return None
        inner = ", ".join(map(repr, self.src))
        if self.is_repeat:
            return inner
        return f"[{inner}]" if self.is_unordered else f"({inner}{',' * (len(self.src) == 1)})"


def _spelled(op: Spelling, src: Any, tag: Any) -> tuple[OpsLike, Any, Any]:
    """An op of tinygrad's in the form that weft's graphs have."""
    if op.name in ABSENT:
        return (), src, tag
    if op.name in ("CDIV", "CMOD"):
        return (Ops.IDIV if op.name == "CDIV" else Ops.MOD), src, "raw"
    parts = tuple(src) if isinstance(src, (tuple, list)) else (UPat(), UPat())
    if op.name == "SUB":
        return Ops.ADD, (parts[0], parts[1].neg()), tag
    return Ops.FDIV, (UPat.const(None, 1.0), parts[0]), tag


def _frozen(items: Collection[Any] | None) -> frozenset[Any] | None:
    return None if items is None else frozenset(items)


def _listed(items: frozenset[Any] | None, prefix: str) -> str | None:
    if items is None:
        return None
    names = sorted(f"{prefix}{item.name}" for item in items)
    return names[0] if len(names) == 1 else f"({', '.join(names)})"
