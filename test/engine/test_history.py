"""What is in memory still knows what it was computed from, for as long as somebody may ask."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from weft import GlobalCounters, Tensor, TinyJit, nn
from weft.engine import history
from weft.engine.history import past_of
from weft.errors import ArgumentError

LOOKS: dict[str, Callable[[Tensor], Any]] = {
    "realize": lambda t: t.realize(),
    "numpy": lambda t: t.numpy(),
    "tolist": lambda t: t.tolist(),
    "item": lambda t: t.sum().item(),
    "repr": repr,
    "clone": lambda t: t.clone().realize(),
    "part": lambda t: t.reshape(-1)[:1].numpy(),
    "nothing": lambda t: None,
}


def leaf(*data: float, asked: bool = False) -> Tensor:
    made = Tensor(list(data)).realize()
    return made.requires_grad_() if asked else made


def pasts() -> int:
    gc.collect()
    return len([past for past in history._pasts if past.expression is not None])


@pytest.mark.parametrize("look", LOOKS)
def test_looking_at_a_value_cuts_no_gradient(look: str) -> None:
    x, w, v = leaf(1.0, 2.0), leaf(0.3, -0.4), leaf(0.5, 0.25)
    h = (x * w).tanh()
    LOOKS[look](h)
    out = (h * v).exp()
    LOOKS[look](out)
    loss = out.sum()
    LOOKS[look](loss)
    loss.backward()
    a, b, c = (t.numpy() for t in (x, w, v))
    inner = np.tanh(a * b)
    outer = np.exp(inner * c)
    np.testing.assert_allclose(w.grad.numpy(), outer * c * (1 - inner**2) * a, rtol=1e-5)
    np.testing.assert_allclose(v.grad.numpy(), outer * inner, rtol=1e-5)
    np.testing.assert_allclose(x.grad.numpy(), outer * c * (1 - inner**2) * b, rtol=1e-5)


def test_a_loss_that_was_read_is_differentiated() -> None:
    first, second, x = nn.Linear(4, 4), nn.Linear(4, 1), Tensor.rand(2, 4)
    h = first(x).relu()
    h.numpy()
    loss = second(h).sum()
    loss.item()
    loss.backward()
    assert first.weight.grad is not None and second.weight.grad is not None
    again = first.weight.grad.numpy()
    first.weight.grad = None
    second(first(x).relu()).sum().backward()
    np.testing.assert_allclose(again, first.weight.grad.numpy(), rtol=1e-6)


def test_values_in_memory_are_not_computed_again() -> None:
    w = Tensor.rand(64, 64).realize().requires_grad_()
    h = (w @ w.T).sum(1)
    h.realize()
    grad = h.exp().sum().gradient(h)[0]
    GlobalCounters.reset()
    grad.realize()
    # exp(h), from h as it is in memory: the product that h was made of is not computed
    assert GlobalCounters.global_ops < 64 * 64


def test_tensors_that_wait_are_found_behind_memory() -> None:
    x = leaf(1.0, 2.0)
    twice = x * 2.0
    h = twice.square()
    h.realize()
    assert h.sum().gradient(twice)[0].tolist() == [4.0, 8.0]


def test_realized_and_pending_readers_are_added_up() -> None:
    x = leaf(3.0)
    h = x * x
    before = h * 2.0
    h.realize()
    after = h * 5.0
    assert (before + after).sum().gradient(h, x)[0].tolist() == [7.0]
    assert (before + after).sum().gradient(x)[0].tolist() == [42.0]


def test_equal_numbers_with_other_gradients_are_not_confused() -> None:
    x = leaf(3.0)
    both, one, none = x * x, x.detach() * x, x.detach() * x.detach()
    Tensor.realize(both, one, none)
    assert both.sum().gradient(x)[0].tolist() == [6.0]
    assert one.sum().gradient(x)[0].tolist() == [3.0]
    assert (none * x).sum().gradient(x)[0].tolist() == [9.0]


def test_writes_that_happened_pass_gradients() -> None:
    w, buffer = leaf(3.0, 1.0), Tensor.zeros(4).contiguous().realize()
    buffer[1:3].assign(w * 2.0)
    buffer.realize()
    assert (buffer * buffer).sum().gradient(w)[0].tolist() == [24.0, 8.0]
    total = leaf(1.0)
    total += w.sum()
    total.realize()
    assert (total * total).sum().gradient(w)[0].tolist() == [10.0, 10.0]


def test_writes_that_happen_on_the_way_pass_gradients() -> None:
    w = leaf(3.0, 1.0)
    copy = w.clone()
    copy[:1].assign(w[:1] * 5.0)
    loss = copy.sum()
    loss.item()
    assert loss.gradient(w)[0].tolist() == [5.0, 1.0]


def test_leaves_that_are_written_again_and_again_are_found() -> None:
    x, y = leaf(1.0, asked=True), leaf(3.0, asked=True)
    for number in range(1, 4):
        x.assign(Tensor([float(number)]))
        y.assign(Tensor([float(number)]))
        h = x * 2.0
        out = h * x * y
        h.numpy()
        x.grad = y.grad = None
        out.sum().backward()
        assert x.grad is not None and y.grad is not None
        assert [x.grad.item(), y.grad.item()] == [4.0 * number**2, 2.0 * number**2]


def test_a_state_is_one_tensor_before_and_after_its_write() -> None:
    w = leaf(3.0, 1.0)
    w *= 2.0
    loss = (w * w).sum()
    w.realize()
    assert loss.gradient(w)[0].tolist() == [12.0, 4.0]


@pytest.mark.parametrize("look", ("realize", "numpy", "item"))
def test_overwritten_memory_is_an_error_and_no_wrong_gradient(look: str) -> None:
    w = leaf(3.0, asked=True)
    h = w * w
    LOOKS[look](h)
    w.assign(Tensor([100.0])).realize()
    with pytest.raises(ArgumentError, match="overwritten since.*Call backward"):
        (h * 2.0).sum().backward()
    with pytest.raises(ArgumentError, match="overwritten since"):
        (h * 2.0).sum().gradient(w)
    # what does not go through it is as it was
    assert (h * w).sum().gradient(h)[0].tolist() == [100.0]


def test_an_error_also_where_the_way_leads_through_other_memory() -> None:
    x = leaf(3.0, asked=True)
    h = (x * 2.0).realize()
    out = h * h
    h += 1.0
    out.realize()
    loss = out.sum() + h.sum()
    loss.item()
    with pytest.raises(ArgumentError, match="overwritten since"):
        loss.backward()


def test_a_write_that_happened_before_another_is_counted_once() -> None:
    x, y, z = leaf(1.0, 2.0), leaf(3.0, 4.0), leaf(0.5, 0.25)
    total = (x * x).realize()
    total += z * 0.25
    reader = total * y
    total += y * 0.5
    # runs the first write only; the second one still holds the state before it
    reader[:1].numpy()
    loss = total.sum()
    loss.item()
    assert [g.tolist() for g in loss.gradient(x, y, z)] == [[2.0, 4.0], [0.5, 0.5], [0.25, 0.25]]


@pytest.mark.parametrize("is_asked", (False, True))
def test_what_was_behind_overwritten_memory_gets_an_error_too(is_asked: bool) -> None:
    x, y, total = leaf(0.5, asked=is_asked), leaf(2.0), leaf(1.0)
    h = x.tanh().realize()
    total += h * 0.25
    h += y
    # total is written from h, and h after it, by one realize
    loss = total.sum() + h.sum()
    loss.item()
    with pytest.raises(ArgumentError, match="overwritten since"):
        loss.gradient(x)
    with pytest.raises(ArgumentError, match="overwritten since"):
        loss.backward()


def test_a_leaf_that_its_reader_is_realized_with_gets_an_error() -> None:
    w, total = Tensor([[3.0, 1.0]]).realize().requires_grad_(), Tensor([[1.0, 1.0]]).realize()
    total += w * 0.25
    w *= 2.0
    (total.sum() + w.sum()).item()
    with pytest.raises(ArgumentError, match="overwritten since"):
        total.sum().backward()


def test_values_kept_in_between_outlive_what_is_overwritten() -> None:
    x, w = leaf(2.0), leaf(3.0)
    h = x * x
    h.realize()
    out = h * w
    out.realize()
    x.assign(Tensor([100.0])).realize()
    assert out.sum().gradient(w)[0].tolist() == [4.0]


def test_values_kept_in_between_lead_to_the_error_when_their_tensors_have_ended() -> None:
    w, v = leaf(3.0, asked=True), leaf(2.0, asked=True)
    h = w * w
    out = (h * 3.0).realize()
    h.realize()
    w.assign(Tensor([100.0])).realize()
    del h
    gc.collect()
    with pytest.raises(ArgumentError, match="overwritten since"):
        (out * v).sum().gradient(w)


def test_a_needed_value_that_was_written_over_is_an_error() -> None:
    s, u = leaf(5.0), leaf(2.0)
    s *= u
    s.realize()
    with pytest.raises(ArgumentError, match="the value that a Tensor had before it was written"):
        s.sum().gradient(u)


def test_a_needed_value_between_two_writes_of_one_realize_is_an_error() -> None:
    x = leaf(0.5, 0.25)
    total = (x * 2.0).sin().realize()
    total += total * 0.25
    total += total.tanh() * 0.25
    total.realize()
    with pytest.raises(ArgumentError, match="the value that a Tensor had before it was written"):
        total.sum().gradient(x)


def test_detach_and_no_grad_end_a_history() -> None:
    w = leaf(3.0, asked=True)
    with Tensor.no_grad():
        inside = (w * w).realize()
    assert past_of(inside._cell.storage) is None
    h = (w * 2.0).realize()
    assert (h.detach() * w).sum().gradient(w)[0].tolist() == [6.0]


def test_a_step_by_hand_makes_no_history() -> None:
    w = leaf(3.0, asked=True)
    for _ in range(3):
        (w * w).sum().backward()
        w.assign(w - 0.25 * w.grad).realize()
        assert past_of(w._cell.storage) is None
        w.grad = None
    assert w.tolist() == [0.375]


def test_a_state_that_is_carried_keeps_no_steps() -> None:
    before = pasts()
    x = leaf(1.0)
    for _ in range(50):
        x = (x * 0.99 + 1.0).realize()
    assert pasts() <= before + 1


def test_values_in_between_are_freed_with_the_last_that_they_came_from() -> None:
    before = pasts()
    w = leaf(3.0)
    h = (w * 2.0).realize()
    out = (h * 2.0).realize()
    del h
    assert pasts() == before + 2
    del w
    assert pasts() == before
    assert out.tolist() == [12.0]


def test_losses_that_are_kept_keep_no_graphs() -> None:
    before = pasts()
    model = nn.Linear(4, 2)
    optimizer = nn.optim.SGD([model.weight, model.bias], lr=0.01)
    losses = []
    with Tensor.train():
        for _ in range(5):
            loss = model(Tensor.ones(3, 4)).square().mean()
            loss.item()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss)
    assert pasts() == before


def test_a_loss_keeps_no_graph_of_weights_that_were_computed_with_it() -> None:
    before = pasts()
    w = (Tensor.rand(2) + 1.0).contiguous().requires_grad_()
    loss = (w * w).sum()
    loss.item()
    assert pasts() == before + 1
    w.assign(w.detach() * 0.5).realize()
    assert pasts() == before
    with pytest.raises(ArgumentError, match="no float Tensor that it depends on is left"):
        loss.backward()


def test_chains_that_nobody_asked_about_have_an_end() -> None:
    w, h = leaf(0.9), leaf(1.0)
    for _ in range(history.MOST_LEVELS + 5):
        h = (h * w).realize()
    with pytest.raises(ArgumentError, match="more than 64 values.*detach"):
        h.sum().backward()
    # it is not there that another tensor's gradient comes from
    other = leaf(2.0)
    assert (h * other).sum().gradient(other)[0].shape == (1,)


def test_chains_that_are_trained_have_none() -> None:
    w, h = leaf(0.999, asked=True), leaf(1.0)
    count = history.MOST_LEVELS_ASKED + 5
    with Tensor.train():
        for _ in range(count):
            h = (h * w).realize()
    h.sum().backward()
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.item(), count * 0.999 ** (count - 1), rtol=1e-3)


def test_results_of_a_jitted_function_are_leaves_from_the_first_call_on() -> None:
    w = leaf(3.0, asked=True)
    function = TinyJit(lambda x: x * w)
    for _ in range(4):
        out = function(leaf(2.0))
        assert (out * w).sum().gradient(w)[0].tolist() == [6.0]


def test_a_jitted_step_may_realize_on_its_way() -> None:
    w = leaf(3.0, asked=True)

    @TinyJit
    def gradient(x: Tensor) -> Tensor:
        h = (x * w).realize()
        return (h * h).sum().gradient(w)[0]

    assert [gradient(leaf(float(i))).item() for i in range(1, 6)] == [
        6.0 * i * i for i in range(1, 6)
    ]


def test_a_replayed_write_makes_what_it_wrote_a_leaf() -> None:
    w, state = leaf(3.0, asked=True), leaf(0.0)
    state.assign(w * 2.0).realize()

    @TinyJit
    def step() -> None:
        state.assign(state + 1.0)

    for _ in range(4):
        step()
    assert (state * w).sum().gradient(w)[0].tolist() == [10.0]
