"""Trial: candidates of one kernel compiled and run on memory of their own.

In: a kernel that is ready to be optimised, a device, candidates. Out: how long each takes, and
whether one computes what another does. Runs in the process of the search, which may die of it;
nothing of the user's is in that process.
Invariant: every candidate starts from the same contents, small numbers whose indices stay inside
of what they index; a kernel that reads what it writes gets them anew before each measurement.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy

from weft.codegen.opt.chosen import choosing
from weft.codegen.opt.moves import Candidate, Space
from weft.codegen.opt.opt import OptError
from weft.codegen.opt.survey import volume
from weft.codegen.pipeline import lower
from weft.device import Buffer, Device, Program
from weft.dtype import DType, dtypes
from weft.engine.programs import facts_of
from weft.machine import Target
from weft.scalar import bits_of, value_of_bits
from weft.uop.node import UOp
from weft.uop.opset import Ops

# a first run that takes this many times the best is not repeated
HOPELESS = 3.0
# repeated until there are so many runs that took so long, or until this is enough of it
LEAST_RUNS, LEAST_SECONDS, ENOUGH_SECONDS = 5, 0.01, 0.2
# rounds of the last comparison, in which the fastest take turns, each for so long; few where a run
# takes long
DUEL_ROUNDS, LEAST_ROUNDS, ROUND_SECONDS, DUEL_SECONDS = 41, 3, 0.001, 2.0
# numbers of a buffer repeat after so many, which divides no usual size
PERIOD = 1_000_003
# how much two orders of summation may differ: units in the last place, times the root of the terms
ROUNDING = 64.0


class Trial:
    """One kernel, its memory, and the programs of the candidates that were compiled so far."""

    def __init__(self, ast: UOp, device: str) -> None:
        self.ast = ast
        self.device = Device[device]
        self.space = Space(ast, self.device.renderer.target)
        params = {u.arg.slot: u for u in ast.toposort() if u.op is Ops.PARAM}
        bounds = index_bounds(ast)
        self._numbers: list[numpy.ndarray] = []
        self._buffers: list[Buffer] = []
        for slot in range(1 + max(params)):
            # what was simplified away is still an argument
            param = params.get(slot)
            dtype, size = (dtypes.uint8, 1) if param is None else (param.dtype, param.arg.size)
            self._numbers.append(numbers(dtype, min(size, PERIOD), slot, bounds.get(slot)))
            self._buffers.append(Buffer(device, size, dtype).allocate())
        order = ast.toposort()
        self._written = sorted({u.src[0].src[0].arg.slot for u in order if u.op is Ops.STORE})
        read = {u.src[0].src[0] for u in order if u.op is Ops.LOAD}
        self._in_place = any([params[slot] in read for slot in self._written])
        self._values = {v.arg.name: (v.arg.lo + v.arg.hi + 1) // 2 for v in ast.variables()}
        self._programs: dict[Candidate, tuple[Program, list[int]]] = {}
        self._fill()

    def _fill(self, slots: Sequence[int] | None = None) -> None:
        for slot in range(len(self._buffers)) if slots is None else slots:
            buffer = self._buffers[slot]
            # of a large buffer not a second copy of it is kept, only what repeats in it
            buffer.copyin(numpy.resize(self._numbers[slot], buffer.size).data)

    # -------------------------------------------------------- running
    def _program(self, candidate: Candidate) -> tuple[Program, list[int]]:
        known = self._programs.get(candidate)
        if known is None:
            known = self._programs[candidate] = self._compile(candidate)
        return known

    def _compile(self, candidate: Candidate) -> tuple[Program, list[int]]:
        def choose(ast: UOp, target: Target) -> UOp:
            if ast is not self.ast:
                # the passes before changed it again: actions would mean other axes
                raise OptError(f"{ast.arg.name} does not stay as it is when it is lowered again")
            return self.space.kernel(candidate)

        with choosing(choose):
            spec = lower(self.ast, self.device.renderer)
        facts = facts_of(spec)
        program = self.device.load(facts, self.device.compiler.compile(spec.src))
        return program, [self._values[name] for name in facts.variables]

    def _run(self, candidate: Candidate) -> float:
        program, values = self._program(candidate)
        seconds = program(self._buffers, values, wait=True)
        assert seconds is not None
        return seconds

    def measure(self, candidate: Candidate, best: float = math.inf) -> float:
        """Seconds of one run, the least of several; of a first one if it is far above `best`."""
        self._program(candidate)
        if self._in_place:
            self._fill(self._written)
        least = self._run(candidate)
        if least > HOPELESS * best:
            return least
        started = time.perf_counter()
        spent, runs = 0.0, 1
        while spent < ENOUGH_SECONDS and (runs < LEAST_RUNS or spent < LEAST_SECONDS):
            least = min(least, self._run(candidate))
            runs += 1
            spent = time.perf_counter() - started
        return least

    def duel(self, candidates: Sequence[Candidate]) -> list[float]:
        """Seconds of each, measured in turns, so that what else the machine does hits all.

        The least of a round, of which the median: in one lucky round anything may be fast.
        """
        rounds: list[list[float]] = [[] for _ in candidates]
        begun = time.perf_counter()
        for number in range(DUEL_ROUNDS):
            if number >= LEAST_ROUNDS and time.perf_counter() - begun > DUEL_SECONDS:
                break
            for place, candidate in enumerate(candidates):
                if self._in_place:
                    self._fill(self._written)
                started, least = time.perf_counter(), math.inf
                while True:
                    least = min(least, self._run(candidate))
                    if time.perf_counter() - started > ROUND_SECONDS:
                        break
                rounds[place].append(least)
        return [statistics.median(found) for found in rounds]

    # -------------------------------------------------------- comparing
    def difference(self, candidate: Candidate, reference: Candidate) -> str | None:
        """Where the results of two candidates differ by more than rounding, or None."""
        expected = self._results(reference)
        found = self._results(candidate)
        terms = max([1, *[_terms(u) for u in self.ast.toposort() if u.op is Ops.REDUCE]])
        for slot, left, right in zip(self._written, found, expected, strict=True):
            place = first_difference(left, right, self._buffers[slot].dtype, terms)
            if place is not None:
                return f"element {place} of buffer {slot} is {left[place]!r}, not {right[place]!r}"
        return None

    def _results(self, candidate: Candidate) -> list[numpy.ndarray]:
        self._fill()
        self._run(candidate)
        return [self._buffers[slot].numpy() for slot in self._written]


def _terms(reduce: UOp) -> int:
    return volume(reduce.src[1:])


# ------------------------------------------------------------ contents
def numbers(dtype: DType, count: int, seed: int, bound: int | None = None) -> numpy.ndarray:
    """Small numbers, always the same: floats around 1, integers near 0, indices below `bound`."""
    rng = numpy.random.default_rng(seed)
    kind = numpy.dtype(f"uint{8 * dtype.itemsize}")
    if bound is not None:
        return rng.integers(0, bound, count).astype(kind)
    if dtype.kind == "float":
        values = (0.5 + rng.random(61)).tolist()
    else:
        low = 0 if dtype.kind in ("bool", "uint") else -4
        values = rng.integers(low, 2 if dtype.kind == "bool" else 8, 61).tolist()
    table = numpy.array([bits_of(value, dtype) for value in values], dtype=kind)
    return table[rng.integers(0, len(table), count)]


def index_bounds(ast: UOp) -> dict[int, int]:
    """For each buffer whose numbers are used as indices, how many first indices are all valid."""
    bounds: dict[int, int] = {}
    for place in [u for u in ast.toposort() if u.op is Ops.INDEX]:
        loads = [
            u
            for part in place.src[1:]
            for u in part.toposort()
            if u.op is Ops.LOAD and u.src[0].src[0].op is Ops.PARAM and u.dtype in dtypes.ints
        ]
        if not loads:
            continue
        memory = place.src[0]
        bound = memory.arg.size if memory.op is Ops.PARAM else 1
        while bound > 1 and not (
            _is_inside(place, loads, 0) and _is_inside(place, loads, bound - 1)
        ):
            bound //= 2
        for load in loads:
            slot = load.src[0].src[0].arg.slot
            most = int(load.dtype.max) + 1
            bounds[slot] = min(max(1, bound), most, bounds.get(slot, most))
    return bounds


def _is_inside(place: UOp, loads: list[UOp], value: int) -> bool:
    """Whether the place exists if these loads all give `value`, as far as bounds tell."""
    known = {load: UOp.const(load.dtype, min(value, int(load.dtype.max))) for load in loads}
    memory, index, *valid = [part.substitute(known) for part in place.src]
    if valid and not valid[0].vmax:
        return False
    return bool(index.vmin >= 0 and index.vmax < memory.arg.size)


# ------------------------------------------------------------ differences
def first_difference(
    found: numpy.ndarray, expected: numpy.ndarray, dtype: DType, terms: int
) -> int | None:
    """The first place where results differ: integers at all, floats by more than rounding."""
    if numpy.array_equal(found, expected):
        return None
    if dtype not in dtypes.floats:
        return int((found != expected).argmax())
    left, right = _as_float64(found, dtype), _as_float64(expected, dtype)
    finite = numpy.abs(right[numpy.isfinite(right)])
    scale = float(finite.max()) if finite.size else 0.0
    computed = (
        2.0 ** -dtypes.finfo(dtypes.float64 if dtype is dtypes.float64 else dtypes.float32)[1]
    )
    stored = 2.0 ** -dtypes.finfo(dtype)[1]
    bound = ROUNDING * computed * math.sqrt(terms) * scale + 2 * stored * scale
    with numpy.errstate(invalid="ignore"):
        near = numpy.abs(left - right) <= bound
    equal = near | (left == right) | (numpy.isnan(left) & numpy.isnan(right))
    return None if equal.all() else int((~equal).argmax())


def _as_float64(values: numpy.ndarray, dtype: DType) -> Any:
    """Types that NumPy lacks come as bits."""
    if dtype is dtypes.bfloat16:
        values = (values.astype(numpy.uint32) << 16).view(numpy.float32)
    elif dtype in dtypes.fp8s:
        values = numpy.array([value_of_bits(bits, dtype) for bits in range(256)])[values]
    return values.astype(numpy.float64)
