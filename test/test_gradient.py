"""Gradients: every op has a rule or a mark, every rule is right to the second order, and Tensor's
`backward` and `gradient` do with them what users of PyTorch expect.

Values come from weft itself. They are compared with finite differences in float64, which know nothing
of rules, and with PyTorch where edges (ties, zeros, infinities) have a meaning that is a convention.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from weft import Tensor, dtypes
from weft.dtype import DType
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.gradient import (
    NOT_DIFFERENTIABLE,
    compute_gradient,
    gradient_rules,
    nodes_between,
    with_identity,
)
from weft.uop.args import ReduceArg
from weft.uop.node import UOp
from weft.uop.opset import OPSET, Ops

torch = pytest.importorskip("torch", reason="gradients are compared with PyTorch's")

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]


def values(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Array:
    return np.random.default_rng(seed).uniform(0.3, 1.7, shape).astype(dtype)


def signed(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def same(found: Any, expected: Any, **bounds: float) -> None:
    """Close as `torch.testing.assert_close` has it for the dtype; nan equals nan."""
    left, right = torch.as_tensor(np.asarray(found)), torch.as_tensor(np.asarray(expected))
    torch.testing.assert_close(left, right, equal_nan=True, **bounds)


# *** the table ***


@pytest.mark.parametrize("op", OPSET, ids=lambda op: op.name)
def test_every_op_has_a_rule_or_is_marked(op: Ops) -> None:
    assert (op in gradient_rules) != (op in NOT_DIFFERENTIABLE)


def test_every_rule_has_a_name_and_says_what_it_does() -> None:
    for rule in gradient_rules.values():
        assert rule.__name__ != "<lambda>"
        assert rule.__doc__


# *** the sweep ***


def variable(*shape: int, dtype: DType = dtypes.float32) -> UOp:
    size = math.prod(shape)
    return UOp.new_buffer("CPU", size, dtype).reshape(shape)


def one(dtype: DType = dtypes.float32) -> UOp:
    return UOp.const(dtype, 1.0)


def test_only_nodes_between_a_target_and_the_root_are_visited() -> None:
    x, other = variable(3), variable(3)
    aside = other.exp2() if hasattr(other, "exp2") else other.alu(Ops.EXP2)
    inner = x * 2.0
    root = (inner * aside).sum()
    path = nodes_between({inner}, root)
    assert inner in path and root in path
    assert x not in path and aside not in path and other not in path


def test_a_gradient_has_the_shape_and_dtype_of_its_node() -> None:
    x = variable(3, 4, dtype=dtypes.float16)
    root = (x.sum(0) * 2.0).cast(dtypes.float32).sum()
    found = compute_gradient(root, one(), {x})[x]
    assert (found.shape, found.dtype) == ((3, 4), dtypes.float16)


def test_targets_may_depend_on_each_other() -> None:
    x = variable(3)
    y = x * 3.0
    root = (y * y).sum()
    assert compute_gradient(root, one(), {x, y}).keys() == {x, y}


def test_the_root_may_be_a_target() -> None:
    x = variable()
    assert compute_gradient(x, one(), {x}) == {x: one()}


def test_what_the_root_does_not_depend_on_is_missing() -> None:
    x, y = variable(3), variable(3)
    assert compute_gradient(x.sum(), one(), {y}) == {}


@pytest.mark.parametrize(
    "cut",
    [
        lambda x: UOp(Ops.DETACH, x.dtype, (x,)),
        lambda x: x.cast(dtypes.int32).cast(dtypes.float32),
        lambda x: x.bitcast(dtypes.int32).bitcast(dtypes.float32),
        lambda x: x.alu(Ops.TRUNC),
        lambda x: x.lt(0.0).cast(dtypes.float32),
    ],
    ids=["detach", "int", "bits", "trunc", "comparison"],
)
def test_nothing_flows_through(cut: Callable[[UOp], UOp]) -> None:
    x = variable(3)
    assert compute_gradient(cut(x).sum(), one(), {x}) == {}


def test_a_long_chain_needs_no_stack() -> None:
    x = variable(2)
    node = x
    for _ in range(100_000):
        node = node + 1.0
    assert compute_gradient(node.sum(), one(), {x})[x].shape == (2,)


def test_a_node_with_many_readers_gets_the_sum() -> None:
    x = Tensor(values(3))
    total = x * 0.0
    for _ in range(50):
        total = total + x
    same(total.sum().gradient(x)[0].numpy(), np.full(3, 50.0))


def test_symbolic_shapes_have_gradients() -> None:
    n = UOp.variable("n", 1, 8)
    x = variable(8)
    part = x._mop(Ops.SHRINK, ((0, n),))
    wide = part._mop(Ops.RESHAPE, (n, 1))._mop(Ops.EXPAND, (n, 3))
    product = part._reduce_axis(Ops.MUL, (0,))
    for root in (wide.sum(), part._reduce_axis(Ops.MAX, (0,)).sum(), product.sum()):
        assert compute_gradient(root, one(), {x})[x].shape == (8,)


# *** rules, against finite differences ***


def slope(function: Callable[[Tensor], Tensor], at: Array, along: Array) -> float:
    """The derivative along a direction, by central differences of two step sizes."""

    def difference(step: float) -> float:
        above = function(Tensor(at + step * along)).item()
        below = function(Tensor(at - step * along)).item()
        return (above - below) / (2 * step)

    # Richardson: the error of the plain quotient falls with step**2
    return (4 * difference(1e-4) - difference(2e-4)) / 3


def check_by_differences(function: Function, *arrays: Array) -> None:
    """First and second derivatives of a function of float64 tensors along random directions."""
    result_shape = function(*[Tensor(a) for a in arrays]).shape
    weights = Tensor(signed(*result_shape, seed=90))

    def scalar(*tensors: Tensor) -> Tensor:
        return (function(*tensors) * weights).sum()

    for number, array in enumerate(arrays):
        inward = Tensor(signed(*array.shape, seed=91))

        def put(x: Tensor, number: int = number) -> list[Tensor]:
            return [x if i == number else Tensor(a) for i, a in enumerate(arrays)]

        def first(x: Tensor, put: Any = put) -> Tensor:
            return scalar(*put(x))

        def second(x: Tensor, put: Any = put, inward: Tensor = inward) -> Tensor:
            return (scalar(*put(x)).gradient(x)[0] * inward).sum()

        along = signed(*array.shape, seed=92)
        for order in (first, second):
            x = Tensor(array)
            found = order(x).gradient(x)[0]
            assert found.shape == array.shape and found.dtype is dtypes.float64
            total = float((found.numpy() * along).sum())
            same(total, slope(order, array, along), rtol=1e-6, atol=1e-7)


def op(op: Ops) -> Function:
    return lambda x, *others: x.alu(op, *others)


RULES: dict[str, tuple[Function, tuple[Array, ...]]] = {
    "ADD": (op(Ops.ADD), (values(2, 3), values(2, 3, seed=1))),
    "MUL": (op(Ops.MUL), (values(2, 3), values(2, 3, seed=1))),
    "MULACC": (op(Ops.MULACC), (values(4), values(4, seed=1), values(4, seed=2))),
    "NEG": (op(Ops.NEG), (values(4),)),
    "FDIV": (op(Ops.FDIV), (values(4), values(4, seed=1))),
    "MAX": (op(Ops.MAX), (values(5), values(5, seed=1))),
    "POW": (op(Ops.POW), (values(4), values(4, seed=1))),
    "WHERE": (lambda x, y: (x < 1.0).where(x * x, y * y * x), (values(6), values(6, seed=1))),
    "SQRT": (op(Ops.SQRT), (values(4),)),
    "EXP2": (op(Ops.EXP2), (values(4),)),
    "LOG2": (op(Ops.LOG2), (values(4),)),
    "SIN": (op(Ops.SIN), (signed(4) * 3,)),
    "CAST": (lambda x: x.cast(dtypes.float64) * x, (values(4),)),
    "RESHAPE": (lambda x: x.reshape(3, 2).square(), (values(2, 3),)),
    "PERMUTE": (lambda x: x.permute(2, 0, 1).square(), (values(2, 3, 4),)),
    "EXPAND": (lambda x: x.expand(2, 3, 4).square(), (values(2, 1, 4),)),
    "PAD": (lambda x: x._mop(Ops.PAD, ((1, 2), (0, 1))).square(), (values(2, 3),)),
    "SHRINK": (lambda x: x.shrink(((1, 3), None)).square(), (values(4, 2),)),
    "FLIP": (lambda x: x.flip(0).square() * x, (values(3, 2),)),
    "STRIDE": (lambda x: x._mop(Ops.STRIDE, (3, 2)).square(), (values(7, 4),)),
    "CAT": (lambda x, y: x.cat(y, x, dim=1).square(), (values(2, 3), values(2, 1))),
    "GATHER": (lambda x: x[Tensor([[0, 2], [2, -1]])].square(), (values(4, 2),)),
    "GATHER2": (lambda x: x[:, Tensor([0, 2, 2]), Tensor([1, 1, 0])].square(), (values(2, 3, 2),)),
    "sum": (lambda x: x.square().sum((0, 2)), (values(2, 3, 2),)),
    "max": (lambda x: x.square().max(1), (values(3, 4),)),
    "prod": (lambda x: x.prod(1), (values(2, 5),)),
    "prod of several axes": (lambda x: x.prod((0, 2)), (values(3, 2, 2),)),
    "CONTIGUOUS": (lambda x: x.square().contiguous() * x, (values(3),)),
    "CONTIGUOUS_BACKWARD": (lambda x: x.square().contiguous_backward() * x, (values(3),)),
    "COPY": (lambda x: x.square().to("PYTHON").to("CPU") * x, (values(3),)),
}


@pytest.mark.parametrize("name", RULES)
def test_rule_agrees_with_finite_differences_to_second_order(name: str) -> None:
    function, arrays = RULES[name]
    check_by_differences(function, *arrays)


def test_every_differentiable_op_is_tested_here() -> None:
    named = {name.rstrip("2") for name in RULES} | {"EXP2", "LOG2"}
    # a reduction goes by its method; states have tests of their own; a step has no slope; shards
    elsewhere = {Ops.REDUCE_AXIS, Ops.STORE, Ops.AFTER, Ops.TRUNC, Ops.ALLREDUCE}
    assert {op.name for op in gradient_rules.keys() - elsewhere} <= named


@pytest.mark.parametrize("zeros", [1, 2, 3])
def test_product_with_zeros_is_right_to_second_order(zeros: int) -> None:
    array = values(5)
    array[:zeros] = 0.0
    check_by_differences(lambda x: x.prod(), array)


def test_all_reduce_of_a_sum_passes_the_gradient_on() -> None:
    x = variable(3)
    total = UOp(Ops.ALLREDUCE, x.dtype, (x,), Ops.ADD)
    assert compute_gradient(total.sum(), one(), {x})[x].shape == (3,)
    other = UOp(Ops.ALLREDUCE, x.dtype, (x,), Ops.MAX)
    with pytest.raises(ArgumentError, match="all-reduce is known for ADD, found MAX"):
        compute_gradient(other.sum(), one(), {x})


def test_the_gradient_of_contiguous_backward_is_stored() -> None:
    x = variable(3)
    node = UOp(Ops.CONTIGUOUS_BACKWARD, x.dtype, (x,))
    assert compute_gradient((node * node).sum(), one(), {x})[x].op is Ops.CONTIGUOUS


def test_scalars_are_summed_up_where_they_were_repeated() -> None:
    scalar = Tensor(2.0, requires_grad=True)
    x = Tensor(values(2, 3))
    root = (x * scalar.cast(dtypes.float64) + scalar.cast(dtypes.float64)).sum()
    same(root.gradient(scalar)[0].item(), float(np.float32(values(2, 3).sum() + 6)))


# *** edges, as PyTorch has them ***

EDGES = [-math.inf, -1e30, -2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, 1e30, math.inf, math.nan]


def edges(dtype: Any = np.float32) -> Array:
    return np.array(EDGES, dtype=dtype)


def check_with_torch(
    function: Function, *arrays: Array, other: Function | None = None, **bounds: float
) -> None:
    """Gradients of the sum of a function, with respect to all of its float arguments."""
    tensors = [Tensor(a) for a in arrays]
    peers = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
    targets = [x for x in tensors if x.is_floating_point()]
    weights = signed(*function(*tensors).shape, seed=93, dtype=arrays[0].dtype)
    found = (function(*tensors) * Tensor(weights)).sum().gradient(*targets)
    ((other or function)(*peers) * torch.tensor(weights)).sum().backward()
    expected = [peer.grad for peer in peers if peer.requires_grad]
    for gradient, wanted in zip(found, expected, strict=True):
        same(gradient.numpy(), torch.zeros(gradient.shape) if wanted is None else wanted, **bounds)


PAIRS = np.array([(a, b) for a in EDGES for b in EDGES], dtype=np.float32)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x, y: x + y, id="add"),
        pytest.param(lambda x, y: x * y, id="mul"),
        pytest.param(lambda x, y: x / y, id="div"),
        pytest.param(lambda x, y: x.maximum(y), id="maximum"),
        pytest.param(lambda x, y: x.minimum(y), id="minimum"),
        pytest.param(lambda x, y: x.pow(y), id="pow"),
        pytest.param(lambda x, y: (x < y).where(x, y) if isinstance(x, Tensor) else
                     torch.where(x < y, x, y), id="where"),
    ],
)  # fmt: skip
def test_binary_edges(function: Function) -> None:
    check_with_torch(function, PAIRS[:, 0].copy(), PAIRS[:, 1].copy())


@pytest.mark.parametrize("name", ["sqrt", "exp2", "log2", "neg", "trunc", "reciprocal", "rsqrt"])
def test_unary_edges(name: str) -> None:
    check_with_torch(lambda x: getattr(x, name)(), edges())


@pytest.mark.parametrize("exponent", [-2.0, -1, -0.5, 0, 0.5, 1, 2, 2.0, 3, 4, 2.5])
def test_power_with_a_constant_exponent(exponent: float) -> None:
    check_with_torch(lambda x: x**exponent, edges())


def test_sine_of_large_values() -> None:
    check_with_torch(lambda x: x.sin(), signed(50, dtype=np.float32) * 1e4)
    check_with_torch(lambda x: x.sin(), signed(50) * 1e6)


def test_ties_of_max_share_the_gradient() -> None:
    array = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [0.0, -0.0, -1.0]], dtype=np.float32)
    check_with_torch(lambda x: x.max(1), array, other=lambda x: x.amax(1))
    check_with_torch(lambda x: x.min(1), array, other=lambda x: x.amin(1))
    array[0, 1] = math.nan
    check_with_torch(lambda x: x.max(), array)


def test_guarded_infinities_are_as_in_pytorch() -> None:
    """A where around the bad value does not help (0 * inf is nan), one inside does."""
    array = np.array([0.0, 1.0, 4.0], dtype=np.float32)

    def outside(x: Any) -> Any:
        zero = x * 0.0
        return (x > 0).where(x.sqrt(), zero) if isinstance(x, Tensor) else torch.where(
            x > 0, x.sqrt(), zero
        )  # fmt: skip

    def inside(x: Any) -> Any:
        if isinstance(x, Tensor):
            return (x > 0).where((x > 0).where(x, 1.0).sqrt(), 0.0)
        return torch.where(x > 0, torch.where(x > 0, x, 1.0).sqrt(), 0.0)

    check_with_torch(outside, array)
    check_with_torch(inside, array)


def test_a_gather_outside_gets_nothing() -> None:
    x = Tensor(values(3, 2))
    node = UOp(Ops.GATHER, x.dtype, (x.uop, Tensor([0, 5, -3, -4, 2, 2]).uop), (0,))
    found = Tensor(node).sum().gradient(x)[0]
    same(found.numpy(), np.array([[2.0, 2.0], [0.0, 0.0], [2.0, 2.0]]))


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8, dtypes.int64, dtypes.uint64], ids=str)
def test_gather_indices_of_any_int_type(dtype: DType) -> None:
    # 200 places are more than an int8 holds
    x = Tensor(values(200))
    indices = Tensor([0, 100, 100]).cast(dtype)
    expected = np.zeros(200)
    expected[[0, 100]] = 1.0, 2.0
    same(x[indices].sum().gradient(x)[0].numpy(), expected)


# *** half types ***


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=str)
def test_repeated_values_add_up_in_a_wide_type(dtype: DType) -> None:
    x = Tensor([1.0]).cast(dtype)
    repeated = x.expand(8192)
    assert not [u for u in repeated.uop.toposort() if u.op is Ops.CAST and u is not x.uop]
    found = repeated.gradient(x, gradient=Tensor.ones(8192).cast(dtype))[0]
    assert found.dtype is dtype
    # a sum in float16 stops at 2048, in bfloat16 at 256
    assert found.tolist() == [8192.0]
    widths = {u.dtype for u in found.uop.toposort() if u.op is Ops.REDUCE_AXIS}
    assert widths == {dtypes.float32}


def test_constants_of_rules_are_not_rounded_to_half() -> None:
    array = values(64, dtype=np.float16)
    for name in ("exp2", "log2", "sin"):
        check_with_torch(lambda x, name=name: getattr(x, name)(), array, rtol=1e-3, atol=1e-3)


# *** states: gradients through assignment ***


def test_a_full_store_gives_all_to_the_value() -> None:
    x = Tensor(values(3)).realize()
    y = Tensor(values(3, seed=1))
    before = x * 1.0
    x.assign(y * 3.0)
    root = (x * x).sum() + before.sum()
    same(root.gradient(y)[0].numpy(), 18 * values(3, seed=1))


def test_a_partial_store_splits_the_gradient() -> None:
    source, value = Tensor(values(4, 3)), Tensor(values(2, 2, seed=1))
    x = (source * 2.0).contiguous().realize() * 1.0
    state = (source * 2.0).clone()
    state[1:3, ::2] = value * value
    found = (state * state).sum().gradient(source, value)
    expected_source = 8 * values(4, 3)
    expected_source[1:3, ::2] = 0.0
    same(found[0].numpy(), expected_source)
    same(found[1].numpy(), 4 * values(2, 2, seed=1) ** 3)
    assert x.shape == (4, 3)


def test_a_chain_of_stores() -> None:
    source = Tensor(values(4))
    state = source.clone()
    for place in range(3):
        state[place + 1] = state[place] * 2.0
    expected = np.zeros(4)
    expected[0] = 1 + 2 + 4 + 8
    same(state.sum().gradient(source)[0].numpy(), expected)


def state_of(*shape: int) -> UOp:
    return variable(*shape)


def test_a_store_to_another_view_of_the_storage() -> None:
    """AFTER(view, STORE(other view, value)), which the scheduler may see, is one storage too."""
    storage = UOp.new_buffer("CPU", 6, dtypes.float32)
    state = storage.reshape((2, 3))
    value = variable(3)
    place = storage.shrink(((3, 6),))
    after = state.after(place.store(value))
    found = compute_gradient((after * after).sum(), one(), {value, state})
    assert found[value].shape == (3,)
    assert found[state].shape == (2, 3)


def test_a_store_elsewhere_changes_nothing() -> None:
    state, other = state_of(3), state_of(3)
    value = variable(3)
    after = state.after(other.store(value))
    found = compute_gradient(after.sum(), one(), {value, state})
    assert found.keys() == {state}


def test_a_store_through_a_bitcast_is_refused() -> None:
    state = state_of(3)
    after = state.after(state.bitcast(dtypes.int32).store(variable(3, dtype=dtypes.int32)))
    with pytest.raises(ArgumentError, match="assignment through a bitcast"):
        compute_gradient(after.sum(), one(), {state})


# *** identity of equal leaves ***


def test_identity_changes_nothing_but_the_node() -> None:
    node = UOp.const(dtypes.float32, 2.0).expand((3,))
    first, second = with_identity(node), with_identity(node)
    assert first is not second
    assert Tensor(first).tolist() == [2.0, 2.0, 2.0]
    assert first.simplify() is second.simplify()
