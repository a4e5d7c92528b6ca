"""Values and writes that are known by their forms are computed as their graphs would be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft import Context, GlobalCounters, Tensor, nn
from weft.engine import eager
from weft.errors import ArgumentError
from weft.nn import optim


@pytest.fixture(autouse=True)
def at_first_sight() -> Any:
    with Context(CALL_CACHE=2, SPEC=0):
        yield


def array(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 1


def stored(*shape: int) -> Tensor:
    return Tensor(array(*shape)).realize()


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Notes what realize is asked for, with graphs."""
    found: list[Any] = []
    realize = eager.engine.realize_cells

    def noted(cells: Any, live: Any = ()) -> None:
        found.append(cells)
        realize(cells, live)

    monkeypatch.setattr(eager.engine, "realize_cells", noted)
    return found


def test_values_and_writes_without_a_graph(graphs: list[Any]) -> None:
    a, b, c = stored(4, 4), stored(4, 4), stored(4, 4)
    graphs.clear()
    for _ in range(2):
        (a @ b).relu().realize()
        c.assign(a + b).realize()
        Tensor.realize(a * 2, (b * 3).sum(), c.assign(a - b))
    assert not graphs
    np.testing.assert_array_equal(c.numpy(), array(4, 4) * 0)


def test_what_waits_elsewhere_does_not_slow_writes(graphs: list[Any]) -> None:
    drawn = Tensor.rand(3) + stored(3)
    part = stored(5)
    part[1:3] = stored(2)
    graph = drawn.uop
    for _ in range(2):
        test_values_and_writes_without_a_graph(graphs)
    assert drawn.uop is graph and not part._cell.is_realized
    assert part.tolist() == [1.0, 1.0, 2.0, 4.0, 5.0]


def test_what_waits_with_a_graph_is_computed_before_a_write(graphs: list[Any]) -> None:
    for _ in range(3):
        x, y, part = stored(3), stored(3), stored(5)
        drawn = Tensor.rand(3) * 0 + x
        part[1:4] = x
        graphs.clear()
        x.assign(y * 10).realize()
        assert graphs
        assert drawn.tolist() == [1.0, 2.0, 3.0]
        assert part.tolist() == [1.0, 1.0, 2.0, 3.0, 5.0]
        assert x.tolist() == [10.0, 20.0, 30.0]


def test_a_pending_graph_is_not_kept_by_what_it_reads() -> None:
    x, y = stored(3), stored(3)
    drawn = Tensor.rand(3) + x
    y.assign(x * 2).realize()
    assert drawn._cell._reads is not None
    drawn.realize()
    assert drawn._cell._reads is None


def test_what_is_launched_is_counted() -> None:
    a = stored(4, 4)
    for _ in range(3):
        GlobalCounters.reset()
        (a + a).realize()
        assert (GlobalCounters.kernel_count, GlobalCounters.global_ops) == (1, 16)
        assert GlobalCounters.global_mem >= 128


def test_a_storage_that_is_written_from_itself() -> None:
    for _ in range(3):
        x = stored(3, 3)
        x.assign(x.T + x).realize()
        np.testing.assert_array_equal(x.numpy(), array(3, 3).T + array(3, 3))
        x.assign(x.T)
        x.assign(x + 1)
        np.testing.assert_array_equal(x.numpy(), array(3, 3).T + array(3, 3) + 1)


def test_readers_of_what_is_written_are_computed_before() -> None:
    for _ in range(3):
        x, y = stored(3), stored(3)
        double, sums = x * 2, (x + y).sum()
        view = x[1:]
        x.assign(y * 10).realize()
        assert double.tolist() == [2.0, 4.0, 6.0]
        assert sums.item() == 12.0
        assert view.tolist() == [20.0, 30.0]


def test_writes_that_wait_for_each_other() -> None:
    for _ in range(3):
        x, y = stored(3), stored(3) * 1
        y.realize()
        x.assign(y + 1)
        y.assign(x + 1)
        x.assign(y + 1)
        assert x.tolist() == [4.0, 5.0, 6.0]
        assert y.tolist() == [3.0, 4.0, 5.0]


def test_two_storages_that_swap() -> None:
    for _ in range(3):
        x, y = stored(3), (stored(3) * 10).realize()
        old = x * 1
        x.assign(y * 1)
        y.assign(old)
        Tensor.realize(x, y)
        assert (x.tolist(), y.tolist()) == ([10.0, 20.0, 30.0], [1.0, 2.0, 3.0])


def test_a_write_that_waits_is_seen_through_views_and_values() -> None:
    for _ in range(3):
        x = stored(2, 2)
        x.assign(stored(2, 2) * 2)
        assert x.shape == (2, 2)
        assert (x.T + 1).tolist() == [[3.0, 7.0], [5.0, 9.0]]
        x[0] = 0.0
        assert x.tolist() == [[0.0, 0.0], [6.0, 8.0]]


def test_gradients_pass_writes() -> None:
    for _ in range(3):
        x, y = stored(3), stored(3)
        y.assign(x * x).realize()
        assert (y * 2).sum().gradient(x)[0].tolist() == [4.0, 8.0, 12.0]


def test_what_was_computed_from_a_written_storage_says_so() -> None:
    for _ in range(3):
        x = stored(3).requires_grad_()
        loss = (x * x).sum()
        x.assign(stored(3) * 2)
        Tensor.realize(x, loss)
        with pytest.raises(ArgumentError, match="overwritten"):
            loss.backward()


def test_memory_shared_by_two_is_written_by_one() -> None:
    for _ in range(3):
        x = stored(3)
        a, b = x + 1, x + 1
        Tensor.realize(a, b)
        a.assign(x * 10).realize()
        assert (a.tolist(), b.tolist()) == ([10.0, 20.0, 30.0], [2.0, 3.0, 4.0])


def test_equal_numbers_with_other_gradients_are_not_confused() -> None:
    for _ in range(3):
        x = stored(3)
        a, b = x * x, x.detach() * x
        Tensor.realize(a, b)
        assert a.sum().gradient(x)[0].tolist() == [2.0, 4.0, 6.0]
        assert b.sum().gradient(x)[0].tolist() == [1.0, 2.0, 3.0]


def test_backward_adds_up_and_leaves_others_alone() -> None:
    for _ in range(3):
        w = stored(3).requires_grad_()
        x = stored(3)
        for count in (1, 2):
            (w * x).sum().backward()
            assert w.grad is not None
            np.testing.assert_array_equal(w.grad.numpy(), array(3) * count)
        assert x.grad is None


def test_backward_through_values_that_are_asked_for() -> None:
    for _ in range(3):
        w = stored(3).requires_grad_()
        h = (w * 2).requires_grad_()
        (h * h).sum().backward()
        assert w.grad is not None and h.grad is not None
        assert (w.grad.tolist(), h.grad.tolist()) == ([8.0, 16.0, 24.0], [4.0, 8.0, 12.0])


_OPTIMIZERS = {
    "adam": lambda params: optim.Adam(params, 1e-2),
    "sgd": lambda params: optim.SGD(params, 1e-2, momentum=0.9, weight_decay=1e-3),
    "lamb": lambda params: optim.LAMB(params, 1e-2),
    "apart": lambda params: optim.AdamW(params, 1e-2, fused=False),
}


def _trained(make: Any, cache: int, hold: bool) -> list[Any]:
    """Losses, gradients and weights of a few steps."""
    with Context(CALL_CACHE=cache), Tensor.train():
        Tensor.manual_seed(3)
        layers = [nn.Linear(6, 5), nn.Linear(5, 3)]
        optimizer = make(nn.state.get_parameters(layers))
        numbers = np.random.default_rng(0)
        found: list[Any] = []
        held = []
        for step in range(5):
            x = Tensor(numbers.standard_normal((4, 6)).astype(np.float32))
            optimizer.zero_grad()
            if step == 3:
                optimizer.lr.assign(optimizer.lr * 0.5)
            hidden = layers[0](x).relu()
            loss = layers[1](hidden).sparse_categorical_crossentropy(Tensor([0, 1, 2, 1]))
            loss.backward()
            optimizer.step()
            found.append(loss.item())
            if hold:
                held += [hidden, loss, *[param.grad for param in optimizer.params]]
        held += nn.state.get_parameters(layers)
        return [*found, *[tensor.numpy() for tensor in held]]


@pytest.mark.parametrize("hold", [False, True])
@pytest.mark.parametrize("name", _OPTIMIZERS)
def test_training_is_the_same_as_with_graphs(name: str, hold: bool) -> None:
    expected = _trained(_OPTIMIZERS[name], 0, hold)
    for cache in (1, 2):
        found = _trained(_OPTIMIZERS[name], cache, hold)
        for left, right in zip(found, expected, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-7)


def test_numbers_of_an_optimizer_that_change_are_seen() -> None:
    w = stored(3).requires_grad_()
    optimizer = optim.SGD([w], lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        (w * 1).sum().backward()
        optimizer.step()
    assert w.tolist() == [-0.5, 0.5, 1.5]
    optimizer.weight_decay = 1.0
    optimizer.zero_grad()
    (w * 1).sum().backward()
    optimizer.step()
    assert w.tolist() == [-0.75, -0.25, 0.25]
