"""Runs linear programs one UOp at a time: the oracle that other devices are compared with.

In: a linear program, the memory of its buffers, the values of its variables. Out: changed memory.
Sits under the PYTHON device. Each UOp becomes a closure over a list of registers, one per UOp;
loops are jumps between runs of closures.
Invariant: nothing wrong passes silently. An index outside its memory, scratch that is read before
it is written, a value used outside the loop that defines it, or a "raw" op whose promise is broken
raises an error that names the kernel and the line. So does a race between work items, whatever
the order in which they ran; that order is random, so that nothing depends on it unseen.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from weft.errors import ArgumentError, SpecError
from weft.fragment import Fragment
from weft.runtime.exchange import (
    commit,
    fetch,
    load_matrices,
    multiply_fragments,
    multiply_tiles,
    name_tile,
    settle,
    shuffle,
    wait,
)
from weft.runtime.meeting import MEETINGS, meet
from weft.runtime.races import Exchange, Meeting, Warp, Watch, WatchedPart, WorkItem
from weft.runtime.steps import (
    RAW,
    Access,
    Registers,
    ScratchMemory,
    Step,
    apply,
    combine,
    constant,
    copy,
    load,
    memory_name,
    memory_of,
    raw_function,
    store,
    take_lanes,
    take_lanes_of_two,
    vectorize,
)
from weft.uop.args import AxisType, MatrixArg, TileArg, Unordered
from weft.uop.evaluate import evaluate_uop, function_for
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

# *** running: segments and jumps ***

# A segment is a tuple of one of these and its operands. Places are positions in the registers,
# targets are positions in the list of segments.
_STEPS, _LOOP, _END, _IF, _BARRIER, _PAUSE, _EXCHANGE = range(7)
# what a work item yields when it ends, and where others may take a turn; else a barrier's place, or
# below these that of an exchange in its warp
_DONE, _PAUSED, _EXCHANGED = -1, -2, -3
# lanes of a warp, where no fragment says how many
_WARP = 32


def _execute(segments: Sequence[tuple[Any, ...]], registers: Registers) -> Iterator[int]:
    """Runs one work item; yields the place of each barrier that it reaches, and pauses."""
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
        elif kind == _PAUSE:
            yield _PAUSED
        elif kind == _EXCHANGE:
            yield _EXCHANGED - place
        else:
            yield place


class Interpreter:
    """One program, made ready once and run often.

    SPECIAL indices whose names start with "l" or "w" (lidx0, warp) number the work items of a
    group, the others (gidx0) the groups. Groups run one after another, in a random order; the items
    of a group take turns, in a random order and at least from barrier to barrier, and share the
    LOCAL memory that is not "scratch". Memory that they write or share is watched for races, and
    with `watch_all` what they only read as well: it may overlap what they write.
    """

    def __init__(self, name: str, uops: Sequence[UOp], watch_all: bool = False) -> None:
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
        # further registers: the work item, and for each watched memory its Watch
        self.item_place = self._new_register()
        self._watches = {memory: self._new_register() for memory in _watched(self.uops, watch_all)}
        fragments = [u.arg.lanes for u in self.uops if isinstance(u.arg, Fragment)]
        # of programs whose warps exchange anything
        shuffles = any(u.op is Ops.SHUFFLE for u in self.uops)
        self.warp_size: int = max(fragments, default=_WARP if shuffles else 0)
        self._segments = self._build_segments()

    def _new_register(self) -> int:
        self._initial.append(None)
        return len(self._initial) - 1

    def run(
        self,
        memory: Mapping[int, Any],
        values: Sequence[int],
        overlaps: Mapping[int, tuple[int, int]] | None = None,
        seed: int = 0,
    ) -> None:
        """Runs with the memory of each PARAM by slot and the variables' values in their order.

        `overlaps` names, for slots that share memory, which one it is and the byte they start at.
        """
        registers = self._initial.copy()
        for param in self.params:
            registers[self._places[param]] = memory[param.arg.slot]
        self._place_watches(registers, overlaps or {})
        bound = self._bind(values)
        for variable, value in bound.items():
            registers[self._places[variable]] = value
        sizes = {u: evaluate_uop(u.src[0], bound) for u in self._specials}
        inner = [u for u in self._specials if u.arg[0] in "lw"]
        outer = [u for u in self._specials if u not in inner]
        # the same order every time; another one for another seed
        chance = random.Random(f"{self.name} {seed}")
        groups = list(itertools.product(*[range(sizes[u]) for u in outer]))
        chance.shuffle(groups)
        threads = list(itertools.product(*[range(sizes[u]) for u in inner]))
        numbers = _thread_numbers(inner, sizes, threads)
        for group in groups:
            for special, index in zip(outer, group, strict=True):
                registers[self._places[special]] = index
            meetings: dict[tuple[int, int], Meeting] = {}
            items = [
                WorkItem(group, t, number=number, meetings=meetings)
                for t, number in zip(threads, numbers, strict=True)
            ]
            if self.warp_size:
                _form_warps(items, numbers, self.warp_size)
            self._run_group(registers, inner, items, chance)

    def _place_watches(self, registers: Registers, overlaps: Mapping[int, tuple[int, int]]) -> None:
        wholes: dict[int, Watch] = {}
        for memory, place in self._watches.items():
            overlap = overlaps.get(memory.arg.slot) if memory.op is Ops.PARAM else None
            if overlap is None:
                registers[place] = Watch(self.name, memory_name(memory), self._line_text)
                continue
            number, start = overlap
            if number not in wholes:
                slots = [str(slot) for slot, (other, _) in overlaps.items() if other == number]
                name = f"the bytes of buffers {' and '.join(slots)}"
                wholes[number] = Watch(self.name, name, self._line_text)
            registers[place] = WatchedPart(wholes[number], start, memory.dtype.itemsize)

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

    def _run_group(
        self,
        registers: Registers,
        inner: list[UOp],
        items: list[WorkItem],
        chance: random.Random,
    ) -> None:
        """The work items of one group, in turns from barrier to barrier."""
        shared = registers.copy()
        self._place_locals(shared, scratch=False)
        runs: list[Iterator[int]] = []
        for item in items:
            own = shared.copy()
            own[self.item_place] = item
            self._place_locals(own, scratch=True)
            for special, index in zip(inner, item.thread, strict=True):
                own[self._places[special]] = index
            runs.append(_execute(self._segments, own))
        while True:
            reached = _take_turns(runs, items, chance)
            if len(set(reached)) > 1 or reached[0] <= _EXCHANGED:
                raise self._diverged(items, reached)
            if reached[0] == _DONE:
                return
            for item in items:
                item.epoch += 1

    def _diverged(self, items: list[WorkItem], reached: list[int]) -> SpecError:
        """The error for a barrier that some items of a group wait at and others do not reach."""
        waits = next(i for i, place in enumerate(reached) if place != _DONE)
        if reached[waits] <= _EXCHANGED:
            return SpecError(
                f"kernel {self.name}: {items[waits]} exchanges fragments with its warp, but not "
                "all of its warp reach that place"
            )
        other = next(i for i, place in enumerate(reached) if place != reached[waits])
        where = "waits at another one" if reached[other] != _DONE else "ends without reaching it"
        return SpecError(
            f"kernel {self.name}: {items[waits]} waits at a BARRIER, but {items[other]} {where}; "
            "all work items of a group must reach the same one"
        )

    def _place_locals(self, registers: Registers, scratch: bool) -> None:
        for local in self._locals:
            if (local.arg.memory == "scratch") == scratch:
                name = f"kernel {self.name}: {memory_name(local)}"
                registers[self._places[local]] = ScratchMemory(local.arg.size, name)
                if local in self._watches:
                    watch = Watch(self.name, memory_name(local), self._line_text)
                    registers[self._watches[local]] = watch

    # ------------------------------------------------------------ getting ready
    def _build_segments(self) -> list[tuple[Any, ...]]:
        segments: list[tuple[Any, ...]] = []
        steps: list[Step] = []
        opened: dict[UOp, int] = {}
        for place, uop in enumerate(self.uops):
            if uop.op not in _CONTROL:
                if meeting := self._meeting(place, uop):
                    give, take = meeting
                    segments.extend([(_STEPS, (*steps, give)), (_BARRIER,)])
                    steps = [take]
                    continue
                if exchange := self._exchange(place, uop):
                    give, take = exchange
                    segments.extend([(_STEPS, (*steps, give)), (_EXCHANGE,)])
                    steps = [take]
                    continue
                step = self._step(place, uop)
                if step is not None:
                    steps.append(step)
                if uop.op is not Ops.STORE or self.watch_of(memory_of(uop)) is None:
                    continue
                segments.extend([(_STEPS, tuple(steps)), (_PAUSE,)])
                steps = []
                continue
            if steps:
                segments.append((_STEPS, tuple(steps)))
                steps = []
            at = len(segments)
            if uop.op is Ops.RANGE:
                # a register of its own: the size as it was when the loop began
                limit = self._new_register()
                segments.append((_LOOP, place, self._places[uop.src[0]], limit, None))
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
            self._initial[place] = constant(uop)
            return None
        if op in (Ops.PARAM, Ops.LOCAL, Ops.VARIABLE, Ops.SPECIAL, Ops.INDEX, Ops.AFTER, Ops.SINK):
            return None
        if op is Ops.LOAD and uop.src[0].op is Ops.ACC or op is Ops.ACC:
            return copy(place, sources[0])
        if op is Ops.ACC_SET:
            return copy(sources[0], sources[1])
        if op is Ops.FETCH:
            return self._fetch(uop)
        if op is Ops.COMMIT:
            return commit(self.item_place)
        if op is Ops.WAIT:
            return wait(self.item_place, uop.arg[0])
        if op is Ops.SETTLE:
            return settle(self.item_place, uop.arg[0])
        if op is Ops.LOAD and isinstance(uop.arg, TileArg):
            return name_tile(place, Access(self, uop, uop.dtype), uop.arg)
        if op is Ops.LOAD:
            return load(place, Access(self, uop, uop.dtype))
        if op is Ops.STORE and isinstance(uop.arg, Unordered):
            dtype = uop.src[1].dtype.scalar()
            function = function_for(uop.arg.combine, dtype, (dtype, dtype))
            return combine(sources[1], Access(self, uop, uop.src[1].dtype), function)
        if op is Ops.STORE:
            return store(sources[1], Access(self, uop, uop.src[1].dtype))
        if op is Ops.VECTORIZE:
            return vectorize(place, sources)
        if op is Ops.GEP:
            if len(sources) == 2:
                return take_lanes_of_two(place, sources, uop.arg, uop.src[0].dtype.count)
            return take_lanes(place, sources[0], uop.arg, uop.src[0].dtype.count > 1)
        if op in GroupOp.Elementwise:
            return self._elementwise(place, uop, sources)
        raise SpecError(f"{self.where(uop)}: the PYTHON device does not interpret {op.name}")

    def _meeting(self, place: int, uop: UOp) -> tuple[Step, Step] | None:
        """The same for what a whole group does together, which is a barrier too."""
        function = MEETINGS.get(uop.op)
        if function is None:
            return None
        sources = [self._places[source] for source in uop.src[:-1]]
        return meet(place, sources, self.item_place, partial(function, uop))

    def _exchange(self, place: int, uop: UOp) -> tuple[Step, Step] | None:
        """For what a warp does together: a step that gives, and one that takes its result."""
        sources = [self._places[source] for source in uop.src]
        if uop.op is Ops.WMMA:
            if not isinstance(uop.arg, Fragment):
                raise SpecError(f"{self.where(uop)}: the PYTHON device does not interpret WMMA")
            if uop.arg.in_shared:
                first, second = [(Access(self, load, load.dtype), load.arg) for load in uop.src[:2]]
                return multiply_tiles(place, sources, (first, second), uop.arg)
            return multiply_fragments(place, sources, self.item_place, uop.arg)
        if uop.op is Ops.SHUFFLE:
            return shuffle(place, sources[0], self.item_place, uop.arg)
        if uop.op is Ops.LOAD and isinstance(uop.arg, MatrixArg):
            row = uop.dtype.scalar().vec(16 // uop.dtype.scalar().itemsize)
            return load_matrices(place, Access(self, uop, row), uop.arg)
        return None

    def _fetch(self, uop: UOp) -> Step:
        dtype = uop.src[0].dtype.scalar().vec(uop.arg)
        source = UOp(Ops.LOAD, dtype, (uop.src[1],))
        access = Access(self, source, dtype, uop)
        register = self._new_register()
        target = Access(self, uop, dtype)
        return fetch(load(register, access), store(register, target), target, self.item_place)

    def _elementwise(self, place: int, uop: UOp, sources: list[int]) -> Step:
        lanes = {source.dtype.count for source in uop.src} | {uop.dtype.count}
        if len(lanes) > 1:
            raise SpecError(f"{self.where(uop)}: operands with different lanes, {sorted(lanes)}")
        if uop.tag == "raw" and uop.op in RAW:
            function = raw_function(uop.op, uop.dtype, uop.src[0].dtype, self.where(uop))
        else:
            function = function_for(uop.op, uop.dtype, tuple(source.dtype for source in uop.src))
        return apply(place, function, sources, uop.dtype.count > 1)

    def where(self, uop: UOp) -> str:
        """Where an error happened."""
        return f"kernel {self.name}, line {self._places[uop]} ({uop.op.name} {uop.dtype.name})"

    def _line_text(self, line: int) -> str:
        uop = self.uops[line]
        return (
            f"line {line} ({uop.op.name} {(uop if uop.src[1:] == () else uop.src[1]).dtype.name})"
        )

    def place_of(self, uop: UOp) -> int:
        """The register of a UOp."""
        return self._places[uop]

    def watch_of(self, memory: UOp) -> int | None:
        """The register of a memory's Watch; None if nobody else can touch it."""
        return self._watches.get(memory)


def _take_turns(
    runs: list[Iterator[int]], items: list[WorkItem], chance: random.Random
) -> list[int]:
    """Each work item up to its next barrier or its end, in turns; where each of them stopped.

    An exchange lets the items of a warp go on once all of them have come to it.
    """
    reached = [_DONE] * len(runs)
    running = list(range(len(runs)))
    waiting: dict[int, list[int]] = {}  # items by the number of their warp
    while running:
        turn = int(chance.random() * len(running))
        number = running[turn]
        stop = next(runs[number], _DONE)
        if stop == _PAUSED:
            continue
        reached[number] = stop
        running[turn] = running[-1]
        running.pop()
        warp = items[number].warp
        if stop <= _EXCHANGED and warp is not None:
            together = waiting.setdefault(warp.number, [])
            together.append(number)
            if len(together) == warp.size and len({reached[n] for n in together}) == 1:
                warp.taken, warp.given = Exchange(warp.given), {}
                running += waiting.pop(warp.number)
    return reached


def _thread_numbers(
    inner: list[UOp], sizes: Mapping[UOp, int], threads: list[tuple[int, ...]]
) -> list[int]:
    """The place of each thread in its group: along x first, then y, then z."""
    strides: dict[UOp, int] = {}
    step = 1
    for special in sorted(inner, key=lambda u: str(u.arg)):
        strides[special] = step
        step *= sizes[special]
    return [
        sum(strides[u] * index for u, index in zip(inner, thread, strict=True))
        for thread in threads
    ]


def _form_warps(items: list[WorkItem], numbers: list[int], size: int) -> None:
    warps: dict[int, Warp] = {}
    for item, number in zip(items, numbers, strict=True):
        item.warp = warps.setdefault(number // size, Warp(number // size))
        item.warp.size += 1
        item.lane = number % size


def _watched(uops: Sequence[UOp], watch_all: bool) -> list[UOp]:
    """The memories in which work items can meet; a program of one item has none."""
    if not any(u.op is Ops.SPECIAL for u in uops):
        return []
    written = {memory_of(u) for u in uops if u.op in (Ops.STORE, Ops.FETCH)}
    return [
        u
        for u in uops
        if u.op is Ops.LOCAL
        and u.arg.memory != "scratch"
        or u.op is Ops.PARAM
        and (watch_all or u in written)
    ]


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
