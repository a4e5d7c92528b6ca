"""z3 proves what is inside, finds values for what is not, and agrees with the reference values."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest

from test.codegen.kernel_builder import Axes, const, kernel, load, params
from test.codegen.opt.kernels import KERNELS
from test.optional import need
from weft.codegen.opt import Opt, OptOps
from weft.codegen.opt.actions import apply_opt
from weft.codegen.pipeline import lower
from weft.dtype import dtypes
from weft.errors import SpecError
from weft.machine import Target
from weft.renderer.python import PythonRenderer
from weft.uop import prove
from weft.uop.args import AxisType, LocalArg
from weft.uop.evaluate import evaluate_uop
from weft.uop.matcher import PatternMatcher
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.pattern import UPat
from weft.uop.prove import prove_kernel, prove_program
from weft.uop.rewrite import graph_rewrite
from weft.uop.solver import Encoder, Question, same_value, z3
from weft.uop.spec import kernel_spec

need("z3")


@pytest.fixture(autouse=True)
def forget_proofs() -> None:
    prove.clear_proofs()


def array(size: int) -> np.ndarray:
    return np.zeros(size, np.float32)


# ------------------------------------------------------------ kernels


@pytest.mark.parametrize("make", KERNELS, ids=lambda f: f.__name__)
def test_right_kernels_are_proven(make: object) -> None:
    target = Target(name="test", has_threads=True, cores=4, vector_bytes=32)
    for seed in range(3):
        ast, _ = make(random.Random(seed), 9)  # type: ignore[operator]
        prove_kernel(ast)
        for chosen in (None, target):
            program = lower(ast, PythonRenderer(chosen))
            prove_program(program.uops, "test", "linearize")
    assert not prove.unproven


def test_an_index_one_too_far_is_found_with_values() -> None:
    out, x = params(array(12), array(12))
    a = Axes()
    i, j = a.loop(3), a.loop(4)
    ast = kernel(out.index(i * 4 + j).store(load(x, i * 4 + j + 1), i, j))
    message = (
        r"kernel test after pass 'simplify': LOAD p1\[.*\] touches element 12 of p1, which has 12"
    )
    with pytest.raises(SpecError, match=message) as caught:
        prove_kernel(ast, "simplify")
    assert "where r0=2, r1=3" in str(caught.value)


def test_a_validity_that_is_enough_and_one_that_is_not() -> None:
    out, x = params(array(12), array(10))
    i = Axes().loop(12)
    inside = (i >= 1) & (i < 11)
    prove_kernel(kernel(out.index(i).store(load(x, i - 1, inside), i)))
    with pytest.raises(SpecError, match="element -1 of p1.*where r0=0"):
        prove_kernel(kernel(out.index(i).store(load(x, i - 1, i < 11), i)))
    with pytest.raises(SpecError, match="element 10 of p1.*where r0=11"):
        prove_kernel(kernel(out.index(i).store(load(x, i - 1, i >= 1), i)))


def test_stores_count_as_loads_do() -> None:
    out, x = params(array(4), array(8))
    i = Axes().loop(8)
    prove_kernel(kernel(out.index(i, i < 4).store(load(x, i), i)))
    with pytest.raises(SpecError, match="STORE p0.* touches element"):
        prove_kernel(kernel(out.index(i, i < 5).store(load(x, i), i)))


def test_run_time_indices_are_free() -> None:
    out, x, index = params(array(4), array(8), np.zeros(4, np.int32))
    i = Axes().loop(4)
    place = load(index, i).cast(dtypes.weakint)
    prove_kernel(kernel(out.index(i).store(load(x, place, (place >= 0) & (place < 8)), i)))
    prove_kernel(kernel(out.index(i).store(load(x, place % 8), i)))
    with pytest.raises(SpecError, match="touches element"):
        prove_kernel(kernel(out.index(i).store(load(x, place), i)))
    with pytest.raises(SpecError, match=r"touches element 8 of p1.*p2\[r0\]=8"):
        prove_kernel(kernel(out.index(i).store(load(x, place, (place >= 0) & (place <= 8)), i)))


def test_run_time_sizes() -> None:
    n = UOp.variable("n", 1, 8)
    out, x = params(array(64), array(64))
    a = Axes()
    i, j = a.loop(n), a.loop(n)
    prove_kernel(kernel(out.index(i * n + j).store(load(x, i * n + j), i, j)))
    with pytest.raises(SpecError, match="touches element 64 .*n=8"):
        prove_kernel(kernel(out.index(i * n + j).store(load(x, i * n + j + 1), i, j)))


def test_memory_that_stages_fill() -> None:
    out, x = params(array(8), array(8))
    a = Axes()
    i, fill = a.loop(8), a.loop(4)
    from weft.uop.args import StageArg

    staged = UOp(Ops.STAGE, dtypes.float32, (load(x, fill), fill), StageArg(0))
    prove_kernel(kernel(out.index(i).store(load(staged, i % 4), i)))
    with pytest.raises(SpecError, match="element 4 of stage0, which has 4"):
        prove_kernel(kernel(out.index(i).store(load(staged, i % 5), i)))


# ------------------------------------------------------------ in place


def test_overlapping_tiles_are_wrong_in_place_only() -> None:
    x, y = params(array(10), array(10))
    a = Axes()
    outer, inner = a.loop(3), a.loop(4)
    at = (outer * 4).minimum(const(6)) + inner
    prove_kernel(kernel(x.index(at).store(load(y, at) + 1.0, outer, inner)))
    message = "in place, element . of p0 is written by STORE .* in one step and read in another"
    with pytest.raises(SpecError, match=message):
        prove_kernel(kernel(x.index(at).store(load(x, at) + 1.0, outer, inner)))


def test_in_place_kernels_of_the_optimiser_are_right() -> None:
    (x,) = params(array(10))
    i = Axes().loop(10)
    ast = kernel(x.index(i).store(load(x, i) + 1.0, i))
    prove_kernel(apply_opt(ast, Opt(OptOps.VECTOR, 0, 4)))


# ------------------------------------------------------------ linear programs


def program(*uops: UOp) -> list[UOp]:
    order: dict[UOp, None] = {}
    for uop in uops:
        for node in uop.toposort():
            if node.op not in (Ops.RANGE, Ops.LOAD, Ops.STORE, Ops.END, Ops.IF):
                order.setdefault(node)
        order.setdefault(uop)
    return list(order)


def test_vectors_of_consecutive_elements() -> None:
    (x,) = params(array(16))
    axis = UOp(Ops.RANGE, dtypes.int64, (UOp.const(dtypes.int64, 4),), Axes().loop(4).arg)
    vector = dtypes.float32.vec(4)
    good = UOp(Ops.LOAD, vector, (x.index(axis * 4),))
    prove_program([axis, good, UOp(Ops.END, dtypes.void, (axis,))], "test")
    bad = UOp(Ops.LOAD, vector, (x.index(axis * 4 + 1),))
    with pytest.raises(SpecError, match="touches element 16 of p0.*r0=3"):
        prove_program([axis, bad, UOp(Ops.END, dtypes.void, (axis,))], "test")


def test_lanes_have_their_own_validity() -> None:
    (x,) = params(array(16))
    lanes = UOp(
        Ops.VECTORIZE, dtypes.int32.vec(2), tuple(UOp.const(dtypes.int32, v) for v in (15, 16))
    )
    masks = [
        UOp(Ops.VECTORIZE, dtypes.bool.vec(2), tuple(UOp.const(dtypes.bool, v) for v in mask))
        for mask in ((True, False), (False, True))
    ]
    vector = dtypes.float32.vec(2)
    prove_program([UOp(Ops.LOAD, vector, (x.index(lanes, masks[0]),))], "test")
    with pytest.raises(SpecError, match="element 16"):
        prove_program([UOp(Ops.LOAD, vector, (x.index(lanes, masks[1]),))], "test")


def test_conditions_around_an_access_count() -> None:
    (x,) = params(array(4))
    axis = UOp(Ops.RANGE, dtypes.int64, (UOp.const(dtypes.int64, 8),), Axes().loop(8).arg)
    branch = UOp(Ops.IF, dtypes.void, (axis < 4,))
    read = x.index(axis).load()
    end, endif = UOp(Ops.END, dtypes.void, (axis,)), UOp(Ops.ENDIF, dtypes.void, (branch,))
    prove_program([axis, branch, read, endif, end], "test")
    with pytest.raises(SpecError, match="element"):
        prove_program([axis, branch, endif, read, end], "test")


def test_registers_keep_the_bounds_of_what_they_collect() -> None:
    out, x = params(array(8), np.zeros(8, np.int32))
    a = Axes()
    r = a.reduce(8)
    best = (load(x, r) % 8).reduce(Ops.MAX, r)
    ast = kernel(
        out.index(best.cast(dtypes.weakint).maximum(0)).store(UOp.const(dtypes.float32, 1.0))
    )
    prove_program(lower(ast, PythonRenderer()).uops, "test")
    count = (load(x, r) < 3).cast(dtypes.int32).reduce(Ops.ADD, r)
    place = (count - 1).maximum(0)
    ast = kernel(out.index(place.cast(dtypes.weakint)).store(UOp.const(dtypes.float32, 1.0)))
    prove_program(lower(ast, PythonRenderer()).uops, "test")


def group_program(with_barrier: bool) -> list[UOp]:
    """Each thread writes its element of shared memory and reads its neighbour's."""
    out = UOp.param(0, dtypes.float32, 8)
    shared = UOp(Ops.LOCAL, dtypes.float32, (), LocalArg(0, 8, "shared"))
    size = UOp.const(dtypes.int32, 8)
    thread = UOp(Ops.SPECIAL, dtypes.int32, (size,), "lidx0")
    fill = shared.index(thread).store(UOp.const(dtypes.float32, 1.0))
    barrier = [UOp(Ops.BARRIER, dtypes.void, ())] if with_barrier else []
    read = shared.index((thread + 1) % 8).load()
    return [out, shared, size, thread, fill, *barrier, read, out.index(thread).store(read)]


def test_shared_memory_needs_a_barrier() -> None:
    prove_program(group_program(True), "test")
    message = "LOAD of local0.* meets STORE of local0.* by other threads with no BARRIER"
    with pytest.raises(SpecError, match=message):
        prove_program(group_program(False), "test")


def test_a_loop_meets_itself() -> None:
    """write, wait, read - and the next round writes while others still read."""
    uops = group_program(True)
    loop = UOp(
        Ops.RANGE, dtypes.int32, (UOp.const(dtypes.int32, 3),), Axes().make(3, AxisType.LOOP).arg
    )
    looped = [*uops[:4], loop, *uops[4:], UOp(Ops.END, dtypes.void, (loop,))]
    with pytest.raises(SpecError, match="STORE of local0.* meets LOAD"):
        prove_program(looped, "test")
    prove_program([*looped[:-1], UOp(Ops.BARRIER, dtypes.void, (), 1), looped[-1]], "test")


# ------------------------------------------------------------ the encoding


def random_expression(rng: random.Random, leaves: list[UOp], depth: int) -> UOp:
    if depth == 0 or rng.random() < 0.15:
        if rng.random() < 0.6:
            return rng.choice(leaves)
        return leaves[0].const_like(rng.choice([-7, -2, -1, 0, 1, 2, 3, 4, 8, 100]))
    x, y = (random_expression(rng, leaves, depth - 1) for _ in range(2))
    op = rng.choice(["+", "*", "-", "//", "%", "max", "where", "neg", "<<", ">>", "&"])
    if op == "where":
        return (x < y).where(x, y + 1)
    if op in ("<<", ">>"):
        amount = x.const_like(rng.randint(0, 5))
        return x.alu(Ops.SHL if op == "<<" else Ops.SHR, amount)
    if op == "&":
        return x.alu(Ops.AND, x.const_like(rng.choice([1, 3, 7])))
    if op == "neg":
        return -x
    actions = {"+": x + y, "*": x * y, "-": x - y, "//": x // y, "%": x % y, "max": x.maximum(y)}
    return actions[op]


@pytest.mark.parametrize("dtype", [dtypes.weakint, dtypes.int8, dtypes.uint8, dtypes.int32])
def test_terms_have_the_reference_value(dtype: object) -> None:
    rng = random.Random(str(dtype))
    leaves = [
        UOp.variable("a", 0, 9, dtype),
        UOp.variable("b", -5 if dtype.kind == "int" else 0, 6, dtype),
    ]  # type: ignore[attr-defined,arg-type]
    for _ in range(60):
        node = random_expression(rng, leaves, 3)
        values = {leaf: rng.randint(leaf.arg.lo, leaf.arg.hi) for leaf in leaves}
        encoder = Encoder()
        (term,) = encoder.encode(node)
        for leaf in leaves:
            encoder.encode(leaf)
        fixed = [encoder.free[leaf][0] == value for leaf, value in values.items()]
        expected = evaluate_uop(node, values)
        assert Question(encoder, [node, *leaves], [*fixed, term != expected]).ask() is not True
        assert Question(encoder, [node, *leaves], [*fixed, term == expected]).ask() is not False


def test_equal_and_different_expressions() -> None:
    x, y = UOp.variable("x", 0, 100), UOp.variable("y", 0, 100)
    assert same_value((x * 4 + y % 4) // 4, x) is True
    assert same_value((x + y) // 4, x // 4 + y // 4) is False
    small = UOp.variable("s", 0, 255, dtypes.uint8)
    assert same_value(small + 1, (small.cast(dtypes.int32) + 1).cast(dtypes.uint8)) is True


# ------------------------------------------------------------ who did it


def lose_validity(node: UOp) -> UOp:
    """INDEX(p, i, valid) -> INDEX(p, i), wrong on purpose"""
    return node.with_src(node.src[:2])


def test_the_rule_that_broke_it_is_named() -> None:
    wrong = PatternMatcher(
        [(UPat(Ops.INDEX, src=(UPat(), UPat(), UPat()), name="node"), lose_validity)]
    )
    out, x = params(array(12), array(10))
    i = Axes().loop(12)
    ast = kernel(out.index(i).store(load(x, i - 1, (i >= 1) & (i < 11)), i))

    def run() -> UOp:
        return graph_rewrite(ast, wrong, name="lose")

    with pytest.raises(
        SpecError, match=r"after pass 'lose'(.|\n)*made by rule lose_validity \(uop/test"
    ):
        prove.verify_pass(run(), kernel_spec, "lose", run)


def test_z3_is_not_imported_before_it_is_needed() -> None:
    code = (
        "import sys; from weft import Tensor; (Tensor([1.0]) + 1).realize(); "
        "print('z3' in sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert found.stdout.strip() == "False"


def test_without_z3_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "z3", None)
    z3.cache_clear()
    out, x = params(array(12), array(10))
    i = Axes().loop(12)
    try:
        with pytest.raises(ValueError, match=r"pip install 'weft\[verify\]'"):
            prove_kernel(kernel(out.index(i).store(load(x, i - 1, (i >= 1) & (i < 11)), i)))
    finally:
        z3.cache_clear()
