"""Functions with gradients of their own, and kernels written by hand."""

from __future__ import annotations

import doctest
import sys
from typing import Any

import numpy as np
import pytest

import weft
from weft import Tensor, UOp, dtypes
from weft.dtype import AddrSpace
from weft.errors import ArgumentError
from weft.uop.ops import AxisType, KernelInfo, Ops


# ------------------------------------------------------------ function
def test_the_given_gradient_is_taken() -> None:
    @weft.function(gradient=lambda gradient, x: gradient * 7)
    def rounded(x: Tensor) -> Tensor:
        return x.round()

    x = Tensor([1.4, 2.6])
    assert rounded(x).tolist() == [1.0, 3.0]
    assert (rounded(x) * Tensor([1.0, 2.0])).sum().gradient(x)[0].tolist() == [7.0, 14.0]


def test_other_arguments_and_results() -> None:
    def rule(gradients: Any, x: Tensor, y: Tensor, scale: float, tags: list[int]) -> Any:
        assert tags == [1, 2]
        first, second = gradients
        if first is not None:
            return first * scale, None
        return None, second * 10

    @weft.function(gradient=rule)
    def both(x: Tensor, y: Tensor, scale: float, tags: list[int]) -> tuple[Tensor, Tensor]:
        return x * scale, y + 1

    x, y = Tensor([1.0, 2.0]), Tensor([[3.0]])
    first, second = both(x, y, scale=2.0, tags=[1, 2])
    total = first.sum() + second.sum() * 3
    found = total.gradient(x, y)
    assert found[0].tolist() == [2.0, 2.0] and found[1].tolist() == [[30.0]]


def test_without_a_gradient_it_is_the_function() -> None:
    @weft.function
    def doubled(x: Tensor) -> Tensor:
        return x * 2

    x = Tensor([1.0])
    assert doubled(x).sum().gradient(x)[0].tolist() == [2.0]


def test_one_structure_is_one_schedule() -> None:
    @weft.function(gradient=lambda gradient, x, k: gradient)
    def scaled(x: Tensor, k: int) -> Tensor:
        return x * k

    x = Tensor([1.0, 2.0]).realize()
    assert scaled(x, 3).uop is scaled(x, 3).uop
    assert scaled(x, 3).uop is not scaled(x, 4).uop
    assert len(scaled(x, 3).add(1).schedule()) == 1


def test_errors_of_a_gradient() -> None:
    x = Tensor([1.0, 2.0])
    wrong = weft.function(gradient=lambda gradient, x: (gradient, gradient))(lambda x: x * 2)
    with pytest.raises(ArgumentError, match="returned 2 gradients"):
        wrong(x).sum().gradient(x)
    shape = weft.function(gradient=lambda gradient, x: gradient.reshape(2, 1))(lambda x: x * 2)
    with pytest.raises(ArgumentError, match=r"returned \(2, 1\) for an argument of shape \(2,\)"):
        shape(x).sum().gradient(x)
    with pytest.raises(ArgumentError, match="must return Tensors"):
        weft.function(gradient=lambda g: g)(lambda: 3)()


# ------------------------------------------------------------ as a unit
def test_methods_objects_and_containers() -> None:
    class Scale:
        def __init__(self) -> None:
            self.weight = Tensor([2.0, 3.0]).realize()

        @weft.function
        def method(self, x: Tensor) -> Tensor:
            return x * self.weight

        def __call__(self, x: Tensor) -> Tensor:
            return x * self.weight

    model, x = Scale(), Tensor([1.0, 1.0])
    model.method(x).sum().backward()
    assert model.weight.grad is not None and x.grad is not None
    assert model.weight.grad.tolist() == [1.0, 1.0] and x.grad.tolist() == [2.0, 3.0]
    called = weft.function(model, allow_implicit=True)  # type: ignore[call-overload]
    assert called(x).tolist() == [2.0, 3.0]

    @weft.function(name="both")
    def both(pair: tuple[Tensor, Tensor], named: dict[str, Tensor]) -> Any:
        return pair[0] + named["a"], {"product": pair[1] * named["a"]}

    one, two, three = (Tensor([float(i)]).realize() for i in (1, 2, 3))
    total, others = both((one, two), {"a": three})
    assert total.item() == 4.0 and others["product"].item() == 6.0


def test_memory_that_did_not_come_with_the_arguments_is_refused() -> None:
    weight = Tensor([2.0]).realize()

    @weft.function(allow_implicit=True)
    def allowed(x: Tensor) -> Tensor:
        return x * weight

    @weft.function
    def refused(x: Tensor) -> Tensor:
        return x * weight

    x = Tensor([3.0])
    assert allowed(x).item() == 6.0
    with pytest.raises(RuntimeError, match="reads 1 buffers that did not come with its arguments"):
        refused(x)
    with pytest.raises(RuntimeError, match="must return Tensors"):
        weft.function(lambda x: 3)(x)
    # what is drawn, and constants, are no memory
    assert weft.function(lambda x: x.rand_like() + Tensor.ones(1))(x).shape == (1,)
    # nor is what an argument is an expression of
    assert weft.function(lambda x: x + weight)(weight * 2).item() == 6.0


def test_an_argument_that_is_not_used_has_a_gradient_of_zeros() -> None:
    @weft.function
    def first(x: Tensor, y: Tensor) -> Tensor:
        return x * 2

    x, y = Tensor([1.0, 2.0]), Tensor([3.0])
    first(x, y).sum().backward()
    assert x.grad is not None and y.grad is not None
    assert x.grad.tolist() == [2.0, 2.0] and y.grad.tolist() == [0.0]


def test_a_precompiled_function_is_its_own_kernels() -> None:
    @weft.function(precompile=True, precompile_backward=True)
    def product(a: Tensor, b: Tensor) -> Tensor:
        return (a @ b).relu()

    a, b = Tensor.ones(2, 3).contiguous().realize(), Tensor.ones(3, 2).contiguous().realize()
    assert len((product(a * 2, b) + 1).schedule()) == 3
    product(a, b).sum().backward()
    assert a.grad is not None and a.grad.tolist() == [[2.0] * 3] * 2


def test_a_gradient_over_nodes() -> None:
    @weft.function(grad_fxn=lambda gradient, call: (gradient * call.src[1], None))
    def scaled(a: Tensor, b: Tensor) -> Tensor:
        return a * b

    @weft.function(grad_fxn=lambda first, second, call: (first * 2 + second.sum() * 10,))
    def both(a: Tensor) -> tuple[Tensor, Tensor]:
        return a * 1, a.reshape(2, 1)

    x, y = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    found = scaled(x, y).sum().gradient(x, y)
    assert found[0].tolist() == [1.0, 2.0] and found[1].tolist() == [0.0, 0.0]
    first, second = both(x)
    assert (first.sum() + second.sum()).gradient(x)[0].tolist() == [22.0, 22.0]


# ------------------------------------------------------------ custom_kernel
def add_one(target: UOp, source: UOp) -> UOp:
    i = UOp.range(source.size, 0)
    return target.index(i).store(source.index(i).load() + 1, i).sink(arg=KernelInfo("add_one"))


def product(target: UOp, left: UOp, right: UOp) -> UOp:
    i, j, k = UOp.range(3, 0), UOp.range(5, 1), UOp.range(4, 2)
    term = left.index(i * 4 + k).load() * right.index(k * 5 + j).load()
    return target.index(i * 5 + j).store(term.reduce(Ops.ADD, k), i, j).sink()


def shifted(target: UOp, source: UOp) -> UOp:
    """The element before, nothing before the first; only odd places are written."""
    i = UOp.range(source.size, 0)
    before = source.index(i - 1, i > 0).load()
    return target.index(i, (i % 2).ne(0)).store(before, i).sink()


def test_a_kernel_writes_in_place() -> None:
    source, target = Tensor([1.0, 2.0, 3.0]).realize(), Tensor.empty(3)
    result = target.custom_kernel(source, fxn=add_one)
    assert len(result) == 2 and result[1] is source
    assert result[0].tolist() == [2.0, 3.0, 4.0] and target.tolist() == [2.0, 3.0, 4.0]


def test_it_is_one_kernel_over_the_same_ranges() -> None:
    left, right = [Tensor(np.ones(shape, np.float32)).realize() for shape in ((3, 4), (4, 5))]
    result = Tensor.empty(3, 5).custom_kernel(left, right, fxn=product)[0]
    (item,) = result.schedule()
    ranges = [u for u in item.kernel.toposort() if u.op is Ops.RANGE]
    assert sorted(u.src[0].arg for u in ranges) == [3, 4, 5]
    assert result.tolist() == [[4.0] * 5] * 3


def test_validity_of_loads_and_stores() -> None:
    target = Tensor([9.0, 9.0, 9.0, 9.0])
    target.custom_kernel(Tensor([1.0, 2.0, 3.0, 4.0]), fxn=shifted)
    assert target.tolist() == [9.0, 1.0, 9.0, 3.0]


def test_a_kernel_happens_every_time_it_is_written_down() -> None:
    def count(target: UOp) -> UOp:
        i = UOp.range(target.size, 0)
        return target.index(i).store(target.index(i).load() + 1, i).sink()

    counter = Tensor([0.0, 5.0]).realize()
    for _ in range(3):
        counter.custom_kernel(fxn=count)
        counter.realize()
    assert counter.tolist() == [3.0, 8.0]


def test_two_outputs() -> None:
    def both(first: UOp, second: UOp, source: UOp) -> UOp:
        i = UOp.range(source.size, 0)
        value = source.index(i).load()
        return first.index(i).store(value * 2, i).sink(second.index(i).store(value * 3, i))

    found = Tensor.empty(2).custom_kernel(Tensor.empty(2), Tensor([1.0, 2.0]), fxn=both)
    assert found[0].tolist() == [2.0, 4.0] and found[1].tolist() == [3.0, 6.0]


def test_gradient_of_the_kernel_itself_or_as_given() -> None:
    left, right = [Tensor(np.random.default_rng(0).random(s)) for s in ((3, 4), (4, 5))]
    empty = Tensor.empty(3, 5, dtype=dtypes.float64)
    wanted = np.ones((3, 5)) @ right.numpy().T
    plain = empty.custom_kernel(left, right, fxn=product)[0]
    np.testing.assert_allclose(plain.sum().gradient(left)[0].numpy(), wanted)

    def rule(gradient: UOp, kernel: UOp) -> Any:
        _, a, b = [Tensor(node) for node in kernel.src]
        outer = Tensor(gradient)
        return None, (outer @ b.T * 10).uop, a.T @ outer

    empty = Tensor.empty(3, 5, dtype=dtypes.float64)
    given = empty.custom_kernel(left, right, fxn=product, grad_fxn=rule)[0]
    found = given.sum().gradient(left, right)
    np.testing.assert_allclose(found[0].numpy(), wanted * 10)
    np.testing.assert_allclose(found[1].numpy(), left.numpy().T @ np.ones((3, 5)))
    np.testing.assert_allclose(given.numpy(), left.numpy() @ right.numpy())


def test_kernels_in_the_words_of_tinygrad() -> None:
    matrix = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4)).realize()
    other = Tensor(np.arange(8, dtype=np.float32).reshape(4, 2)).realize()

    def gemm(c: UOp, a: UOp, b: UOp) -> UOp:
        i, j = UOp.range(c.shape[0], 0), UOp.range(c.shape[1], 1)
        k = UOp.range(a.shape[1], 2, axis_type=AxisType.REDUCE)
        c = c[i, j].set(1.0)
        c = c[i, j].set(c.after(k)[i, j] + a[i, k] * b[k, j], end=k)
        return c.end(i, j).sink(arg=KernelInfo(name="gemm", opts_to_apply=()))

    def row_sums(c: UOp, a: UOp) -> UOp:
        i, k = UOp.range(a.shape[0], 0), UOp.range(a.shape[1], 1, axis_type=AxisType.REDUCE)
        total = UOp.placeholder((1,), dtypes.float, slot=0, addrspace=AddrSpace.REG)
        total = total.after(i)[0].set(0.0)
        total = total[0].set(total.after(k)[0] + a[i, k], end=k)
        return c[i].store(total[0] * 2).end(i).sink()

    def turned(c: UOp, a: UOp) -> UOp:
        i, j = UOp.range(c.shape[0], 0), UOp.range(c.shape[1], 1)
        return c[i][j].store(a.permute(1, 0).flip(0)[i, j]).end(j).end(i).sink()

    def maxima(c: UOp, a: UOp) -> UOp:
        i, k = UOp.range(a.shape[0], 0), UOp.range(a.shape[1], 1, axis_type=AxisType.REDUCE)
        return c[i].store(a[i, k].reduce(k, arg=Ops.MAX)).end(i).sink().simplify()

    found = Tensor.empty(3, 2).custom_kernel(matrix, other, fxn=gemm)[0]
    assert found.numpy().tolist() == (matrix.numpy() @ other.numpy() + 1).tolist()
    assert Tensor.empty(3).custom_kernel(matrix, fxn=row_sums)[0].tolist() == [12.0, 44.0, 76.0]
    found = Tensor.empty(4, 3).custom_kernel(matrix, fxn=turned)[0]
    assert found.numpy().tolist() == matrix.numpy().T[::-1].tolist()
    assert Tensor.empty(3).custom_kernel(matrix, fxn=maxima)[0].tolist() == [3.0, 7.0, 11.0]


def test_several_stores_end_together() -> None:
    def both(c: UOp, d: UOp, a: UOp) -> UOp:
        i = UOp.range(a.numel(), 0)
        return UOp.group(c[i].store(a[-1]), d[i].store(a[i] * 2)).end(i).sink()

    source = Tensor([1.0, 2.0, 3.0])
    first, second, _ = Tensor.empty(3).custom_kernel(Tensor.empty(3), source, fxn=both)
    assert first.tolist() == [3.0, 3.0, 3.0] and second.tolist() == [2.0, 4.0, 6.0]


def test_a_kernel_reads_back_only_what_is_known() -> None:
    def other_place(c: UOp, a: UOp) -> UOp:
        i = UOp.range(a.shape[0], 0)
        c = c[i].set(a[i], end=i)
        return c[0].store(c[1]).sink()

    def no_start(c: UOp, a: UOp) -> UOp:
        i = UOp.range(a.shape[0], 0)
        return c[0].set(c.after(i)[0] + a[i], end=i).sink()

    for kernel, said in ((other_place, "reads back only"), (no_start, "first sets")):
        with pytest.raises(ArgumentError, match=said):
            Tensor.empty(3).custom_kernel(Tensor([1.0, 2.0, 3.0]), fxn=kernel)


def test_views_of_nodes() -> None:
    node = Tensor.empty(4, 6).uop
    assert node[1:3].shape == (2, 6) and node[:, 2].shape == (4,) and node[0].shape == (6,)
    assert node[..., None].shape == (4, 6, 1) and node[::-1, 4:9].shape == (4, 2)
    assert UOp.placeholder_like(node, 1).shape == (4, 6)
    for wrong in (4, (0, 0, 0)):
        with pytest.raises(IndexError):
            node[wrong]
    with pytest.raises(TypeError):
        iter(node)
    axis = UOp.range(10, 3)
    assert axis.arg[0] == 3 and axis.arg[-1] is AxisType.LOOP


def test_errors_of_a_kernel() -> None:
    target = Tensor.empty(4)
    with pytest.raises(ArgumentError, match="a SINK of STOREs"):
        target.custom_kernel(fxn=lambda t: t)
    with pytest.raises(ArgumentError, match="stay open"):
        target.custom_kernel(
            fxn=lambda t: t.index(UOp.range(4, 0)).store(UOp.const(dtypes.float32, 1)).sink()
        )
    with pytest.raises(ArgumentError, match="found a view"):
        Tensor.zeros(4, 4)[1:].custom_kernel(Tensor.zeros(12), fxn=add_one)


def test_the_example_runs() -> None:
    module = sys.modules["weft.function"]
    assert doctest.testmod(module, extraglobs={"Tensor": Tensor}).failed == 0
