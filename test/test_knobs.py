"""Knobs: reading the environment, overriding for a while, one thread apart from another."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from weft import Device, Tensor, dtypes, knobs
from weft.errors import ArgumentError, DeviceError
from weft.knobs import (
    BEAM,
    DEBUG,
    DEFAULT_FLOAT,
    KNOBS,
    NOOPT,
    Context,
    ContextVar,
    getenv,
    requested_device,
)

ROOT = Path(__file__).resolve().parent.parent
SURFACE = """
DEBUG BEAM NOOPT JIT WINO SPEC VIZ PROFILE TRAINING CCACHE SCACHE DEFAULT_FLOAT DEFAULT_INT
TRANSCENDENTAL TRACK_MATCH_STATS NO_MEMORY_PLANNER NUM_CPU_THREADS SPLIT_REDUCEOP ALLOW_TF32 USE_TC
TC_OPT CHECK_OOB IGNORE_BEAM_CACHE CACHELEVEL FUSE_OPTIM LRU RING CPU_LLVM
""".split()

# Whoever runs the tests may have set it.
SET_BEAM = BEAM.value


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "", "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize("name", SURFACE)
def test_every_public_knob_is_in_the_table(name: str) -> None:
    assert KNOBS[name].name == name
    assert KNOBS[name].help


def test_getenv_has_the_type_of_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_TEST", "3")
    assert getenv("WEFT_TEST") == 3
    assert getenv("WEFT_TEST", "") == "3"
    assert getenv("WEFT_TEST", 0.5) == 3.0
    monkeypatch.setenv("WEFT_TEST", "true")
    assert getenv("WEFT_TEST", False) is True
    monkeypatch.setenv("WEFT_TEST", "")
    assert getenv("WEFT_TEST", 7) == 7
    monkeypatch.delenv("WEFT_TEST")
    assert getenv("WEFT_TEST", 7) == 7


@pytest.mark.parametrize(
    ("default", "accepted"), [(0, "integer"), (0.0, "number"), (False, "0 or")]
)
def test_getenv_says_what_it_accepts(
    monkeypatch: pytest.MonkeyPatch, default: float, accepted: str
) -> None:
    monkeypatch.setenv("WEFT_TEST", "abc")
    with pytest.raises(ArgumentError, match=f"WEFT_TEST='abc'.*{accepted}"):
        getenv("WEFT_TEST", default)


def test_a_bad_value_in_the_environment_is_reported_at_import() -> None:
    done = run_python("import weft.knobs", DEBUG="abc")
    assert done.returncode != 0
    assert "DEBUG='abc'" in done.stderr and "integer" in done.stderr
    done = run_python("import weft.dtype", DEFAULT_FLOAT="int8")
    assert "DEFAULT_FLOAT" in done.stderr and "float16" in done.stderr


def test_the_environment_is_read() -> None:
    done = run_python("from weft.knobs import DEBUG; print(int(DEBUG), DEBUG >= 2)", DEBUG="3")
    assert done.stdout.split() == ["3", "True"]


def test_a_knob_acts_like_its_value() -> None:
    with Context(DEBUG=2):
        assert DEBUG >= 2 and DEBUG > 1 and DEBUG <= 2 and DEBUG < 3
        assert DEBUG == 2 and DEBUG != 3
        assert bool(DEBUG) and int(DEBUG) == 2 and [0, 1, 2][DEBUG] == 2
        assert f"{DEBUG}" == "2" and repr(DEBUG) == "ContextVar(DEBUG=2)"
    with Context(NOOPT=0):
        assert not NOOPT


def test_context_restores_after_an_error() -> None:
    before = DEBUG.value
    with pytest.raises(ZeroDivisionError), Context(DEBUG=before + 1, BEAM=4):
        assert before + 1 == DEBUG
        raise ZeroDivisionError
    assert DEBUG.value == before and BEAM.value == SET_BEAM


def test_contexts_nest_and_one_object_may_be_entered_twice() -> None:
    outer = Context(BEAM=1)
    with outer, Context(BEAM=2):
        with outer:
            assert BEAM.value == 1
        assert BEAM.value == 2
    assert BEAM.value == SET_BEAM


def test_context_decorates() -> None:
    @Context(BEAM=5)
    def factorial(number: int) -> int:
        """Keeps its docstring."""
        assert BEAM.value == 5
        return number * factorial(number - 1) if number else 1

    assert factorial(4) == 24
    assert factorial.__doc__ == "Keeps its docstring."
    assert BEAM.value == SET_BEAM


def test_a_context_stays_in_its_thread() -> None:
    entered = threading.Event()
    leave = threading.Event()
    seen: list[int] = []

    def override() -> None:
        with Context(BEAM=9):
            entered.set()
            leave.wait(10)
            seen.append(BEAM.value)

    thread = threading.Thread(target=override)
    thread.start()
    assert entered.wait(10)
    with Context(BEAM=3):
        assert BEAM.value == 3
        leave.set()
        thread.join(300)
    assert seen == [9]
    assert BEAM.value == SET_BEAM


def test_assigning_inside_a_context_ends_with_it() -> None:
    with Context(BEAM=1):
        BEAM.value = 7
        assert BEAM.value == 7
    assert BEAM.value == SET_BEAM


def test_assigning_outside_reaches_other_threads() -> None:
    BEAM.value = 2
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(BEAM.value))
    thread.start()
    thread.join(300)
    assert seen == [2]


def test_an_unknown_name_suggests_the_ones_alike() -> None:
    with pytest.raises(ArgumentError, match="no knob named DEBUGG; did you mean DEBUG"):
        Context(DEBUGG=1)
    with pytest.raises(ArgumentError, match="no knob named debug; did you mean DEBUG"):
        Context(debug=1)
    with pytest.raises(ArgumentError, match="known:.*WINO"):
        Context(QQQQQQQ=1)


def test_a_value_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(ArgumentError, match="DEBUG='2' is a str, but DEBUG takes a int"):
        Context(DEBUG="2")
    with pytest.raises(ArgumentError, match="DEFAULT_FLOAT takes text"):
        DEFAULT_FLOAT.value = 1  # type: ignore[assignment]
    with Context(DEBUG=True):
        assert DEBUG.value == 1 and type(DEBUG.value) is int


@pytest.mark.parametrize("name", [name for name, k in KNOBS.items() if k.least is not None])
def test_a_number_below_the_least_is_refused(name: str) -> None:
    accepted = rf"{name} takes an? \w+ of at least {KNOBS[name].least}"
    before = str(ContextVar(name, 0))
    with pytest.raises(ArgumentError, match=rf"^{name}=-3.*, but {accepted}"):
        Context(**{name: -3})
    with pytest.raises(ArgumentError, match=accepted):
        ContextVar(name, 0).value = -1
    assert str(ContextVar(name, 0)) == before
    done = run_python("import weft.knobs", **{name: "-3"})
    assert done.returncode != 0
    assert f"ArgumentError: the environment says {name}=-3" in done.stderr
    assert run_python("import weft.knobs", **{name: "0"}).returncode == 0


def test_threads_are_not_counted_below_zero() -> None:
    with pytest.raises(ArgumentError, match="NUM_CPU_THREADS=-3.*0: one per usable core"):
        Context(NUM_CPU_THREADS=-3)
    with pytest.raises(ArgumentError, match="BEAM_TIMEOUT=nan"):
        Context(BEAM_TIMEOUT=float("nan"))
    with Context(NUM_CPU_THREADS=0):
        pass


def test_a_knob_of_ones_own_has_a_least_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_TEST_LEAST", "0")
    with pytest.raises(ArgumentError, match="environment says WEFT_TEST_LEAST=0.*at least 1"):
        ContextVar("WEFT_TEST_LEAST", 2, "for a test", least=1)
    assert "WEFT_TEST_LEAST" not in KNOBS
    monkeypatch.delenv("WEFT_TEST_LEAST")
    assert ContextVar("WEFT_TEST_LEAST", 2, "for a test", least=1).value == 2


def test_a_knob_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_TEST_OWN", "6")
    own = ContextVar("WEFT_TEST_OWN", 1, "for a test")
    assert own.value == 6
    assert ContextVar("WEFT_TEST_OWN", 1) is own
    assert KNOBS["WEFT_TEST_OWN"].default == 1
    with Context(WEFT_TEST_OWN=8):
        assert own == 8


def test_a_knob_pickles_to_itself() -> None:
    assert pickle.loads(pickle.dumps(DEBUG)) is DEBUG


class TestRequestedDevice:
    names = ("CPU", "CUDA", "PYTHON")

    @pytest.fixture(autouse=True)
    def clear(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("DEVICE", "DEV", *self.names):
            monkeypatch.delenv(name, raising=False)

    def test_nothing_is_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert requested_device(self.names) is None
        monkeypatch.setenv("CPU", "0")
        monkeypatch.setenv("PYTHON", "/usr/bin/python3")
        assert requested_device(self.names) is None

    def test_the_first_of_device_dev_and_flags_counts(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CUDA", "1")
        assert requested_device(self.names) == ("CUDA", "CUDA=1")
        monkeypatch.setenv("DEV", "CPU")
        assert requested_device(self.names) == ("CPU", "DEV=CPU")
        monkeypatch.setenv("DEVICE", "PYTHON")
        assert requested_device(self.names) == ("PYTHON", "DEVICE=PYTHON")

    def test_two_flags_are_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CUDA", "1")
        monkeypatch.setenv("CPU", "1")
        with pytest.raises(DeviceError, match="CPU=1 and CUDA=1"):
            requested_device(self.names)


def test_a_dtype_goes_into_the_knobs_of_dtypes() -> None:
    with Context(DEFAULT_FLOAT=dtypes.half, DEFAULT_INT=dtypes.long):
        assert dtypes.default_float is dtypes.half and dtypes.default_int is dtypes.long
    with Context(DEFAULT_FLOAT="HALF"):
        assert dtypes.default_float is dtypes.half
    assert dtypes.default_float is dtypes.float


def test_a_context_without_knobs_changes_nothing() -> None:
    @Context()
    def inside() -> int:
        return int(DEBUG)

    with Context(DEBUG=1):
        with Context():
            assert DEBUG == 1
        assert inside() == 1
        with Context(DEBUG=2):
            assert DEBUG == 2
        assert DEBUG == 1


def test_the_default_device_of_a_block() -> None:
    before = Device.DEFAULT
    with Context(DEV="PYTHON"):
        assert Device.DEFAULT == "PYTHON"
        assert (Tensor([1, 2]) + 1).tolist() == [2, 3]
        with Context(DEV="NULL:LLVM:x86"):
            assert Device.DEFAULT == "NULL"
    assert Device.DEFAULT == before


def test_knobs_of_tinygrad_are_accepted() -> None:
    with Context(IMAGE=2, RING=2, ALL2ALL=1, USE_ATOMICS=1, TRACEMETA=0, PCONTIG=3, PARALLEL=4):
        assert (Tensor([1.0]) * 2).item() == 2.0
    with Context(TC=0, VALIDATE_WITH_CPU=1):
        assert knobs.USE_TC == 0 and knobs.VALIDATE == 1
    with Context(EMULATED_DTYPES="half,bfloat16"):
        assert knobs.EMULATED_DTYPES.tolist(dtypes) == [dtypes.half, dtypes.bfloat16]
    with pytest.raises(KeyError, match="there is no knob named SOMETHING"):
        Context(SOMETHING=1)


def test_the_environment_of_others_is_no_mistake() -> None:
    """IMAGE, PARALLEL and NO_COLOR mean something to other programs as well."""
    code = "from weft.helpers import IMAGE, PARALLEL; print(int(IMAGE), int(PARALLEL))"
    environment = {**os.environ, "IMAGE": "debian:12", "PARALLEL": "-j4", "NO_COLOR": "yes"}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert found.stdout.split() == ["0", "0"], found.stderr
