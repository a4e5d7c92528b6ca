"""The buffer cache of the host: size classes, reuse, bounds, release."""

from __future__ import annotations

import ctypes
import gc
import os
import pathlib
import random
import threading

import pytest

from weft.errors import DeviceError, OutOfMemory
from weft.helpers import GlobalCounters
from weft.knobs import Context
from weft.runtime import memory as module
from weft.runtime.memory import (
    ALIGNMENT,
    HUGE_PAGE,
    HostAllocator,
    HostMemory,
    machine_memory,
    size_class,
)

MIB = 1 << 20


def test_size_class_is_tight_and_monotonic():
    last = 0
    for nbytes in [*range(1, 5000), *(random.Random(1).randrange(1, 1 << 40) for _ in range(2000))]:
        size = size_class(nbytes)
        assert nbytes <= size < nbytes + max(ALIGNMENT, nbytes / 8 + 1)
        assert size % ALIGNMENT == 0 and size_class(size) == size
        if nbytes < 5000:
            assert size >= last
            last = size


@pytest.mark.parametrize("nbytes", [1, 64, 65, 4096, 65535, 65536, 1 * MIB, 2 * MIB, 5 * MIB + 1])
def test_blocks_are_aligned_writable_and_apart(nbytes):
    memory = HostMemory()
    blocks = [memory.take(nbytes) for _ in range(5)]
    for mark, block in enumerate(blocks):
        assert block.address % (HUGE_PAGE if nbytes >= HUGE_PAGE else ALIGNMENT) == 0
        ctypes.memset(block.address, mark + 1, nbytes)
    for mark, block in enumerate(blocks):
        assert set(ctypes.string_at(block.address, nbytes)) == {mark + 1}


def test_freed_memory_is_reused_newest_first():
    memory = HostMemory()
    for nbytes in (100, 100_000, 3 * MIB):
        first, second = memory.take(nbytes), memory.take(nbytes)
        addresses = first.address, second.address
        memory.give(first)
        memory.give(second)
        # Also for another size of the same class.
        assert memory.take(nbytes - 1).address == addresses[1]
        assert memory.take(nbytes).address == addresses[0]


def test_freeing_twice_is_refused():
    memory = HostMemory()
    block = memory.take(100)
    memory.give(block)
    with pytest.raises(DeviceError, match="freed twice"):
        memory.give(block)


def test_the_cache_is_bounded_and_drops_the_oldest():
    memory = HostMemory(cache_limit=10 * MIB)
    blocks = [memory.take(4 * MIB) for _ in range(3)]
    addresses = [block.address for block in blocks]
    for block in blocks:
        memory.give(block)
    blocks.clear()
    assert memory.cached_bytes == 8 * MIB == memory.mapped_bytes
    assert {memory.take(4 * MIB).address for _ in range(2)} == set(addresses[1:])


def test_small_blocks_go_back_to_the_system_too():
    memory = HostMemory(cache_limit=MIB)
    blocks = [memory.take(1024) for _ in range(4096)]
    assert memory.mapped_bytes >= 4 * MIB
    survivor = blocks.pop()
    while blocks:
        memory.give(blocks.pop())
    assert memory.cached_bytes <= MIB
    memory.release()
    # One slab stays, because a block of it is out.
    assert 0 < memory.mapped_bytes <= MIB
    memory.give(survivor)
    memory.release()
    assert memory.mapped_bytes == memory.cached_bytes == 0


@pytest.mark.parametrize("nbytes", [100, 100_000, 3 * MIB])
def test_lru_0_keeps_nothing(nbytes):
    memory = HostMemory()
    with Context(LRU=0):
        block = memory.take(nbytes)
        assert memory.mapped_bytes > 0
        memory.give(block)
    assert memory.mapped_bytes == memory.cached_bytes == 0


def resident_bytes() -> int:
    status = pathlib.Path("/proc/self/status")
    if not status.exists():
        pytest.skip("this system does not say how much memory is resident")
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) * 1024


def test_the_rest_of_a_block_takes_no_huge_page():
    before = resident_bytes()
    memory = HostMemory()
    blocks = [memory.take(HUGE_PAGE + 64 * 1024) for _ in range(16)]
    for block in blocks:
        ctypes.memset(block.address, 1, HUGE_PAGE + 64 * 1024)
    assert resident_bytes() - before < 16 * (HUGE_PAGE + MIB)


def test_what_is_idle_for_long_goes_back_to_the_system():
    now = [0.0]
    memory = HostMemory(clock=lambda: now[0])
    blocks = [memory.take(50 * MIB) for _ in range(8)]
    for block in blocks:
        ctypes.memset(block.address, 1, block.nbytes)
    resident = resident_bytes()
    while blocks:
        memory.give(blocks.pop())
    del block
    kept = memory.cached_bytes
    left = memory.release_idle()
    assert left is not None and memory.cached_bytes == kept
    now[0] += left / 2
    assert memory.release_idle() == pytest.approx(left / 2) and memory.cached_bytes == kept
    now[0] += left
    assert memory.release_idle() is None
    assert memory.cached_bytes == memory.mapped_bytes < kept / 5
    assert resident - resident_bytes() > 300 * MIB


def test_what_every_step_takes_again_stays():
    now = [0.0]
    memory = HostMemory(clock=lambda: now[0])
    memory.give(memory.take(500 * MIB))  # once, as for the first values of a model
    taken = set()
    for _ in range(40):
        blocks = [memory.take(100 * MIB) for _ in range(3)]
        taken |= {block.address for block in blocks}
        now[0] += 0.5
        while blocks:
            memory.give(blocks.pop())
        memory.release_idle()
    assert len(taken) == 3
    assert memory.cached_bytes == 3 * size_class(100 * MIB)


def test_more_than_is_always_kept_calls_for_a_return():
    calls = []
    memory = HostMemory(on_surplus=lambda: calls.append(memory.cached_bytes))
    memory.give(memory.take(60 * MIB))
    assert not calls
    memory.give(memory.take(30 * MIB))
    assert calls == [memory.cached_bytes]


def test_memory_of_an_idle_program_goes_back_without_being_asked(monkeypatch):
    monkeypatch.setattr(module, "_IDLE_SECONDS", 0.0)
    monkeypatch.setattr(module, "_BYTES_PER_IDLE_SECOND", 1 << 50)
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.0)
    returned = threading.Event()
    release_idle = module.host_memory.release_idle

    def release_and_tell():
        left = release_idle()
        if left is None:
            returned.set()
        return left

    monkeypatch.setattr(module.host_memory, "release_idle", release_and_tell)
    allocator = HostAllocator("CPU")
    blocks = [allocator.alloc(80 * MIB) for _ in range(2)]
    while blocks:
        allocator.free(blocks.pop(), 80 * MIB)
    assert returned.wait(30)
    assert allocator.cached_bytes <= 80 * MIB


def test_random_use_keeps_the_books():
    memory = HostMemory(cache_limit=6 * MIB)
    rng = random.Random(0)
    out = {}
    for step in range(3000):
        if out and rng.random() < 0.5:
            block = out.pop(rng.choice(list(out)))
            memory.give(block)
        else:
            nbytes = int(2 ** rng.uniform(0, 21.5))
            block = memory.take(nbytes)
            for other in out.values():
                apart = other.address + other.nbytes <= block.address
                assert apart or block.address + block.nbytes <= other.address
            out[step] = block
        assert 0 <= memory.cached_bytes <= memory.mapped_bytes
        assert sum(block.nbytes for block in out.values()) <= memory.mapped_bytes
        if rng.random() < 0.01:
            memory.release()
    for block in out.values():
        memory.give(block)
    memory.release()
    assert memory.mapped_bytes == memory.cached_bytes == 0


def test_a_full_cache_is_flushed_before_giving_up():
    memory = HostMemory(cache_limit=64 * MIB, memory_limit=20 * MIB)
    allocator = HostAllocator("CPU:limited", memory)
    first = allocator.alloc(10 * MIB)
    allocator.free(first, 10 * MIB)
    assert allocator.cached_bytes == 10 * MIB
    # Another class, so the cached block is of no use and must make room.
    second = allocator.alloc(16 * MIB)
    assert allocator.cached_bytes == 0
    with pytest.raises(OutOfMemory) as caught:
        allocator.alloc(8 * MIB)
    assert str(caught.value).startswith(
        "CPU:limited cannot give 8388608 bytes (8.00 MiB) (this machine grants the process "
        "20971520 bytes): 16777216 bytes (16.00 MiB) are in use and 0 bytes cached"
    )
    assert allocator.in_use == 16 * MIB
    allocator.free(second, 16 * MIB)
    assert allocator.in_use == 0
    allocator.free(allocator.alloc(8 * MIB), 8 * MIB)
    GlobalCounters.mem_used_per_device.pop("CPU:limited")


def test_a_request_beyond_the_machine_is_refused():
    assert machine_memory() > 0
    with pytest.raises(OutOfMemory, match="grants the process"):
        HostAllocator("CPU").alloc(machine_memory() + 1)
    refused_by_the_system = HostMemory(memory_limit=1 << 80)
    for nbytes in (1 << 61, 1 << 70):
        with pytest.raises(MemoryError, match="refuses"):
            refused_by_the_system.take(nbytes)
    assert refused_by_the_system.mapped_bytes == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_has_memory_of_its_own():
    allocator = HostAllocator("CPU")
    block = allocator.alloc(3 * MIB)
    ctypes.memset(block.address, 1, 3 * MIB)
    child = os.fork()
    if child == 0:
        ctypes.memset(block.address, 2, 3 * MIB)
        other = allocator.alloc(3 * MIB)
        allocator.free(block, 3 * MIB)
        os._exit(0 if other.address != block.address else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ctypes.string_at(block.address, 3 * MIB) == b"\1" * (3 * MIB)
    allocator.free(block, 3 * MIB)


def test_a_free_inside_an_allocation_is_settled_afterwards():
    """What a finalizer does when the garbage collector runs inside the allocator."""
    allocator = HostAllocator("CPU", HostMemory())
    held = allocator.alloc(100)
    inner = allocator._alloc

    def alloc_while_collecting(nbytes):
        allocator.free(held, 100)
        assert allocator.in_use == 100
        return inner(nbytes)

    allocator._alloc = alloc_while_collecting
    block = allocator.alloc(200)
    assert allocator.in_use == 200
    del allocator._alloc
    allocator.free(block, 200)
    assert allocator.in_use == 0
    gc.collect()
