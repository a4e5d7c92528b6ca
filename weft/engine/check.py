"""Checks of what kernels do while they run: CHECK_NAN, CHECK_OOB, VALIDATE.

What comes in: launches (their kernel, memory and values), and graphs that index at run time. What
goes out: nothing, or an error that names the kernel or the user's line that is to blame.
Where it sits: beside realize, which asks here once per schedule; nothing runs when no knob is on.
The one invariant: a check changes no result. Errors come when the schedule is through, so that
storage which is written in place is never left half written.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.device import Buffer, Device
from weft.dtype import FORMATS, DType, dtypes, value_of_bits
from weft.engine.prepared import Step
from weft.engine.programs import runner_for
from weft.engine.storage import buffer_of
from weft.errors import IndexingError, SpecError, WeftError
from weft.knobs import CHECK_NAN, CHECK_OOB, DEBUG, VALIDATE, Context
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops
from weft.uop.resolve import sym_infer

# interpreted one op at a time; with VALIDATE=1 kernels above this many ops and bytes are skipped
SMALL_KERNEL = 1 << 20
REFERENCE = "PYTHON"

Launch = Callable[[Step, list[Buffer], dict[str, int]], None]


class NotFiniteError(WeftError, FloatingPointError):
    """A kernel made a NaN or an infinity out of finite numbers (CHECK_NAN=1)."""


class ValidationError(SpecError):
    """A kernel's result is not what the interpreter computes (VALIDATE=1)."""


def where_text(origin: tuple[str, int] | None) -> str:
    """The user's line."""
    return f"{os.path.basename(origin[0])}:{origin[1]}" if origin else "an unknown line"


# ---------------------------------------------------------------- launches


@dataclass
class Checks:
    """What is found during one schedule."""

    found: WeftError | None = None
    indices: list[IndexCheck] = field(default_factory=list)

    def run(
        self, step: Step, arguments: list[Buffer], values: dict[str, int], launch: Launch
    ) -> None:
        """Launch a step, and look at what it did until something is found."""
        watched = (CHECK_NAN or VALIDATE) and Device[step.device].executes
        if step.kernel is None or self.found is not None or not watched:
            launch(step, arguments, values)
            return
        ins, outs = _slots(step.kernel, Ops.LOAD), _slots(step.kernel, Ops.STORE)
        is_clean = bool(CHECK_NAN) and all(_first_not_finite(arguments[i]) is None for i in ins)
        reference = _Reference.of(step, arguments, values) if VALIDATE else None
        launch(step, arguments, values)
        if is_clean:
            self.found = _check_finite(step, arguments, outs)
        if reference is not None and self.found is None:
            self.found = reference.compare(arguments, outs)

    def finish(self, results: Sequence[UOp | None], values: dict[str, int]) -> None:
        """What the values that were computed along say about run-time indices."""
        for i, check in enumerate(self.indices):
            if self.found is None:
                self.found = check.verdict(results[2 * i], results[2 * i + 1], values)

    def report(self) -> None:
        """Raise what was found."""
        if self.found is not None:
            raise self.found


def active_checks() -> Checks | None:
    """What watches the next schedule; None where no knob asks for it."""
    return Checks() if CHECK_NAN or CHECK_OOB or VALIDATE else None


def _slots(kernel: UOp, op: Ops) -> list[int]:
    """The slots that LOADs or STOREs touch."""
    memories = {u.src[0].src[0] for u in kernel.toposort() if u.op is op}
    return sorted({m.arg.slot for m in memories if m.op is Ops.PARAM})


# ---------------------------------------------------------------- CHECK_NAN


def _first_not_finite(buffer: Buffer) -> tuple[int, float, int] | None:
    """Place and value of the first NaN or infinity, and how many there are."""
    import numpy

    if buffer.dtype.kind != "float" or buffer.size == 0:
        return None
    numbers = buffer.numpy()
    if numbers.dtype.kind == "f":
        bad = ~numpy.isfinite(numbers)
    else:
        # a type that NumPy lacks comes as its bits, of which there are few
        patterns = [b for b in numpy.unique(numbers) if not _is_finite(int(b), buffer.dtype)]
        bad = numpy.isin(numbers, patterns)
    if not bad.any():
        return None
    place = int(bad.argmax())
    value = numbers[place]
    shown = float(value) if numbers.dtype.kind == "f" else value_of_bits(int(value), buffer.dtype)
    return place, float(shown), int(bad.sum())


def _is_finite(bits: int, dtype: DType) -> bool:
    return math.isfinite(float(value_of_bits(bits, dtype)))


def _check_finite(step: Step, arguments: list[Buffer], outs: list[int]) -> WeftError | None:
    for slot in outs:
        found = _first_not_finite(arguments[slot])
        if found is None:
            continue
        place, value, count = found
        name = step.runner.name if step.runner is not None else "?"
        return NotFiniteError(
            f"CHECK_NAN: kernel {name} on {step.device}, from {where_text(step.origin)}, made "
            f"{count} NaN or inf of finite inputs: element {place} of its buffer {slot} "
            f"({arguments[slot].dtype}, {arguments[slot].size} elements) is {value}"
        )
    return None


# ---------------------------------------------------------------- VALIDATE


@dataclass
class _Reference:
    """A launch on the interpreter, with memory as it was before the real one."""

    step: Step
    kernel: UOp
    values: dict[str, int]
    before: list[bytes]
    arguments: list[Buffer]

    @staticmethod
    def of(step: Step, arguments: list[Buffer], values: dict[str, int]) -> _Reference | None:
        """The same launch on the interpreter; None if it is the interpreter's, or is too long."""
        runner, kernel = step.runner, step.kernel
        if runner is None or kernel is None or step.device.startswith(REFERENCE):
            return None
        work = sym_infer(runner.ops, values) + sym_infer(runner.mem, values)
        if work > SMALL_KERNEL and VALIDATE < 2:
            if DEBUG >= 1:
                print(f"VALIDATE: kernel {runner.name} is too long; VALIDATE=2 checks it too")
            return None
        before = [bytes(a.as_memoryview()) for a in arguments]
        return _Reference(step, kernel, values, before, arguments)

    def run(self, kernel: UOp) -> list[Buffer]:
        """What memory holds after the kernel on the interpreter."""
        buffers = [
            Buffer(REFERENCE, a.size, a.dtype).copyin(data)
            for a, data in zip(self.arguments, self.before, strict=True)
        ]
        with Context(NOOPT=1):
            runner = runner_for(kernel, REFERENCE)
        runner(buffers, self.values, False)
        return buffers

    def compare(self, arguments: list[Buffer], outs: list[int]) -> WeftError | None:
        """What differs, if something does."""
        expected = self.run(self.kernel)
        for slot in outs:
            place = _first_difference(arguments[slot], expected[slot])
            if place is None:
                continue
            terms, length = sum_of_absolutes(self.kernel)
            if terms is not self.kernel:
                spread = self.run(terms)[slot]
                allowed = 4 * math.sqrt(length)
                place = _first_difference(arguments[slot], expected[slot], spread, allowed)
            if place is not None:
                return self._differs(slot, place, arguments[slot], expected[slot])
        return None

    def _differs(self, slot: int, place: int, found: Buffer, expected: Buffer) -> WeftError:
        name = self.step.runner.name if self.step.runner is not None else "?"
        shown = [_numbers(buffer)[place] for buffer in (found, expected)]
        return ValidationError(
            f"VALIDATE: kernel {name} on {self.step.device}, from {where_text(self.step.origin)}, "
            f"is wrong: element {place} of its buffer {slot} ({found.dtype}, {found.size} "
            f"elements) is {shown[0]}, but {shown[1]} on {REFERENCE}"
        )


def sum_of_absolutes(kernel: UOp) -> tuple[UOp, int]:
    """The kernel with every sum of floats over absolute values, and the longest such sum.

    A sum may be added in any order; by how much it then differs depends on the size of its terms.
    """
    changed: dict[UOp, UOp] = {}
    longest = 1
    for node in kernel.toposort():
        src = tuple([changed[s] for s in node.src])
        if node.op is Ops.REDUCE and node.arg is Ops.ADD and dtypes.is_float(node.dtype):
            size = math.prod(int(axis.src[0].vmax) for axis in node.src[1:])
            longest = max(longest, size)
            src = (
                UOp(Ops.MAX, node.dtype, (src[0], UOp(Ops.NEG, node.dtype, (src[0],)))),
                *src[1:],
            )
        changed[node] = node if src == node.src else node.with_src(src)
    return changed[kernel], longest


# rtol and atol of torch.testing.assert_close
_TOLERANCES: dict[DType, tuple[float, float]] = {
    dtypes.float64: (1e-7, 1e-7),
    dtypes.float32: (1.3e-6, 1e-5),
    dtypes.float16: (1e-3, 1e-5),
    dtypes.bfloat16: (1.6e-2, 1e-5),
}


def _numbers(buffer: Buffer) -> Any:
    """The contents as numbers; narrow floats that NumPy lacks are widened."""
    import numpy

    found = buffer.numpy()
    if buffer.dtype.kind != "float" or found.dtype.kind == "f":
        return found
    return numpy.array([float(value_of_bits(int(b), buffer.dtype)) for b in found])


def _epsilon(dtype: DType) -> float:
    return float(2.0 ** -FORMATS[dtype].mantissa_bits)


def _first_difference(
    found: Buffer, expected: Buffer, terms: Buffer | None = None, allowed: float = 0.0
) -> int | None:
    """The first element that differs: ints and bools to the bit, floats beyond rounding."""
    import numpy

    left, right = _numbers(found), _numbers(expected)
    if found.dtype.kind != "float":
        bad = left != right
    else:
        left, right = left.astype(numpy.float64), right.astype(numpy.float64)
        relative, absolute = _TOLERANCES.get(found.dtype, (2 * _epsilon(found.dtype), 1e-5))
        with numpy.errstate(all="ignore"):
            limit = absolute + relative * numpy.abs(right)
            if terms is not None:
                size = numpy.abs(_numbers(terms).astype(numpy.float64))
                limit = numpy.maximum(limit, allowed * _epsilon(found.dtype) * size)
            same = (left == right) | (numpy.isnan(left) & numpy.isnan(right))
            bad = ~(same | (numpy.isfinite(right) & (numpy.abs(left - right) <= limit)))
    return int(bad.argmax()) if bad.any() else None


# ---------------------------------------------------------------- CHECK_OOB


@dataclass(frozen=True)
class IndexCheck:
    """A tensor of run-time indices, the size of the axis it indexes, and whose line it is."""

    index: UOp
    size: Any
    axis: int
    origin: tuple[str, int] | None

    def extremes(self) -> tuple[UOp, UOp]:
        """The greatest index, and the bits of the least one turned over."""
        axes = tuple(range(len(self.index.shape)))
        flipped = self.index.alu(Ops.XOR, self.index.const_like(-1))
        return _greatest(self.index, axes), _greatest(flipped, axes)

    def verdict(
        self, most: UOp | None, least: UOp | None, values: dict[str, int]
    ) -> WeftError | None:
        """The error, if an index is outside."""
        if most is None or least is None:
            return None
        size = sym_infer(self.size, values)
        high, low = _number_in(most), _turned_over(_number_in(least), self.index.dtype)
        if -size <= low and high < size:
            return None
        wrong = high if high >= size else low
        return IndexingError(
            f"CHECK_OOB: index {wrong} at {where_text(self.origin)} is outside axis {self.axis} of "
            f"size {size}: it must be from {-size} to {size - 1}"
        )


def _greatest(value: UOp, axes: tuple[int, ...]) -> UOp:
    return value._reduce_axis(Ops.MAX, axes) if axes else value


def _number_in(storage: UOp) -> int:
    return int(buffer_of(storage).numpy()[0])


def _turned_over(bits: int, dtype: DType) -> int:
    return int(dtype.max) - bits if dtype.kind == "uint" else -1 - bits


def with_index_checks(sink: UOp, checks: Checks) -> UOp:
    """SINK(values) with the extremes of all run-time indices as further values.

    An index that its bounds prove inside is not looked at.
    """
    if not CHECK_OOB:
        return sink
    for node in sink.toposort():
        if node.op is not Ops.GATHER:
            continue
        for axis, source in zip(node.arg, node.src[1:], strict=True):
            size = node.src[0].shape[axis]
            index = _without_nowhere(source, size)
            if not _is_inside(index, size):
                checks.indices.append(IndexCheck(index, size, axis, node.origin or source.origin))
    extra = [value for check in checks.indices for value in check.extremes()]
    return sink.with_src((*sink.src, *extra)) if extra else sink


def _without_nowhere(index: UOp, size: Any) -> UOp:
    """where(condition, place, a number outside) -> where(condition, place, 0)

    Such a number is how to say "nowhere" on purpose; only what is computed may be a mistake.
    """
    changes: dict[UOp, UOp] = {}
    for node in index.toposort(gate=lambda u: u.op in _TRAVELS):
        if node.op is not Ops.WHERE:
            continue
        src = [_zero_if_outside(branch, size) for branch in node.src[1:]]
        if (*src,) != node.src[1:]:
            changes[node] = node.with_src((node.src[0], *src))
    return index.substitute(changes)


# ops that hand an index on as it is
_TRAVELS = GroupOp.Movement | {Ops.CAST, Ops.CONTIGUOUS, Ops.DETACH, Ops.WHERE}


def _zero_if_outside(branch: UOp, size: Any) -> UOp:
    number = branch
    while number.op in GroupOp.Movement:
        number = number.src[0]
    if number.op is not Ops.CONST:
        return branch
    most = size if isinstance(size, int) else size.vmax
    return (
        branch if -most <= number.arg < most else branch.substitute({number: number.const_like(0)})
    )


def _is_inside(index: UOp, size: Any) -> bool:
    """Whether there is nothing to look at: no index at all, or bounds that say enough."""
    if any(isinstance(s, int) and s == 0 for s in index.shape):
        return True
    least = size if isinstance(size, int) else size.vmin
    return bool(-least <= index.vmin and index.vmax < least)
