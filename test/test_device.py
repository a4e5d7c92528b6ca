"""The registry of devices and the Buffer: names, choice, lifetime, copies, counting."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from weft.device import (
    RANKED_DEVICES,
    BaseDevice,
    Buffer,
    Device,
    ImmediateQueue,
    enumerate_devices_str,
)
from weft.dtype import dtypes
from weft.errors import ArgumentError, DeviceError, OutOfMemory
from weft.helpers import GlobalCounters

ROOT = Path(__file__).parent.parent


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a fresh interpreter, with no device asked for but by `environment`."""
    kept = {key: value for key, value in os.environ.items() if key in ("PATH", "HOME", "TMPDIR")}
    kept["PYTHONPATH"] = str(ROOT)
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def used(device: str) -> int:
    gc.collect()
    return GlobalCounters.mem_used_per_device[device]


# *** names ***


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("CPU", "CPU"),
        ("cpu", "CPU"),
        ("CPU:0", "CPU"),
        ("cpu:0", "CPU"),
        ("cpu:1", "CPU:1"),
        ("Cpu:12", "CPU:12"),
        (" cpu ", "CPU"),
        ("gpu:1", "GPU:1"),
        ("disk:/dev/shm/Test", "DISK:/dev/shm/Test"),
        ("disk:000.txt", "DISK:000.txt"),
        (("cpu", "CPU:1"), ("CPU", "CPU:1")),
        (["cpu:0"], ("CPU",)),
    ],
)
def test_canonicalize(name, canonical):
    assert Device.canonicalize(name) == canonical


def test_canonicalize_none_is_default():
    assert Device.canonicalize(None) == Device.DEFAULT


@pytest.mark.parametrize("name", ["", ":1", 3, 2.5])
def test_canonicalize_refuses_what_is_no_name(name):
    with pytest.raises(ArgumentError, match="no device"):
        Device.canonicalize(name)


def test_one_object_per_canonical_name():
    assert Device["cpu"] is Device["CPU"] is Device["CPU:0"]
    assert Device["cpu:1"] is Device["CPU:1"]
    assert Device["CPU:1"] is not Device["CPU"]
    assert Device["CPU:1"].name == "CPU:1"


def test_opening_from_many_threads_gives_one_object():
    found = []
    threads = [threading.Thread(target=lambda: found.append(Device["CPU:7"])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert len(found) == 8 and len(set(map(id, found))) == 1


def test_unknown_device_says_what_exists():
    with pytest.raises(DeviceError, match="no device FOO in this installation; it has .*CPU"):
        Device["foo:3"]


def test_default_can_be_set_and_must_exist():
    before = Device.DEFAULT
    try:
        Device.DEFAULT = "cpu:1"
        assert Device.DEFAULT == "CPU:1" and Device.default is Device["CPU:1"]
        with pytest.raises(DeviceError):
            Device.DEFAULT = "foo"
        assert Device.DEFAULT == "CPU:1"
    finally:
        Device.DEFAULT = before


def test_available_devices():
    available = Device.get_available_devices()
    assert "CPU" in available
    assert "NULL" not in available
    assert {"CPU", "NULL"} <= set(Device.names)
    lines = list(enumerate_devices_str())
    assert any(line.startswith("CPU") and "available" in line for line in lines)


# *** the choice of the default device ***


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "CPU"),
        ({"DEVICE": "NULL"}, "NULL"),
        ({"DEV": "null:2"}, "NULL:2"),
        ({"NULL": "1"}, "NULL"),
        ({"CPU": "1"}, "CPU"),
        ({"DEVICE": "cpu:1", "DEV": "NULL"}, "CPU:1"),
    ],
)
def test_default_follows_the_environment(environment, expected):
    done = run_python("from weft.device import Device; print(Device.DEFAULT)", **environment)
    assert (done.stdout.strip(), done.returncode) == (expected, 0), done.stderr


def test_debug_says_which_device_and_why_not_the_others():
    code = "from weft.device import Device; Device.DEFAULT; Device.DEFAULT; Device['CPU']"
    done = run_python(code, DEBUG="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("opened device CPU") == 1
    assert done.stdout.count("default device CPU: the highest-ranked device that opens") == 1
    absent = [kind for kind in RANKED_DEVICES if kind not in Device.names]
    said = f"  not {', '.join(absent)}: not in this installation\n" in done.stdout
    assert said == bool(absent)
    asked = run_python(code, DEBUG="1", DEV="CPU")
    assert "default device CPU: because of DEV=CPU" in asked.stdout
    assert run_python(code).stdout == ""


def test_a_wrong_request_is_an_error_that_names_it():
    done = run_python("from weft.device import Device; Device.DEFAULT", DEVICE="FOO")
    assert "DeviceError: DEVICE=FOO in the environment: there is no device FOO" in done.stderr


def test_opening_the_cpu_imports_neither_llvm_nor_numpy():
    code = (
        "import sys; from weft.device import Device, Buffer; from weft.dtype import dtypes;"
        "b = Buffer('CPU', 4, dtypes.int32).allocate(); b.copyin(bytes(16));"
        "print([m for m in ('llvmlite.binding', 'numpy') if m in sys.modules])"
    )
    done = run_python(code)
    assert done.stdout.strip() == "[]", done.stderr


def test_nn_is_an_attribute_that_is_loaded_when_it_is_asked_for():
    code = (
        "import sys, weft; before = 'weft.nn' in sys.modules, 'numpy' in sys.modules;"
        "print(before, 'nn' in dir(weft), weft.nn.optim.Adam.__name__,"
        "weft.nn is sys.modules['weft.nn'])"
    )
    done = run_python(code)
    assert done.stdout.strip() == "(False, False) True Adam True", done.stderr


def test_a_device_that_fails_to_open_says_why(monkeypatch):
    import weft.runtime.ops_null as module

    def broken(name):
        raise OSError("no driver")

    monkeypatch.setattr(module, "NullDevice", broken)
    with pytest.raises(DeviceError, match="NULL:9 does not open: OSError: no driver"):
        Device["NULL:9"]


# *** buffers ***


def test_a_buffer_may_start_with_memory_or_contents():
    assert Buffer("CPU", 2, dtypes.int32, preallocate=True).is_allocated()
    filled = Buffer("CPU", 2, dtypes.int32, initial_value=bytes([1, 0, 0, 0, 2, 0, 0, 0]))
    assert filled.numpy().tolist() == [1, 2]


def test_copy_in_and_out():
    data = np.arange(10, dtype=np.float32)
    buffer = Buffer("CPU", 10, dtypes.float32)
    assert not buffer.is_allocated() and buffer.nbytes == 40
    buffer.copyin(memoryview(data))
    assert buffer.is_allocated()
    np.testing.assert_array_equal(buffer.numpy(), data)
    target = np.zeros(10, dtype=np.float32)
    buffer.copyout(memoryview(target))
    np.testing.assert_array_equal(target, data)
    assert bytes(buffer.as_memoryview()) == data.tobytes()


def test_numpy_is_a_copy_and_the_zero_copy_view_is_not():
    buffer = Buffer("CPU", 4, dtypes.uint8).copyin(b"abcd")
    array = buffer.numpy()
    array[0] = 0
    assert bytes(buffer.as_memoryview()) == b"abcd"
    view = buffer.as_memoryview(allow_zero_copy=True)
    view[0] = ord("x")
    assert bytes(buffer.as_memoryview()) == b"xbcd"


def test_numpy_of_types_that_numpy_lacks():
    array = Buffer("CPU", 2, dtypes.bfloat16).copyin(b"\x80\x3f\x00\x40").numpy()
    assert array.dtype == np.uint16 and array.tolist() == [0x3F80, 0x4000]


def test_zero_copy_view_keeps_the_memory():
    before = used("CPU")
    view = Buffer("CPU", 1000, dtypes.uint8).copyin(bytes(1000)).as_memoryview(True)
    assert used("CPU") == before + 1000
    view[999] = 1
    del view
    assert used("CPU") == before


@pytest.mark.parametrize("nbytes", [0, 39, 41])
def test_copyin_checks_the_size(nbytes):
    with pytest.raises(ArgumentError, match=f"copyin of {nbytes} bytes .* takes 40"):
        Buffer("CPU", 10, dtypes.float32).copyin(bytes(nbytes))


def test_copies_refuse_what_they_cannot_do():
    buffer = Buffer("CPU", 4, dtypes.uint8)
    with pytest.raises(DeviceError, match="no contents yet"):
        buffer.as_memoryview()
    buffer.copyin(b"abcd")
    with pytest.raises(ArgumentError, match="read-only"):
        buffer.copyout(memoryview(b"1234"))
    with pytest.raises(ArgumentError, match="non-contiguous"):
        buffer.copyin(memoryview(bytes(8))[::2])
    with pytest.raises(ArgumentError, match="copy of 4 bytes into 5"):
        Buffer("CPU", 5, dtypes.uint8).copy_from(buffer)
    with pytest.raises(DeviceError, match="has its memory already"):
        buffer.allocate()
    with pytest.raises(ArgumentError, match="at least 0"):
        Buffer("CPU", -1, dtypes.uint8)


def test_views_share_memory_and_keep_the_base_alive():
    before = used("CPU")
    base = Buffer("CPU", 8, dtypes.int32).copyin(np.arange(8, dtype=np.int32))
    view = base.view(4, dtypes.int32, 8)
    inner = view.view(2, dtypes.int32, 4)
    assert inner.base is base and inner.offset == 12
    assert inner.address == base.address + 12
    assert base.base is base
    np.testing.assert_array_equal(inner.numpy(), [3, 4])
    inner.copyin(np.array([30, 40], dtype=np.int32))
    np.testing.assert_array_equal(base.numpy(), [0, 1, 2, 30, 40, 5, 6, 7])
    assert used("CPU") == before + 32
    del base, view
    assert used("CPU") == before + 32
    np.testing.assert_array_equal(inner.numpy(), [30, 40])
    del inner
    assert used("CPU") == before


def test_a_view_must_fit_and_stay_on_its_device():
    base = Buffer("CPU", 8, dtypes.int32)
    with pytest.raises(ArgumentError, match="16 bytes at byte 20 does not fit its base of 32"):
        base.view(4, dtypes.int32, 20)
    with pytest.raises(DeviceError, match="a view on NULL of a Buffer that is on CPU"):
        Buffer("NULL", 1, dtypes.int32, base=base)
    with pytest.raises(ArgumentError, match="without a base"):
        Buffer("CPU", 1, dtypes.int32, offset=4)


def test_allocating_a_view_allocates_its_base():
    base = Buffer("CPU", 8, dtypes.int32)
    view = base.view(4, dtypes.int32, 16)
    assert view.ensure_allocated() is view and base.is_allocated()
    view.deallocate()
    assert base.is_allocated()
    base.deallocate()
    assert not view.is_allocated()
    base.deallocate()


def test_zero_size():
    before = used("CPU")
    empty = Buffer("CPU", 0, dtypes.float32).allocate()
    assert empty.is_allocated() and empty.nbytes == 0
    assert empty.numpy().shape == (0,)
    assert bytes(empty.as_memoryview(allow_zero_copy=True)) == b""
    Buffer("CPU", 0, dtypes.float32).copy_from(empty)
    Buffer("NULL", 0, dtypes.float32).copy_from(empty)
    empty.copyin(b"")
    empty.copyout(bytearray())
    assert copy.deepcopy(empty).is_allocated()
    assert used("CPU") == before


def test_memory_comes_back():
    before, total = used("CPU:1"), GlobalCounters.mem_used
    buffers = [Buffer("CPU:1", n, dtypes.uint8).allocate() for n in (1, 63, 1000, 1 << 16, 5 << 20)]
    expected = sum(buffer.nbytes for buffer in buffers)
    assert used("CPU:1") == before + expected
    assert GlobalCounters.mem_used == total + expected
    buffers[0].deallocate()
    assert used("CPU:1") == before + expected - 1
    GlobalCounters.reset()
    assert used("CPU:1") == before + expected - 1
    # A cycle, so that only the garbage collector frees it.
    cycle = [buffers]
    cycle.append(cycle)
    del buffers, cycle
    assert used("CPU:1") == before and GlobalCounters.mem_used == total


def test_memory_in_use_is_never_handed_out_twice():
    """Many threads allocate, mark, check and drop, while the garbage collector runs finalizers."""
    errors = []

    def work(mark):
        rng = np.random.default_rng(mark)
        held = []
        for _ in range(300):
            size = int(rng.choice([1, 100, 5000, 70_000]))
            buffer = Buffer("CPU", size, dtypes.uint8).copyin(bytes([mark]) * size)
            held.append([buffer])
            held[-1].append(held[-1])
            if len(held) > 20:
                dropped = held.pop(int(rng.integers(len(held))))[0]
                if set(bytes(dropped.as_memoryview())) != {mark}:
                    errors.append(dropped)

    before = used("CPU")
    threshold = gc.get_threshold()
    gc.set_threshold(5, 2, 2)
    try:
        threads = [threading.Thread(target=work, args=(mark,)) for mark in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
    finally:
        gc.set_threshold(*threshold)
    assert not errors
    assert used("CPU") == before


def test_out_of_memory_says_what_and_how_much():
    held = Buffer("CPU:3", 1 << 20, dtypes.uint8).allocate()
    with pytest.raises(OutOfMemory) as caught:
        Buffer("CPU:3", 1 << 60, dtypes.uint8).allocate()
    text = str(caught.value)
    assert text.startswith(f"CPU:3 cannot give {1 << 60} bytes (1048576.00 TiB)")
    assert "1048576 bytes (1.00 MiB) are in use" in text and "cached" in text
    assert isinstance(caught.value, MemoryError)
    # Still usable, and nothing was counted.
    assert used("CPU:3") == held.nbytes
    Buffer("CPU:3", 10, dtypes.uint8).allocate()


def test_pickle_and_deepcopy_copy_the_contents():
    base = Buffer("CPU", 4, dtypes.int32).copyin(np.arange(4, dtype=np.int32))
    view = base.view(2, dtypes.int32, 8)
    for again in (pickle.loads(pickle.dumps([base, view])), copy.deepcopy([base, view])):
        new_base, new_view = again
        assert new_base is not base and new_base.address != base.address
        np.testing.assert_array_equal(new_base.numpy(), [0, 1, 2, 3])
        # Views of one base still share it.
        assert new_view.base is new_base
        new_view.copyin(np.array([7, 8], dtype=np.int32))
        np.testing.assert_array_equal(new_base.numpy(), [0, 1, 7, 8])
    np.testing.assert_array_equal(base.numpy(), [0, 1, 2, 3])
    assert not copy.deepcopy(Buffer("CPU", 4, dtypes.int32)).is_allocated()


def test_external_memory_is_used_and_not_freed():
    before = used("CPU")
    array = np.arange(6, dtype=np.int64)
    buffer = Buffer.from_opaque("CPU", 6, dtypes.int64, array.ctypes.data, owner=array)
    assert buffer.address == array.ctypes.data
    np.testing.assert_array_equal(buffer.view(2, dtypes.int64, 16).numpy(), [2, 3])
    buffer.copyin(np.zeros(6, dtype=np.int64))
    assert array.sum() == 0
    references = sys.getrefcount(array)
    del buffer
    gc.collect()
    assert sys.getrefcount(array) == references - 1
    assert used("CPU") == before


def test_copy_between_devices():
    source = Buffer("CPU", 5, dtypes.uint8).copyin(b"hello")
    for device in ("CPU:1", "CPU:2", "CPU"):
        assert bytes(Buffer(device, 5, dtypes.uint8).copy_from(source).as_memoryview()) == b"hello"
    nothing = Buffer("NULL", 5, dtypes.uint8).copy_from(source)
    assert bytes(Buffer("CPU", 5, dtypes.uint8).copy_from(nothing).as_memoryview()) == bytes(5)
    Buffer("NULL:1", 5, dtypes.uint8).copy_from(nothing)
    part = Buffer("CPU", 8, dtypes.uint8).copyin(b"........").view(5, dtypes.uint8, 2)
    assert bytes(part.copy_from(source).base.as_memoryview()) == b"..hello."


def test_buffers_alive_at_exit_do_no_harm():
    code = (
        "from weft.device import Device, Buffer; from weft.dtype import dtypes\n"
        "held = [Buffer('CPU', n, dtypes.uint8).allocate() for n in (1, 1000, 1 << 22)]\n"
        "held.append(held); view = held[0].view(1, dtypes.uint8, 0)\n"
        "window = held[2].as_memoryview(True)\n"
    )
    done = run_python(code)
    assert (done.returncode, done.stderr) == (0, "")


# *** NULL, and the contracts ***


def test_null_takes_no_memory_and_runs_nothing():
    before = used("NULL")
    huge = Buffer("NULL", 1 << 50, dtypes.float32).allocate()
    assert used("NULL") == before + (1 << 52)
    with pytest.raises(DeviceError, match="has no address"):
        _ = huge.address
    small = Buffer("NULL", 4, dtypes.int32).copyin(b"\1" * 16)
    np.testing.assert_array_equal(small.numpy(), [0, 0, 0, 0])
    device = Device["NULL"]
    program = device.runtime("kernel", device.compiler.compile("text"), n_bufs=1)
    assert program([huge]) is None
    assert isinstance(program([huge], wait=True), float)
    assert not device.executes and not device.is_host
    del huge, small
    assert used("NULL") == before


def test_a_device_without_parts_says_so():
    device = BaseDevice("STORE", Device["NULL"].allocator)
    for ask in (lambda: device.compiler, lambda: device.renderer, lambda: device.runtime("k", b"")):
        with pytest.raises(DeviceError, match="STORE (compiles|renders|runs)"):
            ask()
    device.synchronize()


def test_the_immediate_queue_keeps_order():
    queue = ImmediateQueue()
    source = Buffer("CPU", 2, dtypes.uint8).copyin(b"ab")
    target = Buffer("CPU", 2, dtypes.uint8)
    queue.copy(target, source)
    first, second = queue.signal(), queue.signal()
    assert first < second
    queue.wait(second)
    assert bytes(target.as_memoryview()) == b"ab"
