"""Schedules over memory that somebody else owns: run again with other addresses."""

from __future__ import annotations

import numpy as np

from weft import Device, dtypes
from weft.engine.addressed import Addressed
from weft.uop.node import UOp


def doubled() -> Addressed:
    """2 * x of four floats."""
    x = UOp.new_buffer("CPU", 4, dtypes.float32)
    return Addressed([x * 2], [x], "CPU")


def run(program: Addressed, x: np.ndarray, out: np.ndarray) -> None:
    with program.lock:
        (word,) = program.input_words
        assert word is not None
        program.words[word] = x.ctypes.data
        program.words[program.result_words[0]] = out.ctypes.data
        program.run()
        Device["CPU"].synchronize()


def test_results_are_written_where_the_caller_says() -> None:
    program = doubled()
    assert program.results == [0] and program.result_sizes == [4]
    for start in (0, 10):
        x, out = np.arange(start, start + 4, dtype=np.float32), np.zeros(4, np.float32)
        run(program, x, out)
        np.testing.assert_array_equal(out, x * 2)


def test_a_value_that_is_an_input_comes_out_there() -> None:
    x = UOp.new_buffer("CPU", 4, dtypes.float32)
    program = Addressed([x, x + 1], [x], "CPU")
    assert program.results[0] is None and program.results[1] == 0
    assert program.result_inputs[0] == program.place_of_input(x)
