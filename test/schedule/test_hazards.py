"""hazards.py: what reads an old state of a storage and comes after a new one is stored first."""

from __future__ import annotations

from weft import Tensor
from weft.dtype import dtypes
from weft.schedule.hazards import keep_state, separate_states
from weft.uop.node import UOp
from weft.uop.opset import Ops


def kept(graph: UOp) -> list[UOp]:
    """Values that were put into storage of their own."""
    return [u.src[0] for u in graph.toposort() if u.op is Ops.CONTIGUOUS and u.tag == "own"]


def overwritten() -> tuple[UOp, UOp]:
    """A storage, and its state after it was doubled."""
    storage = UOp.new_buffer("CPU", 4, dtypes.float32)
    return storage, storage.after(storage.store(storage * 2))


def test_a_value_of_both_states_keeps_what_it_read_of_the_old_one() -> None:
    old, new = overwritten()
    read = old + 1
    assert kept(separate_states(UOp.sink(read + new))) == [read]


def test_a_value_of_one_state_is_left_alone() -> None:
    old, new = overwritten()
    graph = UOp.sink(new + 1, old + 1)
    assert separate_states(graph) is graph


def test_the_value_that_is_written_may_read_what_it_overwrites() -> None:
    _, new = overwritten()
    assert kept(separate_states(UOp.sink(new))) == []


def test_what_is_stored_already_reads_nothing_any_more() -> None:
    old, new = overwritten()
    stored = (old + 1).contiguous()  # type: ignore[attr-defined]
    assert kept(separate_states(UOp.sink(stored + new))) == []


def test_readers_of_a_kept_state_read_a_copy_and_writers_the_state() -> None:
    old, new = overwritten()
    graph = keep_state(UOp.sink(old + 1, new), old)
    assert kept(graph) == [old]
    stores = [u for u in graph.toposort() if u.op is Ops.STORE]
    assert all(store.src[0] is old for store in stores)


def test_a_value_is_what_it_was_when_it_was_written_down() -> None:
    x = Tensor([1.0, 2.0]).contiguous().realize()
    before = x + 1
    x.assign(x * 2)
    assert (before + x).tolist() == [4.0, 7.0] and x.tolist() == [2.0, 4.0]
