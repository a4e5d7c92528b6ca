"""Products of a vector and a matrix: how the heuristic reads rows, and unpacks blocks of them."""

from __future__ import annotations

import numpy as np
import pytest

from weft import Tensor, dtypes
from weft.codegen.opt.heuristic import optimise
from weft.codegen.opt.opt import Opt, OptOps
from weft.dtype import DType
from weft.machine import Target

WIDE = Target("wide", cores=2, vector_bytes=64, vector_registers=32, has_threads=True, has_fma=True)


def applied(value: Tensor) -> list[Opt]:
    """The actions on the one kernel that a value takes."""
    (item,) = value.schedule()
    assert item.kernel is not None
    return list(optimise(item.kernel, WIDE).arg.applied)


def copies(found: list[Opt], op: OptOps) -> list[object]:
    return [opt.arg for opt in found if opt.op is op]


def stored(*shape: int, dtype: DType = dtypes.float32) -> Tensor:
    return Tensor.empty(*shape, dtype=dtype)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16, dtypes.float16])
def test_rows_from_far_away_are_one_stream(dtype: DType) -> None:
    found = applied(stored(1, 2048, dtype=dtype) @ stored(8192, 2048, dtype=dtype).T)
    assert not copies(found, OptOps.UPCAST)
    # the nearer a load's next step, the sooner it is guessed
    assert copies(found, OptOps.UNROLL) == [2]


def test_rows_of_two_axes_that_adjoin_are_one_stream() -> None:
    weights = stored(12, 64, 768)
    assert not copies(applied((stored(768) * weights).sum(2).T), OptOps.UPCAST)


def streams(found: list[Opt]) -> list[Opt]:
    """The actions that say how rows are read side by side."""
    return [opt for opt in found if opt.op in (OptOps.SPLIT, OptOps.UPCAST)]


def test_rows_that_push_out_what_they_share_are_several_streams() -> None:
    """Four of them, each of which goes on into the next row, sixteen times."""
    found = streams(applied(stored(1, 4096) @ stored(4096, 4096).T))
    number = found[0].axis
    assert isinstance(number, tuple)
    assert found == [
        Opt(OptOps.SPLIT, number, 64),
        Opt(OptOps.SPLIT, (*number, 1), 16),
        Opt(OptOps.UPCAST, (*number, 1, 0), 0),
    ]
    assert copies(applied(stored(4, 2048) @ stored(8192, 2048).T), OptOps.UPCAST)


def test_streams_leave_rounds_for_all_cores_and_overlap_little() -> None:
    # as many as leave eight rounds for each of two cores, and an even number of them
    assert copies(applied(stored(1, 4096) @ stored(200, 4096).T), OptOps.SPLIT) == [8, 2]
    assert copies(applied(stored(1, 4096) @ stored(4100, 4096).T), OptOps.SPLIT) == [36, 9]
    # too few rows to read any of them in a row
    assert copies(applied(stored(1, 8192) @ stored(64, 8192).T), OptOps.UPCAST) == [4]


def test_rows_in_the_caches_are_neighbours() -> None:
    assert not copies(applied(stored(1, 4096) @ stored(24, 4096).T), OptOps.SPLIT)
    # rows apart from each other in memory do not go on into the next one
    rows = stored(4096, 2, 4096)[:, 0]
    assert not copies(applied((rows * stored(4096)).sum(1)), OptOps.SPLIT)


@pytest.mark.parametrize(("columns", "rows"), [(1024, 128), (4096, 64)])
def test_rows_of_bytes_are_several_streams(columns: int, rows: int) -> None:
    weights = stored(8192, columns, dtype=dtypes.int8).cast(dtypes.float32)
    found = applied(stored(1, columns) @ weights.T)
    assert copies(found, OptOps.SPLIT) == [4 * rows, rows]


@pytest.mark.parametrize(("rows", "columns"), [(1037, 4097), (331, 6000)])
def test_streams_compute_what_rows_mean(rows: int, columns: int) -> None:
    generator = np.random.default_rng(1)
    w, x = [generator.standard_normal(s).astype(np.float32) for s in ((rows, columns), columns)]
    found = (Tensor(w) @ Tensor(x)).numpy()
    np.testing.assert_allclose(found, w.astype(np.float64) @ x, rtol=1e-4, atol=1e-3)


def test_short_axes_of_a_block_are_written_out() -> None:
    """Both halves of a byte, out of one load; their shifts are numbers."""
    packed = stored(1024, 64, 1, 16, dtype=dtypes.uint8)
    shifts = Tensor.arange(2, dtype=dtypes.uint8).reshape(2, 1) * 4
    values = ((packed >> shifts) & 15).cast(dtypes.float32) * stored(1024, 64, 1, 1)
    found = applied(stored(1, 2048) @ values.reshape(1024, 2048).T)
    assert copies(found, OptOps.VECTOR) == [16]
    assert 0 in copies(found, OptOps.UNROLL)


def test_blocks_compute_what_they_mean() -> None:
    generator = np.random.default_rng(0)
    packed = generator.integers(0, 256, (64, 6, 16)).astype(np.uint8)
    scales = generator.standard_normal((64, 6, 1)).astype(np.float32)
    x = generator.standard_normal((1, 192)).astype(np.float32)
    halves = np.concatenate((packed & 15, packed >> 4), axis=2).astype(np.float64)
    shifts = Tensor.arange(2, dtype=dtypes.uint8).reshape(2, 1) * 4
    unpacked = (Tensor(packed).unsqueeze(2) >> shifts) & 15
    values = unpacked.cast(dtypes.float32).reshape(64, 6, 32) * Tensor(scales)
    found = (Tensor(x) @ values.reshape(64, 192).T).numpy()
    expected = x @ (halves * scales).reshape(64, 192).T
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-3)
