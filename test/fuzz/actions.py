"""Random legal actions on random kernels: every sequence must compute what the plain kernel does.

In: a seed. Out: a `Case`: a kernel (built by hand, or taken from the schedule of a random program),
its memory, and actions that were accepted. `difference` lowers and runs both; a failing sequence is
shrunk to the actions that matter, the last of which is to blame, and prints as code that can be
run. All numbers are small and whole, so that results are equal to the last bit.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from test.codegen.kernel_builder import interpret
from test.codegen.opt.kernels import KERNELS
from test.fuzz.programs import ENVIRONMENT, Generator
from weft import Tensor
from weft.codegen.opt import Opt, OptOps
from weft.codegen.opt.actions import apply_opt
from weft.codegen.opt.axes import all_axes
from weft.codegen.opt.opt import OptError
from weft.codegen.pipeline import lower
from weft.device import Buffer
from weft.dtype import from_numpy_dtype, to_numpy_dtype
from weft.engine.programs import runner_for
from weft.errors import WeftError
from weft.knobs import Context
from weft.machine import Target
from weft.renderer.python import PythonRenderer
from weft.runtime.ops_python import TARGETS
from weft.uop.args import AxisType
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.reproduce import graph_rows

THREADED = Target(name="fuzz", has_threads=True, cores=4, vector_bytes=32)
GROUPED = TARGETS["sm_90"]
# written-out axes multiply: beyond this a program is no longer a small one
COPIES_AT_MOST = 256
_WRITTEN_OUT = (AxisType.UPCAST, AxisType.UNROLL, AxisType.VECTOR)


@dataclass(frozen=True, eq=False)
class Case:
    """A kernel, what its buffers hold, and what is done to it."""

    seed: int
    ast: UOp
    arrays: tuple[np.ndarray, ...]
    opts: tuple[Opt, ...] = ()
    target: Target = THREADED

    def optimised(self) -> UOp:
        """The kernel after the actions."""
        ast = self.ast
        for opt in self.opts:
            ast = apply_opt(ast, opt, self.target)
        return ast

    def source(self) -> str:
        """Code that shows the difference."""
        opts = ", ".join(map(repr, self.opts))
        return (
            f"# python -m test.fuzz actions --seed {self.seed} --count 1\n"
            "import numpy as np\n"
            "from test.fuzz.actions import GROUPED, THREADED, Case, difference\n"
            "from weft.codegen.opt import Opt, OptOps\n"
            "from weft.uop.reproduce import parse_rows\n"
            f"ast = parse_rows('''\n{graph_rows(self.ast)}''')\n"
            f"arrays = {[(a.tolist(), str(a.dtype)) for a in self.arrays]!r}\n"
            f"case = Case({self.seed}, ast, tuple(np.array(v, d) for v, d in arrays), ({opts},), "
            f"target={'GROUPED' if self.target is GROUPED else 'THREADED'})\n"
            "print(difference(case))"
        )


# ------------------------------------------------------------ kernels


def random_case(
    seed: int, length: int = 5, target: str | None = None, draws_target: bool = True
) -> Case:
    """A kernel and a legal sequence of actions on it, for a target or for any."""
    rng = random.Random(seed)
    ast, arrays = _scheduled_kernel(rng) if rng.random() < 0.5 else _built_kernel(rng)
    case = Case(seed, ast, tuple(arrays), target=_random_target(seed, target, draws_target))
    opts: list[Opt] = []
    for _ in range(12 * length):
        opt = random_opt(rng, ast)
        try:
            new = apply_opt(ast, opt, case.target)
        except OptError:
            continue
        if _copies(new) > COPIES_AT_MOST:
            continue
        ast = new
        opts.append(opt)
        if len(opts) >= length:
            break
    return replace(case, opts=tuple(opts))


def _random_target(seed: int, name: str | None, draws: bool) -> Target:
    """The target of a name; else threads of a CPU or, as often, groups of a GPU."""
    if name is not None or not draws:
        return THREADED if name is None else TARGETS[name]
    return random.Random(f"target {seed}").choice([THREADED, GROUPED])


def _built_kernel(rng: random.Random) -> tuple[UOp, list[np.ndarray]]:
    ast, arrays = rng.choice(KERNELS)(rng, rng.choice([3, 6, 9]))
    return ast, [array.reshape(-1) for array in arrays]


def _scheduled_kernel(rng: random.Random) -> tuple[UOp, list[np.ndarray]]:
    """A kernel of a random program, over memory of small whole numbers."""
    while True:
        program = Generator(rng.getrandbits(32), 8).run()
        env: dict[str, Any] = dict(ENVIRONMENT)
        for statement in program.statements:
            exec(statement.weft, env)
        tensors = [value for value in env.values() if isinstance(value, Tensor)]
        kernels = [item.kernel for tensor in tensors[-3:] for item in tensor.schedule()]
        found = [ast for ast in kernels if ast is not None and _is_small(ast)]
        if found:
            ast = rng.choice(found)
            return ast, _memory(ast, rng)


def _is_small(ast: UOp) -> bool:
    nodes = ast.toposort()
    if not ast.arg.optimise or any(u.op is Ops.VARIABLE for u in nodes):
        # codegen takes no action on kernels that write in order; variables would need values
        return False
    if any(u.op is Ops.LOAD for store in ast.src for u in store.src[0].toposort()):
        # indices that were promised to be unique: random ones would not be
        return False
    axes = [u for u in nodes if u.op is Ops.RANGE]
    sizes = [axis.src[0] for axis in axes]
    return all(s.op is Ops.CONST for s in sizes) and np.prod([s.arg for s in sizes]) <= 5000


def _memory(ast: UOp, rng: random.Random) -> list[np.ndarray]:
    params = {u.arg.slot: u for u in ast.toposort() if u.op is Ops.PARAM}
    numbers = np.random.default_rng(rng.getrandbits(32))
    arrays = []
    for slot in range(max(params) + 1):
        dtype, size = params[slot].dtype, params[slot].arg.size
        low, high = (0, 2) if dtype.kind in ("bool", "uint") else (-3, 4)
        arrays.append(numbers.integers(low, high, size).astype(to_numpy_dtype(dtype)))
    return arrays


def random_opt(rng: random.Random, ast: UOp) -> Opt:
    """Any action on any axis; most are refused."""
    axes = [axis.arg.number for axis in all_axes(ast)] or [(0,)]
    op = rng.choice([op for op in OptOps if op is not OptOps.TC])
    axis = rng.choice(axes)
    if op is OptOps.STAGE:
        names = rng.sample(axes, min(len(axes), rng.randint(1, 3)))
        return Opt(op, rng.randint(0, 3), tuple(names))
    if op in (OptOps.SWAP, OptOps.MERGE):
        return Opt(op, axis, rng.choice(axes))
    if op is OptOps.THREAD:
        return Opt(op, axis, (rng.choice(axes),) if rng.random() < 0.3 else None)
    return Opt(op, axis, rng.choice([0, 2, 3, 4, 5, 7, 8]))


def _copies(ast: UOp) -> int:
    axes = [axis for axis in all_axes(ast) if axis.arg.kind in _WRITTEN_OUT]
    return int(np.prod([axis.src[0].arg for axis in axes]))


# ------------------------------------------------------------ running


def run(ast: UOp, case: Case, device: str | None = None) -> list[np.ndarray]:
    """What memory holds after the kernel as it stands: interpreted, or on a device."""
    if device is not None:
        return _run_on(device, ast, case)
    return _interpreted(ast, case, case.target)


def _interpreted(ast: UOp, case: Case, target: Target | None = None) -> list[np.ndarray]:
    arrays = [array.copy() for array in case.arrays]
    with Context(NOOPT=1):
        program = lower(ast, PythonRenderer(target))
    interpret(program.uops, arrays)
    return arrays


def _run_on(device: str, ast: UOp, case: Case) -> list[np.ndarray]:
    buffers = [
        Buffer(device, array.size, from_numpy_dtype(array.dtype)).copyin(array.copy().data)
        for array in case.arrays
    ]
    with Context(NOOPT=1):
        runner = runner_for(ast, device)
    count = 1 + max(u.arg.slot for u in ast.toposort() if u.op is Ops.PARAM)
    runner(buffers[:count], {}, True)
    return [buffer.numpy() for buffer in buffers]


def difference(case: Case, device: str | None = None) -> str | None:
    """What the actions change, or None."""
    expected = _interpreted(case.ast, case)
    try:
        found = run(case.optimised(), case, device)
    except WeftError as error:
        return f"{type(error).__name__}: {error}"
    for slot, (left, right) in enumerate(zip(found, expected, strict=True)):
        if not np.array_equal(left, right, equal_nan=left.dtype.kind == "f"):
            place = int((left != right).argmax())
            return (
                f"after {case.opts[-1] if case.opts else 'no action'!r} element {place} of buffer "
                f"{slot} is {left[place]} instead of {right[place]}"
            )
    return None


def shrink(case: Case, fails: Callable[[Case], bool]) -> Case:
    """Leave out actions as long as the rest is legal and still fails; the last one is to blame."""
    opts = list(case.opts)
    place = 0
    while place < len(opts):
        shorter = replace(case, opts=tuple(opts[:place] + opts[place + 1 :]))
        if _is_legal(shorter) and fails(shorter):
            opts = list(shorter.opts)
        else:
            place += 1
    # what comes after the first wrong result is not needed to see it
    for count in range(len(opts)):
        first = replace(case, opts=tuple(opts[: count + 1]))
        if fails(first):
            return first
    return replace(case, opts=tuple(opts))


def _is_legal(case: Case) -> bool:
    try:
        case.optimised()
    except OptError:
        return False
    return True


def check_seed(
    seed: int, device: str | None = None, length: int = 5, target: str | None = None
) -> str | None:
    """A report with code if the case of a seed shows a difference."""
    # what runs on a device is what it can run: groups of threads are interpreted
    case = random_case(seed, length, target, draws_target=device is None)
    if difference(case, device) is None:
        return None
    small = shrink(case, lambda c: difference(c, device) is not None)
    return f"seed {seed}: {difference(small, device)}\n{small.source()}"
