"""Plain data for the objects that a checkpoint holds beside its tensors.

In: names and arguments out of a pickle. Out: a `Standin` for each object (an argparse.Namespace, an
enum, a dataclass of the program that trained), which becomes a dict, list, tuple or number; paths,
dates and NumPy's numbers and arrays at once. Sits on `pickled`; the PyTorch reader uses it.
Invariant: no class of a checkpoint is looked up, so nothing of it runs. What is replaced is
remembered by name, for the warning that tells of it.
"""

from __future__ import annotations

import datetime
import math
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from weft.errors import DataError, WeftError
from weft.nn.formats.pickled import Named, Standin, refusal

if TYPE_CHECKING:
    import numpy as np

_NEW_OBJECT = "copyreg._reconstructor copy_reg._reconstructor"
_NEW_OBJECT_WITH_NAMES = "copyreg.__newobj_ex__ copy_reg.__newobj_ex__"
# of the standard library, only what holds data: its functions are what attacks are made of
_HARMLESS = frozenset(
    "argparse.Namespace types.SimpleNamespace uuid.UUID decimal.Decimal fractions.Fraction "
    "functools.partial builtins.object builtins.int builtins.float builtins.str builtins.bool "
    "builtins.slice builtins.range builtins.type __builtin__.object __builtin__.int "
    "__builtin__.float __builtin__.str __builtin__.unicode __builtin__.bool "
    "zoneinfo.ZoneInfo._unpickle collections.ChainMap collections.UserDict collections.UserList "
    "collections.UserString".split()
)
_STANDARD_LIBRARY = sys.stdlib_module_names | {"__builtin__", "copy_reg", "cPickle", "__builtins__"}
_NUMPY = ("numpy.core.multiarray", "numpy._core.multiarray")
_NUMPY_BUFFERS = ("numpy.core.numeric._frombuffer", "numpy._core.numeric._frombuffer")
_MOST_NAMES = 8


class StandinNames(Mapping[str, Named]):
    """The names that a checkpoint may use: those of `known`, and stand-ins for harmless others.

    `replaced` has the names of what did not come out as it was saved.
    """

    def __init__(self, known: Mapping[str, Named], where: str) -> None:
        self.where = where
        self.replaced: dict[str, None] = {}
        self._known = dict(known)
        self._allow("builtins.getattr __builtin__.getattr", self._attribute)
        self._allow(_NEW_OBJECT, self._reconstructed)
        self._allow(_NEW_OBJECT_WITH_NAMES, self._reconstructed_with_names)
        self._allow("torch.torch_version.TorchVersion", lambda a: _text(a[0], where))
        self._allow("collections.deque", lambda a: list(a[0]) if a else [])
        self._allow("re._compile", lambda a: _text(a[0], where))
        for kind in ("PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath", "Path"):
            self._allow(f"pathlib.{kind} pathlib._local.{kind}", _path_builder(kind, where))
        for name, build in _DATES.items():
            self._allow(f"datetime.{name}", build)
        self._allow("numpy.dtype", lambda a: _NumpyType(a))
        self._known["numpy.ndarray"] = self.standin("numpy.ndarray")
        for module in _NUMPY:
            self._allow(f"{module}.scalar", self._numpy_number)
            self._allow(f"{module}._reconstruct", lambda a: _NumpyArray(where))
        self._allow(" ".join(_NUMPY_BUFFERS), lambda a: _numpy_of_buffer(a, where))

    def __getitem__(self, name: str) -> Named:
        found = self._known.get(name)
        if found is None:
            if not _is_harmless(name):
                raise KeyError(name)
            found = self._known[name] = self.standin(name)
        return found

    def __iter__(self) -> Any:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def note(self, name: str) -> None:
        """Remembers that something of that name was replaced."""
        self.replaced[name] = None

    def warning(self) -> str | None:
        """What was replaced, for people; None if nothing was."""
        if not self.replaced:
            return None
        names = [name[:80] for name in self.replaced]
        shown = ", ".join(names[:_MOST_NAMES])
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        return (
            f"{self.where} holds more than tensors and plain data: {shown}{more}. They are now "
            "plain data (an object as a dict of its attributes, an enum as its value, a path as "
            "text, a class as its name); nothing was run"
        )

    def standin(self, name: str) -> Named:
        """A name that stands for itself, as text, or makes a `Standin` when called."""

        def build(arguments: tuple[Any, ...]) -> Any:
            # PyTorch's own objects cannot be used in parts: they are models, or odd tensors
            if name.startswith("torch."):
                raise refusal(self.where, name)
            self.note(name)
            return Standin(name, arguments)

        return Named(name, name, build, is_standin=True)

    def _allow(self, names: str, build: Callable[[tuple[Any, ...]], Any]) -> None:
        for name in names.split():
            self._known[name] = Named(name, None, self._noted(name, build))

    def _noted(self, name: str, build: Callable[[tuple[Any, ...]], Any]) -> Any:
        def noted(arguments: tuple[Any, ...]) -> Any:
            if "copy" not in name and name.split(".")[0] not in ("numpy", "torch", "builtins"):
                self.note(name)
            return build(arguments)

        return noted

    def _attribute(self, arguments: tuple[Any, ...]) -> Any:
        """getattr(Outer, "Inner"), which is how protocols 2 and 3 spell a class inside another."""
        owner, name = arguments
        if not isinstance(owner, Named) or not owner.is_standin or not isinstance(name, str):
            raise refusal(self.where, "builtins.getattr")
        return self.standin(f"{owner.name}.{name}")

    def _reconstructed(self, arguments: tuple[Any, ...]) -> Any:
        """(class, base, value of the base), which is how protocols 0 and 1 spell an object."""
        kind, base, value = arguments
        if not isinstance(kind, Named) or kind.build is None:
            raise DataError(f"{self.where}: an object has no class")
        is_object = isinstance(base, Named) and base.name.endswith(".object")
        return kind.build(() if is_object else (value,))

    def _reconstructed_with_names(self, arguments: tuple[Any, ...]) -> Any:
        kind, positional, named = arguments
        if not isinstance(kind, Named) or kind.build is None or not isinstance(positional, tuple):
            raise DataError(f"{self.where}: an object has no class")
        made = kind.build(positional)
        if named and isinstance(made, Standin):
            made.set_state(named)
        return made

    def _numpy_number(self, arguments: tuple[Any, ...]) -> Any:
        import numpy as np

        kind, data = arguments
        dtype = _numpy_dtype(kind, self.where)
        self.note(f"numpy.{dtype.name}")
        if not isinstance(data, bytes) or len(data) != dtype.itemsize:
            raise DataError(f"{self.where}: a number of NumPy has the wrong size")
        value = np.frombuffer(data, dtype=dtype)[0].item()
        plain = isinstance(value, (bool, int, float, str, bytes, complex))
        return value if plain else str(value)


def _is_harmless(name: str) -> bool:
    """Whether a name may be replaced. Code of the standard library is refused: nothing of a
    checkpoint runs either way, but a file that names os.system should not look like a good one.
    So are PyTorch's private functions, which build tensors of kinds that are not known here."""
    package, *_, last = parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        return False
    if package == "torch" and last.startswith("_"):
        return False
    return name in _HARMLESS or package not in _STANDARD_LIBRARY


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{where}: a text is none")
    return value


# ------------------------------------------------------------ paths and dates, as text
def _path_builder(kind: str, where: str) -> Callable[[tuple[Any, ...]], str]:
    flavour = pathlib.PureWindowsPath if "Windows" in kind else pathlib.PurePosixPath
    return lambda parts: str(flavour(*(_text(part, where) for part in parts)))


def _zone(offset: Any) -> datetime.timezone:
    return datetime.timezone(datetime.timedelta(seconds=offset))


def _moment(kind: Any) -> Callable[[tuple[Any, ...]], str]:
    """The packed bytes of a date or time, and perhaps the offset of its zone, in ISO's form."""

    def build(arguments: tuple[Any, ...]) -> str:
        packed, *zone = arguments
        # Python 2 wrote text, which protocol 2 still does for some
        if not isinstance(packed, bytes) or not all(isinstance(z, float) for z in zone):
            raise DataError("a date is built of something that is none")
        made: str = kind(packed, *(_zone(z) for z in zone)).isoformat()
        return made

    return build


def _seconds(arguments: tuple[Any, ...]) -> float:
    return datetime.timedelta(*arguments).total_seconds()


_DATES: dict[str, Callable[[tuple[Any, ...]], Any]] = {
    "date": _moment(datetime.date),
    "time": _moment(datetime.time),
    "datetime": _moment(datetime.datetime),
    "timedelta": _seconds,
    "timezone": lambda a: float(a[0]),
}


# ------------------------------------------------------------ NumPy
class _NumpyType(Standin):
    """numpy.dtype: a code such as "f8"; its byte order comes later, with the state."""

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        super().__init__("numpy.dtype", ())
        self.code = arguments[0]
        self.order = "="
        self.unit: Any = None

    def set_state(self, state: Any) -> None:
        if isinstance(state, tuple) and len(state) > 1 and state[1] in ("<", ">", "|", "="):
            self.order = state[1]
        if isinstance(state, tuple) and len(state) == 9 and isinstance(state[8], tuple):
            self.unit = state[8][1]

    def plain(self) -> Any:
        return f"numpy.dtype({self.code})"


def _numpy_dtype(kind: Any, where: str) -> np.dtype[Any]:
    """The dtype of numbers, text or dates; never of objects, whose bytes would be addresses."""
    import numpy as np

    code = kind.code if isinstance(kind, _NumpyType) else None
    if not isinstance(code, str) or code[:1] not in tuple("biufcSUMm") or len(code) > 12:
        raise DataError(f"{where}: NumPy's type {str(code)[:40]!r} is not read")
    unit = ""
    if kind.unit is not None and code[0] in "Mm":
        step, count = kind.unit[0], kind.unit[1]
        step = step.decode("ascii", "replace") if isinstance(step, bytes) else str(step)
        if not step.isalpha() or len(step) > 8 or type(count) is not int:
            raise DataError(f"{where}: NumPy's unit of time {step[:40]!r} is not read")
        unit = f"[{count}{step}]"
    order = kind.order if kind.order in "<>" else "="
    try:
        return np.dtype(f"{order}{code}{unit}")
    except TypeError as error:
        raise DataError(f"{where}: NumPy's type {code!r} is not read: {error}") from None


class _NumpyArray(Standin):
    """An array: a Tensor where weft has its dtype, else nested lists."""

    def __init__(self, where: str) -> None:
        super().__init__("numpy.ndarray", ())
        self.where = where
        self.array: np.ndarray[Any, Any] | None = None

    def set_state(self, state: Any) -> None:
        """(version, shape, dtype, whether the first axis is the fastest, bytes or objects)."""
        _, shape, kind, is_fortran, data = state
        if isinstance(data, list):
            self.values = data
            return
        self.array = _numpy_array(data, kind, shape, "F" if is_fortran else "C", self.where)


def _numpy_of_buffer(arguments: tuple[Any, ...], where: str) -> _NumpyArray:
    data, kind, shape, order = arguments
    made = _NumpyArray(where)
    made.array = _numpy_array(data, kind, shape, order, where)
    return made


def _numpy_array(data: Any, kind: Any, shape: Any, order: Any, where: str) -> np.ndarray[Any, Any]:
    import numpy as np

    dtype = _numpy_dtype(kind, where)
    plain = isinstance(shape, tuple) and all(type(size) is int and size >= 0 for size in shape)
    if not plain or not isinstance(data, bytes) or order not in ("C", "F"):
        raise DataError(f"{where}: an array of NumPy is damaged")
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise DataError(f"{where}: an array of NumPy of shape {shape} has {len(data)} bytes")
    flat = np.frombuffer(data, dtype=dtype)
    return flat.reshape(shape, order=order).astype(dtype.newbyteorder("="), copy=False)


def array_value(made: Standin, tensor: Callable[[np.ndarray[Any, Any]], Any]) -> Any:
    """The array behind a stand-in as a Tensor or nested lists; None if it is no array of those."""
    if not isinstance(made, _NumpyArray) or made.array is None:
        return None
    try:
        return tensor(made.array)
    except WeftError:
        return made.array.tolist()
