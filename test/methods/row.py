"""What a row of the method table is: how a method is called, on what, and what must come out.

In: shapes, domains, dtypes and a reference in NumPy, SciPy or PyTorch. Out: `Row` and `Check`, and
the calls that the tests make of them.
Sits below the `rows_*` files, which are the table, and `test_*.py`, which run it.
Invariant: data depends only on the row, the shape and the dtype, so every run sees the same.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from test.optional import optional
from weft import Device, Tensor

ml_dtypes = optional("ml_dtypes")

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
Rule = Callable[[str], str]

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTS = ("int32", "int8", "uint8", "int64", "uint32")
NUMBERS = (*FLOATS, *INTS)
ALL = (*NUMBERS, "bool")

NUMPY_TYPES: dict[str, Any] = {"bfloat16": ml_dtypes.bfloat16}


def numpy_type(dtype: str) -> Any:
    """The NumPy type of a weft dtype, given by name."""
    return NUMPY_TYPES.get(dtype, dtype)


# ------------------------------------------------------------ the dtype of a result
def same(dtype: str) -> str:
    """The operand's own."""
    return dtype


def floated(dtype: str) -> str:
    """Floats stay; ints and bools become the default float."""
    return dtype if dtype in FLOATS else "float32"


def summed(dtype: str) -> str:
    """Small ints are summed in 32 bits, bools are counted."""
    small = {"bool": "int32", "int8": "int32", "int16": "int32", "uint8": "uint32"}
    return {**small, "uint16": "uint32"}.get(dtype, dtype)


def always(name: str) -> Rule:
    """This one, whatever the operand's is."""
    return lambda dtype: name


boolean, places = always("bool"), always("int32")


# ------------------------------------------------------------ data
@dataclass(frozen=True)
class Input:
    """One tensor argument. Its values are different from each other and spread over the domain."""

    shape: Shape = ()
    low: float = -3.0
    high: float = 3.0
    # None: the dtype that is being tested
    dtype: str | None = None
    # the exact contents, in place of random ones
    data: Any = None

    def array(self, dtype: str, seed: int) -> Array:
        """The contents in a dtype."""
        target = self.dtype or dtype
        if self.data is not None:
            with np.errstate(all="ignore"):
                return np.array(self.data).astype(numpy_type(target))
        generator = np.random.default_rng(seed)
        if target == "bool":
            return np.asarray(generator.random(self.shape) < 0.5)
        size = int(np.prod(self.shape))
        if target in FLOATS:
            # no two closer than a share of the domain, none at its middle, and other ones for
            # another input: no ties, no kinks
            phase = 0.1 + 0.25 * ((seed * 0.618033988749895) % 1)
            steps = (np.arange(size) + phase + 0.09 * generator.random(size)) / max(1, size)
            spread = self.low + generator.permutation(steps) * (self.high - self.low)
            return spread.reshape(self.shape).astype(numpy_type(target))
        low = 0 if target.startswith("uint") else int(np.ceil(self.low))
        low = max(low, int(np.ceil(self.low)))
        whole = generator.integers(low, int(np.floor(self.high)) + 1, self.shape)
        return np.asarray(whole).astype(target)


@dataclass(frozen=True)
class Case:
    """One call: the tensors, then the other arguments."""

    inputs: tuple[Input, ...]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        shapes = "+".join("x".join(map(str, np.shape(i.data) if i.data is not None else i.shape))
                          or "scalar" for i in self.inputs)  # fmt: skip
        given = [str(a) for a in self.args] + [f"{k}={v}" for k, v in self.kwargs.items()]
        return f"{shapes}({','.join(given)})".replace(" ", "")

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How hypothesis prints it."""
        printer.text(self.name)

    def arrays(self, seed: str, dtype: str) -> list[Array]:
        """The contents of the tensors."""
        start = zlib.crc32(seed.encode())
        return [each.array(dtype, start + i) for i, each in enumerate(self.inputs)]


def case(*inputs: Input | Shape, **kwargs: Any) -> Case:
    """A case whose other arguments are all given by name."""
    return Case(tuple(i if isinstance(i, Input) else Input(i) for i in inputs), (), kwargs)


def given(data: Any, dtype: str | None = None) -> Input:
    """An input with these contents."""
    return Input(data=data, dtype=dtype)


def index(shape: Shape, size: int, low: int = 0) -> Input:
    """Places along an axis of this size."""
    return Input(shape, low, size - 1, "int32")


# ------------------------------------------------------------ rows
@dataclass(frozen=True)
class Row:
    """A method with inputs: one line of the table.

    `reference` gets what the method gets: floats as float64 arrays, ints and bools as they are. It
    gives the exact result, or a tuple of them.
    """

    name: str
    reference: Callable[..., Any]
    cases: tuple[Case, ...]
    dtypes: tuple[str, ...] = FLOATS
    result: Rule | tuple[Rule, ...] = same
    # how to call it, if not as Tensor.name(*tensors, *args, **kwargs)
    call: Callable[..., Any] | None = None
    # (K, sum of |terms|) of a reduction of K terms, for the bound 4*eps*sqrt(K)*sum|terms|
    terms: Callable[..., tuple[int, Any]] | None = None
    # the same in PyTorch, whose own error may be doubled
    peer: Callable[..., Any] | None = None
    # whether a gradient flows from the result to the inputs
    gradient: bool = True
    # whether it is also run by the interpreter
    small: bool = True
    # "torch" if the reference needs it
    needs: str | None = None
    # parameters that no case gives, because a test elsewhere does (with the reason)
    elsewhere: dict[str, str] = field(default_factory=dict)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How hypothesis prints it."""
        printer.text(f"named({self.name!r})")

    def run(self, tensors: list[Tensor], asked: Case) -> tuple[Any, ...]:
        """What the method gives."""
        call = self.call or getattr(Tensor, self.name)
        found = call(*tensors, *asked.args, **asked.kwargs)
        return tuple(found) if isinstance(found, (tuple, list)) else (found,)

    def expected(self, arrays: list[Array], asked: Case) -> tuple[Array, ...]:
        """What it must give, in float64 or exactly."""
        with np.errstate(all="ignore"), warnings.catch_warnings():
            # NumPy warns of means of nothing
            warnings.simplefilter("ignore", RuntimeWarning)
            found = self.reference(*self.widened(arrays), *asked.args, **asked.kwargs)
        several = found if isinstance(found, (tuple, list)) else (found,)
        return tuple(np.asarray(each) for each in several)

    def widened(self, arrays: list[Array]) -> list[Array]:
        """Floats in float64; where ints become floats, these too."""
        everything = self.result is floated
        kinds = "fV" if not everything else "fVbiu"
        return [a.astype(np.float64) if a.dtype.kind in kinds else a for a in arrays]

    def rules(self, count: int) -> tuple[Rule, ...]:
        """The dtype of each result."""
        return self.result if isinstance(self.result, tuple) else (self.result,) * count

    def with_cases(self, *cases: Case) -> Row:
        """The same with more cases."""
        return replace(self, cases=(*self.cases, *cases))


@dataclass(frozen=True)
class Check:
    """A method that is no function of values alone: what must hold of it, on a device."""

    name: str
    check: Callable[[str], None]
    # whether it is also run by the interpreter
    small: bool = False


def tensors_of(arrays: list[Array], asked: Case, dtype: str, device: str) -> list[Tensor]:
    """The inputs of a case as tensors."""
    made = []
    for array, each in zip(arrays, asked.inputs, strict=True):
        target = each.dtype or dtype
        plain = array.astype(np.float32) if target == "bfloat16" else array
        made.append(Tensor(plain, device=device, dtype=target))
    return made


def plan(row: Row, everything: bool) -> Iterator[tuple[Case, str, str]]:
    """(case, dtype, device): all cases in the first dtype, the first case in the others.

    `everything` is all cases in all dtypes. The first case also runs on the interpreter.
    """
    for position, asked in enumerate(row.cases):
        for dtype in row.dtypes if everything or not position else row.dtypes[:1]:
            yield asked, dtype, Device.DEFAULT
        if row.small and (everything or not position):
            yield asked, row.dtypes[0], "PYTHON"
