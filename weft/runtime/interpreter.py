"""Runs linear programs one UOp at a time: the oracle that other devices are compared with.

In: a linear program, the memory of its buffers, the values of its variables. Out: changed memory.
Sits under the PYTHON device. Each UOp becomes a closure over a list of registers, one per UOp;
loops are jumps between runs of closures.
Invariant: nothing wrong passes silently. An index outside its memory, scratch that is read before
it is written, a value used outside the loop that defines it, or a "raw" op whose promise is broken
raises an error that names the kernel and the line.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from weft.dtype import DType, bits_of, convert, dtypes, truncate, value_of_bits
from weft.errors import ArgumentError, IndexingError, SpecError
from weft.uop.args import AxisType
from weft.uop.evaluate import Function, evaluate_uop, function_for
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

Registers = list[Any]
Step = Callable[[Registers], None]

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


# *** running: segments and jumps ***

# A segment is a tuple of one of these and its operands. Places are positions in the registers,
# targets are positions in the list of segments.
_STEPS, _LOOP, _END, _IF, _BARRIER = range(5)
_DONE = -1


def _execute(segments: Sequence[tuple[Any, ...]], registers: Registers) -> Iterator[int]:
    """Runs one work item; yields the place of each barrier that it reaches."""
    place = 0
    last = len(segments)
    while place < last:
        segment = segments[place]
        place += 1
        kind = segment[0]
        if kind == _STEPS:
            for step in segment[1]:
                step(registers)
        elif kind == _END:
            _, counter, limit, body = segment
            registers[counter] += 1
            if registers[counter] < registers[limit]:
                place = body
        elif kind == _LOOP:
            _, counter, size, limit, after = segment
            registers[counter] = 0
            registers[limit] = registers[size]
            if registers[limit] <= 0:
                place = after
        elif kind == _IF:
            if not registers[segment[1]]:
                place = segment[2]
        else:
            yield place


class Interpreter:
    """One program, made ready once and run often.

    SPECIAL indices whose names start with "l" or "w" (lidx0, warp) number the work items of a
    group, the others (gidx0) the groups. Groups run one after another; the items of a group run in
    turn from barrier to barrier, and share the LOCAL memory that is not "scratch".
    """

    def __init__(self, name: str, uops: Sequence[UOp]) -> None:
        self.name = name
        self.uops = list(uops)
        self.params = [u for u in self.uops if u.op is Ops.PARAM]
        self.variables = sorted(
            (u for u in self.uops if u.op is Ops.VARIABLE), key=lambda u: u.arg.name
        )
        self._places = {u: place for place, u in enumerate(self.uops)}
        self._specials = [u for u in self.uops if u.op is Ops.SPECIAL]
        self._locals = [u for u in self.uops if u.op is Ops.LOCAL]
        _check_scopes(name, self.uops)
        self._initial: Registers = [None] * len(self.uops)
        self._segments = self._build_segments()

    def run(self, memory: Mapping[int, Any], values: Sequence[int]) -> None:
        """Runs with the memory of each PARAM by slot and the variables' values in their order."""
        registers = self._initial.copy()
        for param in self.params:
            registers[self._places[param]] = memory[param.arg.slot]
        bound = self._bind(values)
        for variable, value in bound.items():
            registers[self._places[variable]] = value
        sizes = {u: evaluate_uop(u.src[0], bound) for u in self._specials}
        inner = [u for u in self._specials if u.arg[0] in "lw"]
        outer = [u for u in self._specials if u not in inner]
        for group in itertools.product(*[range(sizes[u]) for u in outer]):
            for special, index in zip(outer, group, strict=True):
                registers[self._places[special]] = index
            self._run_group(registers, inner, [sizes[u] for u in inner])

    def _bind(self, values: Sequence[int]) -> dict[UOp, int]:
        if len(values) != len(self.variables):
            names = ", ".join(u.arg.name for u in self.variables) or "none"
            raise ArgumentError(
                f"kernel {self.name} has {len(self.variables)} variables ({names}), "
                f"found {len(values)} values"
            )
        for variable, value in zip(self.variables, values, strict=True):
            if not variable.arg.lo <= value <= variable.arg.hi:
                raise ArgumentError(
                    f"kernel {self.name}: variable {variable.arg.name} is {value}, "
                    f"but goes from {variable.arg.lo} to {variable.arg.hi}"
                )
        return dict(zip(self.variables, values, strict=True))

    def _run_group(self, registers: Registers, inner: list[UOp], sizes: list[int]) -> None:
        """The work items of one group, each up to the next barrier in turn."""
        shared = registers.copy()
        self._place_locals(shared, scratch=False)
        items = []
        for item in itertools.product(*[range(size) for size in sizes]):
            own = shared.copy()
            self._place_locals(own, scratch=True)
            for special, index in zip(inner, item, strict=True):
                own[self._places[special]] = index
            items.append(_execute(self._segments, own))
        while True:
            reached = {next(item, _DONE) for item in items}
            if len(reached) > 1:
                raise SpecError(
                    f"kernel {self.name}: some work items of a group wait at a BARRIER that others "
                    "do not reach; all must reach the same one"
                )
            if reached <= {_DONE}:
                return

    def _place_locals(self, registers: Registers, scratch: bool) -> None:
        for local in self._locals:
            if (local.arg.memory == "scratch") == scratch:
                name = f"kernel {self.name}: {_memory_name(local)}"
                registers[self._places[local]] = ScratchMemory(local.arg.size, name)

    # ------------------------------------------------------------ getting ready
    def _build_segments(self) -> list[tuple[Any, ...]]:
        segments: list[tuple[Any, ...]] = []
        steps: list[Step] = []
        opened: dict[UOp, int] = {}
        for place, uop in enumerate(self.uops):
            if uop.op not in _CONTROL:
                step = self._step(place, uop)
                if step is not None:
                    steps.append(step)
                continue
            if steps:
                segments.append((_STEPS, tuple(steps)))
                steps = []
            at = len(segments)
            if uop.op is Ops.RANGE:
                # One more register than UOps: the size as it was when the loop began.
                self._initial.append(None)
                segments.append(
                    (_LOOP, place, self._places[uop.src[0]], len(self._initial) - 1, None)
                )
                opened[uop] = at
            elif uop.op is Ops.END:
                start = opened[uop.src[0]]
                counter, size, limit = segments[start][1:4]
                segments[start] = (_LOOP, counter, size, limit, at + 1)
                segments.append((_END, counter, limit, start + 1))
            elif uop.op is Ops.IF:
                segments.append((_IF, self._places[uop.src[0]], None))
                opened[uop] = at
            elif uop.op is Ops.ENDIF:
                start = opened[uop.src[0]]
                segments[start] = (_IF, segments[start][1], at)
            else:
                segments.append((_BARRIER,))
        if steps:
            segments.append((_STEPS, tuple(steps)))
        return segments

    def _step(self, place: int, uop: UOp) -> Step | None:
        """What executes a UOp; None where there is nothing to do."""
        op = uop.op
        sources = [self._places[source] for source in uop.src]
        if op is Ops.CONST:
            self._initial[place] = _constant(uop)
            return None
        if op in (Ops.PARAM, Ops.LOCAL, Ops.VARIABLE, Ops.SPECIAL, Ops.INDEX, Ops.AFTER, Ops.SINK):
            return None
        if op is Ops.LOAD and uop.src[0].op is Ops.ACC or op is Ops.ACC:
            return _copy(place, sources[0])
        if op is Ops.ACC_SET:
            return _copy(sources[0], sources[1])
        if op is Ops.LOAD:
            return _load(place, Access(self, uop, uop.dtype))
        if op is Ops.STORE:
            return _store(sources[1], Access(self, uop, uop.src[1].dtype))
        if op is Ops.VECTORIZE:
            return _vectorize(place, sources)
        if op is Ops.GEP:
            if len(sources) == 2:
                return _take_lanes_of_two(place, sources, uop.arg, uop.src[0].dtype.count)
            return _take_lanes(place, sources[0], uop.arg, uop.src[0].dtype.count > 1)
        if op in GroupOp.Elementwise:
            return self._elementwise(place, uop, sources)
        raise SpecError(f"{self.where(uop)}: the PYTHON device does not interpret {op.name}")

    def _elementwise(self, place: int, uop: UOp, sources: list[int]) -> Step:
        lanes = {source.dtype.count for source in uop.src} | {uop.dtype.count}
        if len(lanes) > 1:
            raise SpecError(f"{self.where(uop)}: operands with different lanes, {sorted(lanes)}")
        if uop.tag == "raw" and uop.op in _RAW:
            function = raw_function(uop.op, uop.dtype, uop.src[0].dtype, self.where(uop))
        else:
            function = function_for(uop.op, uop.dtype, tuple(source.dtype for source in uop.src))
        return _apply(place, function, sources, uop.dtype.count > 1)

    def where(self, uop: UOp) -> str:
        """Where an error happened."""
        return f"kernel {self.name}, line {self._places[uop]} ({uop.op.name} {uop.dtype.name})"

    def place_of(self, uop: UOp) -> int:
        """The register of a UOp."""
        return self._places[uop]


_CONTROL = frozenset({Ops.RANGE, Ops.END, Ops.IF, Ops.ENDIF, Ops.BARRIER})
_WRITTEN_OUT = frozenset({AxisType.UPCAST, AxisType.UNROLL, AxisType.VECTOR})


def _check_scopes(name: str, uops: Sequence[UOp]) -> None:
    """Refuses loops that do not nest, and values used outside the loop or IF that defines them."""
    scopes: list[UOp | None] = [None]
    defined: dict[UOp, UOp | None] = {}
    for line, uop in enumerate(uops):
        where = f"kernel {name}, line {line} ({uop.op.name})"
        closes = uop.op in (Ops.END, Ops.ENDIF)
        if closes and (not uop.src or scopes[-1] is not uop.src[0]):
            raise SpecError(f"{where}: it closes {uop.src!r}, but {scopes[-1]!r} is open")
        # The second source of a register's LOAD only says when; it may be an END.
        is_register = uop.op is Ops.LOAD and uop.src[0].op is Ops.ACC
        for source in uop.src[:1] if is_register else uop.src:
            if source not in defined:
                raise SpecError(f"{where}: {source!r} is used before it is defined")
            if defined[source] not in scopes:
                raise SpecError(
                    f"{where}: {source!r} is used outside the {defined[source]!r} it is in"
                )
        if closes:
            scopes.pop()
        if uop.op in (Ops.RANGE, Ops.IF):
            scopes.append(uop)
        if uop.op is Ops.RANGE and uop.arg.kind in _WRITTEN_OUT:
            raise SpecError(f"{where}: a {uop.arg.kind.name} axis must be written out before")
        defined[uop] = None if uop.op in _ANYWHERE else scopes[-1]
    if len(scopes) > 1:
        raise SpecError(f"kernel {name}: {scopes[-1]!r} is never closed")


_ANYWHERE = frozenset({Ops.CONST, Ops.PARAM, Ops.VARIABLE, Ops.LOCAL, Ops.SPECIAL})


def _constant(uop: UOp) -> Any:
    value = float(uop.arg) if uop.dtype.kind == "float" else uop.arg
    return value if uop.dtype.count == 1 else [value] * uop.dtype.count


# *** the steps ***


def _copy(target: int, source: int) -> Step:
    def step(registers: Registers) -> None:
        registers[target] = registers[source]

    return step


def _vectorize(target: int, sources: list[int]) -> Step:
    def step(registers: Registers) -> None:
        registers[target] = [registers[source] for source in sources]

    return step if len(sources) > 1 else _copy(target, sources[0])


def _take_lanes(target: int, source: int, lanes: tuple[int, ...], is_vector: bool) -> Step:
    if not is_vector:
        # The only lane of a scalar is the scalar.
        return (
            _copy(target, source) if len(lanes) == 1 else _vectorize(target, [source] * len(lanes))
        )
    take = operator.itemgetter(*lanes)

    def step(registers: Registers) -> None:
        registers[target] = take(registers[source])

    return step


def _take_lanes_of_two(target: int, sources: list[int], lanes: tuple[int, ...], count: int) -> Step:
    first, second = sources
    chosen = [(first, lane) if lane < count else (second, lane - count) for lane in lanes]

    def step(registers: Registers) -> None:
        picked = tuple([registers[source][lane] for source, lane in chosen])
        registers[target] = picked if len(picked) > 1 else picked[0]

    return step


def _apply(target: int, function: Function, sources: list[int], is_vector: bool) -> Step:
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

    def __init__(self, interpreter: Interpreter, uop: UOp, dtype: DType) -> None:
        index = uop.src[0]
        where = interpreter.where(uop)
        if index.op is not Ops.INDEX:
            raise SpecError(f"{where}: it needs an INDEX, found {index!r}")
        memory = index.src[0]
        while memory.op is Ops.AFTER:
            memory = memory.src[0]
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
        self.zero: Any = convert(0, dtypes.weakint, dtype)
        self._what = (
            f"{where}: element %d of {_memory_name(memory)}, which has {self.size} elements"
        )

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


def _memory_name(memory: UOp) -> str:
    if memory.op is Ops.PARAM:
        return f"buffer {memory.arg.slot} ({memory.dtype.name})"
    return f"{memory.arg.memory} memory {memory.arg.number} ({memory.dtype.name})"


def _load(target: int, access: Access) -> Step:
    memory, index, size, valid, zero = (
        access.memory,
        access.index,
        access.size,
        access.valid,
        access.zero,
    )
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


def _store(value: int, access: Access) -> Step:
    memory, index, size, valid = access.memory, access.index, access.size, access.valid
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


# *** raw ops: C's meaning, with the promise checked that no operand makes it undefined ***


def raw_function(op: Ops, dtype: DType, source: DType, where: str) -> Function:
    """The function of an op tagged "raw"; it raises if an operand breaks the promise."""
    dtype, source = dtype.scalar(), source.scalar()
    if op is not Ops.CAST:
        return functools.partial(_RAW[op], where, dtype)
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


_RAW: dict[Ops, Function] = {
    Ops.IDIV: _raw_divide,
    Ops.MOD: _raw_remainder,
    Ops.SHL: functools.partial(_raw_shift, Ops.SHL),
    Ops.SHR: functools.partial(_raw_shift, Ops.SHR),
    Ops.CAST: _raw_cast,
}
