"""Random programs on several devices, cut in random ways, beside NumPy and beside one device.

What comes in: a seed. What goes out: what differs, and the program that shows it. Its data is put
on 1 to 8 CPU devices, each time whole or cut along a random axis at random places, and some of its
values are cut anew on the way. Numbers are small integers, so that sums in another order are equal
to the last bit.
"""

from __future__ import annotations

import random
import warnings
from typing import Any

from test.fuzz import jit, programs
from test.fuzz.jit_programs import JitProgram
from test.fuzz.world import Program
from weft import Tensor, TinyJit
from weft.errors import DeviceError

MOST = 8
_CONSTRUCTORS = frozenset(
    "empty zeros ones full arange eye linspace rand randn randint uniform normal".split()
)


class Spreading:
    """Stands for `Tensor` in a program: what it makes of data is on several devices."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.devices = tuple([f"CPU:{i}" for i in range(self.rng.randint(1, MOST))])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = Tensor(*args, **kwargs)
        return made if made.device is None else self.spread(made)

    def __getattr__(self, name: str) -> Any:
        found = getattr(Tensor, name)
        if name not in _CONSTRUCTORS:
            return found

        def made(*args: Any, **kwargs: Any) -> Any:
            return self.spread(found(*args, **kwargs))

        return made

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, Tensor)

    def spread(self, tensor: Any) -> Any:
        """A tensor whole on each device, or cut."""
        if not tensor.ndim or self.rng.random() < 0.25 or len(self.devices) == 1:
            return tensor.to(self.devices)
        axis = self.rng.randrange(tensor.ndim)
        size = tensor.shape[axis]
        if not isinstance(size, int):
            return tensor.to(self.devices)
        if self.rng.random() < 0.6:
            return tensor.shard(self.devices, axis)
        cuts = sorted([self.rng.randint(0, size) for _ in self.devices[1:]])
        bounds = [0, *cuts, size]
        sizes = [stop - start for start, stop in zip(bounds, bounds[1:], strict=False)]
        return tensor.shard(self.devices, axis, sizes)


def difference(program: Program, device: str | None = None) -> str | None:
    """What differs between a program on several devices and NumPy, or None."""
    expected = programs.run_numpy(program.statements)
    spreading = Spreading(program.seed)
    names: dict[str, Any] = {**programs.ENVIRONMENT, "Tensor": spreading}
    try:
        found = _run(program, spreading, names)
    except DeviceError as error:
        # numbers of no device that were realized are on the default one, and do not mix
        return None if "CPU and" in str(error) or "and CPU;" in str(error) else str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return programs.compare(expected, found)


def _run(program: Program, spreading: Spreading, names: dict[str, Any]) -> dict[str, Any]:
    for statement in program.statements:
        before = set(names)
        exec(statement.weft, names)
        for name in sorted(set(names) - before):
            value = names[name]
            if not isinstance(value, Tensor) or not isinstance(value.device, tuple):
                continue
            others = [v for k, v in names.items() if isinstance(v, Tensor) and k != name]
            is_view = any([other._cell is value._cell for other in others])
            if not is_view and spreading.rng.random() < 0.1:
                names[name] = spreading.spread(value)
    return {k: v.numpy() for k, v in names.items() if isinstance(v, Tensor)}


def jit_difference(program: JitProgram) -> str | None:
    """What differs between a function under TinyJit on several devices and plainly on one."""
    expected = _jit_run(program, lambda function: function, Tensor)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = _jit_run(program, TinyJit, Spreading(program.seed))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if found == expected:
        return None
    for i, (left, right) in enumerate(zip(found, expected, strict=True)):
        if left != right:
            return f"out[{i}] is {left} instead of {right}"
    return "different"


def _jit_run(program: JitProgram, decorate: Any, maker: Any) -> Any:
    return jit.run(program, decorate, maker)
