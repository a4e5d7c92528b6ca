"""The steps of the interpreter: what executes one UOp, over a list of registers.

In: a UOp and the registers of its sources. Out: a closure that computes its register, loads or
stores. Under `interpreter.py`, which puts the steps in order and runs them.
Invariant: what has no value raises. An index outside its memory, fast memory that is read before it
is written, a "raw" op whose promise is broken: the error names the kernel and the line.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, Protocol

from weft.dtype import DType, bits_of, convert, dtypes, truncate, value_of_bits
from weft.errors import IndexingError, SpecError
from weft.uop.args import OVERLAPPING
from weft.uop.evaluate import Function, function_for
from weft.uop.node import UOp
from weft.uop.opset import Ops

Registers = list[Any]
Step = Callable[[Registers], None]


class Places(Protocol):
    """Where the parts of a program are found."""

    item_place: int  # the register of the work item

    def where(self, uop: UOp) -> str:
        """Where an error happened."""

    def place_of(self, uop: UOp) -> int:
        """The register of a UOp."""

    def watch_of(self, memory: UOp) -> int | None:
        """The register of a memory's Watch; None if nobody else can touch it."""


# *** memory: indexable by element, in values of Python ***


class EncodedMemory:
    """Elements whose bits Python cannot read itself: bool, half and 8 bit floats."""

    def __init__(self, data: memoryview, dtype: DType) -> None:
        self._bits = data.cast("B") if dtype.itemsize == 1 else data.cast("H")
        self._decode = _decoder(dtype)
        self._dtype = dtype

    def __getitem__(self, position: int) -> Any:
        return self._decode(self._bits[position])

    def __setitem__(self, position: int, value: Any) -> None:
        self._bits[position] = bits_of(value, self._dtype)


@functools.cache
def _decoder(dtype: DType) -> Callable[[int], Any]:
    return (
        bool if dtype is dtypes.bool else functools.cache(lambda bits: value_of_bits(bits, dtype))
    )


def view_memory(data: memoryview, dtype: DType, size: int) -> Any:
    """The first `size` elements of raw bytes."""
    if size == 0:
        # Python casts no empty memory, and nothing is ever read from it.
        return []
    part: Any = data[: size * dtype.itemsize]
    if dtype is dtypes.bool or dtype.fmt is None or dtype is dtypes.float16:
        return EncodedMemory(part, dtype)
    return part.cast(dtype.fmt)


class ScratchMemory:
    """Fast memory of a program, which knows what was written."""

    def __init__(self, size: int, name: str) -> None:
        self._values: list[Any] = [None] * size
        self._name = name

    def __getitem__(self, position: int) -> Any:
        value = self._values[position]
        if value is None:
            raise SpecError(f"{self._name}: element {position} is read before it is written")
        return value

    def __setitem__(self, position: int, value: Any) -> None:
        self._values[position] = value


def memory_of(access: UOp) -> UOp:
    """The PARAM or LOCAL that a LOAD or STORE touches."""
    memory = access.src[0].src[0] if access.src[0].op is Ops.INDEX else access.src[0]
    while memory.op is Ops.AFTER:
        memory = memory.src[0]
    return memory


def constant(uop: UOp) -> Any:
    value = float(uop.arg) if uop.dtype.kind == "float" else uop.arg
    return value if uop.dtype.count == 1 else [value] * uop.dtype.count


# *** the steps ***


def copy(target: int, source: int) -> Step:
    def step(registers: Registers) -> None:
        registers[target] = registers[source]

    return step


def vectorize(target: int, sources: list[int]) -> Step:
    def step(registers: Registers) -> None:
        registers[target] = [registers[source] for source in sources]

    return step if len(sources) > 1 else copy(target, sources[0])


def take_lanes(target: int, source: int, lanes: tuple[int, ...], is_vector: bool) -> Step:
    if not is_vector:
        # The only lane of a scalar is the scalar.
        return copy(target, source) if len(lanes) == 1 else vectorize(target, [source] * len(lanes))
    take = operator.itemgetter(*lanes)

    def step(registers: Registers) -> None:
        registers[target] = take(registers[source])

    return step


def take_lanes_of_two(target: int, sources: list[int], lanes: tuple[int, ...], count: int) -> Step:
    first, second = sources
    chosen = [(first, lane) if lane < count else (second, lane - count) for lane in lanes]

    def step(registers: Registers) -> None:
        picked = tuple([registers[source][lane] for source, lane in chosen])
        registers[target] = picked if len(picked) > 1 else picked[0]

    return step


def apply(target: int, function: Function, sources: list[int], is_vector: bool) -> Step:
    if is_vector:

        def lanes(registers: Registers) -> None:
            registers[target] = list(map(function, *[registers[source] for source in sources]))

        return lanes
    if len(sources) == 1:
        (x,) = sources

        def unary(registers: Registers) -> None:
            registers[target] = function(registers[x])

        return unary
    if len(sources) == 2:
        x, y = sources

        def binary(registers: Registers) -> None:
            registers[target] = function(registers[x], registers[y])

        return binary

    def general(registers: Registers) -> None:
        registers[target] = function(*[registers[source] for source in sources])

    return general


class Access:
    """What a LOAD or STORE touches: registers of the memory, the index and the validity."""

    def __init__(
        self, interpreter: Places, uop: UOp, dtype: DType, stands_in: UOp | None = None
    ) -> None:
        """`stands_in`: the UOp of the program, where this is a part of one."""
        index = uop.src[0]
        stands_in = uop if stands_in is None else stands_in
        where = interpreter.where(stands_in)
        if index.op is not Ops.INDEX:
            raise SpecError(f"{where}: it needs an INDEX, found {index!r}")
        memory = memory_of(uop)
        if memory.op not in (Ops.PARAM, Ops.LOCAL):
            raise SpecError(f"{where}: it needs a PARAM or a LOCAL, found {memory!r}")
        if memory.dtype is not dtype.scalar():
            raise SpecError(f"{where}: a value of {dtype} and memory of {memory.dtype}")
        valid = index.src[2] if len(index.src) > 2 else None
        for part in (index.src[1], valid):
            if part is not None and part.dtype.count not in (1, dtype.count):
                raise SpecError(f"{where}: {dtype} with {part.dtype} as index or validity")
        self.memory = interpreter.place_of(memory)
        self.size = memory.arg.size
        self.index = interpreter.place_of(index.src[1])
        self.is_gather = index.src[1].dtype.count > 1
        self.valid = None if valid is None else interpreter.place_of(valid)
        self.is_masked = valid is not None and valid.dtype.count > 1
        self.lanes = dtype.count
        self.watch = interpreter.watch_of(memory)
        self.item = interpreter.item_place
        self.line = interpreter.place_of(stands_in)
        self.overlaps = uop.tag == OVERLAPPING
        self.zero: Any = convert(0, dtypes.weakint, dtype)
        self._what = f"{where}: element %d of {memory_name(memory)}, which has {self.size} elements"

    def outside(self, position: int) -> IndexingError:
        """The error for an index that is not in the memory."""
        return IndexingError(self._what % position)

    def positions(self, registers: Registers) -> list[int | None]:
        """The element of each lane, checked; None where nothing is accessed."""
        valid: Any = True if self.valid is None else registers[self.valid]
        if not self.is_masked:
            valid = [valid] * self.lanes
        start = registers[self.index]
        indices = start if self.is_gather else range(start, start + self.lanes)
        found: list[int | None] = []
        for position, is_valid in zip(indices, valid, strict=True):
            if is_valid and not 0 <= position < self.size:
                raise self.outside(position)
            found.append(position if is_valid else None)
        return found


def memory_name(memory: UOp) -> str:
    if memory.op is Ops.PARAM:
        return f"buffer {memory.arg.slot} ({memory.dtype.name})"
    return f"{memory.arg.memory} memory {memory.arg.number} ({memory.dtype.name})"


def load(target: int, access: Access) -> Step:
    memory, index, size, valid, zero = (
        access.memory,
        access.index,
        access.size,
        access.valid,
        access.zero,
    )
    if access.watch is not None:
        return _watched_load(target, access, access.watch)
    if access.lanes > 1:

        def vector(registers: Registers) -> None:
            data = registers[memory]
            registers[target] = [
                zero if position is None else data[position]
                for position in access.positions(registers)
            ]

        return vector

    def scalar(registers: Registers) -> None:
        if valid is not None and not registers[valid]:
            registers[target] = zero
            return
        position = registers[index]
        if not 0 <= position < size:
            raise access.outside(position)
        registers[target] = registers[memory][position]

    return scalar


def store(value: int, access: Access) -> Step:
    memory, index, size, valid = access.memory, access.index, access.size, access.valid
    if access.watch is not None:
        return _watched_store(value, access, access.watch)
    if access.lanes > 1:

        def vector(registers: Registers) -> None:
            data = registers[memory]
            for position, lane in zip(access.positions(registers), registers[value], strict=True):
                if position is not None:
                    data[position] = lane

        return vector

    def scalar(registers: Registers) -> None:
        if valid is not None and not registers[valid]:
            return
        position = registers[index]
        if not 0 <= position < size:
            raise access.outside(position)
        registers[memory][position] = registers[value]

    return scalar


def _watched_load(target: int, access: Access, watch: int) -> Step:
    """A load of memory that other work items may write."""
    memory, item, line, zero = access.memory, access.item, access.line, access.zero

    def step(registers: Registers) -> None:
        data, watched, own = registers[memory], registers[watch], registers[item]
        loaded = []
        for position in access.positions(registers):
            if position is not None:
                watched.read(position, own, line)
            loaded.append(zero if position is None else data[position])
        registers[target] = loaded if len(loaded) > 1 else loaded[0]

    return step


def _watched_store(value: int, access: Access, watch: int) -> Step:
    """A store to memory that other work items may touch."""
    memory, item, line, is_vector = access.memory, access.item, access.line, access.lanes > 1
    overlaps = access.overlaps

    def step(registers: Registers) -> None:
        data, watched, own = registers[memory], registers[watch], registers[item]
        lanes = registers[value] if is_vector else (registers[value],)
        for position, lane in zip(access.positions(registers), lanes, strict=True):
            if position is not None:
                watched.write(position, own, line, overlaps and _is_same(data[position], lane))
                data[position] = lane

    return step


def combine(value: int, access: Access, function: Function) -> Step:
    """A store that joins a value with what is there, in one step."""
    memory, item, line, is_vector = access.memory, access.item, access.line, access.lanes > 1
    watch = access.watch

    def step(registers: Registers) -> None:
        data = registers[memory]
        lanes = registers[value] if is_vector else (registers[value],)
        for position, lane in zip(access.positions(registers), lanes, strict=True):
            if position is not None:
                if watch is not None:
                    registers[watch].combine(position, registers[item], line)
                data[position] = function(data[position], lane)

    return step


def _is_same(left: Any, right: Any) -> bool:
    return bool(left == right or (left != left and right != right))


# *** raw ops: C's meaning, with the promise checked that no operand makes it undefined ***


def raw_function(op: Ops, dtype: DType, source: DType, where: str) -> Function:
    """The function of an op tagged "raw"; it raises if an operand breaks the promise."""
    dtype, source = dtype.scalar(), source.scalar()
    if op is not Ops.CAST:
        return functools.partial(RAW[op], where, dtype)
    if source.kind == "float" and dtype.kind in ("int", "uint"):
        return functools.partial(_raw_cast, where, dtype)
    return function_for(op, dtype, (source,))


def _raw_divide(where: str, dtype: DType, x: int, y: int) -> int:
    if y == 0:
        raise SpecError(f"{where}: {x} / 0, but a raw division promises a divisor other than 0")
    quotient = abs(x) // abs(y)
    result = quotient if (x < 0) == (y < 0) else -quotient
    if not dtype.min <= result <= dtype.max:
        raise SpecError(f"{where}: {x} / {y} does not fit {dtype}, as a raw division promises")
    return result


def _raw_remainder(where: str, dtype: DType, x: int, y: int) -> int:
    return x - y * _raw_divide(where, dtype, x, y)


def _raw_shift(direction: Ops, where: str, dtype: DType, x: int, y: int) -> Any:
    if not 0 <= y < dtype.bitsize:
        raise SpecError(
            f"{where}: a shift by {y}, but a raw shift promises 0 to {dtype.bitsize - 1}"
        )
    return truncate[dtype](x << y) if direction is Ops.SHL else x >> y


def _raw_cast(where: str, dtype: DType, value: float) -> int:
    # The comparison is with exact integers, and false for NaN.
    if not dtype.min - 1 < value < dtype.max + 1:
        raise SpecError(f"{where}: {value} does not fit {dtype}, as a raw cast promises")
    return int(value)


RAW: dict[Ops, Function] = {
    Ops.IDIV: _raw_divide,
    Ops.MOD: _raw_remainder,
    Ops.SHL: functools.partial(_raw_shift, Ops.SHL),
    Ops.SHR: functools.partial(_raw_shift, Ops.SHR),
    Ops.CAST: _raw_cast,
}
