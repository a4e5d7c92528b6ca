"""Gradients: every op has a rule or a mark, every rule is right to the second order, and Tensor's
`backward` and `gradient` do with them what users of PyTorch expect.

Values come from weft itself. They are compared with finite differences in float64, which know
nothing of rules, and with PyTorch where edges (ties, zeros, infinities) are a matter of convention.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.optional import optional
from weft import Tensor, dtypes, function, nn
from weft.dtype import DType
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.gradient import (
    NOT_DIFFERENTIABLE,
    compute_gradient,
    gradient_rules,
    nodes_between,
    with_identity,
)
from weft.uop.node import UOp
from weft.uop.opset import OPSET, Ops

torch = optional("torch")

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


@function(gradient=lambda gradient, x: gradient * x.square() * 3)
def _cubed(x: Tensor) -> Tensor:
    return x * x * x


RULES: dict[str, tuple[Function, tuple[Array, ...]]] = {
    "ADD": (op(Ops.ADD), (values(2, 3), values(2, 3, seed=1))),
    "MUL": (op(Ops.MUL), (values(2, 3), values(2, 3, seed=1))),
    "MULACC": (op(Ops.MULACC), (values(4), values(4, seed=1), values(4, seed=2))),
    "MULADD": (op(Ops.MULADD), (values(4), values(4, seed=1), values(4, seed=2))),
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
    "FUNCTION": (lambda x: _cubed(x) * x, (values(3),)),
    "COPY": (lambda x: x.square().to("PYTHON:1").to(x.device) * x, (values(3),)),
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
    # with a number as exponent PyTorch takes roots, which is not C's pow at -0.0 and -inf
    exponents = torch.full((len(EDGES),), float(exponent))
    check_with_torch(lambda x: x**exponent, edges(), other=lambda x: x**exponents)


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
    widths = {u.dtype for u in found.uop.toposort() if u.op is Ops.REDUCE_AXIS}
    assert widths == {dtypes.float32}
    # a sum in float16 stops at 2048, in bfloat16 at 256
    assert found.tolist() == [8192.0]


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


@pytest.mark.parametrize("combine", [None, Ops.ADD])
def test_a_store_through_indices(combine: Ops | None) -> None:
    """Written twice, the last one counts; outside, none; with ADD, all do."""
    source, value = Tensor(values(5, 2)), Tensor(values(6, 2, seed=1))
    state = source.clone().realize()
    source = Tensor(state.uop)
    index = Tensor([1, 3, 1, -1, 7, 3])

    def written(source: Tensor, value: Tensor) -> Tensor:
        place = UOp(Ops.GATHER, value.dtype, (source.uop, index.uop), (0,))
        store = UOp(Ops.STORE, dtypes.void, (place, value.uop), combine)
        return Tensor(source.uop.after(store))

    after = written(source, value)
    weights = signed(5, 2)
    found = (after * after * Tensor(weights)).sum().gradient(source, value)
    expected = values(5, 2)
    inside = [(0, 1), (1, 3), (2, 1), (3, 4), (5, 3)]
    for number, place in inside:
        new = values(6, 2, seed=1)[number]
        expected[place] = new if combine is None else expected[place] + new
    slope = 2 * expected * weights
    expected_value = np.zeros((6, 2))
    for number, place in inside if combine else inside[2:]:
        expected_value[number] = slope[place]
    if combine is None:
        slope[[1, 3, 4]] = 0.0
    same(found[0].numpy(), slope)
    same(found[1].numpy(), expected_value)


def test_a_store_that_combines_otherwise_is_refused() -> None:
    state, value = variable(3), variable(3)
    after = state.after(UOp(Ops.STORE, dtypes.void, (state, value), Ops.MAX))
    with pytest.raises(ArgumentError, match="a write that combines with MAX is not known"):
        compute_gradient(after.sum(), one(), {value})


def test_scattering_needs_no_storage_where_there_is_none() -> None:
    """Constants belong to no device: the gradient of a gather from them does not either."""
    x = Tensor.ones(4, dtype=dtypes.float64)
    root = (x[Tensor.arange(3) * 2 % 4] * 3.0).sum()
    found = root.gradient(x)[0]
    assert found.device is None
    same(found.numpy(), np.array([6.0, 0.0, 3.0, 0.0]))


def test_a_store_elsewhere_changes_nothing() -> None:
    state, other = variable(3), variable(3)
    value = variable(3)
    after = state.after(other.store(value))
    found = compute_gradient(after.sum(), one(), {value, state})
    assert found.keys() == {state}


def test_a_store_through_a_bitcast_is_refused() -> None:
    state = variable(3)
    after = state.after(state.bitcast(dtypes.int32).store(variable(3, dtype=dtypes.int32)))
    with pytest.raises(ArgumentError, match="assignment through a bitcast"):
        compute_gradient(after.sum(), one(), {state})


# *** identity of equal leaves ***


def test_identity_changes_nothing_but_the_node() -> None:
    node = UOp.const(dtypes.float32, 2.0).expand((3,))
    first, second = with_identity(node), with_identity(node)
    assert first is not second
    assert (first.shape, first.dtype, first.device) == (node.shape, node.dtype, None)
    assert Tensor(first).tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("make", ["zeros", "ones"])
def test_equal_parameters_have_gradients_of_their_own(make: str) -> None:
    a, b = getattr(Tensor, make)(3), getattr(Tensor, make)(3)
    x, y = Tensor(values(3, dtype=np.float32)), Tensor(values(3, seed=1, dtype=np.float32))
    (a * x + b * y).sum().backward()
    assert a.grad is not None and b.grad is not None
    same(a.grad.numpy(), values(3, dtype=np.float32))
    same(b.grad.numpy(), values(3, seed=1, dtype=np.float32))


def test_equal_parameters_stay_apart_when_they_are_realized() -> None:
    a, b = Tensor.ones(3), Tensor.ones(3)
    Tensor.realize(a, b)
    x = Tensor(values(3, dtype=np.float32))
    found = (a * x + b * 2.0).sum().gradient(a, b)
    same(found[0].numpy(), values(3, dtype=np.float32))
    same(found[1].numpy(), np.full(3, 2.0, dtype=np.float32))


# *** Tensor.gradient ***


def test_gradient_gives_zeros_for_what_is_not_connected() -> None:
    x, y = Tensor(values(2)), Tensor(signed(2, 3, dtype=np.float32))
    found = x.sum().gradient(x, y)
    same(found[0].numpy(), np.ones(2))
    same(found[1].numpy(), np.zeros((2, 3), dtype=np.float32))
    assert [g.device for g in found] == [x.device, y.device]


def test_gradient_of_several_orders() -> None:
    x = Tensor(values(3))
    orders = [x**4]
    for _ in range(4):
        orders += orders[-1].sum().gradient(x)
    for order, factor, power in zip(orders, (1, 4, 12, 24, 24), (4, 3, 2, 1, 0), strict=True):
        same(order.numpy(), factor * values(3) ** power)


def test_gradient_takes_a_gradient_of_the_root() -> None:
    x = Tensor(values(3))
    root = x * x
    same(root.gradient(x, gradient=Tensor(values(3, seed=1)))[0].numpy(),
         2 * values(3) * values(3, seed=1))  # fmt: skip
    # constants are legal seeds, and belong to no device and no dtype
    same(root.gradient(x, gradient=Tensor(2.0))[0].numpy(), 4 * values(3))
    same(root.gradient(x, gradient=2.0)[0].numpy(), 4 * values(3))


def test_gradient_with_respect_to_a_view_and_to_what_is_on_the_way() -> None:
    x = Tensor(values(2, 3))
    flat = x.reshape(6)
    again = flat.reshape(3, 2)
    root = (again * again).sum()
    for target in (x, flat, again):
        same(root.gradient(target)[0].numpy(), 2 * values(2, 3).reshape(target.shape))


def test_gradient_of_a_tensor_with_respect_to_itself() -> None:
    x = Tensor(values(1))
    same(x.gradient(x)[0].numpy(), np.ones(1))


def test_gradient_leaves_no_trace() -> None:
    x = Tensor(values(3))
    x.sum().gradient(x)
    assert x.grad is None


def test_targets_realized_after_the_graph_was_built() -> None:
    x = Tensor(values(3)) * 2.0
    y = x * x
    root = y.sum()
    x.realize()
    found = root.gradient(x, y)
    same(found[0].numpy(), 4 * values(3))
    y.realize()
    found = root.gradient(x, y)
    same(found[0].numpy(), 4 * values(3))
    same(found[1].numpy(), np.ones(3))


def test_a_graph_of_before_and_after_realize() -> None:
    x = Tensor(values(3)) * 2.0
    before = x * 3.0
    x.realize()
    root = (before + x * 4.0).sum()
    same(root.gradient(x)[0].numpy(), np.full(3, 7.0))


# *** Tensor.backward ***


def test_backward_fills_every_live_float_tensor_of_the_graph() -> None:
    x, unused = Tensor(values(3)), Tensor(values(3))
    n = Tensor([1, 2, 3])
    y = x * n
    loss = (y * y).sum()
    assert loss.backward() is loss
    assert x.grad is not None and y.grad is not None and loss.grad is not None
    same(y.grad.numpy(), 2 * values(3) * [1, 2, 3])
    same(x.grad.numpy(), 2 * values(3) * [1, 4, 9])
    assert loss.grad.item() == 1.0
    assert unused.grad is None and n.grad is None


def test_backward_accumulates() -> None:
    x = Tensor(values(3))
    for _ in range(3):
        (x * 2.0).sum().backward()
    assert x.grad is not None
    same(x.grad.numpy(), np.full(3, 6.0))
    x.grad = None
    (x * 2.0).sum().backward()
    same(x.grad.numpy(), np.full(3, 2.0))


def test_backward_leaves_out_pure_constants_and_what_opted_out() -> None:
    number = Tensor(2.0)
    x = Tensor(values(3), requires_grad=False)
    y = Tensor(values(3)).requires_grad_(False)
    z = Tensor(values(3))
    (x * y * z * number).sum().backward()
    assert number.grad is None and x.grad is None and y.grad is None
    assert z.grad is not None


def test_backward_fills_only_what_was_asked_for_if_anything_was() -> None:
    """As PyTorch: with a requires_grad=True in the graph, data and what is on the way get none."""
    x, weight = Tensor(values(3)), Tensor(values(3), requires_grad=True)
    y = x * weight
    loss = (y * y).sum().backward()
    assert weight.grad is not None
    same(weight.grad.numpy(), 2 * values(3) ** 3)
    assert x.grad is None and y.grad is None and loss.grad is None
    # outside of such a graph nothing has changed for x
    (x * 2.0).sum().backward()
    assert x.grad is not None
    same(x.grad.numpy(), np.full(3, 2.0))


def test_an_optimiser_asks_for_what_it_trains() -> None:
    x, weight = Tensor(values(3)), Tensor(values(3))
    optimizer = nn.optim.SGD([weight], lr=0.5)
    (x * weight).sum().backward()
    assert x.grad is None and weight.grad is not None
    # an input's gradient is asked for, or computed beside
    (x.requires_grad_() * weight).sum().backward()
    assert x.grad is not None
    same(x.grad.numpy(), values(3))
    same((x * weight).sum().gradient(x)[0].numpy(), values(3))
    optimizer.step()
    same(weight.numpy(), 0.0 * values(3))


def test_what_opted_out_lets_gradients_through() -> None:
    x = Tensor(values(3))
    y = (x * 2.0).requires_grad_(False)
    (y * y).sum().backward()
    assert y.grad is None and x.grad is not None
    same(x.grad.numpy(), 8 * values(3))


def test_a_number_can_become_a_parameter() -> None:
    for x in (Tensor(3.0, requires_grad=True), Tensor(3.0).requires_grad_()):
        assert x.dtype is dtypes.default_float and x.device is None
        (x * x * 3.0).backward()
        assert x.grad is not None and x.grad.item() == 18.0


def test_a_step_has_a_gradient_of_zero() -> None:
    x = Tensor(values(3))
    x.floor().sum().backward()
    assert x.grad is not None
    same(x.grad.numpy(), np.zeros(3))


def test_gradients_do_not_collect_gradients() -> None:
    x = Tensor(values(3))
    (x * x).sum().backward()
    assert x.grad is not None
    first = x.grad
    (x * first).sum().backward()
    assert first.grad is None
    # 2x, then d(x * 2x) = 4x, for a gradient is an expression of x like any other
    same(x.grad.numpy(), 6 * values(3))


def test_backward_forgets_tensors_that_died() -> None:
    x = Tensor(values(3))
    y = x * 2.0
    loss = y.sum()
    del y
    gc.collect()
    before = len(Tensor._live)
    loss.backward()
    assert x.grad is not None
    # one gradient each for x and the loss
    assert len(Tensor._live) <= before + 2


def test_training_a_line() -> None:
    x, y = values(8, 1), 3.0 * values(8, 1) + 0.5
    weight, bias = Tensor.zeros(1, 1, dtype=dtypes.float64), Tensor.zeros(1, dtype=dtypes.float64)
    for _ in range(300):
        weight.grad = bias.grad = None
        (Tensor(x) @ weight + bias - Tensor(y)).square().mean().backward()
        for parameter in (weight, bias):
            assert parameter.grad is not None
            parameter.assign(parameter.detach() - parameter.grad * 0.3)
        Tensor.realize(weight, bias)
    same(weight.item(), 3.0, rtol=1e-3, atol=1e-3)
    same(bias.item(), 0.5, rtol=1e-3, atol=1e-3)


# *** where no gradient passes ***


def test_detach_stops_the_gradient() -> None:
    x = Tensor(values(3))
    (x * x.detach()).sum().backward()
    assert x.grad is not None
    same(x.grad.numpy(), values(3))


def test_a_detached_tensor_gets_no_gradient_unless_asked() -> None:
    x = Tensor(values(3))
    quiet, leaf = (x * 2.0).detach(), (x * 3.0).detach().requires_grad_()
    (quiet * leaf).sum().backward()
    assert x.grad is None and quiet.grad is None and leaf.grad is not None
    same(leaf.grad.numpy(), 2 * values(3))


def test_no_grad_as_a_context_and_a_decorator() -> None:
    x = Tensor(values(3))

    @Tensor.no_grad()
    def double(value: Tensor) -> Tensor:
        return value * 2.0

    with Tensor.no_grad():
        triple = x * 3.0
        view = x.reshape(1, 3)
    root = (x * double(x) * triple * view.reshape(3)).sum()
    same(root.gradient(x)[0].numpy(), 6 * values(3) ** 3)
    assert triple.tolist() == (values(3) * 3.0).tolist()


def test_assignment_under_no_grad_writes_in_place() -> None:
    x = Tensor(values(4)).realize()
    storage = x.uop.base
    with Tensor.no_grad():
        x.assign(x * 2.0)
        x[1:3] = 0.0
        x.reshape(2, 2)[1, 1] += 1.0
    x.realize()
    expected = values(4) * 2.0
    expected[1:3] = 0.0
    expected[3] += 1.0
    assert x.uop.base is storage
    same(x.numpy(), expected)
    same((x * x).sum().gradient(x)[0].numpy(), 2 * expected)


# *** mistakes ***


def test_a_root_of_several_elements_needs_a_gradient() -> None:
    x = Tensor(values(2, 3))
    with pytest.raises(
        ShapeError, match=r"backward\(\) of a Tensor of shape \(2, 3\) needs gradient="
    ):
        (x * 2.0).backward()
    with pytest.raises(ShapeError, match=r"takes a gradient of that shape, found \(3,\)"):
        (x * 2.0).gradient(x, gradient=Tensor(values(3)))


def test_ints_have_no_gradients() -> None:
    n, x = Tensor([1, 2]), Tensor(values(2))
    with pytest.raises(DTypeError, match=r"backward\(\) of a Tensor of dtypes.int"):
        n.sum().backward()
    with pytest.raises(DTypeError, match="with respect to a Tensor of dtypes.int"):
        (x * n).sum().gradient(n)
    with pytest.raises(DTypeError, match=r"requires_grad_\(\) of a Tensor of dtypes.int"):
        n.requires_grad_()


def test_pure_constants_have_no_gradients() -> None:
    number = Tensor(2.0)
    with pytest.raises(ArgumentError, match="pure constant.*requires_grad_"):
        (Tensor(values(2)) * number).sum().gradient(number)


def test_targets_are_tensors() -> None:
    with pytest.raises(ArgumentError, match="takes Tensors as targets, found a float"):
        Tensor(values(1)).gradient(2.0)  # type: ignore[arg-type]


def test_a_root_that_was_computed_from_nothing() -> None:
    data = Tensor(values(1)).realize()
    with pytest.raises(ArgumentError, match="backward.*computed from nothing that can be"):
        data.backward()
    with pytest.raises(ArgumentError, match="gradient.*computed from nothing that can be"):
        data.gradient(Tensor(values(3)))


def test_an_empty_batch_gives_zero_gradients() -> None:
    weight, empty = Tensor.ones(4, 3).contiguous(), Tensor.zeros(0, 4)
    losses: list[Callable[[Tensor], Tensor]] = [
        lambda out: out.sum(),
        lambda out: out.mean(),
        lambda out: out.max(1).sum(),
        lambda out: out.log_softmax().square().sum(),
        lambda out: out.relu().sum(0).exp().sum(),
    ]
    for loss in losses:
        (found,) = loss(empty @ weight).gradient(weight)
        assert found.tolist() == [[0.0] * 3] * 4
        weight.grad = None
        loss(empty @ weight).backward()
        assert weight.grad is not None and weight.grad.tolist() == [[0.0] * 3] * 4
