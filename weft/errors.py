"""Every exception weft raises on purpose.

In: nothing. Out: `WeftError` and one class per kind of mistake. First room of the house, so that
everything may import it. Invariant: each class also derives from every builtin that programs
already catch for that mistake. PyTorch raises a `RuntimeError` for most of them, so that is the
base of all; where NumPy, PyTorch and tinygrad disagree about the builtin, the class is all of
theirs, and `except ValueError` written for one of them keeps working.

A message says what was asked, what was found, and what would be accepted.
"""


class WeftError(RuntimeError):
    """Base of all errors that weft raises on purpose."""


class ShapeError(WeftError, ValueError, IndexError, AssertionError):
    """Shapes that do not fit together, or do not fit the operation.

    A ValueError in NumPy; in tinygrad an IndexError when broadcast, an AssertionError when joined.
    """


class DTypeError(WeftError, TypeError, ValueError, AssertionError):
    """A dtype that the operation cannot take, or a value that no dtype can hold."""


class UnknownDTypeError(DTypeError, AttributeError):
    """A name that no dtype has: `dtypes.NAME` is an attribute elsewhere."""


class OutOfRangeError(DTypeError, OverflowError):
    """Values that the dtype which was asked for cannot hold."""


class DeviceError(WeftError, ValueError):
    """A device that is unknown, does not open, or does not match its partner."""


class UnknownDeviceError(DeviceError, ModuleNotFoundError):
    """A name that no device has: a device is a module."""


class RankError(WeftError):
    """Processes that run one program together do not do the same."""


class IndexingError(WeftError, IndexError, TypeError, ValueError):
    """An index outside its axis (IndexError), or of a kind that cannot index (the other two)."""


class ArgumentError(WeftError, ValueError, TypeError, AssertionError):
    """An argument or a knob with a value or of a type outside the accepted ones."""


class UnsupportedError(ArgumentError, NotImplementedError):
    """A choice that exists elsewhere, or could, but not here."""


class UnknownKnob(ArgumentError, KeyError):
    """A `Context` of a knob that does not exist."""

    # not KeyError's, which shows the message in quotes
    __str__ = Exception.__str__


class DataError(WeftError, ValueError, TypeError):
    """Input data that is ragged, damaged, or of an unknown kind."""


class MissingFileError(DataError, FileNotFoundError):
    """A file that is not there."""


class MissingKeyError(DataError, KeyError):
    """A name that is asked of a collection and is not in it."""

    def __str__(self) -> str:
        # a KeyError shows the repr of its key; this one has a sentence
        return Exception.__str__(self)


class OutOfMemory(WeftError, MemoryError):
    """A device could not give the memory that was asked of it."""


class LostError(WeftError):
    """Memory whose contents were lost: a step that wrote it was left in the middle."""


class CompileError(WeftError):
    """A backend compiler refused a program."""


class RewriteError(WeftError):
    """A set of rewrite rules does not come to rest, or a rule returned something that is no UOp."""


class SpecError(WeftError):
    """A graph breaks the rules of the op table."""


class RaceError(SpecError):
    """Work items of one launch touch an element in no order, and one of them writes it."""


class JitError(WeftError):
    """A function cannot be captured, or is called other than it was captured. `what` it does that
    no replay could, where that is the reason."""

    what: str | None = None


class ExportError(WeftError):
    """A function cannot be exported: what stands in the way, where, and what to do."""
