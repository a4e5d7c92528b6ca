"""The knobs, and the only place that reads the environment.

In: environment variables, read once when this module is imported. Out: one `ContextVar` per knob,
`Context` to override knobs for a while, `getenv` for the odd variable that is no knob, and
`requested_device` for the device the user asked for. Sits just above `errors`.
Invariant: an override belongs to the thread (or asyncio task) that made it and to no other.
"""

from __future__ import annotations

import contextvars
import functools
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Generic, ParamSpec, TypeVar, cast

from weft.errors import ArgumentError, DeviceError, UnknownKnob

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Value = TypeVar("Value", int, float, str)
Default = TypeVar("Default", bool, int, float, str)

_TRUE_WORDS = ("1", "true", "yes", "on")
_FALSE_WORDS = ("0", "false", "no", "off")


def _parse(name: str, text: str, kind: type) -> Any:
    """Reads `text` as a value of type `kind`, which is the type of the knob's default."""
    if kind is str:
        return text
    try:
        if kind is bool:
            lowered = text.strip().lower()
            if lowered not in _TRUE_WORDS + _FALSE_WORDS:
                raise ValueError(text)
            return lowered in _TRUE_WORDS
        return kind(text)
    except ValueError:
        accepted = {int: "an integer", float: "a number", bool: "0 or 1"}[kind]
        raise ArgumentError(
            f"the environment says {name}={text!r}, but {name} takes {accepted}; "
            f"unset it or write for example {name}=1"
        ) from None


def getenv(name: str, default: Default = 0) -> Default:  # type: ignore[assignment]
    """Value of an environment variable, read as the type of `default`; `default` if not set.

    >>> getenv("A_VARIABLE_THAT_IS_NOT_SET", 4)
    4
    """
    text = os.environ.get(name)
    if text is None or (text.strip() == "" and not isinstance(default, str)):
        return default
    return cast(Default, _parse(name, text, type(default)))


@dataclass(frozen=True)
class Knob:
    """One row of the table of knobs: what the documentation prints."""

    name: str
    default: int | float | str
    help: str
    # a lower number is refused
    least: int | float | None = None
    # tinygrad's, accepted without effect
    unused: bool = False


KNOBS: dict[str, Knob] = {}
_VARIABLES: dict[str, ContextVar[Any]] = {}

# Marks "this thread has no override", so that changing the base value reaches every thread.
_NO_OVERRIDE: Any = object()


class ContextVar(Generic[Value]):
    """A knob. Compares, converts and tests like the number (or text) that it holds now.

    The same name always gives the same object. `ContextVar("MINE", 0)` makes a knob of one's own,
    which then works with `Context(MINE=1)` and the environment like all others.
    """

    __slots__ = ("name", "kind", "_base", "_knob", "_override")
    # how often any knob was set for the process
    turns: ClassVar[int] = 0

    name: str
    kind: type
    _base: Value
    _knob: Knob
    _override: contextvars.ContextVar[Value]

    def __new__(
        cls,
        name: str,
        default: Value,
        help: str = "",
        least: int | float | None = None,
        unused: bool = False,
        any_text: bool = False,
    ) -> ContextVar[Value]:
        if name in _VARIABLES:
            return _VARIABLES[name]
        self = super().__new__(cls)
        self.name = name
        # A bool knob is a number knob: `Context(JIT=2)` must be able to follow `JIT=True`.
        self.kind = int if isinstance(default, bool) else type(default)
        plain_default = self.kind(default)
        self._knob = Knob(name, plain_default, help, least, unused)
        self._base = self._from_environment(plain_default, unused or any_text)
        self._override = contextvars.ContextVar(f"weft.{name}", default=_NO_OVERRIDE)
        KNOBS[name] = self._knob
        _VARIABLES[name] = self
        return self

    def _from_environment(self, default: Value, is_lenient: bool) -> Value:
        """What the environment says; where others use the same variable, if it is a value."""
        try:
            return self._in_range(getenv(self.name, default), "the environment says ")
        except ArgumentError:
            if is_lenient:
                return default
            raise

    @property
    def override(self) -> Value | None:
        """What a `Context` says here and now, None if none does."""
        override = self._override.get()
        return None if override is _NO_OVERRIDE else override

    def tolist(self, obj: Any = None) -> list[Any]:
        """The parts of text with commas; attributes of `obj` of these names if one is given."""
        if self.kind is not str:
            raise ArgumentError(f"{self.name} holds a number, so it has no parts")
        parts = [part for part in str(self.value).split(",") if part]
        return parts if obj is None else [getattr(obj, part) for part in parts]

    @property
    def value(self) -> Value:
        """What the knob says here and now."""
        override = self._override.get()
        return self._base if override is _NO_OVERRIDE else override

    @value.setter
    def value(self, new: Value) -> None:
        """Sets the knob until the enclosing `Context` ends, or for the process if there is none."""
        checked = self._check(new)
        if self._override.get() is _NO_OVERRIDE:
            self._turn(checked)
        else:
            self._override.set(checked)
            entered.set(_renewed(entered.get()))

    def _turn(self, new: Value) -> None:
        self._base = new
        ContextVar.turns += 1

    @property
    def key(self) -> str:
        """The knob's name, under the name that tinygrad's users know."""
        return self.name

    def _check(self, new: Any) -> Value:
        """Returns `new` as this knob's type, or says what would be accepted."""
        if isinstance(new, ContextVar):
            new = new.value
        if self.kind is str:
            # a dtype goes by its name
            text = new if isinstance(new, str) else getattr(new, "name", None)
            if isinstance(text, str):
                return text  # type: ignore[return-value]
        elif isinstance(new, (bool, int)) or (self.kind is float and isinstance(new, float)):
            return self._in_range(cast(Value, self.kind(new)))
        raise ArgumentError(
            f"{self.name}={new!r} is a {type(new).__name__}, "
            f"but {self.name} takes {'text' if self.kind is str else f'a {self.kind.__name__}'}"
        )

    def _in_range(self, new: Value, who: str = "") -> Value:
        """Returns `new`, or says who asked for it and what would be accepted."""
        least = self._knob.least
        # not `<`: nan is refused as well
        if least is not None and not new >= least:  # type: ignore[operator]
            kind = "an integer" if self.kind is int else "a number"
            raise ArgumentError(
                f"{who}{self.name}={new}, but {self.name} takes {kind} of at least {least} "
                f"({self._knob.help})"
            )
        return new

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __index__(self) -> int:
        if self.kind is not int:
            raise TypeError(f"{self.name} holds {self.value!r}, which is no integer")
        return int(self.value)

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        return f"ContextVar({self.name}={self.value!r})"

    def __eq__(self, other: object) -> bool:
        return self.value == (other.value if isinstance(other, ContextVar) else other)

    # Equal knobs hold equal values only for now, so a hash by value would change under a dict.
    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, other: Any) -> bool:
        return bool(self.value < other)

    def __le__(self, other: Any) -> bool:
        return bool(self.value <= other)

    def __gt__(self, other: Any) -> bool:
        return bool(self.value > other)

    def __ge__(self, other: Any) -> bool:
        return bool(self.value >= other)

    def __reduce__(self) -> tuple[Any, ...]:
        return (ContextVar, (self.name, KNOBS[self.name].default))


@dataclass(frozen=True, eq=False)
class _Saved:
    """What one entered `Context` must put back, and the one it is nested in.

    Made anew when a knob is set inside: the same object means the same knobs, but for those that
    were set for the process, which `ContextVar.turns` counts.
    """

    values: tuple[tuple[ContextVar[Any], Any], ...]
    outer: _Saved | None


entered: contextvars.ContextVar[_Saved | None] = contextvars.ContextVar(
    "weft.Context", default=None
)


def _renewed(saved: _Saved | None) -> _Saved | None:
    """The same, as other objects."""
    return None if saved is None else _Saved(saved.values, _renewed(saved.outer))


class Context:
    """Overrides knobs inside a `with` block or a decorated function, in this thread only.

    >>> with Context(DEBUG=0):
    ...     int(DEBUG)
    0
    """

    __slots__ = ("_values",)

    def __init__(self, **values: int | float | str) -> None:
        self._values: tuple[tuple[ContextVar[Any], Any], ...] = tuple(
            (variable := _find(name), variable._check(value)) for name, value in values.items()
        )

    def __enter__(self) -> Context:
        saved = tuple((variable, variable._override.get()) for variable, _ in self._values)
        entered.set(_Saved(saved, entered.get()))
        for variable, value in self._values:
            variable._override.set(value)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        saved = entered.get()
        if saved is None:
            raise ArgumentError("a Context was left that was not entered in this thread")
        entered.set(saved.outer)
        for variable, value in saved.values:
            variable._override.set(value)

    def __call__(self, function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        """Decorates `function`: each call runs with the knobs overridden."""

        @functools.wraps(function)
        def with_knobs(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            with self:
                return function(*args, **kwargs)

        return with_knobs


def all_values() -> tuple[Any, ...]:
    """What every knob says here and now."""
    return tuple([variable.value for variable in _VARIABLES.values()])


def _find(name: str) -> ContextVar[Any]:
    """The knob of that name, or an error that suggests the ones that look alike."""
    variable = _VARIABLES.get(_ALSO_KNOWN_AS.get(name, name))
    if variable is not None:
        return variable
    import difflib

    close = difflib.get_close_matches(name.upper(), _VARIABLES, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(close)}?" if close else f"known: {' '.join(sorted(KNOBS))}"
    raise UnknownKnob(f"there is no knob named {name}; {hint}")


# tinygrad's names of knobs that have others here
_ALSO_KNOWN_AS = {"TC": "USE_TC", "VALIDATE_WITH_CPU": "VALIDATE"}


def requested_device(names: Iterable[str]) -> tuple[str, str] | None:
    """The device asked for in the environment and how, or None if none was.

    `DEVICE=X` counts before `DEV=X`, and both before `X=1` for an X in `names`. Only a whole number
    other than 0 is a request in the last form: `PYTHON=/usr/bin/python3` is none.
    """
    for name in ("DEVICE", "DEV"):
        asked = os.environ.get(name, "").strip()
        if asked:
            return asked, f"{name}={asked}"
    found = []
    for name in names:
        text = os.environ.get(name, "").strip()
        if text.isdecimal() and int(text) != 0:
            found.append((name, f"{name}={text}"))
    if len(found) > 1:
        asked = " and ".join(how for _, how in found)
        raise DeviceError(f"the environment asks for several default devices: {asked}; keep one")
    return found[0] if found else None


def child_environment(changes: dict[str, str], first_on_path: str = "") -> dict[str, str]:
    """The environment for a process of our own: some variables changed, a folder found first."""
    result = {**os.environ, **changes}
    if first_on_path:
        rest = result.get("PYTHONPATH", "")
        result["PYTHONPATH"] = first_on_path + (os.pathsep + rest if rest else "")
    return result


# The table. One row per knob: name, default, what it does, the least number that it takes.
DEBUG = ContextVar(
    "DEBUG",
    0,
    "1 devices, 2 kernels, 3 schedule, 4 source, 5 IR, 6 optimisation, 7 assembly",
)
BEAM = ContextVar("BEAM", 0, "width of the search for kernel optimisations; 0: heuristic only", 0)
BEAM_TIMEOUT = ContextVar("BEAM_TIMEOUT", 10.0, "seconds that BEAM may search for one kernel", 0)
BEAM_TRIAL = ContextVar(
    "BEAM_TRIAL", 5.0, "seconds that one candidate of BEAM may take to compile and run", 0
)
NOOPT = ContextVar("NOOPT", 0, "1: switch kernel optimisation off")
JIT = ContextVar("JIT", 1, "0: TinyJit just calls; 1: capture and replay; 2: replay without graphs")
JIT_CHECK = ContextVar("JIT_CHECK", 0, "1: compare every replay with plain execution")
WINO = ContextVar("WINO", -1, "1: Winograd convolution, 0: never, -1: where it is faster")
SPEC = ContextVar("SPEC", 0, "1: verify every graph; 2: after every pass, and index bounds")
VIZ = ContextVar(
    "VIZ",
    0,
    "1: at exit serve a page with every rewrite; -1: save the trace; -2: only counters and times",
)
VIZ_TRACE = ContextVar("VIZ_TRACE", "", "file of the trace of VIZ; empty: in the cache folder")
PROFILE = ContextVar("PROFILE", 0, "1: at exit write a trace for Perfetto and `weft profile`")
PROFILE_TRACE = ContextVar("PROFILE_TRACE", "", "file of PROFILE; empty: in the cache folder")
TRAINING = ContextVar("TRAINING", 0, "1: layers such as dropout and batchnorm train")
CCACHE = ContextVar("CCACHE", 1, "0: do not keep compiled kernels on disk")
SCACHE = ContextVar("SCACHE", 1, "0: do not cache schedules")
CALL_CACHE = ContextVar(
    "CALL_CACHE", 1, "0: methods of tensors always run; 1: once, if called again; 2: once", 0
)
CACHELEVEL = ContextVar("CACHELEVEL", 2, "0: no disk cache at all; 1: kernels; 2: searches too")
CACHE_MB = ContextVar("CACHE_MB", 1024, "megabytes the disk cache may take; 0: without bound", 0)
DEFAULT_FLOAT = ContextVar("DEFAULT_FLOAT", "float32", "dtype of floats when none is given")
DEFAULT_INT = ContextVar("DEFAULT_INT", "int32", "dtype of integers when none is given")
TRANSCENDENTAL = ContextVar(
    "TRANSCENDENTAL", 1, "0: the target's own functions, 1: ours where it has none, 2: always ours"
)
TRACK_MATCH_STATS = ContextVar("TRACK_MATCH_STATS", 0, "1: count rule matches; 2: print the table")
NO_MEMORY_PLANNER = ContextVar("NO_MEMORY_PLANNER", 0, "1: every intermediate has its own memory")
NUM_CPU_THREADS = ContextVar("NUM_CPU_THREADS", 0, "threads of a kernel; 0: one per usable core", 0)
SPLIT_REDUCEOP = ContextVar("SPLIT_REDUCEOP", 1, "0: never split a large reduce into two kernels")
ALLOW_TF32 = ContextVar("ALLOW_TF32", 0, "1: float32 matmuls may round their inputs to tf32")
USE_TC = ContextVar("USE_TC", 1, "0: no tensor cores")
CHECK_OOB = ContextVar("CHECK_OOB", 0, "1: a run-time index outside its axis raises")
CHECK_NAN = ContextVar("CHECK_NAN", 0, "1: the first kernel that makes a NaN or inf raises")
VALIDATE = ContextVar("VALIDATE", 0, "1: small kernels also run on PYTHON and must agree; 2: all")
HOST_CALLS = ContextVar(
    "HOST_CALLS", 1, "0: sort, qr and svd are always kernels, never functions of NumPy"
)
IGNORE_BEAM_CACHE = ContextVar("IGNORE_BEAM_CACHE", 0, "1: search again what was searched before")
FUSE_OPTIM = ContextVar("FUSE_OPTIM", 1, "0: optimisers update one parameter after another")
LRU = ContextVar("LRU", 1, "0: free device memory at once instead of keeping it for reuse")
RING = ContextVar("RING", 1, "0: naive all-reduce; 1: ring where it pays; 2: always ring")
RANK_SECONDS = ContextVar(
    "RANK_SECONDS", 60, "seconds after which a rank of MPI that waits for another ends the program"
)
PYTHON_TARGET = ContextVar(
    "PYTHON_TARGET", "", "the machine whose programs PYTHON interprets, such as sm_90; empty: none"
)
PYTHON_SEED = ContextVar(
    "PYTHON_SEED", 0, "another order of the groups and threads that PYTHON interprets"
)
CPU_LLVM = ContextVar("CPU_LLVM", 1, "0: compile CPU kernels as C with the system's compiler")
CUDA_CC = ContextVar(
    "CUDA_CC", "llvm", "what compiles CUDA kernels: llvm (PTX for the driver) or nvrtc (CUDA C)"
)
AMD_EMULATE = ContextVar(
    "AMD_EMULATE", -1, "AMD: 1: emulate; 0: hardware or nothing; -1: emulate where there is none"
)
AMD_ARCH = ContextVar(
    "AMD_ARCH", "", "the architecture that AMD emulates, such as gfx1201; empty: gfx1100"
)
WEFT_CACHE = ContextVar(
    "WEFT_CACHE", "", "folder of the disk cache; empty: the user's cache folder"
)
NO_COLOR = ContextVar("NO_COLOR", 0, "1: text without colours, whoever watches", any_text=True)
DEV = ContextVar("DEV", "", "the default device, as in DEV=CPU; also inside of a Context")

# tinygrad's: accepted everywhere, without effect; the text says what weft does instead.
ALL2ALL = ContextVar("ALL2ALL", 0, "all-reduces over several devices are rings", unused=True)
ALLOW_DEVICE_USAGE = ContextVar("ALLOW_DEVICE_USAGE", 1, "devices are always used", unused=True)
ALLREDUCE_CAST = ContextVar("ALLREDUCE_CAST", 1, "all-reduces keep their dtype", unused=True)
CAPTURE_PROCESS_REPLAY = ContextVar(
    "CAPTURE_PROCESS_REPLAY", 0, "`python -m test.replay` records kernels", unused=True
)
CAPTURING = ContextVar("CAPTURING", 1, "TinyJit captures; see JIT", unused=True)
DEBUG_RANGEIFY = ContextVar("DEBUG_RANGEIFY", 0, "see DEBUG=3 and VIZ", unused=True)
DISABLE_FAST_IDIV = ContextVar("DISABLE_FAST_IDIV", 1, "LLVM divides by constants", unused=True)
DISALLOW_BROADCAST = ContextVar("DISALLOW_BROADCAST", 0, "shapes broadcast", unused=True)
EMULATED_DTYPES = ContextVar(
    "EMULATED_DTYPES", "", "what a target lacks is emulated without asking", unused=True
)
FLOAT16 = ContextVar("FLOAT16", 0, "images are not used, see IMAGE", unused=True)
IMAGE = ContextVar("IMAGE", 0, "weights are buffers, never images", unused=True)
JIT_BATCH_SIZE = ContextVar("JIT_BATCH_SIZE", 32, "a captured function is one graph", unused=True)
MAX_BUFFER_SIZE = ContextVar("MAX_BUFFER_SIZE", 0, "the device's memory is the limit", unused=True)
MAX_KERNEL_BUFFERS = ContextVar(
    "MAX_KERNEL_BUFFERS", 0, "the target says how many buffers a kernel may have", unused=True
)
NOLOCALS = ContextVar("NOLOCALS", 0, "see NOOPT", unused=True)
NULL_ALLOW_COPYOUT = ContextVar("NULL_ALLOW_COPYOUT", 0, "NULL gives zeros", unused=True)
OPENPILOT_HACKS = ContextVar("OPENPILOT_HACKS", 0, "there are none", unused=True)
PARALLEL = ContextVar("PARALLEL", 0, "kernels compile in parallel where it pays", unused=True)
PCONTIG = ContextVar("PCONTIG", 0, "the scheduler decides what is recomputed", unused=True)
REWRITE_STACK_LIMIT = ContextVar(
    "REWRITE_STACK_LIMIT", 250000, "rewrites do not recurse; endless ones are found", unused=True
)
TC_OPT = ContextVar("TC_OPT", 0, "shapes are padded to fit tensor cores", unused=True)
TC_SELECT = ContextVar("TC_SELECT", -1, "tensor cores are chosen by dtype and shape", unused=True)
TRACEMETA = ContextVar("TRACEMETA", 1, "kernels always know the user's line", unused=True)
TUPLE_ORDER = ContextVar("TUPLE_ORDER", 1, "programs are ordered by their own keys", unused=True)
USE_ATOMICS = ContextVar("USE_ATOMICS", 0, "sums are deterministic, without atomics", unused=True)
