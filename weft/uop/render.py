"""`UOp.render`: an expression as the text that programs written for tinygrad expect.

What comes in: an expression. What goes out: its text, simplified unless asked otherwise.
Where it sits: beside `text.py`, which has weft's own form (`UOp.text`), above the node.
The one invariant: the text is Python with the value of the expression. Every operator stands in
parentheses, except where precedence says the same; there is no `-`, `==`, `not`, but `x*-1` and
`(x!=y)!=True`; terms stand in tinygrad's order. What weft simplifies further is printed further.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.dtype import DType, dtypes
from weft.uop.matcher import PatternMatcher
from weft.uop.node import UOp, register_renderer
from weft.uop.opset import Ops
from weft.uop.pattern import UPat
from weft.uop.rewrite import graph_rewrite
from weft.uop.rules import polynomial as poly
from weft.uop.text import ATOM, BINARY, EXPRESSION_LIMIT, PRODUCT, expression_text

# A quotient of floats has a form of its own; what is not here keeps its parentheses everywhere.
_BINARY: dict[Ops, tuple[str, int]] = {
    op: form for op, form in BINARY.items() if op is not Ops.FDIV
}
_CLOSED = -1  # in parentheses of its own, whatever stands around

# The order of the terms of a sum.
_RANK = {
    op: rank
    for rank, op in enumerate(
        (Ops.SPECIAL, Ops.VARIABLE, Ops.BIND, Ops.PARAM, Ops.INDEX, Ops.LOAD, Ops.CAST)
        + (Ops.ADD, Ops.MUL, Ops.SHL, Ops.SHR, Ops.IDIV, Ops.MAX, Ops.MOD, Ops.CMPLT, Ops.CMPNE)
        + (Ops.XOR, Ops.OR, Ops.AND, Ops.WHERE, Ops.RANGE)
    )
}
_RANK_OF_OTHERS, _RANK_OF_NUMBERS = len(_RANK), len(_RANK) + 1
# longer expressions are printed in the order they have
_NODES_ORDERED = 500

# the text without parentheses around all of it, and how tightly it binds
Piece = tuple[str, int]


def render(uop: UOp, simplify: bool = True, pm: PatternMatcher | None = None) -> str:
    """The expression as text; `pm` rewrites it before."""
    shown = graph_rewrite(uop, pm, name="render") if pm is not None else uop
    plain = shown.simplify()
    is_canonical = plain is shown
    if simplify:
        shown = graph_rewrite(plain, _nested, name="nest divisions", walk=True)
        is_canonical = True
    writer = _Writer(shown, is_canonical, _has_negation(uop))
    pieces: dict[UOp, Piece] = {}
    for node in shown.toposort():
        if node.op is not Ops.CONST or node is shown:
            writer.write(node, pieces)
    return _closed(pieces[shown])


def _nest_division(x: UOp, c: UOp) -> UOp | None:
    """(g*10 + b)//30 -> (g + b//10)//3 and g*7//3 -> g*2 + g//3: as tinygrad writes them."""
    terms = poly.polynomial(x)
    if c.arg <= 1 or len(terms) > _TERMS_NESTED or any(k < 0 for k in terms.values()):
        return None
    return _quotient(terms, c.arg, x.dtype)


def _quotient(terms: poly.Polynomial, divisor: int, dtype: DType) -> UOp:
    """The floor of terms with positive coefficients by a positive number."""
    whole = {term: k // divisor for term, k in terms.items() if k >= divisor}
    rest = {term: k % divisor for term, k in terms.items() if k % divisor}
    parts = [poly.build(whole, dtype)] if whole else []
    factors = [k for term, k in rest.items() if term and 1 < k < divisor and divisor % k == 0]
    if factors:
        # floor(floor(x / f) / (c / f)) is floor(x / c)
        inner = poly.polynomial(_quotient(rest, max(factors), dtype))
        parts.append(_quotient(inner, divisor // max(factors), dtype))
    elif rest:
        number = UOp.const(dtype, divisor)
        parts.append(UOp(Ops.IDIV, dtype, (poly.build(rest, dtype), number)).simplify())
    total = parts[0] if parts else UOp.const(dtype, 0)
    for part in parts[1:]:
        if part.op is not Ops.CONST or part.arg != 0:
            total = UOp(Ops.ADD, dtype, (total, part))
    return total


# longer sums are printed as they are
_TERMS_NESTED = 16
_nested = PatternMatcher(
    [
        (
            UPat(Ops.IDIV, dtypes.weakint, (UPat.var("x"), UPat.cvar("c")), tag=None),
            _nest_division,
        )
    ]
)


def _has_negation(uop: UOp) -> bool:
    return any(_negated(node) is not None for node in uop.toposort())


def _negated(node: UOp) -> UOp | None:
    """x of `x == False` and `x != True`."""
    if node.op not in (Ops.CMPEQ, Ops.CMPNE) or node.src[1].op is not Ops.CONST:
        return None
    return node.src[0] if node.src[1].arg is (node.op is Ops.CMPNE) else None


def _closed(piece: Piece) -> str:
    return piece[0] if piece[1] == ATOM else f"({piece[0]})"


def _open(piece: Piece, at_least: int) -> str:
    """As an operand of what binds so tightly."""
    return piece[0] if piece[1] >= at_least else f"({piece[0]})"


class _Writer:
    """Writes one node after another; `is_canonical`: it came from the simplifier."""

    def __init__(self, root: UOp, is_canonical: bool, has_negation: bool) -> None:
        self.has_negation = is_canonical and has_negation
        self.keys: dict[UOp, Any] | None = None
        order = root.toposort()
        if is_canonical and len(order) <= _NODES_ORDERED:
            self.keys = {}
            for node in order:
                self.keys[node] = _order_key(node, self.keys)

    def write(self, node: UOp, pieces: dict[UOp, Piece]) -> None:
        for source in node.src:
            if source not in pieces:
                pieces[source] = _leaf(source)
        piece = self._piece(node, pieces)
        # shared parts are written wherever they are used: without a limit, exponentially often
        pieces[node] = piece if len(piece[0]) <= EXPRESSION_LIMIT else ("...", ATOM)

    def _piece(self, node: UOp, pieces: dict[UOp, Piece]) -> Piece:
        op = node.op
        if op in (Ops.ADD, Ops.MUL) and self.keys is not None and node.dtype is dtypes.weakint:
            return self._ordered(node, pieces, self.keys)
        if op in _BINARY:
            return _binary(op, [pieces[s] for s in node.src])
        if op is Ops.NEG:
            minus = "-1.0" if node.dtype.kind == "float" else "-1"
            return f"{_open(pieces[node.src[0]], PRODUCT)}*{minus}", PRODUCT
        negated = _negated(node)
        if negated is not None:
            return f"{_closed(pieces[negated])}!=True", _CLOSED
        if op is Ops.CMPLT and self.has_negation:
            turned = _turned(node, pieces)
            if turned is not None:
                return turned
        form = _FORMS.get(op)
        if form is None or not node.src:
            return _leaf(node)
        return form(node, [_closed(pieces[s]) for s in node.src])

    def _ordered(self, node: UOp, pieces: dict[UOp, Piece], keys: dict[UOp, Any]) -> Piece:
        """A chain of sums or products, its terms in order, the number last."""
        symbol, binding = _BINARY[node.op]
        parts = sorted(node.split_uop(node.op), key=keys.__getitem__)
        first = _open(pieces.get(parts[0]) or _leaf(parts[0]), binding)
        rest = [_open(pieces.get(part) or _leaf(part), binding + 1) for part in parts[1:]]
        return symbol.join([first, *rest]), binding


def _order_key(node: UOp, keys: dict[UOp, Any]) -> Any:
    """Kind of node first, then its name or number, then its sources."""
    if node.op is Ops.NEG:
        # x*-1
        return (_RANK[Ops.MUL], ("",), (keys[node.src[0]], (_RANK_OF_NUMBERS, (-1,), ())))
    own: tuple[Any, ...] = ("",)
    if node.op is Ops.CONST:
        return (_RANK_OF_NUMBERS, (node.arg,), ())
    if node.op is Ops.VARIABLE:
        own = (node.arg.name,)
    elif node.op is Ops.RANGE:
        own = tuple(node.arg.number)
    elif node.arg is not None:
        own = (str(node.arg),)
    rank = _RANK.get(node.op, _RANK_OF_OTHERS)
    return (rank, own, tuple([keys[s] for s in node.src]))


def _binary(op: Ops, src: list[Piece]) -> Piece:
    symbol, binding = _BINARY[op]
    return f"{_open(src[0], binding)}{symbol}{_open(src[1], binding + 1)}", binding


def _turned(node: UOp, pieces: dict[UOp, Piece]) -> Piece | None:
    """2 < x as (x < 3) != True and x < y+1 as (y < x) != True: how `>=` and `<=` are written."""
    left, right = node.src
    if left.op is Ops.CONST:
        return f"({_closed(pieces[right])}<{left.arg + 1})!=True", _CLOSED
    if right.op is Ops.ADD and right.src[1].op is Ops.CONST and right.src[1].arg == 1:
        return f"({_closed(pieces[right.src[0]])}<{_closed(pieces[left])})!=True", _CLOSED
    return None


def _leaf(node: UOp) -> Piece:
    if node.op is Ops.CONST:
        return ("Invalid" if node.is_invalid else str(node.arg)), ATOM
    if node.op is Ops.BIND:
        return str(node.src[0].arg.name), ATOM
    return expression_text(node), ATOM


def _c_name(dtype: DType) -> str:
    return str(dtype).removeprefix("dtypes.") if dtype.count == 1 else dtype.name


def _divide(node: UOp, src: list[str]) -> Piece:
    if node.src[0].op is Ops.CONST and node.src[0].arg == 1:
        return f"1/{src[1]}", _CLOSED
    return f"{src[0]}*(1/{src[1]})", PRODUCT


def _call(node: UOp, src: list[str]) -> Piece:
    return f"{node.op.name.lower()}({', '.join(src)})", ATOM


_FORMS: dict[Ops, Callable[[UOp, list[str]], Piece]] = {
    **dict.fromkeys((Ops.MAX, Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.SQRT, Ops.TRUNC, Ops.POW), _call),
    Ops.CMPLT: lambda node, src: (f"{src[0]}<{src[1]}", _CLOSED),
    Ops.CMPNE: lambda node, src: (f"{src[0]}!={src[1]}", _CLOSED),
    Ops.CMPEQ: lambda node, src: (f"({src[0]}!={src[1]})!=True", _CLOSED),
    Ops.WHERE: lambda node, src: (f"{src[1]} if {src[0]} else {src[2]}", _CLOSED),
    Ops.CAST: lambda node, src: (f"({_c_name(node.dtype)})({src[0]})", ATOM),
    Ops.FDIV: _divide,
    Ops.VECTORIZE: lambda node, src: (f"{{{','.join(src)}}}", ATOM),
}

register_renderer(render)
