"""TinyJit: state that a function reads, writes and binds; gradients and optimisers."""

from __future__ import annotations

import queue
import warnings
from typing import Any

import pytest

from test.engine.jit.jitting import CALLS, Decorator, Plain, same, vector
from weft import Tensor, TinyJit, Variable


def test_assigns_to_inputs() -> None:
    def program(decorate: Decorator) -> Any:
        @decorate
        def f(x: Tensor, y: Tensor) -> Tensor:
            x.assign(x * 2 + y)
            y += 1
            return x.sum()

        out = []
        x, y = vector(0), vector(1).realize()
        for i in range(CALLS):
            view = x[1:]
            out += [f(x, y), x, y, view * 1]
            if i == 3:
                x = vector(9)
        return out

    same(program)


def test_assigns_to_parts_of_inputs() -> None:
    def program(decorate: Decorator) -> Any:
        @decorate
        def f(x: Tensor, y: Tensor) -> None:
            x[1:3] = y[:2]
            y[0] = x[0] + 1

        out = []
        x, y = vector(0, 5), vector(10, 4)
        for _ in range(CALLS):
            f(x, y)
            out += [x, y]
        base = vector(0, 20).realize()
        for i in range(CALLS):
            f(base[2 * i : 2 * i + 5], y)
            out += [base * 1, y * 1]
        return out

    same(program)


def test_assigns_to_closed_over_state() -> None:
    def program(decorate: Decorator) -> Any:
        total = Tensor.zeros(3)
        count = Tensor([0])

        @decorate
        def f(x: Tensor) -> Tensor:
            total.assign(total + x)
            count.assign(count + 1)
            return total * 2

        out = []
        for i in range(CALLS):
            out += [f(vector(i)), total * 1, count * 1]
        return out

    same(program)


def test_state_is_changed_outside() -> None:
    def program(decorate: Decorator) -> Any:
        weight = vector(1)

        @decorate
        def f(x: Tensor) -> Tensor:
            return x * weight

        out = []
        for i in range(3 * CALLS):
            out.append(f(vector(i)))
            if i % 4 == 1:
                weight.assign(weight + 1)
            if i % 4 == 2:
                weight = weight * 2
            if i % 4 == 3:
                weight.replace(vector(i))
        return out

    same(program)


def test_state_that_comes_to_share_its_memory() -> None:
    def program(decorate: Decorator) -> Any:
        state = vector(0).realize()

        @decorate
        def f(x: Tensor) -> None:
            state.assign(state + x)

        out = []
        for i in range(2 * CALLS):
            other = Tensor(state.uop) if i % 4 == 3 else None
            f(vector(i))
            out += [state * 1, other]
        return out

    same(program)


def test_state_that_takes_over_the_memory_of_an_argument() -> None:
    """An assigned argument is not copied: its memory is that of both, until one is written."""

    def program(decorate: Decorator) -> Any:
        state = Plain(Tensor.zeros(3))
        first = vector(1).realize()

        @decorate
        def f(x: Tensor) -> Tensor:
            state.value.assign(x)
            return x * 2

        out = [f(first)]
        for i in range(CALLS):
            x = vector(i).realize()
            out.append(f(x))
            # still pending when the memory of x, now that of the state only, is written again
            out.append(x * 1)
        return out, state.value, first

    same(program)


def test_pending_readers_of_state_are_computed_before() -> None:
    def program(decorate: Decorator) -> Any:
        state = vector(0).realize()

        @decorate
        def f(x: Tensor) -> None:
            state.assign(state + x)

        out = []
        for i in range(CALLS):
            before = state * 10
            f(vector(i))
            out += [before, state * 1]
        return out

    same(program, 2)


def test_state_that_is_rebound() -> None:
    class Recurrent:
        def __init__(self) -> None:
            self.hidden: Any = None
            self.pair: Any = (vector(0), vector(1))
            self.named = {"a": vector(2)}
            self.items = [vector(3), vector(4)]

        def step(self, x: Tensor) -> Tensor:
            if self.hidden is None:
                self.hidden = Tensor.zeros(3)
            self.hidden = (self.hidden * 0.5 + x).realize()
            self.pair = (self.pair[1] + x, self.pair[0])
            self.named["a"] = self.named["a"] + x
            self.items[0], self.items[1] = self.items[1], self.items[0] + 1
            return self.hidden * 2

    def program(decorate: Decorator) -> Any:
        model = Recurrent()
        step = decorate(model.step)
        out = []
        for i in range(2 * CALLS):
            out.append(step(vector(i)))
            out += [model.hidden, *model.pair, model.named["a"], *model.items]
            if i == CALLS:
                model.hidden = vector(100)
        return out

    same(program)


def test_kept_state_does_not_change_under_the_caller() -> None:
    def program(decorate: Decorator) -> Any:
        model = Plain(vector(0))

        @decorate
        def step(x: Tensor) -> None:
            model.value = model.value + x

        kept = []
        for i in range(CALLS):
            step(vector(i))
            kept.append(model.value)
        return kept

    same(program)


def test_a_list_that_grows_is_not_replayed() -> None:
    def program(decorate: Decorator) -> Any:
        history: list[Tensor] = []

        @decorate
        def f(x: Tensor) -> Tensor:
            history.append(x * 2)
            return x + len(history)

        out = [f(vector(i)) for i in range(2 * CALLS)]
        return out + history

    with pytest.warns(UserWarning, match="without being jitted"):
        same(program)


def test_an_argument_that_is_state_in_some_calls() -> None:
    def program(decorate: Decorator) -> Any:
        model = Plain(vector(0))
        items = [vector(1), vector(2)]

        @decorate
        def f(x: Tensor, given: list[Tensor]) -> Tensor:
            given[0] = x + 1
            items[1] = model.value + 1
            model.value.assign(model.value + x)
            return model.value * 2

        out = []
        for i in range(3 * CALLS):
            x = model.value if i % 5 == 4 else vector(i)
            given = items if i % 7 == 6 else [vector(3), vector(4)]
            out += [f(x, given), *given, *items, model.value * 1]
        return out

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(program)


def test_a_tensor_kept_in_a_place_found_by_its_name() -> None:
    def program(decorate: Decorator) -> Any:
        kept: dict[str, Tensor] = {}

        def store(value: Tensor) -> None:
            kept["value"] = value

        def indirectly(value: Tensor, where: Any = iter) -> None:
            getattr(Secret, "keep")(value)  # noqa: B009

        Secret.keep = staticmethod(store)

        @decorate
        def f(x: Tensor) -> Tensor:
            indirectly(x * 3)
            return x * 2

        out = []
        for i in range(2 * CALLS):
            out += [f(vector(i)), kept["value"]]
        return out

    same(program)


class Secret:
    keep: Any = None


def test_a_tensor_kept_in_an_unseen_place() -> None:
    def program(decorate: Decorator) -> Any:
        kept: queue.SimpleQueue[Tensor] = queue.SimpleQueue()

        @decorate
        def f(x: Tensor) -> Tensor:
            kept.put(x * 3)
            return x * 2

        out = []
        for i in range(2 * CALLS):
            out += [f(vector(i)), kept.get(timeout=1)]
        return out

    with pytest.warns(UserWarning, match="without being jitted"):
        same(program)


def test_outputs_that_are_inputs_or_state() -> None:
    weight = vector(1)

    @TinyJit
    def f(x: Tensor, y: Tensor) -> Any:
        return x, y[1:], weight, weight.reshape(3, 1), x.reshape(1, 3), Tensor(3.0), Tensor.zeros(2)

    for i in range(CALLS):
        x, y = vector(i).realize(), vector(i + 1).realize()
        a, b, c, d, e, g, h = f(x, y)
        assert a is x and c is weight
        y.assign(Tensor([7.0, 8.0, 9.0]))
        x.assign(Tensor([i + 4.0, 5.0, 6.0]))
        weight.assign(Tensor([i + 1.0, 2.0, 3.0]))
        assert b.tolist() == [8.0, 9.0]
        assert d.tolist() == [[i + 1.0], [2.0], [3.0]]
        assert e.tolist() == [[i + 4.0, 5.0, 6.0]]
        assert g.item() == 3.0 and g.device is None
        h.assign(Tensor([1.0, 2.0]))
        assert h.tolist() == [1.0, 2.0]


def test_outputs_that_share_a_storage() -> None:
    @TinyJit
    def f(x: Tensor) -> Any:
        y = (x * 2).realize()
        return y, y[1:], y.reshape(3, 1)

    for i in range(CALLS):
        y, part, column = f(vector(i))
        y.assign(y + 1)
        expected = [2.0 * (i + k) + 1 for k in range(3)]
        assert y.tolist() == expected
        assert part.tolist() == expected[1:]
        assert column.tolist() == [[v] for v in expected]


def test_equal_outputs_can_be_written_apart() -> None:
    @TinyJit
    def f(x: Tensor) -> Any:
        return x + 1, x + 1

    for i in range(CALLS):
        a, b = f(vector(i))
        a.assign(a * 0)
        assert b.tolist() == vector(i + 1).tolist()


def test_an_input_is_returned_by_a_window() -> None:
    def program(decorate: Decorator) -> Any:
        @decorate
        def f(x: Tensor) -> Any:
            x += 1
            return x[1:], x

        base = vector(0, 20).realize()
        out = []
        for i in range(CALLS):
            tail, whole = f(base[i : i + 4])
            tail += 10
            out += [tail, whole, base * 1]
        return out

    same(program, 2)


def test_a_window_of_closed_over_state() -> None:
    def program(decorate: Decorator) -> Any:
        base = vector(0, 20).realize()

        @decorate
        def f(x: Tensor) -> Tensor:
            x += 1
            return base.sum() + x

        return [f(base[i : i + 4]) for i in range(CALLS)] + [base]

    same(program)


def test_gradients_and_an_optimiser() -> None:
    def program(decorate: Decorator) -> Any:
        weight = Tensor([[0.5, -0.25], [1.0, 0.75]]).requires_grad_()
        momentum = Tensor.zeros(2, 2)

        @decorate
        def step(x: Tensor, y: Tensor) -> Tensor:
            weight.grad = None
            loss = ((x @ weight - y) ** 2).mean()
            loss.backward()
            momentum.assign(momentum * 0.5 + weight.grad)
            weight.assign(weight.detach() - momentum * 0.125)
            return loss

        out = []
        for i in range(CALLS):
            x = Tensor([[float(i % 3), 1.0], [2.0, float(i % 2)]])
            out += [step(x, x * 2), weight * 1, weight.grad, momentum * 1]
        return out

    same(program)


def test_gradients_accumulate_on_inputs() -> None:
    def program(decorate: Decorator) -> Any:
        @decorate
        def f(x: Tensor) -> None:
            (x * x).sum().backward()

        x = vector(1).requires_grad_()
        out = []
        for _ in range(CALLS):
            f(x)
            out.append(x.grad)
        return out

    same(program)


def test_a_part_of_a_storage_becomes_the_value_of_a_new_one() -> None:
    def program(decorate: Decorator) -> Any:
        wide = Tensor([float(i) for i in range(12)]).realize()
        kept = Tensor.zeros(4)

        @decorate
        def f(x: Tensor) -> list[Tensor]:
            kept.assign(x)
            return [x, x + 1]

        out = []
        for i in range(CALLS):
            out += [f(wide[i : i + 4]), kept * 1]
            wide.assign(wide + 1)
        return [*out, kept, wide]

    same(program)


def test_numbers_assigned_to_an_argument_that_equals_state() -> None:
    def program(decorate: Decorator) -> Any:
        zeros = Tensor.zeros(4)

        def minus(x: Tensor) -> Tensor:
            return x - zeros

        @decorate
        def f(x: Tensor, z: Tensor, function: Any) -> Tensor:
            x.assign(Tensor.ones(4) * 2)
            return z * 2

        out = []
        for i in range(CALLS):
            x = Tensor.zeros(4)
            out += [f(x, Tensor([float(i)]).realize(), minus), x, zeros]
        return out

    same(program)


def test_state_that_is_numbers_alone_and_changes() -> None:
    def program(decorate: Decorator) -> Any:
        total = Tensor.zeros(4)
        hidden = [Tensor.zeros(4)]

        @decorate
        def f(x: Tensor, more: Any) -> Tensor:
            total.assign(total + Tensor.arange(4))
            more(x)
            return x

        def add(x: Tensor) -> None:
            hidden[0].assign(hidden[0] + 1)

        x, out = vector(1), []
        for _ in range(CALLS):
            out += [f(x, add), total * 1, hidden[0] * 1]
        return [*out, total, hidden]

    same(program)


def test_state_that_is_pending_with_other_values_of_a_variable() -> None:
    """Together they could not be computed; one after another they can."""
    length = Variable("length", 1, 6)
    data = Tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).realize()

    class State:
        first = Tensor.zeros(1)
        second = Tensor.zeros(1)

    state = State()
    jitted = TinyJit(lambda x: (x + state.first + state.second).realize())
    for i in range(1, 6):
        state.first = data[: length.bind(i)].sum()
        state.second = data[: length.bind(i + 1)].sum()
        total = i * (i + 1) / 2 + (i + 1) * (i + 2) / 2
        assert jitted(Tensor([1.0]).realize()).tolist() == [1 + total]


def test_a_list_that_is_filled_and_put_away_is_replayed() -> None:
    class Notes:
        def __init__(self) -> None:
            self.found: list[Tensor] = []

    notes = Notes()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        notes.found.append(x + 1)
        total = notes.found[0] * 2
        notes.found = []
        return total

    assert [step(Tensor([i]).realize()).item() for i in range(5)] == [2, 4, 6, 8, 10]
    assert step._waiting == 0 and notes.found == []


def test_a_function_that_is_never_replayed_says_why() -> None:
    class Holder:
        scale = Tensor([2.0])

    holder = Holder()
    x = Tensor([1.0]).realize()

    @TinyJit
    def by_numbers(x: Tensor, a: float, b: float) -> Tensor:
        return x * a + b

    @TinyJit
    def by_state(x: Tensor) -> Tensor:
        return x * holder.scale.sum()

    def told(call: Any) -> list[str]:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            for i in range(30):
                call(i)
        return [str(warning.message) for warning in found]

    def with_state(i: int) -> None:
        holder.scale = Tensor([2.0] * (i + 1)).realize()
        by_state(x)

    (numbers,) = told(lambda i: by_numbers(x, i * 0.5, i * 0.25))
    assert "several numbers differ from call to call" in numbers
    (state,) = told(with_state)
    assert "runs without being jitted" in state or "holder.scale" in state


def test_a_constant_tensor_that_is_replaced_inside_of_an_object() -> None:
    def program(decorate: Decorator) -> Any:
        model = Plain(Tensor(2.0))
        holder = [model]
        step = decorate(lambda x: x * holder[0].value)
        out = []
        for i in range(3 * CALLS):
            out.append(step(vector(i)))
            if i % CALLS == CALLS - 1:
                model.value = Tensor(float(i))
        return out

    same(program)


def test_the_shape_of_a_tensor_that_no_kernel_reads() -> None:
    def program(decorate: Decorator) -> Any:
        model = Plain(vector(0, 3).realize())
        step = decorate(lambda x: x * model.value.shape[0])
        out = []
        for i in range(3 * CALLS):
            out.append(step(vector(i)))
            if i % CALLS == CALLS - 1:
                model.value = vector(0, 4 + i).realize()
        return out

    same(program)
