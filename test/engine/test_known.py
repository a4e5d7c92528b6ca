"""Known values and states: what has happened does not happen again, what was read stays read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from weft import GlobalCounters, Tensor, TinyJit, Variable


def test_a_write_that_is_written_down_again_happens_again() -> None:
    w = Tensor([0]).realize()
    w.assign(w + 1)
    z = w * 2
    w.realize()
    w.assign(w + 1)
    assert w.tolist() == [2]
    assert z.tolist() == [2]


def test_readers_of_every_state_of_a_chain() -> None:
    count = Tensor([0])
    seen = []
    for _ in range(6):
        count.assign(count + 1)
        seen.append(count * 2)
    assert [s.item() for s in seen] == [2, 4, 6, 8, 10, 12]
    assert count.item() == 6


def test_readers_of_every_state_from_the_last_to_the_first() -> None:
    count = Tensor([0])
    seen = []
    for _ in range(6):
        count.assign(count + 1)
        seen.append(count * 2)
    assert [s.item() for s in reversed(seen)] == [12, 10, 8, 6, 4, 2]


def test_an_older_graph_keeps_the_value_it_had() -> None:
    w = Tensor([1.0, 2.0])
    y = w * 2
    z = y + 1
    y.realize()
    w.assign(w + 1).realize()
    assert (w * 2).tolist() == [4.0, 6.0]
    assert z.tolist() == [3.0, 5.0]


def test_an_expression_of_an_earlier_state_is_not_taken_for_one_of_a_later() -> None:
    x = Tensor([-3.0, 0.0]).realize()
    first = x + 1
    x += 1
    both = x * Tensor([2.0, 3.0]).realize()
    x += 1
    last = x * 1
    assert first.tolist() == [-2.0, 1.0]
    assert both.tolist() == [-4.0, 3.0]
    assert x.tolist() == [-1.0, 2.0]
    assert last.tolist() == [-1.0, 2.0]


def test_a_write_that_reads_what_is_known_by_now_happens_once() -> None:
    """Tensors wait for one write, some of them older than what was realized in between."""
    weight = Tensor([3.0, -3.0, 0.0, 3.0]).realize()
    x = Tensor([-4.0, -1.0, 2.0, -4.0]).realize()

    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        shown = x * 3
        before = (weight * 2).clip(-50, 50)
        weight[:2] = shown[1:3]
        (weight * before.detach().clip(-50, 50)).sum().backward()
        weight.assign((weight - weight.grad).clip(-50, 50))
        shown.realize()
        return before, shown

    step(x)
    kept = step(x)
    step(Tensor([-3.0, 0.0, 3.0, -3.0]).realize())
    assert kept and weight.grad is not None
    assert weight.tolist() == [-6.0, 15.0, 0.0, 3.0]
    assert weight.grad.tolist() == [6.0, -6.0, 0.0, -6.0]


def test_what_is_known_on_one_device_is_computed_on_another() -> None:
    steps = Tensor.arange(3) * 2
    later = steps + 1
    steps.realize()
    x = Tensor([1, 2, 3], device="PYTHON").realize()
    x.assign(x + (Tensor.arange(3) * 2 + 1))
    assert x.device == "PYTHON"
    assert x.tolist() == [2, 5, 8]
    assert later.tolist() == [1, 3, 5]


def _kernels(tensor: Tensor) -> int:
    GlobalCounters.reset()
    tensor.realize()
    return GlobalCounters.kernel_count


def test_what_was_stored_on_the_way_is_not_computed_again() -> None:
    """A layer writes to its cache and goes on: the layers before it have run already."""
    weight = Tensor.rand(8, 8).realize()
    caches = [Tensor.zeros(2, 8).contiguous().realize() for _ in range(4)]
    x = Tensor.rand(8).realize()
    start = x.numpy()
    counts = []
    for cache in caches:
        h = x @ weight
        GlobalCounters.reset()
        cache[1:2].assign(h.reshape(1, 8)).realize()
        counts.append(GlobalCounters.kernel_count)
        x = (h + cache.sum(0)).contiguous()
    assert len(set(counts[1:])) == 1
    expected = start
    for _ in caches:
        expected = 2 * (expected @ weight.numpy())
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-5)


def test_a_newer_graph_uses_what_an_older_tensor_led_to() -> None:
    x = Tensor.rand(4, 4).realize()
    stored = (x @ x).contiguous()
    older = stored * 2
    assert _kernels(stored.sum()) == 2
    assert _kernels(older + 1) == 1
    assert _kernels(stored @ x) == 1


def test_an_expression_that_is_written_down_again_is_computed_again() -> None:
    x = Tensor.rand(4, 4).realize()
    stored = (x @ x).contiguous()
    total = stored.sum()
    assert _kernels(total) == 2
    again = (x @ x).contiguous()
    assert _kernels(again.sum()) == 2
    assert _kernels(stored + 1) == 1


def test_what_was_stored_on_the_way_keeps_its_gradient() -> None:
    weight = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True).realize()
    hidden = (weight * 2).contiguous()
    assert hidden.max().item() == 8.0
    (hidden * hidden).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [[8.0, 16.0], [24.0, 32.0]]


def test_only_what_other_graphs_need_stays_in_memory() -> None:
    x = Tensor.rand(1 << 16).realize()
    first = (x + 1).contiguous()
    second = (first * 2).contiguous()
    later = second + 1
    del first, second
    total = later.sum()
    before = GlobalCounters.mem_used
    total.realize()
    kept = GlobalCounters.mem_used - before
    assert x.nbytes() <= kept < 2 * x.nbytes()
    assert _kernels(later) == 1


def test_what_was_stored_on_the_way_is_of_the_contents_then() -> None:
    x = Tensor([1.0, 2.0]).realize()
    stored = (x * 2).contiguous()
    later = stored + 1
    assert stored.sum().item() == 6.0
    x.assign(x + 10).realize()
    assert later.tolist() == [3.0, 5.0]
    assert stored.tolist() == [2.0, 4.0]
    assert (x * 2).contiguous().tolist() == [22.0, 24.0]


def test_what_was_stored_on_the_way_has_the_place_it_was_computed_for() -> None:
    table = Tensor.arange(8).contiguous().realize()
    place = Variable("place", 0, 7)
    kept = []
    for value in (2, 5):
        here = (table[place.bind(value) : place.bind(value) + 1] * 3).contiguous()
        assert here.sum().item() == 3 * value
        kept.append(here + 1)
    assert [int(k.reshape(1).item()) for k in kept] == [7, 16]


def test_what_was_stored_on_the_way_in_a_captured_function() -> None:
    weight = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    cache = Tensor.zeros(2, 2).contiguous().realize()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        hidden = (x @ weight).contiguous()
        cache.assign(cache + hidden).realize()
        return (hidden * 2 + cache).realize()

    total = np.zeros((2, 2))
    for i in range(5):
        x = Tensor([[float(i), 1.0], [2.0, -1.0]]).realize()
        hidden = x.numpy() @ weight.numpy()
        total += hidden
        np.testing.assert_allclose(step(x).numpy(), hidden * 2 + total)


WRITES: dict[str, Callable[[Tensor], object]] = {
    "a part": lambda t: t.__setitem__(slice(0, 1), 7),
    "assign": lambda t: t.assign(t + 1),
    "in place": lambda t: t.__iadd__(1),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("between", ["nothing", "its source is written", "both are used"])
def test_a_tensor_equal_to_one_that_is_written(write: str, between: str) -> None:
    """Equal expressions may share memory until one of the two tensors is written."""
    source = Tensor([[1.0, -2.0], [3.0, 4.0]]).realize()
    first, second = source.maximum(0), source.maximum(0)
    view = second.reshape(4)
    first.realize()
    used = first + second
    WRITES[write](first)
    if between == "its source is written":
        source.assign(source + 10).realize()
    elif between == "both are used":
        assert used.tolist() == [[2.0, 0.0], [6.0, 8.0]]
    first.realize()
    assert second.tolist() == [[1.0, 0.0], [3.0, 4.0]]
    assert view.tolist() == [1.0, 0.0, 3.0, 4.0]
    assert used.tolist() == [[2.0, 0.0], [6.0, 8.0]]
