"""Every error is a WeftError, and the builtin that users catch for that mistake."""

from __future__ import annotations

import inspect
import pickle

import pytest

from weft import errors

# those of NumPy, PyTorch and tinygrad for the same mistakes
BUILTINS: dict[str, tuple[type[Exception], ...]] = {
    "ShapeError": (ValueError, IndexError, AssertionError),
    "DTypeError": (TypeError, ValueError, AssertionError),
    "UnknownDTypeError": (TypeError, AttributeError),
    "OutOfRangeError": (TypeError, OverflowError),
    "DeviceError": (ValueError,),
    "UnknownDeviceError": (ModuleNotFoundError,),
    "IndexingError": (IndexError, TypeError, ValueError),
    "ArgumentError": (ValueError, TypeError, AssertionError),
    "UnsupportedError": (ValueError, NotImplementedError),
    "DataError": (ValueError, TypeError),
    "MissingFileError": (FileNotFoundError,),
    "MissingKeyError": (KeyError,),
    "UnknownKnob": (KeyError,),
    "OutOfMemory": (MemoryError,),
    "LostError": (),
    "RankError": (),
    "CompileError": (),
    "RewriteError": (),
    "SpecError": (),
    "RaceError": (),
    "JitError": (),
    "ExportError": (),
}


@pytest.mark.parametrize(("name", "builtins"), BUILTINS.items())
def test_an_error_is_also_the_builtins_of_its_kind(
    name: str, builtins: tuple[type[Exception], ...]
) -> None:
    error = getattr(errors, name)
    for kind in (errors.WeftError, RuntimeError, *builtins):
        with pytest.raises(kind, match=r"^what was asked$"):
            raise error("what was asked")


def test_every_error_is_listed_here_and_documented() -> None:
    defined = {
        name: error
        for name, error in vars(errors).items()
        if inspect.isclass(error) and error.__module__ == "weft.errors"
    }
    assert set(defined) == {*BUILTINS, "WeftError"}
    assert all(error.__doc__ for error in defined.values())


def test_errors_survive_pickling() -> None:
    found = pickle.loads(pickle.dumps(errors.ShapeError("a and b")))
    assert isinstance(found, errors.ShapeError)
    assert str(found) == "a and b"
