"""What all tests share: a cache folder of their own, restored knobs, a seed, hypothesis settings.

A fixed share of them runs with SPEC=2, which verifies and proves what is compiled; all of them do
with `make test-all`.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from test.optional import STRICTEST, found, optional

# Before weft is imported: tests must neither read nor fill the cache of whoever runs them. One
# folder for all tests of a process, so that kernels compile once; the process removes it at exit.
_cache = tempfile.TemporaryDirectory(prefix="weft-test-cache-", ignore_cleanup_errors=True)
os.environ["WEFT_CACHE"] = str(Path(_cache.name) / "cache")

# Shells start what runs in the background with interrupts ignored, and so would all its children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

from weft import Device, Tensor, disk, dtypes, knobs  # noqa: E402
from weft.errors import CompileError  # noqa: E402

hypothesis = found("hypothesis")
if hypothesis is not None:
    # No deadline: two test processes on a busy machine are slow at times, which is no failure.
    hypothesis.settings.register_profile(
        "weft",
        deadline=None,
        max_examples=100,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.settings.load_profile("weft")
if found("z3") is None:
    # whoever asks the solver a question is skipped
    sys.modules["z3"] = optional("z3")  # type: ignore[assignment]


# What tests print is captured, this is not. Seconds after its alarm a test must have ended in.
_stderr = os.fdopen(os.dup(2), "w")
HEARD_WITHIN = 60


@pytest.fixture(autouse=True)
def restore_knobs() -> Iterator[None]:
    """A test that sets a knob must not change the next one."""
    before = {name: variable._base for name, variable in knobs._VARIABLES.items()}
    yield
    for name, value in before.items():
        knobs._VARIABLES[name]._turn(value)


@pytest.fixture(autouse=True)
def pin_device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`@pytest.mark.device("CPU")`: a test about that device, in a run with another default one.

    Programs that it starts have it as well.
    """
    marker = request.node.get_closest_marker("device")
    if marker is None:
        yield
        return
    before = Device.DEFAULT
    Device.DEFAULT = marker.args[0]
    monkeypatch.setenv("DEVICE", marker.args[0])
    yield
    Device.DEFAULT = before


# Tests of what is the same for all devices: graphs, rules, passes and texts. They build kernels by
# hand or take those of the CPU.
COMPILER = ("test/uop/", "test/codegen/", "test/renderer/", "test/replay/")
COMPILER_FILES = ("test_layering.py", "test_limits.py", "test_optional.py", "test_op_table.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With another default device the tests of the compiler alone would only run again."""
    if Device.DEFAULT.split(":")[0] == "CPU":
        return
    again = pytest.mark.skip(
        reason="about the compiler, not a device: it runs where CPU is default"
    )
    for item in items:
        path = item.path.as_posix()
        if any(part in path for part in COMPILER) or item.path.name in COMPILER_FILES:
            item.add_marker(again)


@pytest.fixture(autouse=True)
def seed_random_numbers() -> None:
    """Without a seed each process draws its own; a failure must come again."""
    Tensor.manual_seed(0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """End the process where a test hangs in native code, which hears no alarm.

    The stacks of all threads go to standard error; a run in several processes names the test and
    goes on with a new one.
    """
    marker = item.get_closest_marker("timeout")
    seconds = 0.0
    if item.config.pluginmanager.hasplugin("timeout"):
        seconds = float(marker.args[0] if marker else item.config.getini("timeout") or 0)
    if seconds:
        faulthandler.dump_traceback_later(seconds + HEARD_WITHIN, exit=True, file=_stderr)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[Any]:
    """A test that asks the default device for float64, which it lacks and refuses by name."""
    try:
        return (yield)
    except CompileError as error:
        if "has no dtypes.double" not in str(error) or Device.DEFAULT == "CPU":
            raise
        if dtypes.float64 in Device.default.renderer.supported_dtypes():
            raise
        pytest.skip(f"{Device.DEFAULT} has no float64")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder for one test, with all warnings still to come."""
    monkeypatch.setattr(knobs.WEFT_CACHE, "_base", str(tmp_path / "cache"))
    monkeypatch.setattr(knobs.CACHELEVEL, "_base", 2)
    monkeypatch.setattr(disk, "_warned", set())
    return tmp_path / "cache"


# One of so many tests is verified. Which ones depends on their names, so it is the same everywhere.
VERIFIED_SHARE = 20


@pytest.fixture(autouse=True)
def verify_a_share(request: pytest.FixtureRequest, restore_knobs: None) -> None:
    """Some tests run under SPEC=2 in every run of the suite; under 1 where there is no solver."""
    name = request.node.nodeid.encode()
    is_about_knobs = "knob" in request.node.nodeid
    if zlib.crc32(name) % VERIFIED_SHARE == 0 and not is_about_knobs:
        knobs.SPEC.value = max(knobs.SPEC.value, STRICTEST)
