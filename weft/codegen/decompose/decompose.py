"""decompose: what a renderer cannot print becomes ops that it can.

In: a kernel AST and a renderer. Out: the same kernel in the renderer's `code_for_op` and
`native_dtypes`, with the raw forms of division, shifts and casts. Sits after optimisation and
before the axes are expanded, so that one decomposition serves all lanes.
Invariant: an op that the renderer names as its own is left alone, with the op table's meaning.
"""

from __future__ import annotations

from weft.codegen.decompose import arithmetic, narrow, totality, transcendental, trigonometry
from weft.dtype import NARROW_FLOATS, dtypes
from weft.renderer.base import Renderer
from weft.uop.matcher import PatternMatcher
from weft.uop.node import UOp
from weft.uop.opset import FALLING, Ops
from weft.uop.pattern import UPat
from weft.uop.rewrite import graph_rewrite

_WIDE_FLOATS = frozenset({dtypes.float32, dtypes.float64})


def decompose(ast: UOp, renderer: Renderer) -> UOp:
    """The kernel with every op that `renderer` lacks decomposed."""
    for node in ast.toposort():
        # mostly there is nothing to do, and the kernel need not be made anew to find that out
        if node.op in _DECOMPOSED and RULES.rewrite(node, renderer) is not None:
            return graph_rewrite(ast, RULES, ctx=renderer, name="decompose", bpm=ROUNDINGS)
    return ast


def decompose_unary(ctx: Renderer, node: UOp) -> UOp | None:
    """EXP2(x) -> a polynomial, and so on."""
    if ctx.is_native(node.op) or node.dtype.scalar() not in _WIDE_FLOATS:
        return None
    if node.op is Ops.EXP2 and node.tag == FALLING:
        is_instruction = ctx.has_falling_exp2 and node.dtype.scalar() is dtypes.float32
        return None if is_instruction else transcendental.falling_exp2(node.src[0])
    return _UNARY[node.op](node.src[0])


def decompose_binary(ctx: Renderer, node: UOp) -> UOp | None:
    """x // y -> x // y with C's meaning and what the edges need, and so on."""
    if ctx.is_native(node.op) or node.tag == "raw" or node.dtype.scalar() is dtypes.weakint:
        # an index is still subject to the rules of unbounded ints: it is decomposed as machine ints
        return None
    if node.dtype.kind == "float" and node.dtype.scalar() not in _WIDE_FLOATS:
        return None
    return _BINARY[node.op](*node.src)


def decompose_muladd(ctx: Renderer, node: UOp) -> UOp | None:
    """MULADD(x, y, z) -> MULACC(x, y, z), or x*y + z where that would be a call."""
    if ctx.is_native(Ops.MULADD):
        return None
    x, y, z = node.src
    if ctx.target.has_fma:
        return UOp(Ops.MULACC, node.dtype, (x, y, z))
    return UOp(Ops.ADD, node.dtype, (UOp(Ops.MUL, node.dtype, (x, y)), z))


def decompose_cast(ctx: Renderer, node: UOp) -> UOp | None:
    """CAST(float -> int) -> a guarded one; CAST(bfloat16 -> float32) -> shifts."""
    if ctx.is_native(Ops.CAST) or node.tag == "raw":
        return None
    x, target = node.src[0], node.dtype
    source = x.dtype.scalar()
    if source in NARROW_FLOATS:
        return narrow.decompose_from_narrow(x, target, source in ctx.native_dtypes)
    if target.scalar() in NARROW_FLOATS:
        return narrow.decompose_to_narrow(x, target, target.scalar() in ctx.native_dtypes)
    if totality.is_float_to_int(x.dtype, target.scalar()):
        return totality.decompose_float_to_int(x, target)
    return None


def decompose_rounding(ctx: Renderer, node: UOp, middle: UOp, x: UOp) -> UOp | None:
    """CAST(CAST(x, bfloat16), float32) -> x rounded in its place, without a way there and back."""
    if ctx.is_native(Ops.CAST) or middle.dtype.scalar() in ctx.native_dtypes:
        return None
    if middle.dtype.scalar() not in NARROW_FLOATS or x.dtype is not node.dtype:
        return None
    return narrow.decompose_rounding(x, middle.dtype)


_UNARY = {
    Ops.EXP2: transcendental.decompose_exp2,
    Ops.LOG2: transcendental.decompose_log2,
    Ops.SIN: trigonometry.decompose_sin,
    Ops.SQRT: arithmetic.decompose_sqrt,
    Ops.TRUNC: arithmetic.decompose_trunc,
}
_BINARY = {
    Ops.POW: transcendental.decompose_pow,
    Ops.MAX: arithmetic.decompose_max,
    Ops.THREEFRY: arithmetic.decompose_threefry,
    Ops.IDIV: totality.decompose_idiv,
    Ops.MOD: totality.decompose_mod,
    Ops.SHL: totality.decompose_shl,
    Ops.SHR: totality.decompose_shr,
}
RULES = PatternMatcher(
    [
        (UPat(tuple(_UNARY), name="node"), decompose_unary),
        (UPat(tuple(_BINARY), name="node"), decompose_binary),
        (UPat(Ops.MULADD, name="node"), decompose_muladd),
        (UPat(Ops.CAST, name="node"), decompose_cast),
    ]
)
# before the two casts are decomposed one by one
ROUNDINGS = PatternMatcher(
    [
        (
            UPat(
                Ops.CAST,
                dtypes.float32,
                src=(UPat(Ops.CAST, src=(UPat.var("x", dtypes.float32),), name="middle"),),
                name="node",
            ),
            decompose_rounding,
        )
    ]
)
_DECOMPOSED = frozenset({*_UNARY, *_BINARY, Ops.MULADD, Ops.CAST})
