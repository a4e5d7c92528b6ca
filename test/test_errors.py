"""Every error is a WeftError, and the builtin that users catch for that mistake."""

from __future__ import annotations

import inspect
import pickle

import pytest

from weft import errors

BUILTIN = {
    "ShapeError": ValueError,
    "DTypeError": TypeError,
    "DeviceError": RuntimeError,
    "IndexingError": IndexError,
    "ArgumentError": ValueError,
    "DataError": ValueError,
    "OutOfMemory": MemoryError,
    "ContractError": AssertionError,
    "UnknownKnob": KeyError,
    "CompileError": RuntimeError,
    "RewriteError": RuntimeError,
    "SpecError": RuntimeError,
    "JitError": RuntimeError,
}


@pytest.mark.parametrize(("name", "builtin"), BUILTIN.items())
def test_an_error_is_also_the_builtin_of_its_kind(name: str, builtin: type[Exception]) -> None:
    error = getattr(errors, name)
    assert issubclass(error, errors.WeftError)
    assert issubclass(error, builtin)
    # but for the one that is there for programs which catch tinygrad's assertions
    assert not issubclass(error, AssertionError) or name == "ContractError"
    with pytest.raises(builtin, match="what was asked"):
        raise error("what was asked")


def test_every_error_is_listed_here_and_documented() -> None:
    defined = {
        name: error
        for name, error in vars(errors).items()
        if inspect.isclass(error) and error.__module__ == "weft.errors"
    }
    assert set(defined) == {*BUILTIN, "WeftError"}
    assert all(error.__doc__ for error in defined.values())


def test_errors_survive_pickling() -> None:
    found = pickle.loads(pickle.dumps(errors.ShapeError("a and b")))
    assert isinstance(found, errors.ShapeError)
    assert str(found) == "a and b"
