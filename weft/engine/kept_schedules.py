"""Schedules kept on disk, so that a second process does not schedule what the first one did.

What comes in: a request, which is a graph by its structure; once it was scheduled, what that led
to. What goes out: the prepared schedule with all its programs, or None. Where it sits: under
schedule, beside `kept`, which keeps the programs.
The one invariant: the key holds everything that decides a schedule: the graph, the knobs, the
targets of its devices, and weft's own code.

An entry is numbers: which program over which pieces of which memories. It is read as what it is,
somebody's file: a number that leads out of a memory, or a program that is not there any more, makes
it no entry, and the graph is scheduled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from weft.device import Device
from weft.dtype import ConstFloat, DType, to_dtype
from weft.engine import kept
from weft.engine.conditions import Condition
from weft.engine.host import is_storage
from weft.engine.prepared import Memory, Prepared, Request, Step
from weft.engine.programs import kept_runner
from weft.errors import DataError, WeftError
from weft.helpers import diskcache_get, diskcache_put
from weft.knobs import CHECK_NAN, DEBUG, SCACHE, VALIDATE
from weft.uop.args import ReduceArg, Unique, Unordered, VariableArg
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

_TABLE = "schedules"
# nodes of a graph below which it is scheduled as fast as an entry is read
LEAST_NODES = 32
# what a graph may be made of if its text shall say all of it: no functions, whose names are reused
_PLAIN = frozenset(
    {int, float, ConstFloat, bool, str, bytes, type(None), ReduceArg, VariableArg}
    | {Unique, Unordered}
)
Origin = tuple[str, int] | None


def key_of(request: Request, device: str) -> str | None:
    """The key of a graph's schedule on disk; None where none may be kept or looked up."""
    # what is checked or shown needs its kernels
    if not SCACHE.value or CHECK_NAN.value or VALIDATE.value or DEBUG >= 3:
        return None
    _, knobs, *rows = request.key
    if len(rows) < LEAST_NODES:
        return None
    devices: set[Any] = {device}
    nodes: list[tuple[Any, ...]] = []
    for row in rows:
        op, dtype, src, arg, tag = row
        if op is Ops.BUFFER:
            # of such a row the last one is the device
            devices.add(tag)
        elif op is Ops.COPY:
            devices.add(arg)
        elif op is Ops.FUNCTION:
            # gradients ask for its rule, schedules do not
            arg = None
        if not (_is_plain(arg) and _is_plain(tag)):
            return None
        nodes.append((op.name, dtype.name, src, arg, tag))
    targets = _targets(devices)
    if targets is None:
        return None
    return hashlib.sha256(repr((nodes, knobs, targets, kept.own_code())).encode()).hexdigest()


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind is tuple:
        return all([_is_plain(part) for part in value])
    return kind in _PLAIN


def _targets(devices: set[Any]) -> list[tuple[str, ...]] | None:
    """What devices are like, as far as schedules depend on it; None if one keeps no programs."""
    found: list[tuple[str, ...]] = []
    for name in sorted(devices, key=repr):
        if not isinstance(name, str) or is_storage(name):
            return None
        opened = Device[name]
        if opened.rank is not None or kept.is_off(opened.compiler):
            return None
        found.append((name, *kept.target_of(opened.renderer, opened.compiler)))
    return found


# ------------------------------------------------------------ writing
def keep(key: str | None, prepared: Prepared, origins: Sequence[Origin]) -> None:
    """Keep a schedule whose kernels are there still. `origins`: the lines of the graph's nodes."""
    if key is None:
        return
    devices = [step.device for step in prepared.steps] + [m.device for m in prepared.made]
    if not all([isinstance(device, str) for device in (*devices, *prepared.arenas)]):
        return
    places: dict[Origin, int | None] = {origin: i for i, origin in enumerate(origins)}
    places[None] = None
    contents = [memory.contents or b"" for memory in prepared.made]
    head = {
        "inputs": prepared.inputs,
        "made": [
            (m.size, m.dtype.name, m.device, m.offset, None if m.contents is None else len(data))
            for m, data in zip(prepared.made, contents, strict=True)
        ],
        "steps": [
            (
                None if step.kernel is None else step.kernel.key.hex(),
                step.device,
                step.arguments,
                places.get(step.origin),
            )
            for step in prepared.steps
        ],
        "results": prepared.results,
        "overwritten": prepared.overwritten,
        "first_write": prepared.first_write,
        "executed": prepared.executed,
        "arenas": prepared.arenas,
        "conditions": [
            (*[kept.encode(part) for part in (c.start, c.stop, c.size)], places.get(c.origin))
            for c in prepared.conditions
        ],
    }
    diskcache_put(_TABLE, key, json.dumps(head).encode() + b"\n" + b"".join(contents))


# ------------------------------------------------------------ reading
def load(key: str | None, request: Request, origins: Sequence[Origin]) -> Prepared | None:
    """The schedule kept under the key, ready to run."""
    entry = None if key is None else diskcache_get(_TABLE, key)
    if not isinstance(entry, bytes):
        return None
    head, _, contents = entry.partition(b"\n")
    try:
        return _decode(json.loads(head), contents, request, origins)
    except (ValueError, TypeError, AttributeError, KeyError, IndexError, WeftError):
        # whole, but not of our making; or of programs that were removed since
        return None


def _decode(
    head: dict[str, Any], contents: bytes, request: Request, origins: Sequence[Origin]
) -> Prepared:
    inputs = len(request.inputs)
    if head["inputs"] != inputs:
        raise DataError(f"a schedule for {inputs} inputs is expected, found {head['inputs']}")
    arenas = {str(device): _count(size) for device, size in head["arenas"].items()}
    made = _memories(head["made"], contents, arenas)
    sizes = [int(node.arg.size) for node in request.inputs] + [memory.size for memory in made]
    return Prepared(
        inputs,
        made,
        [_step(row, sizes, origins) for row in head["steps"]],
        [None if number is None else _below(len(sizes), number) for number in head["results"]],
        [_below(inputs, number) for number in head["overwritten"]],
        [_below(len(request.writes), number) for number in head["executed"]],
        arenas,
        tuple([_condition(row, request, origins) for row in head["conditions"]]),
        _count(head["first_write"]),
    )


def _memories(rows: list[Any], contents: bytes, arenas: dict[str, int]) -> list[Memory]:
    found: list[Memory] = []
    taken = 0
    for size, name, device, offset, length in rows:
        dtype: DType = to_dtype(name)
        nbytes = _count(size) * dtype.itemsize
        if offset is not None:
            _within(arenas[device], offset, nbytes)
        data = None
        if length is not None:
            _within(len(contents), taken, _count(length))
            data = contents[taken : taken + length]
            taken += length
        found.append(Memory(size, dtype, device, offset, data))
    return found


def _step(row: list[Any], sizes: list[int], origins: Sequence[Origin]) -> Step:
    content, device, arguments, place = row
    pieces: list[tuple[int, int, int]] = []
    for number, offset, size in arguments:
        _within(sizes[_below(len(sizes), number)], offset, size)
        pieces.append((number, offset, size))
    origin = _origin(place, origins)
    if content is None:
        return Step(tuple(pieces), device, None, True, origin)
    runner = kept_runner(bytes.fromhex(content), device)
    if runner is None:
        raise DataError("a program of a kept schedule is not kept any more")
    return Step(tuple(pieces), device, None, False, origin, runner)


def _condition(row: list[Any], request: Request, origins: Sequence[Origin]) -> Condition:
    *parts, place = row
    start, stop, size = [kept.decode(part) for part in parts]
    for part in (start, stop, size):
        if type(part) is not int and not _is_over(part, request):
            raise DataError(f"a condition on {sorted(request.values)} is expected, found {part!r}")
    return Condition(start, stop, size, _origin(place, origins))


def _is_over(value: Any, request: Request) -> bool:
    """Whether it is arithmetic over numbers and the variables that a request has values for."""
    if not isinstance(value, UOp):
        return False
    leaves = [node for node in value.toposort() if node.op not in GroupOp.Elementwise]
    return all(
        [
            leaf.op is Ops.CONST or (leaf.op is Ops.VARIABLE and leaf.arg.name in request.values)
            for leaf in leaves
        ]
    )


def _origin(place: Any, origins: Sequence[Origin]) -> Origin:
    return None if place is None else origins[_below(len(origins), place)]


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise DataError(f"a kept schedule counts from zero on, found {value!r}")
    return value


def _below(limit: int, value: Any) -> int:
    if _count(value) >= limit:
        raise DataError(f"a kept schedule has {limit} of these, found number {value}")
    return int(value)


def _within(total: int, offset: Any, size: Any) -> None:
    """DataError if a piece is not inside of its memory."""
    if _count(offset) + _count(size) > total:
        raise DataError(f"a piece of {size} from {offset} on is not inside of {total}")
