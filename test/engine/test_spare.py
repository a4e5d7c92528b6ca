"""Memory of a replay's outputs is used again, but never while somebody can see it."""

from __future__ import annotations

import numpy as np
import pytest

from weft import Tensor, TinyJit
from weft.dtype import dtypes
from weft.engine.spare import MOST_BYTES, Spares


def _filled(value: float, size: int = 8) -> Tensor:
    return Tensor(np.full(size, value, np.float32)).realize()


def _doubled() -> TinyJit:
    jitted = TinyJit(lambda x: (x * 2).realize())
    for i in range(3):
        jitted(_filled(i))
    return jitted


def test_it_is_given_out_again_when_all_references_are_gone() -> None:
    spares = Spares("CPU", 8, dtypes.float32)
    node, buffer = spares.take()
    assert spares.take()[0] is not node
    known = (id(node), buffer.address)
    del node, buffer
    again = [spares.take() for _ in range(1)]
    assert (id(again[0][0]), again[0][1].address) == known


def test_large_memory_is_not_kept() -> None:
    spares = Spares("CPU", MOST_BYTES, dtypes.float32)
    spares.take()
    assert not spares._kept


def test_outputs_that_are_held_keep_their_values() -> None:
    jitted = _doubled()
    held = [jitted(_filled(i)) for i in range(10)]
    for i, tensor in enumerate(held):
        np.testing.assert_array_equal(tensor.numpy(), np.full(8, 2 * i, np.float32))


@pytest.mark.parametrize(
    "keep",
    [
        lambda out: out.reshape(2, 4),
        lambda out: out[2:6],
        lambda out: out + 1 - 1,
        lambda out: out.uop,
        lambda out: out.data(),
        lambda out: out._buffer(),
        lambda out: out._buffer().as_memoryview(allow_zero_copy=True),
        # NumPy takes memory of the host
        pytest.param(lambda out: np.from_dlpack(out), marks=pytest.mark.device("CPU")),
        lambda out: [out.detach()],
    ],
    ids=["view", "slice", "pending", "node", "data", "buffer", "memory", "dlpack", "detached"],
)
def test_whatever_is_made_of_an_output_keeps_its_memory(keep) -> None:
    jitted = _doubled()
    kept = [keep(jitted(_filled(7))) for _ in range(1)]
    before = _contents(kept[0])
    for i in range(5):
        jitted(_filled(100 + i))
    np.testing.assert_array_equal(_contents(kept[0]), before)


def _contents(kept) -> np.ndarray:
    if isinstance(kept, list):
        kept = kept[0]
    if isinstance(kept, Tensor):
        return kept.numpy().copy()
    if hasattr(kept, "as_memoryview"):
        kept = kept.as_memoryview(allow_zero_copy=True)
    if hasattr(kept, "op"):
        return Tensor(kept).numpy().copy()
    return np.frombuffer(kept, np.float32).copy()


def test_an_output_that_was_written_is_new_again() -> None:
    jitted = _doubled()
    for i in range(6):
        out = jitted(_filled(i))
        np.testing.assert_array_equal(out.numpy(), np.full(8, 2 * i, np.float32))
        out.assign(out + 1).realize()
        np.testing.assert_array_equal(out.numpy(), np.full(8, 2 * i + 1, np.float32))


def test_outputs_become_inputs() -> None:
    jitted = _doubled()
    x = _filled(1)
    for _ in range(12):
        x = jitted(x)
    np.testing.assert_array_equal(x.numpy(), np.full(8, 2.0**12, np.float32))


def test_a_freed_graph_keeps_nothing() -> None:
    jitted = _doubled()
    jitted.captured.free()
    assert all(not place.spares._kept for place in jitted.captured.launches._fresh)
