"""Names and forms of the IR that programs written for tinygrad use."""

from __future__ import annotations

import math
import pickle

import pytest

from test.optional import need
from weft import Tensor, Variable, dtypes
from weft.dtype import Invalid
from weft.uop.evaluate import evaluate_uop
from weft.uop.ops import (
    GroupOp,
    KernelInfo,
    Ops,
    PatternMatcher,
    UOp,
    UPat,
    consumer_map_from_toposort,
    exec_alu,
    graph_rewrite,
    identity_element,
    pm_unbind,
    resolve,
    rewrite_group,
    sint_to_uop,
    smax,
    smin,
    srender,
    ssimplify,
    to_max_shape,
)
from weft.uop.symbolic import commutative, parse_valid, symbolic, uop_given_valid

A, B, G = (UOp.variable(name, 0, most) for name, most in (("a", 8), ("b", 20), ("g", 100)))
C = UOp.variable("c", -5, 5)
R0, R1 = UOp.range(5, 0), UOp.range(6, 1)
N = UOp.variable("i", 0, 10, dtypes.int)

# what tinygrad 0.14 prints; `render()` simplifies
RENDERED = [
    (A, "a"),
    (A + 1, "(a+1)"),
    (1 + A, "(a+1)"),
    (A - 1, "(a+-1)"),
    (A - B, "(a+b*-1)"),
    (-A, "(a*-1)"),
    (5 - A, "(a*-1+5)"),
    (A * 4 + B, "(b+a*4)"),
    (B * 2 + A * 4, "(a*4+b*2)"),
    (A // 2 + B, "(b+a//2)"),
    (B % 2 + A // 3, "(a//3+b%2)"),
    (G // 4 * 3 + A, "(a+g//4*3)"),
    (R0 + R1 * 5, "(r1*5+r0)"),
    (R1 + A, "(a+r1)"),
    ((A * 4 + 3) // 4, "a"),
    ((A * 4 + B) // 4, "(a+b//4)"),
    ((A * 4 + B) % 4, "(b%4)"),
    ((A * 3 + B) // 4, "((b+a*3)//4)"),
    (G // 4 // 3, "(g//12)"),
    (G * 7 // 3, "(g*2+g//3)"),
    ((G * 10 + B) // 30, "((g+b//10)//3)"),
    ((A * 5 + B * 7) // 3, "(a+b*2+(b+a*2)//3)"),
    ((G * 6 + B * 4 + A) // 24, "((g+(a+b*4)//6)//4)"),
    ((G * 4 + B * 6 + 1) // 8, "((b+g+b//2)//2)"),
    ((G * 15 + B) // 10, "(g+(g+b//5)//2)"),
    (G // 4 * 4 + G % 4, "g"),
    ((G - 3) // 4, "((g+1)//4+-1)"),
    (A < 3, "(a<3)"),
    (A < 9, "True"),
    (A < 0, "False"),
    (A > 3, "(3<a)"),
    (A >= 3, "((a<3)!=True)"),
    (A <= B, "((b<a)!=True)"),
    (A.eq(3), "((a!=3)!=True)"),
    (A.ne(B), "(a!=b)"),
    ((A * 2) < 7, "(a<4)"),
    ((A < 3).logical_not(), "((a<3)!=True)"),
    ((A < 3) & (B < 4), "((a<3)&(b<4))"),
    ((A < 3).where(A * 2, B + 1), "((a*2) if (a<3) else (b+1))"),
    (A.maximum(B) + 1, "(max(a, b)+1)"),
    (A.cast(dtypes.float), "(float)(a)"),
    (N.cast(dtypes.float) / 2, "((float)(i)*0.5)"),
    (A.bind(3) + 1, "(a+1)"),
    (UOp.special(10, "gidx0") * 3 + 2, "(gidx0*3+2)"),
    (A.valid(A < 3), "(a if (a<3) else Invalid)"),
    (A.valid(A < 9), "a"),
    (UOp.const(3), "3"),
    (UOp.const(3.5), "3.5"),
]


@pytest.mark.parametrize(("node", "text"), RENDERED, ids=[text for _, text in RENDERED])
def test_render_prints_as_tinygrad_does(node: UOp, text: str) -> None:
    assert node.render() == text


LEAVES = {"a": A, "b": B, "g": G, "c": C, "i": N, "r0": R0, "r1": R1}


@pytest.mark.parametrize(("node", "text"), RENDERED, ids=[text for _, text in RENDERED])
def test_what_render_prints_has_the_value_of_the_node(node: UOp, text: str) -> None:
    if any(word in text for word in ("Invalid", "float", "gidx")):
        return
    for seed in range(20):
        values = {
            name: leaf.vmin + seed * 7 % (leaf.vmax - leaf.vmin + 1)
            for name, leaf in LEAVES.items()
        }
        if node is A.bind(3) + 1:
            values["a"] = 3
        found = evaluate_uop(node, {LEAVES[name]: value for name, value in values.items()})
        assert eval(text, {"max": max}, values) == found, values


@pytest.mark.parametrize(
    ("node", "text"),
    [
        ((A + B) * 4, "((a+b)*4)"),
        (A * (B + G), "(a*(b+g))"),
        (A + (B + G), "(a+(b+g))"),
        (A * 6 // 3, "(a*6//3)"),
        (A // (B * G), "(a//(b*g))"),
        ((A & 3) + 1, "((a&3)+1)"),
        ((A + 1) << 2, "(a+1<<2)"),
        ((A | B) & G, "((a|b)&g)"),
        ((A * 2) < 5, "((a*2)<5)"),
    ],
)
def test_render_without_simplifying_keeps_the_form(node: UOp, text: str) -> None:
    assert node.render(simplify=False) == text


def test_render_of_a_shared_graph_does_not_grow_without_bound() -> None:
    node = N
    for _ in range(100):
        node = node * node + 1
    assert len(node.render(simplify=False)) < 5000


# ------------------------------------------------------------ building


def test_a_constant_takes_value_and_dtype_in_either_order() -> None:
    assert UOp.const(dtypes.int, 3) is UOp.const(3, dtypes.int)
    assert UOp.const(3).dtype is dtypes.weakint and UOp.const(2.5).dtype is dtypes.weakfloat
    assert UOp.const(True).dtype is dtypes.bool
    assert [lane.arg for lane in UOp.const((1, 2), dtypes.int).src] == [1, 2]
    assert UPat.const(3, dtypes.int).arg == 3 == UPat.const(dtypes.int, 3).arg


def test_a_variable_has_floats_infinite_bounds_and_multiples() -> None:
    x = UOp.variable("x", 0.5, 2.5, dtypes.float)
    assert (x.vmin, x.vmax) == (0.5, 2.5) and x.bind(1.5).unbind() == (x, 1.5)
    assert UOp.variable("x", -math.inf, math.inf, dtypes.float).vmax == math.inf
    n = UOp.variable("n", 1, math.inf)
    assert n.vmin == 1 and n.vmax == dtypes.weakint.max
    m = Variable("m", 0, 32, multiple_of=4)
    assert m.const_factor() == 4 and m.bind(8).unbind()[1] == 8
    assert m.divides(2) is not None and m.divides(3) is None
    with pytest.raises(ValueError, match="in steps of 4"):
        m.bind(6)
    with pytest.raises(ValueError, match="lo <= hi"):
        UOp.variable("n", 5, 3)


def test_what_tinygrad_asserts_is_an_assertion_error_too() -> None:
    for mistake in (
        lambda: A.bind(9),
        lambda: A.bind(3).bind(3),
        lambda: A.unbind(),
        lambda: (A + 1).expr,
        lambda: A.val,
        lambda: resolve(A),  # type: ignore[arg-type]
    ):
        with pytest.raises(AssertionError):
            mistake()
        with pytest.raises(ValueError):
            mistake()


def test_sink_range_and_index_take_what_tinygrads_take() -> None:
    assert UOp.sink(A, None, B) is A.sink(B)
    assert UOp.range(10, 3, R0.arg.kind, 1).arg.number == (3, 1)
    memory = UOp.param(0, dtypes.float, 16)
    assert memory.index(2).src[1].arg == 2
    assert memory.index(A.valid(A < 3)) is memory.index(A, A < 3)
    assert A.cast("half").dtype is dtypes.half
    assert KernelInfo(name="a b", opts_to_apply=()).optimise is False
    assert KernelInfo(name="a b").function_name == "a_b"


def test_valid_and_invalid() -> None:
    gated = A.valid(A < 3)
    assert gated.get_idx() is A and gated.get_valid() is (A < 3)
    assert A.get_idx() is A and A.get_valid().arg is True
    assert UOp.invalid().is_invalid and not A.is_invalid
    assert UOp.const(Invalid).is_invalid and pickle.loads(pickle.dumps(Invalid)) is Invalid
    assert (gated.vmin, gated.vmax) == (0, 8)
    assert A.valid(A < 0).simplify().is_invalid


# ------------------------------------------------------------ looking at it


def test_divisors_and_parts_of_expressions() -> None:
    assert [x.const_factor() for x in (A * 4 + 8, A * 4 + B * 6, A + 3, A // 2)] == [4, 2, 1, 1]
    quotient = (A * 4 + 8).divides(4)
    assert quotient is not None and quotient.render() == "(a+2)"
    assert (A * 4 + 8).divides(3) is None and (A // 2).divides(2) is None
    assert (A * 4 + 8).pop_const() == (A * 4, 8) and A.pop_const() == (A, 0)
    assert list((A + B + G).split_uop(Ops.ADD)) == [A, B, G]
    assert UOp.gcd(A * 4, B * 6).simplify().arg == 2
    assert (A * B * 6).divide_exact(B * 2).render() == "(a*3)"
    assert (A * B).divide_exact(G) is None
    assert (A * 1000).overflows(dtypes.int8) and not A.overflows(dtypes.int8)


def test_divides_gives_the_quotient_of_every_value() -> None:
    for node in (A * 6 + B * 12 + 18, -(A * 6), A * 3 * (B * 6)):
        quotient = node.divides(6)
        for a, b in ((0, 0), (3, 7), (8, 20)):
            values = {"a": a, "b": b}
            assert quotient.sym_infer(values) * 6 == node.sym_infer(values)


def test_small_properties() -> None:
    assert A.expr == "a" and UOp.const(3).val == 3
    assert A.is_variable and A.bind(3).is_bound_var and not (A + 1).is_variable
    assert (A + 1).op_in_backward_slice_with_self(Ops.ADD)
    assert list((A + 1).backward_slice_with_self)[0] is A + 1
    assert (A + 1).topovisit(lambda node: node.op, {}) is Ops.ADD
    assert A.usum(B, G) is A + B + G and A.uprod(B) is A * B
    assert A.ufix(3) is UOp.const(3) and A.ufix(B) is B
    assert (A.axis, A.metadata, A.tagstr(), A.rtag(1).tagstr()) == (None, None, "", ", tag=1")
    assert A.max_shape == () and A.nbytes() == A.dtype.itemsize


def test_functions_of_sizes() -> None:
    assert (smax(3, 4), smin((3, 4)), smax(A, 3).render()) == (4, 3, "max(a, 3)")
    assert (srender(3), srender(A + 1)) == ("3", "(a+1)")
    assert (ssimplify(3), ssimplify(A - A + 3), ssimplify(A + 0)) == (3, 3, A)
    assert sint_to_uop(3) is UOp.const(3) and to_max_shape((A, 3, B + 1)) == (8, 3, 21)


def test_values_of_ops() -> None:
    assert exec_alu(Ops.ADD, dtypes.int8, (100, 100)) == -56
    assert exec_alu(Ops.ADD, dtypes.int8, (100, 100), False) == 200
    assert exec_alu(Ops.FLOORDIV, dtypes.int, (-7, 2)) == -4
    assert identity_element(Ops.MAX, dtypes.int) == -(2**31)
    assert identity_element(Ops.MUL, dtypes.float) == 1.0


def test_memory_of_a_node() -> None:
    stored = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    assert stored.uop.is_realized and stored.uop.realized is stored.uop.base.buffer
    assert stored.uop.base.buffer.size == 4
    computed = stored + 1
    assert not computed.uop.is_realized and computed.uop.realized is None
    with pytest.raises(ValueError, match="no buffer"):
        _ = computed.uop.buffer


def test_where_a_view_starts() -> None:
    stored = Tensor.ones(4, 4).contiguous().realize()
    offset = lambda tensor: tensor.uop.contiguous_view_offset()  # noqa: E731
    assert (offset(stored), offset(stored[1:3]), offset(stored.reshape(16)[4:])) == (0, 4, 4)
    assert offset(stored[1, 2:3]) == 6
    assert offset(stored[:, 1:3]) is None and offset(stored.T) is None
    assert offset(stored.reshape(1, 16).expand(3, 16)) is None


# ------------------------------------------------------------ rules


def test_rules_written_for_tinygrad_match_wefts_graphs() -> None:
    x, y = UPat.var("x"), UPat.var("y")
    number = N.cast(dtypes.float)
    cases = [
        (UPat(Ops.FLOORDIV, src=(x, UPat.cvar())), A // 3, A),
        (UPat(Ops.FLOORMOD, src=(x, UPat.cvar())), A % 3, A),
        (UPat(Ops.RECIPROCAL, src=(x,)), number.reciprocal(), number),  # type: ignore[attr-defined]
        (x.reciprocal(), number.reciprocal(), number),
        (UPat(Ops.NOOP, src=(x,)), UOp(Ops.NOOP, dtypes.int, (N,)), N),
        (UPat(Ops.SUB, src=(x, UPat())), A - B, A),  # type: ignore[attr-defined]
        (x * -1, -A, A),
        ((x < UPat()).ne(True), A >= B, A),
        (x.sqrt(), number.sqrt(), number),
        (UPat.cvar("x", arg=3), UOp.const(3), UOp.const(3)),
    ]
    for pattern, node, found in cases:
        assert PatternMatcher([(pattern, lambda x: [x])]).rewrite(node) == [found], pattern
    assert PatternMatcher([(x - y, lambda x, y: y)], compiled=False).rewrite(A - B) is B


def test_one_match_by_hand() -> None:
    x, y = UPat.var("x"), UPat.var("y")
    assert UPat(Ops.ADD, name="z").match(A + 1, {}) == [{"z": A + 1}]
    assert UPat(Ops.MUL).match(A + 1, {}) == []
    assert (x + y).match(A + B, {}) == [{"x": A, "y": B}, {"y": A, "x": B}]
    assert (x + y).match(A + B, {"x": B}) == [{"x": B, "y": A}]
    assert UPat(Ops.ADD, src=(x, x)).match(A + B, {}) == []
    assert UPat(Ops.ADD, src=(x,), allow_any_len=True).match(A + B, {}) == [{"x": A}]
    assert UPat(Ops.ADD, src=UPat(Ops.VARIABLE)).match(A + 1, {}) == []
    assert UPat.any(x * 2, x + 1).match(A + 1, {}) == [{"x": A}]


def test_walk_offers_each_node_once() -> None:
    up = PatternMatcher([(UPat(Ops.CONST, name="x"), lambda x: x.const_like(x.arg + 1))])
    assert graph_rewrite(UOp.const(1) + UOp.const(2), up, walk=True).render() == "5"
    to_mul = PatternMatcher([(UPat(Ops.ADD, name="x"), lambda x: x.src[0] * x.src[1])])
    sources_first = graph_rewrite((A + B) + G, to_mul, walk=True)
    assert sources_first is A * B * G
    assert graph_rewrite((A + B) + G, to_mul, walk=True, bottom_up=True) is (A + B) * G
    swap = PatternMatcher([(UPat(Ops.VARIABLE, name="x"), lambda x: {A: B, B: A}.get(x))])
    assert graph_rewrite(A + B * 2, swap, walk=True) is B + A * 2
    assert graph_rewrite(A + B * 2, swap, walk=True, bottom_up=True) is B + A * 2


def test_rewrite_group_leaves_the_function_as_it_is() -> None:
    assert rewrite_group(name=lambda x, ret: "a name")(lambda x: x + 1)(2) == 3


def test_unbinding_by_rules_and_consumers() -> None:
    values: dict[UOp, int] = {}
    assert graph_rewrite(A.bind(3) + 1, pm_unbind, ctx=values) is A + 1 and values == {A: 3}
    consumers = consumer_map_from_toposort((A + A * 2).toposort())
    assert list(consumers[A]) == [A * 2, A + A * 2]


def _plain_rule(x: UOp) -> UOp:
    return x


def test_a_pattern_matcher_pickles_with_its_lambdas() -> None:
    offset = 2
    matcher = PatternMatcher(
        [
            (UPat.var("x") * 1, _plain_rule),
            (UPat(Ops.CONST, name="c"), lambda c, ctx=3: c.const_like(c.arg + offset)),
        ]
    )
    found = pickle.loads(pickle.dumps(matcher))
    assert found.rewrite(A * 1) is A and found.rewrite(UOp.const(1)).arg == 3
    assert pickle.loads(pickle.dumps(symbolic)).rewrite(A + 0) is A
    assert pickle.loads(pickle.dumps(A.bind(3) + 1)) is A.bind(3) + 1


def test_a_bool_node_compares_with_true() -> None:
    assert eval("(a<3)!=True", {"a": A}).op is Ops.CMPNE
    # nodes and sizes compare by identity, as everywhere in weft
    assert (A != B) is True and (A != 3) is True


def test_ops_and_groups_have_tinygrads_names() -> None:
    assert Ops.FLOORDIV is Ops.IDIV and Ops["FLOORMOD"] is Ops.MOD and Ops.ADD < Ops.MUL
    assert Ops.RANGE in GroupOp.Irreducible and Ops.WHERE in GroupOp.Broadcastable


def test_names_of_rule_sets() -> None:
    assert parse_valid(A < 3) == (A, True, 2) and parse_valid(A >= 3) == (A, False, 3)
    assert parse_valid(A > 3) == (A, False, 4) and parse_valid(A.ne(3)) is None
    assert uop_given_valid(A < 3, A // 3).arg == 0
    assert uop_given_valid((A < 3) & (B < 4), A // 3 + B // 4 + B) is B
    assert graph_rewrite((A * 4 + 3) // 4, symbolic + commutative) is A


def test_z3_proves_what_is_simplified() -> None:
    z3 = need("z3")
    from weft.uop.validate import uops_to_z3, validate_index_with_z3

    solver = z3.Solver()
    node = (A * 4 + B) // 4
    before, after = uops_to_z3(solver, node, node.simplify())
    assert solver.check(before != after) == z3.unsat
    assert validate_index_with_z3(9, A, UOp.const(True))
    assert not validate_index_with_z3(8, A, UOp.const(True))
    assert validate_index_with_z3(8, A, A < 8)


def test_substitute_tries_further_rules_on_what_it_rebuilds() -> None:
    a, b = UOp.variable("a", 0, 10), UOp.variable("b", 0, 3)
    rules = PatternMatcher([(UPat(Ops.MUL, name="x"), lambda x: x.src[0] + x.src[1])])
    assert (a * 2 + 1).substitute({a: b}, extra_pm=rules) is b + 2 + 1
    assert (a * 2 + 1).substitute({}, extra_pm=rules) is a + 2 + 1
