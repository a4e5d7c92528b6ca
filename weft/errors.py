"""Every exception weft raises on purpose.

In: nothing. Out: `WeftError` and one class per kind of mistake. First room of the house, so that
everything may import it. Invariant: each class also derives from the builtin that Python users
already catch for that mistake, so `except ValueError` keeps working.

A message says what was asked, what was found, and what would be accepted.
"""


class WeftError(Exception):
    """Base of all errors that weft raises on purpose."""


class ShapeError(WeftError, ValueError):
    """Shapes that do not fit together, or do not fit the operation."""


class DTypeError(WeftError, TypeError):
    """A dtype that the operation cannot take, or a value that no dtype can hold."""


class DeviceError(WeftError, RuntimeError):
    """A device that is unknown, does not open, or does not match its partner."""


class IndexingError(WeftError, IndexError):
    """An index outside its axis, or of a kind that cannot index."""


class ArgumentError(WeftError, ValueError):
    """An argument or a knob with a value outside the accepted ones."""


class ContractError(ArgumentError, AssertionError):
    """An argument that tinygrad refuses with an assertion: who catches that one catches this."""


class UnknownKnob(ArgumentError, KeyError):
    """A `Context` of a knob that does not exist."""

    # not KeyError's, which shows the message in quotes
    __str__ = Exception.__str__


class DataError(WeftError, ValueError):
    """Input data that is ragged, damaged, or of an unknown kind."""


class OutOfMemory(WeftError, MemoryError):
    """A device could not give the memory that was asked of it."""


class CompileError(WeftError, RuntimeError):
    """A backend compiler refused a program."""


class RewriteError(WeftError, RuntimeError):
    """A set of rewrite rules does not come to rest, or a rule returned something that is no UOp."""


class SpecError(WeftError, RuntimeError):
    """A graph breaks the rules of the op table."""


class JitError(WeftError, RuntimeError):
    """A function cannot be captured, or is called other than it was captured."""
