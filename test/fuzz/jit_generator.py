"""Random programs around a jitted function.

What comes in: a seed. What goes out: a `JitProgram`: a function over arguments, closed-over state
and random numbers, and a list of calls with other values, shapes, views, numbers and variables.
Where it sits: between the programs and the comparison with plain execution.
The one invariant: a seed always gives the same program; every tensor inside the function has 4
elements, or says so.
"""

from __future__ import annotations

import random

from test.fuzz.jit_programs import JitProgram

# forms that a tensor among the arguments takes
_FORMS = 13
_WIDE_FORMS = 17


class JitGenerator:
    """Makes one random program; `is_wide`: with more kinds of arguments, statements and results."""

    def __init__(self, seed: int, length: int = 8, is_wide: bool = True) -> None:
        self.rng = random.Random(seed)
        self.is_wide = is_wide
        self.program = JitProgram(seed, is_wide=is_wide)
        self.length = length
        self.names: list[str] = []
        self.count = 0
        self.forms: dict[str, int] = {}

    def run(self) -> JitProgram:
        """Parameters, body, result, calls."""
        rng, program = self.rng, self.program
        kinds = ["x", "y", "n", "flag", "part", "items", "box", "size", "const"]
        likely = 0.45
        if self.is_wide:
            kinds += ["z", "pair", "mode", "join", "some", "m", "start"]
            likely = 0.3
        chosen = ["x", *[k for k in kinds[1:] if rng.random() < likely]]
        self.has = set(chosen)
        defaults = {"n": "n=2", "flag": "flag=False", "mode": "mode='plus'", "m": "m=1.0"}
        self.order = [k for k in chosen if k not in defaults]
        self.optional = [k for k in chosen if k in defaults]
        program.parameters = [*self.order, *[defaults[k] for k in self.optional]]
        # of a quiet program most calls are alike, so that its graphs are replayed
        self.is_quiet = self.is_wide and rng.random() < 0.7
        self.settled: dict[str, str] = {}
        self.names = ["x"]
        sources = {"y": "y", "part": "part", "const": "x + const", "box": "box.value"}
        sources |= {"pair": "small(pair[0] - pair[1])", "join": "join(x, 2)"}
        sources["some"] = "small(x + some.sum())"
        sources["z"] = "small(x + z.sum())"
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
        likely = 0.25 if self.is_wide else 0.1
        is_changing = rng.random() < likely and "n" in self.has
        self.changing = (rng.choice(("", ".0")) or " ") if is_changing else None
        count = rng.randint(16, 24) if self.changing else rng.randint(5, 12)
        for _ in range(count + (4 if self.is_quiet else 0)):
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
        choices += ["m"] * 2 if "m" in self.has else []
        if self.is_wide:
            choices += ["state.numbers[0]", "state.named['n']", "state.numbers[2][1]['deep']"]
            choices += ["getattr(state, 'scale')", "vars(state)['scale']", "scale_of(state.box)"]
            choices += ["[state][0].box.scale", "scale_of(*[state])"]
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
        if self.is_wide:
            steps += [
                (self._shaped, 3 if "z" in self.has else 0),
                (self._part_of_some, 3 if "some" in self.has else 0),
                (self._place, 3 if "start" in self.has else 0),
                (self._structured, 3 if "pair" in self.has else 0),
                (self._loop, 1),
                (self._method, 1),
                (self._train, 1),
                (self._cast, 1),
                (self._joined, 2 if "join" in self.has else 0),
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
        conditions += ["mode == 'minus'"] * 3 if "mode" in self.has else []
        conditions += ["len(z.shape) > 1"] if "z" in self.has else []
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

    def _shaped(self) -> None:
        """An argument whose shape and dtype differ between calls."""
        x = self._pick()
        self._new(
            self.rng.choice(
                (
                    f"small({x} + z.max())",
                    f"small({x} + z.flatten()[:1].cast(dtypes.float32))",
                    f"small({x} * (z * 2).realize().sum().cast(dtypes.float32))",
                    f"small({x} + len(z.shape))",
                )
            )
        )

    def _part_of_some(self) -> None:
        """An argument of symbolic shape."""
        x, y = self._pick(), self._pick()
        self._new(
            self.rng.choice(
                (
                    f"small({x} + (some * 2).max())",
                    f"small({x} + (some + 1).realize().sum())",
                    f"small({x} + (some.reshape(1, some.shape[0]) * {y}.reshape(4, 1)).sum(1))",
                    f"small({x} + some.pad(((2, 1),)).sum())",
                )
            )
        )

    def _place(self) -> None:
        """Read or write at a place that is known at run time only."""
        x = self._pick()
        write = f"state.wide[start : start + 4].assign(small({x} + 1))"
        if self.rng.random() < 0.5:
            self.program.body.append(write)
            return
        self._new(
            self.rng.choice(
                (
                    f"small({x} + state.wide[start : start + 4])",
                    f"small({x} + state.wide[: start + 1].sum())",
                    f"small({x} + state.wide.shrink(((start, start + 4),)) * start)",
                )
            )
        )

    def _structured(self) -> None:
        x = self._pick()
        self._new(
            self.rng.choice(
                (
                    f"small({x} + pair[1])",
                    f"small({x} * sum(part.sum() for part in pair))",
                    f"Tensor.stack(*pair).sum(0).clip(-50, 50) + {x} * 0",
                )
            )
        )

    def _loop(self) -> None:
        """Over a container of the state, or a few times."""
        name = self._new(f"{self._pick()} * 1")
        loop = self.rng.choice(
            ("each in state.items", "each in state.named.values()", "each in state.pair")
            + ("each in range(3)", "each in (2.0, 3.0)")
        )
        self.program.body.append(f"for {loop}: {name} = small({name} + each)")

    def _method(self) -> None:
        self._new(f"nets[{self.rng.randint(0, 1)}].forward({self._pick()})")

    def _train(self) -> None:
        """A step of descent on state, its gradient left behind or taken away."""
        x = f"{self._pick()}.detach()"
        self.program.body.append("state.weight.grad = None")
        self.program.body.append(f"(state.weight * small({x})).sum().backward()")
        self.program.body.append("state.weight.assign(small(state.weight - state.weight.grad))")
        if self.rng.random() < 0.5:
            self.program.body.append("state.weight.grad = None")

    def _cast(self) -> None:
        kind = self.rng.choice(("int32", "int64", "float16", "bool", "uint8"))
        self._new(f"{self._pick()}.cast(dtypes.{kind}).cast(dtypes.float32)")

    def _joined(self) -> None:
        self._new(f"join({self._pick()}, {self._pick()})")

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
        more = [f"Pair({a}, [{b}])", f"Frozen({a}, {{'k': {b}}})", f"Slotted({a}, {b})"]
        more += [f"[{a}, {a}, ({b},)]", f"{a}, nets[0].last", f"{{2: {a}, 'a': {b}}}"]
        more += [f"collections.deque([{a}, {b}])", f"{a}, state.weight.grad, 2.5"]
        more += [f"{a}, some * 2"] * 4 if "some" in self.has else []
        more += [f"{a}, z * 2, z"] * 4 if "z" in self.has else []
        more += [f"{a}, pair, pair[0]"] * 4 if "pair" in self.has else []
        if self.is_wide and self.rng.random() < 0.6:
            return self.rng.choice(more)
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
        if place not in self.forms or self.rng.random() < (0.01 if self.is_quiet else 0.1):
            self.forms[place] = self.rng.randrange(_WIDE_FORMS if self.is_wide else _FORMS)
        if place == "x" and self.forms[place] >= _FORMS:
            # the others are other names of it
            self.forms[place] = 0
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
            "x_",
            "x_.reshape(2, 2).reshape(4)",
            "state.weight",
            f"wide_pool[{self.rng.randint(0, 3)}]" if self.is_wide else "",
        )[self.forms[place]]

    def _argument(self, kind: str) -> str:
        rng = self.rng
        if kind == "items":
            return f"[{self._tensor('i0')}, {{'k': {self._tensor('i1')}}}]"
        if kind == "box":
            scales = (1,) * (24 if self.is_quiet else 4)
            return f"Box({self._tensor('box')}, {rng.choice((*scales, 2))})"
        if kind == "size":
            return f"v_size.bind({rng.randint(1, 4)})"
        if kind == "start":
            return f"v_start.bind({rng.randint(0, 3)})"
        if kind == "const":
            return rng.choice(
                ("Tensor(1)",) * (40 if self.is_quiet else 6) + ("Tensor(2)", "Tensor(1.0)")
            )
        if self.is_wide and kind in ("z", "pair", "join", "some"):
            return self._wide_argument(kind)
        return self._tensor(kind)

    def _wide_argument(self, kind: str) -> str:
        """Of another shape, structure or symbolic size; mostly of one in one program."""
        rng = self.rng
        if kind == "join":
            return rng.choice(("plus",) * (24 if self.is_quiet else 4) + ("minus",))
        if kind == "some":
            return f"pool[:v_length.bind({rng.randint(1, 6)})]"
        if kind not in self.forms or rng.random() < (0.02 if self.is_quiet else 0.15):
            self.forms[kind] = rng.randrange(6)
        seed = rng.randint(0, 20)
        if kind == "pair":
            parts = f"{self._tensor('left')}, {self._tensor('right')}"
            kinds = ("Pair(*{})", "{}", "list({})", "collections.deque({})", "Pair(*{})", "{}")
            return kinds[self.forms[kind]].format(f"({parts})")
        return (
            f"data({seed}, 4)",
            f"data({seed}, 6).reshape(2, 3)",
            f"data({seed}, 8).reshape(2, 2, 2)",
            f"data({seed}, 3).cast(dtypes.int32)",
            f"data({seed}, 6).reshape(2, 3).T",
            f"data({seed}, 1).reshape(())",
        )[self.forms[kind]]

    def _call(self) -> None:
        rng, calls = self.rng, self.program.calls
        if not calls:
            calls.append("pool = data(11, 16)")
            calls.append("last, other = data(12, 4), data(13, 4)")
            if self.is_wide:
                calls.append("wide_pool = data(18, 16).reshape(4, 4)")
        if rng.random() < (0.15 if self.is_quiet else 0.3):
            calls.append(self._between())
        values = [f"{kind}={self._argument(kind)}" for kind in self.order[1:]]
        values += self._numbers()
        if rng.random() < 0.5:
            rng.shuffle(values)
        calls.append(f"x_ = {self._tensor('x')}")
        calls.append(f"r = f({', '.join(['x_', *values])})")
        calls.append("out += [r, x_]")
        if rng.random() < 0.5:
            calls.append("out.append(plain_now(r))" if rng.random() < 0.3 else "out.append(x_ * 1)")
        if rng.random() < 0.5:
            calls.append("last, other = first_of(r, last), last")

    def _numbers(self) -> list[str]:
        """Numbers, bools and strings of a call."""
        rng = self.rng
        values = []
        if "n" in self.has and self.changing:
            values.append(f"n={rng.randint(-9, 9)}{self.changing}")
        elif "n" in self.has and rng.random() < 0.7:
            values.append(f"n={rng.choice((2,) * 9 + (3, 1, 2.0))}")
        if "flag" in self.has and rng.random() < 0.3:
            values.append(f"flag={rng.choice((True, False))}")
        if "mode" in self.has and rng.random() < 0.5:
            values.append(f"mode={rng.choice(('plus', 'plus', 'minus'))!r}")
        if "m" in self.has and rng.random() < 0.5:
            values.append(f"m={rng.choice((1.0, 1.0, 1.0, 2, 0.0, -1.0))}")
        if self.is_quiet and not self.changing and rng.random() < 0.95:
            values = [self.settled.setdefault("numbers", ", ".join(values))]
            values = [value for value in values if value]
        return values

    def _between(self) -> str:
        more = (
            "state.numbers[0] += 1",
            "state.named['n'] = 5 - state.named['n']",
            "state.numbers[2] = (1, {'deep': 3})",
            "state.weight.grad = None",
            "nets[0].scale = 3",
            "nets.reverse()",
        )
        if self.is_wide and self.rng.random() < 0.3:
            return self.rng.choice(more)
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
