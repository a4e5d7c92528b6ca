"""Random functions under TinyJit, every call of them compared with un-jitted execution.

What comes in: a seed. What goes out: a `JitProgram`: a function over arguments, closed-over state
and random numbers, and a list of calls with other values, shapes, views, numbers and variables. It
runs once decorated with TinyJit and once as it is; what it collects must be equal.
All numbers are small integers (also in floats), so every result is exact.
A failing program is shrunk to few lines and prints as code that can be run.
"""

from __future__ import annotations

import gc
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

HEADER = """
class Box:
    def __init__(self, value, scale=1, more=()):
        self.value, self.scale, self.more = value, scale, more

def data(seed, n, kind="stored"):
    values = [float((seed * 7 + k * 3) % 9 - 4) for k in range(n)]
    t = Tensor(values)
    return t.realize() if kind == "stored" else t * 2 - t if kind == "lazy" else t

def small(x):
    return x.clip(-50, 50)
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

    def source(self) -> str:
        """A script that defines `program(decorate)`."""
        lines = [HEADER, STATE, "def program(decorate):", "    state, out = State(), []"]
        lines += ["    v_size = Variable('size', 1, 4)", "    factor = 2"]
        lines += ["    @decorate", "    def helper(x, k):"]
        lines += [f"        {line}" for line in [*self.inner, "return small(x * k + state.scale)"]]
        lines += ["    @decorate", f"    def f({', '.join(self.parameters)}):"]
        lines += [f"        {line}" for line in [*self.body, f"return {self.result}"]]
        lines += [f"    {line}" for line in self.calls]
        lines += ["    out += [state.a, state.b, state.c, state.wide, *state.items, *state.pair]"]
        lines += ["    out += [state.named['x'], state.box.value, state.empty]"]
        return "\n".join([*lines, "    return out"])


def run(program: JitProgram, decorate: Callable[[Any], Any]) -> Any:
    """What the program collects, as plain Python."""
    from weft import Tensor, Variable, dtypes

    environment: dict[str, Any] = {"Tensor": Tensor, "Variable": Variable, "dtypes": dtypes}
    exec(compile(program.source(), f"<jit program {program.seed}>", "exec"), environment)
    Tensor.manual_seed(program.seed)
    return plain(environment["program"](decorate))


def plain(value: Any) -> Any:
    """Tensors as lists, containers as lists, objects as their attributes."""
    from weft import Tensor

    if isinstance(value, Tensor):
        return (str(value.dtype), value.tolist())
    if isinstance(value, dict):
        return {key: plain(child) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(child) for child in value]
    if hasattr(value, "__dict__"):
        return plain(vars(value))
    return value


def difference(program: JitProgram) -> str | None:
    """What differs between jitted and plain execution, or None."""
    from weft import TinyJit
    from weft.errors import ArgumentError

    expected = None
    try:
        expected = run(program, lambda function: function)
    except ArgumentError as error:
        if "in one computation" not in str(error):
            raise
    if expected is None:
        # a variable with other values in calls that are computed together: TinyJit keeps them apart
        gc.collect()
        expected = run(program, eagerly)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = run(program, TinyJit)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if found == expected:
        return None
    for i, (left, right) in enumerate(zip(found, expected, strict=True)):
        if left != right:
            return f"out[{i}] is {left} instead of {right}"
    return "different"


def eagerly(function: Callable[..., Any]) -> Callable[..., Any]:
    """Plain execution that leaves nothing pending."""
    from weft.engine.cell import Cell
    from weft.engine.realize import realize_cells

    def inner(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        pending = [cell for cell in Cell.live if cell.value.device is not None]
        realize_cells(pending, Cell.live)
        return result

    return inner


def shrink(program: JitProgram, fails: Callable[[JitProgram], bool]) -> JitProgram:
    """Leave out lines as long as it still fails."""
    best = program
    for part in ("calls", "body", "inner", "calls", "body"):
        size = max(1, len(getattr(best, part)) // 2)
        while size >= 1:
            start = 0
            while start < len(getattr(best, part)):
                lines = getattr(best, part)
                shorter = _with(best, part, lines[:start] + lines[start + size :])
                if _still(shorter, fails):
                    best = shorter
                else:
                    start += size
            size //= 2
    return best


def _with(program: JitProgram, part: str, lines: list[str]) -> JitProgram:
    fields = {name: getattr(program, name) for name in program.__dataclass_fields__}
    return JitProgram(**{**fields, part: lines})


def _still(program: JitProgram, fails: Callable[[JitProgram], bool]) -> bool:
    try:
        run(program, eagerly)
    except Exception:
        return False
    return fails(program)


class JitGenerator:
    """Makes one random program. Every tensor inside the function has 4 elements, or says so."""

    def __init__(self, seed: int, length: int = 8) -> None:
        self.rng = random.Random(seed)
        self.program = JitProgram(seed)
        self.length = length
        self.names: list[str] = []
        self.count = 0
        self.forms: dict[str, int] = {}

    def run(self) -> JitProgram:
        """Parameters, body, result, calls."""
        rng, program = self.rng, self.program
        kinds = ["x", "y", "n", "flag", "part", "items", "box", "size", "const"]
        chosen = ["x", *[k for k in kinds[1:] if rng.random() < 0.45]]
        self.has = set(chosen)
        defaults = {"n": "n=2", "flag": "flag=False"}
        self.order = [k for k in chosen if k not in defaults]
        self.optional = [k for k in chosen if k in defaults]
        program.parameters = [*self.order, *[defaults[k] for k in self.optional]]
        self.names = ["x"]
        sources = {"y": "y", "part": "part", "const": "x + const", "box": "box.value"}
        for kind, expression in sources.items():
            if kind in self.has:
                self._new(expression)
        if "items" in self.has:
            self._new("items[0]")
            self._new("items[1]['k']")
        for _ in range(rng.randint(2, self.length)):
            self._statement()
        program.result = self._result()
        if rng.random() < 0.3:
            program.inner.append(self.rng.choice(("state.a += 1", "x = x.realize() + 1")))
        # numbers that change at every call become parameters of the kernels
        self.changing = rng.choice(("", ".0")) if rng.random() < 0.1 and "n" in self.has else None
        if self.changing is not None:
            self.changing = self.changing or " "
        for _ in range(rng.randint(16, 24) if self.changing else rng.randint(5, 12)):
            self._call()
        return program

    # ------------------------------------------------------------ the function
    def _new(self, expression: str) -> str:
        name = f"t{self.count}"
        self.count += 1
        self.program.body.append(f"{name} = {expression}")
        self.names.append(name)
        return name

    def _pick(self) -> str:
        return self.rng.choice([*self.names[-5:], "x"])

    def _state(self) -> str:
        return self.rng.choice(
            ("state.a", "state.b", "state.c", "state.items[0]", "state.items[1]", "state.box.value")
            + ("state.named['x']", "state.pair[0]", "state.pair[1]", "state.wide[2:6]")
        )

    def _number(self) -> str:
        choices = ["2", "state.scale", "factor", "state.box.scale", "-1"]
        choices += ["n"] * 3 if "n" in self.has else []
        choices += ["box.scale"] if "box" in self.has else []
        return self.rng.choice(choices)

    def _statement(self) -> None:
        steps = [
            (self._combine, 6),
            (self._unary, 2),
            (self._reduce, 2),
            (self._view, 3),
            (self._read_state, 3),
            (self._assign_state, 3),
            (self._assign_input, 2),
            (self._rebind, 2),
            (self._realize, 2),
            (self._random, 1),
            (self._branch, 1),
            (self._nested, 1),
            (self._made, 1),
            (self._gradient, 1),
            (self._symbolic, 3 if "size" in self.has else 0),
        ]
        self.rng.choice([step for step, weight in steps for _ in range(weight)])()

    def _combine(self) -> None:
        op = self.rng.choice(("+", "-", "*"))
        right = self.rng.choice((self._pick(), self._pick(), self._number()))
        self._new(f"small({self._pick()} {op} {right})")

    def _unary(self) -> None:
        x = self._pick()
        self._new(self.rng.choice((f"-{x}", f"{x}.relu()", f"{x}.abs()", f"{x}.flip(0)")))

    def _reduce(self) -> None:
        x = self._pick()
        self._new(f"small({self._pick()} + {x}.{self.rng.choice(('sum', 'max', 'min'))}())")

    def _view(self) -> None:
        x, y = self._pick(), self._pick()
        self._new(
            self.rng.choice(
                (
                    f"{x}.reshape(2, 2).T.reshape(4)",
                    f"Tensor.cat({x}[:2], {y}[2:])",
                    f"{x}[1:3].pad(((1, 1),))",
                    f"{x}.reshape(2, 2)[:, :1].expand(2, 2).reshape(4)",
                    f"{x}.reshape(4)",
                    f"{x}.detach()",
                )
            )
        )

    def _read_state(self) -> None:
        self._new(f"small({self._pick()} + {self._state()})")

    def _assign_state(self) -> None:
        target, value = self._state(), self._pick()
        self.program.body.append(
            self.rng.choice(
                (
                    f"{target}.assign(small({target} + {value}))",
                    f"{target}.assign({value})",
                    f"{target}[1:3] = {value}[:2]",
                    f"{target}[:2] = {target}[2:]",
                )
            )
        )

    def _assign_input(self) -> None:
        target = self.rng.choice(["x", *[k for k in ("y", "part") if k in self.has]])
        value = self._pick()
        self.program.body.append(
            self.rng.choice(
                (
                    f"{target}.assign(small({value} * 2))",
                    f"{target}[:2] = {value}[1:3]",
                    f"{target} += 1",
                )
            )
        )

    def _rebind(self) -> None:
        value = self._pick()
        self.program.body.append(
            self.rng.choice(
                (
                    f"state.a = small({value} + 1)",
                    f"state.empty = {value}",
                    f"state.pair = (state.pair[1], small({value} - 1))",
                    f"state.items[0] = small({value} + state.items[0])",
                    "state.items[0], state.items[1] = state.items[1], state.items[0]",
                    f"state.named['x'] = {value}",
                    "state.c = state.c.realize() + 1",
                    f"state.b.replace(small({value} + 2))",
                )
            )
        )

    def _realize(self) -> None:
        self.program.body.append(f"{self._pick()}.realize()")

    def _random(self) -> None:
        self._new(f"{self._pick()} + Tensor.randint(4, high=5)")

    def _branch(self) -> None:
        x, y = self._pick(), self._pick()
        conditions = ["state.flag", "state.mode == 'plus'", "factor > 2"]
        conditions += ["flag"] * 3 if "flag" in self.has else []
        conditions += ["n > 1"] if "n" in self.has else []
        self._new(f"{x} if {self.rng.choice(conditions)} else small({y} * 2)")

    def _nested(self) -> None:
        self._new(f"helper({self._pick()}, {self._number()})")

    def _gradient(self) -> None:
        # an argument that is still pending knows what it is computed from, one in memory does not
        x, y = f"{self._pick()}.detach()", f"{self._pick()}.detach()"
        self._new(
            self.rng.choice(
                (
                    f"small(({x} * x + x * x).sum().gradient(x)[0])",
                    f"small(({y} + x * {self._number()}).relu().sum().gradient(x)[0])",
                )
            )
        )

    def _made(self) -> None:
        made = self.rng.choice(
            (
                "Tensor([1.0, 2.0, 0.0, -1.0])",
                "Tensor.ones(4)",
                "Tensor.arange(4)",
                "Tensor.zeros(4)",
            )
        )
        name = self._new(made)
        if self.rng.random() < 0.5:
            self.program.body.append(f"{name} = {name} * 1.0")
            self.program.body.append(f"{name}[1:3] = {self._pick()}[:2]")

    def _symbolic(self) -> None:
        x, y = self._pick(), self._pick()
        self._new(
            self.rng.choice(
                (
                    f"small({y} + {x}[:size].sum())",
                    f"small({y} + ({x}[:size] * 2).realize().max())",
                    f"small({y} + {x}[:size].pad(((1, 4 - size),)).sum())",
                    f"small({x} + size)",
                    f"small({y} * ({x}[:size].reshape(size, 1) * 2).sum())",
                )
            )
        )

    def _result(self) -> str:
        a, b, c = self._pick(), self._pick(), self._pick()
        return self.rng.choice(
            (
                a,
                f"{a}, {b}",
                f"[{a}, [{b}, 3]]",
                f"{{'a': {a}, 'b': ({b}, {c})}}",
                f"Box({a}, 5, [{b}])",
                f"{a}[1:], {a}, {b}.reshape(2, 2), x",
                f"{a}, state.a, Tensor(2), None",
            )
        )

    # ------------------------------------------------------------ the calls
    def _tensor(self, place: str) -> str:
        """Mostly of one form in one place, so that graphs are replayed, with other values."""
        if place not in self.forms or self.rng.random() < 0.1:
            self.forms[place] = self.rng.randrange(13)
        seed = self.rng.randint(0, 20)
        return (
            f"data({seed}, 4)",
            f"data({seed}, 4)",
            f"data({seed}, 4, 'lazy')",
            f"data({seed}, 4, 'new')",
            "last",
            "last",
            "other",
            f"pool[{self.rng.randint(0, 8)}:][:4]",
            f"pool[{2 * self.rng.randint(0, 1)}:][:8:2]",
            f"Tensor.full((4,), {float(seed % 5)})",
            "Tensor.zeros(4)",
            "state.a",
            "state.wide[4:8]",
        )[self.forms[place]]

    def _argument(self, kind: str) -> str:
        rng = self.rng
        if kind == "items":
            return f"[{self._tensor('i0')}, {{'k': {self._tensor('i1')}}}]"
        if kind == "box":
            return f"Box({self._tensor('box')}, {rng.choice((1, 1, 1, 1, 2))})"
        if kind == "size":
            return f"v_size.bind({rng.randint(1, 4)})"
        if kind == "const":
            return rng.choice(("Tensor(1)",) * 6 + ("Tensor(2)", "Tensor(1.0)"))
        return self._tensor(kind)

    def _call(self) -> None:
        rng, calls = self.rng, self.program.calls
        if not calls:
            calls.append("pool = data(11, 16)")
            calls.append("last, other = data(12, 4), data(13, 4)")
        if rng.random() < 0.3:
            calls.append(self._between())
        values = [f"{kind}={self._argument(kind)}" for kind in self.order[1:]]
        if "n" in self.has and self.changing:
            values.append(f"n={self.rng.randint(-9, 9)}{self.changing}")
        elif "n" in self.has and rng.random() < 0.7:
            values.append(f"n={rng.choice((2,) * 9 + (3, 1, 2.0))}")
        if "flag" in self.has and rng.random() < 0.3:
            values.append(f"flag={rng.choice((True, False))}")
        if rng.random() < 0.5:
            rng.shuffle(values)
        calls.append(f"x_ = {self._tensor('x')}")
        calls.append(f"r = f({', '.join(['x_', *values])})")
        calls.append("out += [r, x_]")
        if rng.random() < 0.5:
            calls.append("out.append(plain_now(r))" if rng.random() < 0.3 else "out.append(x_ * 1)")
        if rng.random() < 0.5:
            calls.append("last, other = first_of(r, last), last")

    def _between(self) -> str:
        return self.rng.choice(
            (
                "state.a.assign(state.a + 1)",
                "state.a = data(14, 4)",
                "state.scale = 3 if state.scale == 2 else 2",
                "state.flag = not state.flag",
                "state.mode = 'minus'",
                "factor = 3",
                "state.items.reverse()",
                "state.box = Box(data(15, 4), 4)",
                "state.wide[2:5] = 1",
                "state.named = {'x': data(16, 4), 'n': 1}",
                "pending = state.a * 2; out.append(pending)",
                "pool += 1",
                "out.append(Tensor.randint(2))",
                "last = small(last + other)",
            )
        )


HELPERS = """
def first_of(value, default):
    if isinstance(value, Tensor):
        return value if value.shape == (4,) and value.dtype is dtypes.float32 else default
    if isinstance(value, (list, tuple)) and value:
        return first_of(value[0], default)
    if isinstance(value, dict):
        return first_of(value["a"], default)
    return first_of(value.value, default) if isinstance(value, Box) else default

def plain_now(value):
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain_now(v) for v in value]
    if isinstance(value, dict):
        return [plain_now(v) for v in value.values()]
    return plain_now(value.value) if isinstance(value, Box) else value
"""
HEADER += HELPERS
