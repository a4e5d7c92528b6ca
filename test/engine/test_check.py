"""CHECK_NAN, CHECK_OOB and VALIDATE: each finds its mistake and names who made it."""

from __future__ import annotations

import numpy as np
import pytest

from test.codegen.kernel_builder import Axes, kernel, load, params
from weft import Context, Tensor, Variable, dtypes
from weft.codegen import pipeline
from weft.engine.check import NotFiniteError, ValidationError, sum_of_absolutes
from weft.engine.programs import clear_programs
from weft.engine.schedule import clear_schedules
from weft.errors import IndexingError
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.pattern import UPat
from weft.uop.symbolic import sym


def numbers(*values: float, dtype: str = "float32") -> Tensor:
    return Tensor(np.array(values, dtype=dtype)).realize()


# ------------------------------------------------------------ CHECK_NAN


def test_the_kernel_and_line_that_made_a_nan_are_named() -> None:
    x = numbers(1, 0, 2)
    with Context(CHECK_NAN=1):
        first = (x * 2).contiguous()
        broken = (first - first) / (first - first)
        later = (broken.contiguous() + 1).contiguous() * 2
        with pytest.raises(NotFiniteError, match=r"test_check.py:\d+, made 3 NaN or inf .* is nan"):
            later.realize()


def test_infinities_count_and_the_element_is_named() -> None:
    with Context(CHECK_NAN=1), pytest.raises(NotFiniteError, match="element 1 .* is -inf"):
        numbers(1, 0, 2).log().realize()


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float64])
def test_every_float_type_is_looked_at(dtype: object) -> None:
    x = numbers(1, 1e30, 2, dtype="float64")
    with Context(CHECK_NAN=1):
        if dtype is dtypes.float16:
            with pytest.raises(NotFiniteError, match=r"dtypes\.half"):
                x.cast(dtypes.float16).realize()
        else:
            (x.cast(dtype) + 1).realize()  # type: ignore[arg-type]
            with pytest.raises(NotFiniteError):
                (x.cast(dtype) - x.cast(dtype)).log().realize()  # type: ignore[arg-type]


def test_what_came_in_is_not_blamed_on_the_kernel() -> None:
    x = numbers(float("nan"), 1)
    with Context(CHECK_NAN=1):
        assert np.isnan((x + 1).numpy()[0])
        assert (numbers(1, 2) + 1).tolist() == [2, 3]


def test_a_failed_check_leaves_the_value_pending() -> None:
    y = numbers(1, 0).log()
    with Context(CHECK_NAN=1):
        for _ in range(2):
            with pytest.raises(NotFiniteError):
                y.realize()
    assert y.tolist() == [0.0, float("-inf")]


def test_what_is_written_in_place_is_written_once_even_if_a_check_fails() -> None:
    x = numbers(1, 2)
    x.assign(x / (x - x))
    with Context(CHECK_NAN=1), pytest.raises(NotFiniteError):
        x.realize()
    assert x.tolist() == [float("inf")] * 2


# ------------------------------------------------------------ CHECK_OOB


def indices(*values: int, dtype: str = "int32") -> Tensor:
    return Tensor(np.array(values, dtype=dtype)).realize()


def test_an_index_outside_names_its_line_and_the_axis() -> None:
    x = Tensor.arange(12).reshape(3, 4).contiguous().realize()
    with Context(CHECK_OOB=1):
        with pytest.raises(
            IndexingError, match=r"index 3 at test_check.py:\d+ .* axis 0 of size 3"
        ):
            x[indices(0, 3)].realize()
        with pytest.raises(IndexingError, match="index -5 .* axis 1 of size 4"):
            x[:, indices(-5, 3)].realize()
        with pytest.raises(IndexingError, match="index 9"):
            x.gather(1, indices(9).reshape(1, 1)).realize()


def test_indices_inside_pass_also_negative_and_unsigned_ones() -> None:
    x = Tensor.arange(5).contiguous().realize()
    with Context(CHECK_OOB=1):
        assert x[indices(0, -5, 4, -1)].tolist() == [0, 0, 4, 4]
        assert x[indices(0, 4, dtype="uint8")].tolist() == [0, 4]
        with pytest.raises(IndexingError, match="index 200"):
            x[indices(1, 200, dtype="uint8")].realize()
        assert x[indices()].tolist() == []


def test_computed_indices_are_looked_at_as_well() -> None:
    x = Tensor.arange(5).contiguous().realize()
    i = indices(1, 2)
    with Context(CHECK_OOB=1):
        assert x[i * 2].tolist() == [2, 4]
        with pytest.raises(IndexingError, match="index 6"):
            (x[i * 3] + 1).sum().realize()


def test_writes_are_looked_at() -> None:
    x = Tensor.zeros(4).contiguous().realize()
    with Context(CHECK_OOB=1):
        x[indices(1, 3)] = numbers(5, 6)
        assert x.tolist() == [0, 5, 0, 6]
        with pytest.raises(IndexingError, match="index 4 .* size 4"):
            x[indices(1, 4)] = numbers(7, 8)
            x.realize()
    assert x.tolist() == [0, 7, 0, 6]


def test_a_number_outside_is_nowhere_on_purpose() -> None:
    x = Tensor.arange(5).contiguous().realize()
    with Context(CHECK_OOB=1):
        assert x[x > 2].tolist() == [3, 4]
        assert x[(x > 2).where(x, 99)].tolist() == [0, 0, 0, 3, 4]


def test_run_time_sizes() -> None:
    x = Tensor.arange(10).contiguous().realize()
    n = Variable("n", 1, 10).bind(4)
    with Context(CHECK_OOB=1):
        part = x[:n]
        assert part[indices(3, -4)].tolist() == [3, 0]
        with pytest.raises(IndexingError, match="size 4"):
            part[indices(4)].realize()


def test_without_the_knob_outside_reads_zero() -> None:
    x = Tensor.arange(1, 4).contiguous().realize()
    assert x[indices(0, 7)].tolist() == [1, 0]


# ------------------------------------------------------------ VALIDATE


def wrong_product(node: UOp) -> UOp:
    """x * 3 -> x * 2, a rule that is wrong on purpose"""
    return node.src[0] * 2


@pytest.mark.device("CPU")
def test_a_wrong_kernel_is_found_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from weft.uop.matcher import PatternMatcher

    three = UPat(Ops.CONST, dtypes.int32, arg=3)
    wrong = PatternMatcher([(UPat(Ops.MUL, src=(UPat(), three), name="node"), wrong_product)])

    def broken(sink: UOp, renderer: object) -> UOp:
        # the interpreter is the one that is right
        if type(renderer).__name__ == "PythonRenderer":
            return sink
        return pipeline.graph_rewrite(sink, wrong + sym, name="simplify")

    simplify, *others = pipeline.KERNEL_PASSES
    passes = (pipeline.Pass("simplify", broken, simplify.why), *others)
    monkeypatch.setattr(pipeline, "KERNEL_PASSES", passes)
    clear_programs()
    clear_schedules()
    x = Tensor(np.arange(8, dtype=np.int32)).realize()
    try:
        with Context(VALIDATE=1, CCACHE=0):
            message = (
                r"kernel E_8 on CPU, from test_check.py:\d+, is wrong: element 1 .* is 2, but 3"
            )
            with pytest.raises(ValidationError, match=message):
                (x * 3).realize()
            assert (x * 5).tolist() == [5 * i for i in range(8)]
    finally:
        clear_programs()
        clear_schedules()


def test_right_programs_are_valid() -> None:
    rng = np.random.default_rng(0)
    a, b = (Tensor(rng.standard_normal((17, 17)).astype(np.float32)) for _ in range(2))
    with Context(VALIDATE=1):
        (a @ b).softmax().realize()
        (a.half() @ b.half()).realize()
        a.layernorm().realize()
        x = Tensor.zeros(6).contiguous().realize()
        x[1:3] = 4
        assert x.tolist() == [0, 4, 4, 0, 0, 0]


def test_long_sums_may_be_added_in_any_order() -> None:
    """Terms of 1e4 that cancel: no tolerance relative to the result would do."""
    values = np.random.default_rng(1).standard_normal(4096).astype(np.float32) * 1e4
    values -= values.mean()
    with Context(VALIDATE=1):
        Tensor(values).sum().realize()


def test_sum_of_absolutes_changes_sums_of_floats_only() -> None:
    arrays = [np.zeros(1, np.float32), np.zeros(8, np.float32)]
    out, x = params(*arrays)
    r = Axes().reduce(8)
    zero = UOp.const(dtypes.weakint, 0)
    ast = kernel(out.index(zero).store(load(x, r).reduce(Ops.ADD, r)))
    terms, longest = sum_of_absolutes(ast)
    assert terms is not ast and longest == 8
    peak = kernel(out.index(zero).store(load(x, r).reduce(Ops.MAX, r)))
    assert sum_of_absolutes(peak) == (peak, 1)


def test_a_knob_that_is_switched_on_later_sees_cached_schedules() -> None:
    x = numbers(1, 0)
    x.log().realize()
    with Context(CHECK_NAN=1), pytest.raises(NotFiniteError):
        x.log().realize()


def test_an_unsigned_index_beyond_every_machine_int_is_outside() -> None:
    """SPEC=2 found it: as an int64 it was negative, and below the size."""
    x = Tensor.arange(1, 9).contiguous().realize()
    with Context(SPEC=2):
        far = Tensor(np.array([1, 2**64 - 8, 2**63], dtype=np.uint64)).realize()
        assert x[far].tolist() == [2, 0, 0]
