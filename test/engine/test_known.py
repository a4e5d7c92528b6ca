"""Known values and states: what has happened does not happen again, what was read stays read."""

from __future__ import annotations

from weft import Tensor


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
