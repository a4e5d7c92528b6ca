"""Programs that call a decorated function, as lines of Python.

What comes in: lines. What goes out: `JitProgram`, whose `source` is a script that defines
`program(decorate)`. Where it sits: under the generator that makes such programs at random and the
comparison that runs them.
The one invariant: all numbers are small integers (also in floats), so every result is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field

HEADER = """
import collections, dataclasses, typing

class Pair(typing.NamedTuple):
    left: typing.Any
    right: typing.Any

@dataclasses.dataclass(frozen=True)
class Frozen:
    left: typing.Any
    right: typing.Any

class Slotted:
    __slots__ = ("left", "right")
    def __init__(self, left, right):
        self.left, self.right = left, right

class Box:
    def __init__(self, value, scale=1, more=()):
        self.value, self.scale, self.more = value, scale, more

def data(seed, n, kind="stored"):
    values = [float((seed * 7 + k * 3) % 9 - 4) for k in range(n)]
    t = Tensor(values)
    return t.realize() if kind == "stored" else t * 2 - t if kind == "lazy" else t

def small(x):
    return x.clip(-50, 50)

def scale_of(owner):
    return owner.scale

def first_of(value, default):
    if isinstance(value, Tensor):
        return value if value.shape == (4,) and value.dtype is dtypes.float32 else default
    if isinstance(value, (list, tuple)) and value:
        return first_of(value[0], default)
    if isinstance(value, dict):
        return first_of(value["a"], default)
    if isinstance(value, (Frozen, Slotted)):
        return first_of(value.left, default)
    return first_of(value.value, default) if isinstance(value, Box) else default

def plain_now(value):
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, (list, tuple, collections.deque)):
        return [plain_now(v) for v in value]
    if isinstance(value, dict):
        return [plain_now(v) for v in value.values()]
    if isinstance(value, (Frozen, Slotted)):
        return [plain_now(value.left), plain_now(value.right)]
    return plain_now(value.value) if isinstance(value, Box) else value
"""

STATE = """
class State:
    def __init__(self):
        self.a = data(1, 4)
        self.b = Tensor.zeros(4)
        self.c = data(2, 4, "lazy")
        self.wide = data(3, 12)
        self.scale, self.flag, self.mode = 2, False, "plus"
        self.items = [data(4, 4), data(5, 4)]
        self.named = {"x": data(6, 4), "n": 3}
        self.pair = (data(7, 4), data(8, 4))
        self.box = Box(data(9, 4), 3)
        self.empty = None
        self.weight = data(10, 4)
        self.numbers = [2, 3.0, (1, {"deep": 2})]
"""

# what wider programs use besides: a decorated method, functions to hand over, variables
WIDE = """
    v_length, v_start = Variable('length', 1, 6), Variable('start', 0, 3)
    def plus(x, y):
        return small(x + y * factor)
    def minus(x, y):
        return small(x - y * state.scale)
    class Net:
        def __init__(self, seed, scale):
            self.weight, self.scale, self.last = data(seed, 4), scale, None
        @decorate
        def forward(self, x):
            self.last = small(x * self.scale + self.weight)
            self.weight.assign(small(self.weight + 1))
            return self.last
    nets = [Net(16, 1), Net(17, 2)]
"""


@dataclass
class JitProgram:
    """The lines of the function, and those that call it."""

    seed: int
    parameters: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    result: str = "None"
    inner: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    is_wide: bool = False

    def source(self) -> str:
        """A script that defines `program(decorate)`."""
        lines = [HEADER, STATE, "def program(decorate):", "    state, out = State(), []"]
        lines += ["    v_size = Variable('size', 1, 4)", "    factor = 2"]
        lines += [WIDE] if self.is_wide else []
        lines += ["    @decorate", "    def helper(x, k):"]
        lines += [f"        {line}" for line in [*self.inner, "return small(x * k + state.scale)"]]
        lines += ["    @decorate", f"    def f({', '.join(self.parameters)}):"]
        lines += [f"        {line}" for line in [*self.body, f"return {self.result}"]]
        lines += [f"    {line}" for line in self.calls]
        lines += ["    out += [state.a, state.b, state.c, state.wide, *state.items, *state.pair]"]
        lines += ["    out += [state.named['x'], state.box.value, state.empty]"]
        if self.is_wide:
            lines += ["    out += [state.weight, state.weight.grad]"]
            lines += ["    out += [part for net in nets for part in (net.weight, net.last)]"]
        return "\n".join([*lines, "    return out"])
