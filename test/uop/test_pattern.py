"""UPat: each kind of pattern, written down and matched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from weft.dtype import dtypes
from weft.errors import ArgumentError
from weft.uop.matcher import PatternMatcher
from weft.uop.node import UOp, Variable
from weft.uop.opset import GroupOp, Ops
from weft.uop.pattern import UPat

x = Variable("x", 0, 10)
y = Variable("y", 0, 3)
z = Variable("z", 0, 3)
f = UOp.param(0, dtypes.float32, 10).index(x).load()


def matches(pattern: UPat, node: UOp) -> dict[str, UOp] | None:
    """The names of the first match, or None."""

    def names(**found: UOp) -> dict[str, UOp]:
        return found

    result: dict[str, UOp] | None = PatternMatcher([(pattern, names)]).rewrite(node)
    return result


def const(value: Any, dtype: Any = dtypes.weakint) -> UOp:
    return UOp.const(dtype, value)


# ------------------------------------------------------------ op, dtype, arg, tag
def test_op() -> None:
    assert matches(UPat(Ops.ADD), x + y) == {}
    assert matches(UPat(Ops.ADD), x * y) is None
    assert matches(UPat((Ops.ADD, Ops.MUL)), x * y) == {}
    assert matches(UPat(GroupOp.Binary, name="node"), x * y) == {"node": x * y}
    assert matches(UPat(), x) == {}


def test_dtype() -> None:
    assert matches(UPat.var("v", dtypes.weakint), x) == {"v": x}
    assert matches(UPat.var("v", dtypes.float32), x) is None
    assert matches(UPat.var("v", dtypes.floats), f) == {"v": f}
    assert matches(UPat.var("v", (dtypes.int32, dtypes.bool)), f) is None


def test_a_scalar_dtype_stands_for_its_vectors() -> None:
    vector = f.broadcast(4)
    assert matches(UPat.var("v", dtypes.float32), vector) == {"v": vector}
    assert matches(UPat.var("v", dtypes.float32.vec(4)), vector) == {"v": vector}
    assert matches(UPat.var("v", dtypes.float32.vec(4)), f) is None
    inside = UPat(Ops.NEG, src=(UPat.var("v", dtypes.floats),))
    assert matches(inside, -vector) == {"v": vector}
    assert matches(UPat(Ops.NEG, src=(UPat.var("v", dtypes.ints),)), -vector) is None


def test_arg() -> None:
    node = UOp(Ops.GEP, dtypes.float32, (f.broadcast(4),), (1,))
    assert matches(UPat(Ops.GEP, arg=(1,)), node) == {}
    assert matches(UPat(Ops.GEP, arg=(2,)), node) is None
    reduced = f.reduce(Ops.MAX, UOp.range(4, 0))
    assert matches(UPat(Ops.REDUCE, arg=Ops.MAX), reduced) == {}
    assert matches(UPat(Ops.REDUCE, arg=Ops.ADD), reduced) is None


def test_tag() -> None:
    raw = (x // 3).rtag("raw")
    assert matches(UPat(Ops.IDIV), raw) == {}
    assert matches(UPat(Ops.IDIV, tag="raw"), raw) == {}
    assert matches(UPat(Ops.IDIV, tag=None), raw) is None
    assert matches(UPat(Ops.IDIV, tag=None), x // 3) == {}


# ------------------------------------------------------------ sources
def test_a_tuple_is_matched_place_by_place() -> None:
    pattern = UPat(Ops.ADD, src=(UPat(Ops.CONST, name="c"), UPat.var("v")))
    assert matches(pattern, UOp(Ops.ADD, dtypes.weakint, (const(1), x))) is not None
    assert matches(pattern, UOp(Ops.ADD, dtypes.weakint, (x, const(1)))) is None


def test_a_list_is_matched_in_any_order() -> None:
    pattern = UPat(Ops.WHERE, src=[UPat(Ops.CONST, name="c"), UPat(Ops.NEG), UPat.var("v")])
    for order in ((const(1), -x, y), (-x, y, const(1)), (y, const(1), -x)):
        found = matches(pattern, UOp(Ops.WHERE, dtypes.weakint, order))
        assert found == {"c": const(1), "v": y}
    assert matches(pattern, UOp(Ops.WHERE, dtypes.weakint, (x, y, const(1)))) is None


def test_a_list_of_four() -> None:
    lanes = tuple(const(i) for i in range(4))
    node = UOp(Ops.VECTORIZE, dtypes.weakint.vec(4), lanes)
    wanted = [UPat.const(None, value) for value in (3, 1, 0, 2)]
    assert matches(UPat(Ops.VECTORIZE, src=wanted), node) == {}
    assert matches(UPat(Ops.VECTORIZE, src=[*wanted[:3], UPat.const(None, 7)]), node) is None


def test_a_single_pattern_is_for_every_source() -> None:
    lanes = tuple(const(i) for i in range(5))
    node = UOp(Ops.VECTORIZE, dtypes.weakint.vec(5), lanes)
    assert matches(UPat(Ops.VECTORIZE, src=UPat(Ops.CONST)), node) == {}
    mixed = UOp(Ops.VECTORIZE, dtypes.weakint.vec(5), (*lanes[:4], x))
    assert matches(UPat(Ops.VECTORIZE, src=UPat(Ops.CONST)), mixed) is None


def test_a_repeated_name_wants_one_node() -> None:
    pattern = UPat(Ops.VECTORIZE, src=UPat.var("lane"))
    assert matches(pattern, x.broadcast(4)) == {"lane": x}
    assert matches(pattern, UOp(Ops.VECTORIZE, dtypes.weakint.vec(2), (x, y))) is None
    outer = UPat.var("lane") + UPat(Ops.VECTORIZE, src=UPat.var("lane"))
    assert matches(outer, UOp(Ops.ADD, dtypes.weakint, (x, x.broadcast(2)))) == {"lane": x}
    assert matches(outer, UOp(Ops.ADD, dtypes.weakint, (y, x.broadcast(2)))) is None


def test_a_repeated_pattern_may_be_deep() -> None:
    pattern = UPat(Ops.VECTORIZE, src=UPat.var("v") * UPat.cvar("c"))
    node = UOp(Ops.VECTORIZE, dtypes.weakint.vec(2), (x * 3, const(3) * x))
    assert matches(pattern, node) == {"v": x, "c": const(3)}
    node = UOp(Ops.VECTORIZE, dtypes.weakint.vec(2), (x * 3, x * 4))
    assert matches(pattern, node) is None


def test_length() -> None:
    pair = UPat(Ops.SINK, src=(UPat.var("a"), UPat.var("b")))
    assert matches(pair, x.sink(y)) == {"a": x, "b": y}
    assert matches(pair, x.sink(y, z)) is None
    more = UPat(Ops.SINK, src=(UPat.var("a"), UPat.var("b")), allow_any_len=True)
    assert matches(more, x.sink(y, z)) == {"a": x, "b": y}
    assert matches(more, x.sink(y, z, x, y, z)) == {"a": x, "b": y}
    assert matches(more, UOp(Ops.SINK, dtypes.void, (x,))) is None
    assert matches(UPat(Ops.SINK, src=()), UOp(Ops.SINK)) == {}
    assert matches(UPat(Ops.SINK, src=()), x.sink()) is None


def test_length_below_the_root() -> None:
    inner = UPat(Ops.SINK, src=(UPat.var("a"),))
    assert matches(UPat(Ops.SINK, src=(inner,)), x.sink().sink()) == {"a": x}
    assert matches(UPat(Ops.SINK, src=(inner,)), x.sink(y).sink()) is None


# ------------------------------------------------------------ leaves
def test_cvar() -> None:
    assert matches(UPat.cvar("c"), const(3)) == {"c": const(3)}
    assert matches(UPat.cvar("c"), x) is None
    assert matches(UPat.cvar("c", dtypes.bool), const(3)) is None
    vector = UOp.const(dtypes.float32.vec(4), 2.0)
    assert matches(UPat.cvar("c"), vector) is None
    assert matches(UPat.cvar("c", vec=True), vector) == {"c": vector}
    assert matches(UPat.cvar("c", vec=True), f.broadcast(4)) is None


def test_numbers_match_by_value() -> None:
    one = UPat.const(None, 1)
    for node in (const(1), const(1.0, dtypes.float32), const(True, dtypes.bool)):
        assert matches(one, node) == {}
    assert matches(UPat.const(dtypes.float32, 1), const(1)) is None
    assert matches(one, const(2)) is None


def test_zero_has_a_sign() -> None:
    zero, minus_zero = const(0.0, dtypes.float32), const(-0.0, dtypes.float32)
    for value in (0, 0.0, False):
        assert matches(UPat.const(None, value), zero) == {}
        assert matches(UPat.const(None, value), minus_zero) is None
        assert matches(UPat.var() + value, f + minus_zero) is None
    assert matches(UPat.const(None, -0.0), minus_zero) == {}
    assert matches(UPat.const(None, -0.0), zero) is None
    assert matches(UPat.const(None, -0.0), const(0)) is None


def test_nan_is_itself() -> None:
    nan = float("nan")
    assert matches(UPat.const(None, nan), const(nan, dtypes.float64)) == {}
    assert matches(UPat.const(None, nan), const(1.0, dtypes.float64)) is None


def test_any_tries_alternatives_in_order() -> None:
    pattern = UPat.any(UPat.var("v") * 2, UPat.var("v") + 2, UPat(Ops.NEG, src=(UPat.var("v"),)))
    for node in (x * 2, x + 2, -x):
        assert matches(pattern, node) == {"v": x}
    assert matches(pattern, x * 3) is None
    assert matches(pattern.named("all"), x + 2) == {"v": x, "all": x + 2}


def test_any_inside_a_pattern() -> None:
    either = UPat.any(UPat(Ops.CAST, src=(UPat.var("v"),)), UPat.var("v"))
    pattern = either * UPat.cvar("c")
    cast = x.cast(dtypes.float32)
    assert matches(pattern, cast * 2.0) == {"v": x, "c": const(2.0, dtypes.float32)}
    assert matches(pattern, f * 2.0) == {"v": f, "c": const(2.0, dtypes.float32)}


def test_or_casted() -> None:
    load = UPat(Ops.LOAD, name="load")
    assert matches(load.or_casted("all"), f) == {"load": f, "all": f}
    cast = f.cast(dtypes.float64)
    assert matches(load.or_casted("all"), cast) == {"load": f, "all": cast}
    assert matches(load.or_casted(), x.cast(dtypes.float64)) is None


# ------------------------------------------------------------ names
def test_one_name_is_one_node() -> None:
    same = UPat.var("v") * UPat.var("c") + UPat.var("v")
    assert matches(same, x * y + x) == {"v": x, "c": y}
    assert matches(same, x * y + y) == {"v": y, "c": x}
    assert matches(same, x * y + z) is None
    assert matches(UPat.var("v") ^ UPat.var("v"), x ^ x) == {"v": x}
    assert matches(UPat.var("v") ^ UPat.var("v"), x ^ y) is None


def test_named_does_not_change_the_original() -> None:
    plain = UPat(Ops.ADD)
    assert matches(plain.named("n"), x + y) == {"n": x + y}
    assert matches(plain, x + y) == {}


@pytest.mark.parametrize("name", ["ctx", "not a name", ""])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(ArgumentError, match="cannot be a pattern's name"):
        UPat.var(name)


# ------------------------------------------------------------ expressions
@pytest.mark.parametrize(
    "build",
    [
        lambda a, b: a + b,
        lambda a, b: a - b,
        lambda a, b: b - a,
        lambda a, b: a * b,
        lambda a, b: a // b,
        lambda a, b: a % b,
        lambda a, b: a & b,
        lambda a, b: a | b,
        lambda a, b: a ^ b,
        lambda a, b: a << b,
        lambda a, b: a >> b,
        lambda a, b: a < b,
        lambda a, b: a > b,
        lambda a, b: a >= b,
        lambda a, b: a <= b,
        lambda a, b: a.ne(b),
        lambda a, b: a.eq(b),
        lambda a, b: a.maximum(b),
        lambda a, b: -a + b,
        lambda a, b: ~a + b,
        lambda a, b: a + 3 * b,
        lambda a, b: 7 - a * b,
        lambda a, b: 8 // a + b % 3 - 2,
        lambda a, b: (a < b).where(a, b),
        lambda a, b: (a < b).where(a + b, 4),
        lambda a, b: (a < b).logical_not() & (b < a),
        lambda a, b: a.alu(Ops.MAX, b),
    ],
)
def test_patterns_are_written_like_nodes(build: Callable[[Any, Any], Any]) -> None:
    found = matches(build(UPat.var("a"), UPat.var("b")), build(x, y))
    assert found is not None
    assert set(found.values()) == {x, y}
    assert build(found["a"], found["b"]) in (build(x, y), build(y, x))


def test_commutative_ops_match_in_both_orders() -> None:
    pattern = UPat.var("v") + UPat.cvar("c")
    for src in ((x, const(1)), (const(1), x)):
        assert matches(pattern, UOp(Ops.ADD, dtypes.weakint, src)) == {"v": x, "c": const(1)}
    division = UPat.var("v") // UPat.cvar("c")
    assert matches(division, UOp(Ops.IDIV, dtypes.weakint, (const(1), x))) is None


def test_nested_commutative_ops_try_every_order() -> None:
    pattern = (UPat.var("a") * 2 + UPat.cvar("c")) * UPat(Ops.VARIABLE, name="v")
    two, five = const(2), const(5)

    def commuted(op: Ops, left: UOp, right: UOp) -> list[UOp]:
        return [
            UOp(op, dtypes.weakint, (left, right)),
            UOp(op, dtypes.weakint, (right, left)),
        ]

    nodes = [
        whole
        for product in commuted(Ops.MUL, -x, two)
        for total in commuted(Ops.ADD, product, five)
        for whole in commuted(Ops.MUL, total, y)
    ]
    assert len(nodes) == 8
    for node in nodes:
        assert matches(pattern, node) == {"a": -x, "c": five, "v": y}


def test_helpers_of_kernels() -> None:
    memory = UOp.param(1, dtypes.float32, 40)
    axis = UOp.range(10, 0)
    plain, guarded = memory.index(axis), memory.index(axis, axis < 3)
    assert matches(UPat.var("m").index(UPat.var("i")), plain) == {"m": memory, "i": axis}
    assert matches(UPat.var("m").index(UPat.var("i")), guarded) is None
    with_valid = UPat.var("m").index(UPat.var("i"), UPat.var("ok"))
    assert matches(with_valid, guarded) == {"m": memory, "i": axis, "ok": axis < 3}
    assert matches(with_valid.load(name="load"), guarded.load()) is not None
    store = plain.store(f, axis)
    assert matches(UPat.var("place").store(UPat.var("v")), store) == {"place": plain, "v": f}
    total = f.reduce(Ops.ADD, axis)
    assert matches(UPat.var("v").reduce(arg=Ops.ADD), total) == {"v": f}
    assert matches(UPat.var("v").reduce(UPat.var("r")), total) == {"v": f, "r": axis}
    assert matches(UPat.var("v").cast(dtypes.int32), f.cast(dtypes.int32)) == {"v": f}
    assert matches(UPat.var("v").cast(dtypes.int32), f.cast(dtypes.int64)) is None
    assert matches(UPat.var("v").cast(name="c"), f.cast(dtypes.int64)) is not None
    assert matches(UPat.var("v").bitcast(), f.bitcast(dtypes.int32)) == {"v": f}
    assert matches(UPat.var("v").gep(1), f.broadcast(4).gep(1)) is not None
    assert matches(UPat.var("v").gep(0), f.broadcast(4).gep(1)) is None


# ------------------------------------------------------------ looking at patterns
def test_location_is_the_line_that_wrote_it() -> None:
    pattern = UPat.var("a") + 1 * UPat.var("b")
    file, line = pattern.location
    assert file == __file__
    code = test_location_is_the_line_that_wrote_it.__code__
    assert line == code.co_firstlineno + 1


def test_repr_can_be_read() -> None:
    pattern = UPat.var("a", dtypes.int32) + 1
    assert repr(pattern) == (
        "UPat(op=Ops.ADD, src=[UPat(dtype=dtypes.int32, name='a'), UPat(op=Ops.CONST, arg=1)])"
    )
    assert repr(UPat.any(UPat(Ops.NEG)).named("n")) == "UPat.any(UPat(op=Ops.NEG)).named('n')"


def test_mistakes_are_refused() -> None:
    with pytest.raises(ArgumentError, match="sources of a pattern are UPats"):
        UPat(Ops.ADD, src=(x, y))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="allow_any_len goes with a tuple"):
        UPat(Ops.ADD, src=[UPat.var("a"), UPat.var("b")], allow_any_len=True)
    with pytest.raises(ArgumentError, match="at least one"):
        UPat.any()
