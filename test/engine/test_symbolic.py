"""Symbolic sizes from Variable to result: one compiled kernel serves all values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from weft import Context, GlobalCounters, Tensor, UOp, Variable
from weft.engine.conditions import conditions_of, narrow
from weft.engine.programs import _runners
from weft.uop.args import VariableArg

BASE = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
WEIGHT = np.random.default_rng(1).standard_normal((8, 5)).astype(np.float32)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(rows: Tensor) -> Tensor:
    n = rows.shape[0]
    keys = rows.reshape(n, 2, 4).permute(1, 0, 2)
    query = Tensor(BASE[:1].reshape(1, 2, 4)).permute(1, 0, 2)
    return (query @ keys.transpose(1, 2)).softmax(-1) @ keys


def attention_reference(rows: np.ndarray) -> np.ndarray:
    keys = rows.reshape(-1, 2, 4).transpose(1, 0, 2)
    query = BASE[:1].reshape(1, 2, 4).transpose(1, 0, 2)
    return softmax(query @ keys.transpose(0, 2, 1)) @ keys


CASES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[np.ndarray], np.ndarray]]] = {
    "sum": (lambda t: t.sum(), lambda n: n.sum()),
    "sum of columns": (lambda t: t.sum(0), lambda n: n.sum(0)),
    "mean": (lambda t: t.mean(0), lambda n: n.mean(0)),
    "max": (lambda t: t.max(), lambda n: n.max()),
    "elementwise": (lambda t: (t + 1) * 2, lambda n: (n + 1) * 2),
    "matmul": (lambda t: t @ Tensor(WEIGHT), lambda n: n @ WEIGHT),
    "flip and pad": (lambda t: t.flip(1).pad(((0, 0), (1, 1))).sum(0), lambda n: _padded(n)),
    "attention": (attention, attention_reference),
    "reshape": (lambda t: (t.reshape(t.shape[0] * 4, 2) * 2).max(0), lambda n: _pairs(n)),
    "pad to a fixed size": (
        lambda t: t.pad(((0, 16 - t.shape[0]), (0, 0))) + 1,
        lambda n: np.pad(n, ((0, 16 - len(n)), (0, 0))) + 1,
    ),
    "pad before": (lambda t: t.pad(((t.shape[0], 0), (0, 0))).sum(0), lambda n: n.sum(0)),
    "variance": (lambda t: t.var(1), lambda n: n.var(1, ddof=1)),
    "joined": (lambda t: t.cat(t[:1]).sum(0), lambda n: n.sum(0) + n[0]),
    "lower triangle": (lambda t: (t @ t.T).tril().sum(1), lambda n: np.tril(n @ n.T).sum(1)),
}


def _pairs(n: np.ndarray) -> np.ndarray:
    return (n.reshape(-1, 2) * 2).max(0)


def _padded(n: np.ndarray) -> np.ndarray:
    return np.pad(n[:, ::-1], ((0, 0), (1, 1))).sum(0)


@pytest.mark.parametrize("name", CASES)
def test_sizes_known_at_run_time(name: str) -> None:
    ours, reference = CASES[name]
    size = Variable("size", 1, 16)
    data = Tensor(BASE).realize()
    programs = 0
    for i, n in enumerate((3, 7, 16, 1)):
        found = ours(data[: size.bind(n)]).numpy()
        np.testing.assert_allclose(found, reference(BASE[:n]), rtol=1e-4, atol=1e-5)
        if i == 0:
            programs = len(_runners)
    assert len(_runners) == programs, "another value compiled another program"


def test_assign_at_a_position_known_at_run_time() -> None:
    position = Variable("position", 0, 15)
    cache = Tensor.zeros(16, 8).contiguous().realize()
    expected = np.zeros((16, 8), dtype=np.float32)
    GlobalCounters.reset()
    for n in (2, 9, 15):
        at = position.bind(n)
        cache[at : at + 1].assign(Tensor(BASE[n : n + 1])).realize()
        expected[n] = BASE[n]
    np.testing.assert_array_equal(cache.numpy(), expected)


def test_one_variable_with_two_values_is_refused() -> None:
    size = Variable("size", 1, 16)
    data = Tensor(BASE).realize()
    with pytest.raises(ValueError, match="size is bound to"):
        (data[: size.bind(3)].sum() + data[: size.bind(4)].sum()).realize()


def test_assign_of_a_length_known_at_run_time() -> None:
    start, length = Variable("start", 0, 8), Variable("length", 1, 8)
    cache = Tensor.zeros(16, 8).contiguous().realize()
    source = Tensor(BASE).realize()
    expected = np.zeros((16, 8), dtype=np.float32)
    programs = 0
    for i, (a, n) in enumerate(((0, 5), (5, 3), (8, 8))):
        first, count = start.bind(a), length.bind(n)
        cache[first : first + count].assign(source[first : first + count] * 2).realize()
        expected[a : a + n] = BASE[a : a + n] * 2
        np.testing.assert_array_equal(cache.numpy(), expected)
        programs = programs or len(_runners)
        assert len(_runners) == programs or i == 0


def test_attention_with_a_cache_that_grows() -> None:
    position = Variable("position", 0, 15)
    cache = Tensor.zeros(2, 16, 8).contiguous().realize()
    programs = 0
    for n in range(6):
        here = position.bind(n)
        row = Tensor(BASE[n : n + 1]).realize()
        cache[:, here : here + 1].assign(Tensor.stack(row * 2, row + 1)).realize()
        keys, values = (cache[i, : here + 1] for i in range(2))
        found = row.scaled_dot_product_attention(keys, values).numpy()
        seen = BASE[: n + 1]
        scores = softmax(BASE[n : n + 1] @ (seen * 2).T / np.sqrt(8))
        np.testing.assert_allclose(found, scores @ (seen + 1), rtol=1e-4, atol=1e-5)
        programs = programs or len(_runners)
    assert len(_runners) == programs, "another position compiled another program"


# ------------------------------------------------------------ bounds
def test_a_value_outside_its_variable_is_refused() -> None:
    with pytest.raises(ValueError, match="size takes an int from 1 to 16, found 17"):
        Variable("size", 1, 16).bind(17)


OUTSIDE: dict[str, Callable[[Tensor, UOp], object]] = {
    "slice": lambda t, n: t[:n],
    "window": lambda t, n: t[n - 2 : n + 2],
    "position": lambda t, n: t[n],
    "assign": lambda t, n: t[n : n + 1].assign(Tensor.ones(1, 8)),
    "set": lambda t, n: t.__setitem__(n, 1.0),
    "shrink": lambda t, n: t.shrink(((0, n), (0, 8))),
    "of a symbolic size": lambda t, n: t[: n - 10][:8].numpy(),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_slice_outside_its_axis_is_refused_where_it_is_written(name: str) -> None:
    size = Variable("size", 0, 40)
    data = Tensor(BASE).contiguous().realize()
    value = 20 if name != "of a symbolic size" else 15
    with pytest.raises(IndexError, match=rf"of an axis of \d+ elements, with size = {value}"):
        OUTSIDE[name](data, size.bind(value))
    np.testing.assert_array_equal(data.numpy(), BASE)


def test_bounds_are_asked_of_every_value_also_of_a_known_schedule() -> None:
    size = Variable("size", 0, 40)
    data = Tensor(BASE).realize()

    def total(n: int) -> float:
        # a view of a view: only running it tells
        return data[: size.bind(n)][2:5].sum().item()

    for n in (5, 16, 9):
        np.testing.assert_allclose(total(n), BASE[2:5].sum(), rtol=1e-4)
    with pytest.raises(IndexError, match="a slice from 2 to 5 of an axis of 4 elements"):
        total(4)
    np.testing.assert_allclose(total(8), BASE[2:5].sum(), rtol=1e-4)


@pytest.mark.parametrize("optimise", [True, False])
def test_what_is_asked_of_two_variables_is_known_to_the_proofs(optimise: bool) -> None:
    start, size = Variable("start", 0, 15), Variable("size", 1, 16)
    data = Tensor(BASE).realize()

    def part(at: int, n: int) -> Tensor:
        first = start.bind(at)
        return data[first : first + size.bind(n)].sum(0)

    with Context(SPEC=2, NOOPT=int(not optimise)):
        for at, n in ((0, 3), (5, 7), (9, 7), (15, 1)):
            np.testing.assert_allclose(part(at, n).numpy(), BASE[at : at + n].sum(0), atol=1e-5)
        with pytest.raises(IndexError, match="a slice from 9 to 17 of an axis of 16 elements"):
            part(9, 8)


def test_what_is_asked_of_a_variable_narrows_it() -> None:
    n = Variable("n", 0, 40)
    data = Tensor(BASE).realize()
    sink = UOp.sink(data[n : n + 4].uop, data[2 * n :].uop)
    open_ones = conditions_of(sink)
    assert len(open_ones) == 2
    narrower = narrow(sink, open_ones, {"n": 3})
    assert [v.arg for v in narrower.variables()] == [VariableArg("n", 0, 8)]
    assert conditions_of(narrower) == ()


def test_random_numbers_are_no_sizes() -> None:
    # key and counter of a draw are variables too; they ask nothing
    assert 0 <= Tensor.rand(3)[1:].sum().item() <= 2


def test_symbolic_sizes_that_cancel_are_numbers_everywhere() -> None:
    v = Variable("p", 1, 31).bind(3)
    part = Tensor.arange(40)[: v + 1]
    whole = part.pad(((0, 32 - v - 1),))
    wanted = [0, 1, 2, 3] + [0] * 28
    assert whole.shape == (32,) and whole.tolist() == wanted
    assert (whole == Tensor(wanted)).all().item()
    target = Tensor.zeros(32, dtype=whole.dtype).contiguous().realize()
    assert target.assign(whole).tolist() == wanted
    row = Tensor.zeros(2, 32, dtype=whole.dtype).contiguous().realize()
    row[1] = whole
    assert row[1].tolist() == wanted
    joined = part.cat(Tensor.ones(32, dtype=part.dtype)[: 32 - v - 1])
    assert joined.shape == (32,) and joined.sum().item() == 6 + 28
    assert whole.reshape(4, 8).shape == (4, 8) and whole.reshape(-1, 8).shape == (4, 8)
    assert (whole.reshape(1, 32) @ Tensor.ones(32, 2, dtype=whole.dtype)).tolist() == [[6, 6]]
    assert whole.reshape(1, 32).expand(2, 32).shape == (2, 32)
    assert whole.stack(whole).shape == (2, 32) and whole.numel() == 32
    assert part.pad_to(32).shape == (32,)
    assert part.cat(part).shrink(((v + 1, 2 * v + 2),)).shape == part.shape
