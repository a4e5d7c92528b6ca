"""The plan: what a captured function does, as plain data that any writer can print.

In: nothing; `build` makes plans of captured functions. Out: `Plan` and its parts, and `verify`,
which every writer calls before it prints a line.
Sits first in `export`, above nothing but the IR.
Invariant: a verified plan touches no byte outside of its memories, writes to no constant and no
input, and reads no scratch that another value has taken; so whoever prints it need not ask again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from weft.dtype import DType, dtypes
from weft.errors import ExportError
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

# what a memory is to the exported code
INPUT, OUTPUT, CONSTANT, STATE, SCRATCH = "input", "output", "constant", "state", "scratch"
KINDS = (INPUT, OUTPUT, CONSTANT, STATE, SCRATCH)
# scratch and state begin at multiples of this, whatever the target's vectors
ALIGNMENT = 256
# bytes of one memory, and of all scratch: offsets are printed as they are
MOST_BYTES = 1 << 40


@dataclass(frozen=True)
class Memory:
    """Elements of one dtype. `offset` is in bytes: of scratch in the arena, of state among the
    states. `contents` are those of a constant, and those that a state begins with."""

    name: str
    kind: str
    dtype: DType
    size: int
    offset: int = 0
    contents: bytes | None = field(default=None, repr=False)

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return self.size * self.dtype.itemsize


@dataclass(frozen=True)
class Value:
    """An input or an output, row by row without gaps. A size of its shape may be an expression of
    the plan's sizes; its memory has room for the largest."""

    name: str
    memory: int
    shape: tuple[Any, ...]


@dataclass(frozen=True)
class Size:
    """A number that every call gives, within bounds."""

    name: str
    low: int
    high: int


@dataclass(frozen=True)
class Parameter:
    """A buffer that a kernel takes."""

    slot: int
    dtype: DType
    size: int
    is_written: bool


@dataclass(frozen=True)
class Kernel:
    """A kernel before it is lowered for a target; `lines` are the user's that it came from."""

    name: str
    sink: UOp = field(repr=False)
    parameters: tuple[Parameter, ...]
    variables: tuple[str, ...]
    lines: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Draw:
    """One word of the key of a draw of random numbers."""

    number: int
    word: int


@dataclass(frozen=True)
class Launch:
    """A kernel over memories, each from an element on; `values` are those of its variables: the
    name of a size, a draw, or a number."""

    kernel: int
    arguments: tuple[tuple[int, int], ...]
    values: tuple[str | Draw | int, ...] = ()


@dataclass(frozen=True)
class Copy:
    """The contents of a memory to another one of the same size."""

    source: int
    target: int


@dataclass(frozen=True)
class Claim:
    """What sizes have to obey: 0 <= start <= stop <= size."""

    start: Any
    stop: Any
    size: Any


@dataclass(frozen=True)
class Plan:
    """Everything that a call of the exported function does, in order."""

    name: str
    memories: tuple[Memory, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    kernels: tuple[Kernel, ...]
    steps: tuple[Launch | Copy, ...]
    sizes: tuple[Size, ...] = ()
    claims: tuple[Claim, ...] = ()
    # random numbers: ("draw", how many words) and ("seed", the new seed), in order
    events: tuple[tuple[str, int], ...] = ()
    seed: int = 0
    counter: int = 0
    arena_bytes: int = 0
    state_bytes: int = 0
    digest: str = ""  # of all of the above, see `seal`

    def of_kind(self, kind: str) -> list[Memory]:
        """The memories of one kind, in order."""
        return [memory for memory in self.memories if memory.kind == kind]

    @property
    def weight_bytes(self) -> int:
        """The bytes of all constants."""
        return sum(memory.nbytes for memory in self.of_kind(CONSTANT))


# ------------------------------------------------------------ verifying
def seal(plan: Plan) -> Plan:
    """The plan with the digest of its parts. What claims prove about two sizes at once cannot be
    checked again from the plan alone, so one that was changed since it was made is not printed."""
    return replace(plan, digest=_digest(plan))


def _digest(plan: Plan) -> str:
    found = hashlib.sha256()
    for part in fields(plan):
        value = getattr(plan, part.name)
        if part.name == "kernels":
            value = [(k.name, k.sink.key, k.parameters, k.variables, k.lines) for k in value]
        elif part.name == "claims":
            parts = [p for claim in value for p in (claim.start, claim.stop, claim.size)]
            value = [p.key if isinstance(p, UOp) else p for p in parts]
        elif part.name == "memories":
            for memory in value:
                found.update(memory.contents or b"")
        elif part.name in ("inputs", "outputs"):
            shapes = [[s.key if isinstance(s, UOp) else s for s in v.shape] for v in value]
            value = ([(v.name, v.memory) for v in value], shapes)
        elif part.name == "digest":
            continue
        found.update(f"{part.name} {value!r}\n".encode())
    return found.hexdigest()


def verify(plan: Plan) -> None:
    """ExportError unless the plan is safe to print."""
    try:
        _verify(plan)
    except (AttributeError, TypeError, ValueError, LookupError, ArithmeticError) as error:
        if isinstance(error, ExportError):
            raise
        # what is damaged may not even print
        why = f"a part of it is damaged ({type(error).__name__})"
        raise ExportError(f"the plan is not whole: {why}; make it anew") from error


def _verify(plan: Plan) -> None:
    if plan.digest != _digest(plan):
        _fail("it was changed since it was made")
    _verify_memories(plan)
    _verify_names(plan)
    for kind, values in ((INPUT, plan.inputs), (OUTPUT, plan.outputs)):
        _verify_values(plan, kind, values)
    for kernel in plan.kernels:
        _verify_kernel(plan, kernel)
    for position, step in enumerate(plan.steps):
        if isinstance(step, Copy):
            _verify_copy(plan, position, step)
        else:
            _verify_launch(plan, position, step)
    for claim in plan.claims:
        for part in (claim.start, claim.stop, claim.size):
            _bounds(plan, part, "a claim")
    _verify_lives(plan)


def _fail(what: str) -> None:
    raise ExportError(f"the plan is not whole: {what}; make it anew with weft.export")


def _number(value: Any, least: int, most: int, what: str) -> int:
    if type(value) is not int or not least <= value <= most:
        _fail(f"{what} is {value!r}, a number from {least} to {most} is expected")
    return int(value)


def _memory(plan: Plan, number: Any, what: str) -> Memory:
    return plan.memories[_number(number, 0, len(plan.memories) - 1, f"the memory of {what}")]


def _verify_memories(plan: Plan) -> None:
    room = {
        SCRATCH: _number(plan.arena_bytes, 0, MOST_BYTES, "the size of the arena"),
        STATE: _number(plan.state_bytes, 0, MOST_BYTES, "the size of the states"),
    }
    if plan.state_bytes % ALIGNMENT:
        _fail(f"the states have {plan.state_bytes} bytes, and scratch begins after them")
    for memory in plan.memories:
        # types are interned: another object of that name may say other sizes
        dtype = memory.dtype
        if not isinstance(dtype, DType) or getattr(dtypes, str(dtype.name), None) is not dtype:
            _fail(f"{memory.name} has a dtype that is none of weft's scalar types")
        _number(memory.size, 1, MOST_BYTES // memory.dtype.itemsize, f"the size of {memory.name}")
        if memory.kind not in KINDS:
            _fail(f"{memory.name} is of the kind {memory.kind!r}, not of {', '.join(KINDS)}")
        if memory.kind in room:
            last = room[memory.kind] - memory.nbytes
            _number(memory.offset, 0, last, f"the place of {memory.name}")
            if memory.offset % ALIGNMENT:
                _fail(f"{memory.name} begins at byte {memory.offset}, no multiple of {ALIGNMENT}")
        needs = memory.kind in (CONSTANT, STATE)
        found = -1 if memory.contents is None else len(memory.contents)
        if found != (memory.nbytes if needs else -1):
            _fail(f"{memory.name} has {found} bytes of contents and a size of {memory.nbytes}")
    states = sorted(plan.of_kind(STATE), key=lambda memory: memory.offset)
    for before, after in zip(states, states[1:], strict=False):
        if before.offset + before.nbytes > after.offset:
            _fail(f"the states {before.name} and {after.name} overlap")


def _verify_names(plan: Plan) -> None:
    names = [plan.name, *[value.name for value in (*plan.inputs, *plan.outputs)]]
    names += [size.name for size in plan.sizes]
    inner = [*[memory.name for memory in plan.memories], *[k.name for k in plan.kernels]]
    for name in (*names, *inner):
        if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
            _fail(f"{name!r} is no name for C")
    for part in (names, [k.name for k in plan.kernels], [m.name for m in plan.memories]):
        if len(set(part)) != len(part):
            _fail(f"a name is there twice among {', '.join(sorted(part))}")
    for size in plan.sizes:
        _number(size.low, -(1 << 31), (1 << 31) - 1, f"the least {size.name}")
        _number(size.high, size.low, (1 << 31) - 1, f"the largest {size.name}")


def _verify_values(plan: Plan, kind: str, values: tuple[Value, ...]) -> None:
    for value in values:
        memory = _memory(plan, value.memory, value.name)
        if memory.kind != kind:
            _fail(f"{value.name} is an {kind}, but its memory is of the kind {memory.kind}")
        elements = 1
        for size in value.shape:
            low, high = _bounds(plan, size, f"the shape of {value.name}")
            if low < 0:
                _fail(f"a size of {value.name} may be {low}")
            elements *= high
        if elements > memory.size:
            _fail(f"{value.name} has up to {elements} elements and memory for {memory.size}")
    expected = [number for number, memory in enumerate(plan.memories) if memory.kind == kind]
    if sorted(value.memory for value in values) != expected:
        _fail(f"each {kind} has one memory, and each memory of that kind is one of them")


def _bounds(plan: Plan, value: Any, what: str) -> tuple[int, int]:
    """The least and the largest value of an expression over sizes."""
    if type(value) is int:
        return value, value
    if not isinstance(value, UOp):
        _fail(f"{value!r} stands in {what}")
    known = {size.name: size for size in plan.sizes}
    for node in value.toposort():
        if node.op is Ops.VARIABLE:
            size = known.get(node.arg.name)
            if size is None or size.low < node.arg.lo or size.high > node.arg.hi:
                _fail(f"{what} depends on {node.arg.name}, which is no size within its bounds")
        elif node.op is not Ops.CONST and node.op not in GroupOp.Elementwise:
            _fail(f"{node.op.name} stands in {what}")
    return int(value.vmin), int(value.vmax)


def kernel_parameters(sink: UOp) -> tuple[Parameter, ...]:
    """The buffers of a kernel, by slot."""
    order = sink.toposort()
    written = {_param_of(node.src[0]) for node in order if node.op is Ops.STORE}
    params = sorted({n for n in order if n.op is Ops.PARAM}, key=lambda n: (n.arg.slot, n.dtype))
    return tuple([Parameter(p.arg.slot, p.dtype, p.arg.size, p in written) for p in params])


def kernel_variables(sink: UOp) -> tuple[UOp, ...]:
    """The variables of a kernel, by name: the order in which it takes their values."""
    found = {node for node in sink.toposort() if node.op is Ops.VARIABLE}
    return tuple(sorted(found, key=lambda node: str(node.arg.name)))


def _param_of(place: UOp) -> UOp:
    while place.op is not Ops.PARAM and place.src:
        place = place.src[0]
    return place


def _verify_kernel(plan: Plan, kernel: Kernel) -> None:
    if kernel.parameters != kernel_parameters(kernel.sink):
        _fail(f"the kernel {kernel.name} takes other buffers than it says")
    if kernel.variables != tuple([v.arg.name for v in kernel_variables(kernel.sink)]):
        _fail(f"the kernel {kernel.name} takes other variables than it says")


def _verify_copy(plan: Plan, position: int, step: Copy) -> None:
    source = _memory(plan, step.source, f"step {position}")
    target = _memory(plan, step.target, f"step {position}")
    if (source.size, source.dtype) != (target.size, target.dtype):
        _fail(f"step {position} copies {source.name} to {target.name}, which is of another kind")
    if target.kind in (CONSTANT, INPUT) or source is target:
        _fail(f"step {position} writes to {target.name}, which is {target.kind}")


def _verify_launch(plan: Plan, position: int, step: Launch) -> None:
    what = f"step {position}"
    kernel = plan.kernels[_number(step.kernel, 0, len(plan.kernels) - 1, f"the kernel of {what}")]
    slots = 1 + max([p.slot for p in kernel.parameters], default=-1)
    if len(step.arguments) != slots or len(step.values) != len(kernel.variables):
        _fail(f"{what} gives {kernel.name} {len(step.arguments)} buffers, {slots} are expected")
    written: list[int] = []
    for parameter in kernel.parameters:
        number, first = step.arguments[parameter.slot]
        memory = _memory(plan, number, what)
        _number(first, 0, memory.size - parameter.size, f"where {memory.name} begins in {what}")
        if memory.dtype is not parameter.dtype:
            _fail(f"{what} takes {memory.name} as {parameter.dtype}, it is {memory.dtype}")
        if parameter.is_written:
            written.append(number)
            if memory.kind in (CONSTANT, INPUT):
                _fail(f"{what} writes to {memory.name}, which is {memory.kind}")
    for number in written:
        spans = [
            (step.arguments[p.slot][1], step.arguments[p.slot][1] + p.size)
            for p in kernel.parameters
            if step.arguments[p.slot][0] == number
        ]
        spans.sort()
        if any(a[1] > b[0] for a, b in zip(spans, spans[1:], strict=False)):
            _fail(f"{what} takes {plan.memories[number].name} twice and writes to it")
    _verify_variables(plan, kernel, step, what)


def _verify_variables(plan: Plan, kernel: Kernel, step: Launch, what: str) -> None:
    sizes = {size.name: size for size in plan.sizes}
    draws = sum(kind == "draw" for kind, _ in plan.events)
    for variable, value in zip(kernel_variables(kernel.sink), step.values, strict=True):
        low, high = variable.arg.lo, variable.arg.hi
        if isinstance(value, Draw):
            _number(value.number, 0, draws - 1, f"a draw of {what}")
            _number(value.word, 0, 1, f"a word of a draw of {what}")
            found = (0, (1 << 32) - 1)
        elif isinstance(value, str):
            if value not in sizes:
                _fail(f"{what} asks for the size {value}, which nobody gives")
            found = (sizes[value].low, sizes[value].high)
        else:
            found = (_number(value, low, high, f"a number of {what}"),) * 2
        if not (low <= found[0] and found[1] <= high):
            _fail(f"{what} takes {variable.arg.name} from {low} to {high}, and is given {found}")


def touched(step: Launch | Copy) -> list[int]:
    """The numbers of the memories of a step."""
    if isinstance(step, Copy):
        return [step.source, step.target]
    return [number for number, _ in step.arguments]


def _verify_lives(plan: Plan) -> None:
    """Scratch overlaps only where lives do not."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for position, step in enumerate(plan.steps):
        for number in touched(step):
            if plan.memories[number].kind == SCRATCH:
                first.setdefault(number, position)
                last[number] = position
    live: list[int] = []
    for position in range(len(plan.steps)):
        live = [number for number in live if last[number] >= position]
        for number in _begins(plan, first, position):
            memory = plan.memories[number]
            for other in [plan.memories[n] for n in live]:
                start, stop = max(memory.offset, other.offset), memory.offset + memory.nbytes
                if start < min(stop, other.offset + other.nbytes):
                    _fail(f"{memory.name} and {other.name} take the same bytes at one time")
            live.append(number)


def _begins(plan: Plan, first: dict[int, int], position: int) -> Iterable[int]:
    numbers = dict.fromkeys(touched(plan.steps[position]))
    return [number for number in numbers if first.get(number) == position]
