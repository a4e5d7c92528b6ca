"""Random functions under TinyJit that read Python state in odd ways.

What comes in: a seed. What goes out: a script that defines `program(decorate)`: a function that
reads numbers of objects, containers, closures, globals and the environment, and calls of it between
which these change. Where it sits: beside `jit_generator`, whose programs are of tensors.
The one invariant: a seed always gives the same program; the numbers are 1, 2 and 3.
"""

from __future__ import annotations

import gc
import random
import re
import warnings
from collections.abc import Callable
from typing import Any

HEADER = """
import array, collections, contextvars, copy, dataclasses, functools, itertools, operator, os
import random, sys, threading, types, weakref

class Config:
    shared = 1
    def __init__(self, x=1):
        self.x, self.inner, self.items, self.table = x, None, [1, 2], {"k": 1}
    @property
    def prop(self):
        return self.x
    def method(self):
        return self.x
    def __getitem__(self, name):
        return getattr(self, name)
    def __call__(self):
        return self.inner.x if self.inner is not None else self.x

class Forwarding:
    def __init__(self, target):
        self.target = target
    def __getattr__(self, name):
        return getattr(self.target, name)

class Slotted:
    __slots__ = ("x",)
    def __init__(self, x=1):
        self.x = x
    def method(self):
        return self.x

@dataclasses.dataclass
class Data:
    x: int = 1
    items: list = dataclasses.field(default_factory=lambda: [1, 2])

NAME, level, table = "x", 1, {"k": 1}

def same(value):
    return value

def read_x(value):
    return value.x

def read_default(options=[1]):
    return options[0]

def matched(value):
    match value:
        case Config(x=found) | Data(x=found):
            return found
    return value.x

def unpacked(value):
    first, _ = value, 1
    return first.x

def attempt(f):
    try:
        return f(Tensor([1.0, 2.0, 3.0, 4.0])).tolist()
    except Exception as error:
        return type(error).__name__

def yielding(values):
    for value in values:
        yield value
"""

SETUP = """
    config, other, data, slotted = Config(), Config(2), Data(), Slotted()
    config.inner = Config(3)
    holder = types.SimpleNamespace(config=config, other=other, data=data, slotted=slotted)
    named = collections.namedtuple("named", "config items")(config, [1, 2])
    forwarding, reference, closed = Forwarding(config), weakref.ref(other), 1
    queue, ordered = collections.deque([1, 2]), collections.OrderedDict(a=1, b=2)
    numbers, raw, inside = array.array("q", [1, 2]), bytearray(b"\\1\\2"), [[1], {"k": (1, [2])}]
    chosen, plain = {1, 2}, {"k": 1, "l": 2}
    variable, local = contextvars.ContextVar("variable", default=1), threading.local()
    local.x = 1
    bound, getter = functools.partial(operator.getitem, inside[0]), operator.attrgetter("x")
    functions = [lambda: closed, config, config.method, lambda: other.x]
    os.environ["WEFT_FUZZ"] = "1"
    sys.modules["weft_fuzz"] = module = types.ModuleType("weft_fuzz")
    module.x = 1
    def closing():
        return closed
    def rebind(value):
        nonlocal closed
        closed = value
"""

OBJECTS = ("config", "other", "data", "slotted", "config.inner", "holder.config", "named.config")
WAYS = (
    ("{}", "same({})", "[{}][0]", "({}, 1)[0]", "{{'k': {}}}['k']", "(lambda c: c)({})")
    + ("next(iter([{}]))", "functools.partial(same, {})()", "next(yielding([{}]))", "copy.copy({})")
    + ("max([{}], key=id)", "[c for c in [{}]][0]", "(lambda *a: a[0])({})", "dict(a={})['a']")
    + ("functools.reduce(lambda a, b: b, [1, {}])", "list(map(same, [{}]))[0]")
)
ATTRIBUTES = (
    ("{}.x", "getattr({}, 'x')", "getattr({}, NAME)", "getattr({}, ''.join(['x']))", "read_x({})")
    + ("operator.attrgetter('x')({})", "getter({})", "sum(map(read_x, [{}]))", "matched({})")
    + ("unpacked({})", "sum(c.x for c in [{}])", "object.__getattribute__({}, 'x')")
    + ("Forwarding({}).x", "sorted([{}], key=read_x)[0].x")
)
CONFIGS = ("config", "other", "config.inner", "holder.config", "named.config", "forwarding.target")
OF_CONFIGS = (
    ("{}.prop", "{}.method()", "{}['x']", "vars({})['x']", "{}.__dict__['x']", "{}.shared", "{}()")
    + ("{}.items[0]", "{}.table['k']", "len({}.items)", "sum({}.items)", "type({}).shared")
    + ("Config.method({})", "operator.methodcaller('method')({})", "dict(**vars({}))['x']")
    + ("(lambda a, *r: a)(*{}.items)", "(lambda k, **r: k)(**{}.table)", "{}['table'].get('k', 3)")
)
READS = (
    ("level", "globals()['level']", "table['k']", "[*table.values()][0]", "closed", "closing()")
    + ("[closing][0]()", "functions[0]()", "functions[1]()", "functions[2]()", "functions[3]()")
    + ("int(os.environ['WEFT_FUZZ'])", "int(os.environ.get('WEFT_FUZZ', 3))", "bound(0)")
    + ("int(os.getenv('WEFT_FUZZ'))", "sys.modules['weft_fuzz'].x", "module.x", "read_default()")
    + ("queue[0]", "len(queue)", "ordered['a']", "next(iter(ordered.values()))", "numbers[1]")
    + ("raw[0]", "sum(memoryview(raw))", "inside[0][0]", "inside[1]['k'][1][0]", "len(chosen)")
    + ("sum(chosen)", "variable.get()", "local.x", "reference().x", "plain.get('k', 3)")
    + ("list(plain.items())[0][1]", "sum(i * v for i, v in enumerate(named.items))", "forwarding.x")
    + ("dataclasses.asdict(data)['x']", "dataclasses.replace(data, x=data.x).x", "len(plain)")
    + ("sum([getattr(data, f.name) for f in dataclasses.fields(data)][:1])", "data.items[1]")
    + ("holder.__dict__['other'].x", "vars(holder)['data'].x", "(2 if 'm' in plain else 1)")
    + ("(config.late if hasattr(config, 'late') else 1)", "getattr(other, 'late', 2)")
)
REFUSED = ("next(counter) * 0 + 1", "random.randint(1, 1)", "sum(random.sample([1], 1))")
CHANGES = (
    ("{o}.x = {v}", "config.inner = Config({v})", "holder.config = Config({v})", "config = other")
    + ("config.items[0] = {v}", "config.items.append({v})", "other.table['k'] = {v}")
    + ("Config.shared = {v}", "level = {v}", "table['k'] = {v}", "rebind({v})", "queue[0] = {v}")
    + ("os.environ['WEFT_FUZZ'] = '{v}'", "module.x = {v}", "read_default.__defaults__[0][0] = {v}")
    + ("queue.append({v})", "ordered.move_to_end('a')", "ordered['a'] = {v}", "numbers[1] = {v}")
    + ("raw[0] = {v}", "inside[0][0] = {v}", "inside[1]['k'][1][0] = {v}", "chosen.add({v})")
    + ("inside[1]['k'] = (1, [{v}])", "chosen.discard({v})", "variable.set({v})", "local.x = {v}")
    + ("plain['m'] = {v}", "plain.pop('m', 0)", "plain['k'] = {v}", "named.items[1] = {v}")
    + ("forwarding.target = Config({v})", "functions.reverse()", "functions[0] = lambda: {v}")
    + ("data.items[1] = {v}", "data = holder.data = Data({v})", "config.late = {v}")
    + ("vars(other).pop('late', 0)", "other.late = {v}", "other.shared = {v}", "pass", "pass")
    + ("Config.method = lambda self: self.x * {v}", "holder.other = types.SimpleNamespace(x={v})")
)
USES = (
    ("y = y + {}", "y = y * {}", "y = y + 1 if {} > 1 else y * 2", "y = y[: {}].sum() + y")
    + ("y = y + [1, 2, 3, 4, 5, 6, 7, 8, 9, 10][min({}, 9)]", "for _ in range({} % 4): y = y + 1")
    + (
        "y = y + (w := same)({}) * w(1)",
        "y = (y + 1, y * 2)[{} % 2]",
        "y = y.reshape(4, 1).expand(4, {} % 3 + 1).sum(1)",
    )
)

# names in a statement, but for those that stand in most of them
_WORD = re.compile(r"\b(?!(?:x|y|items|lambda|self|sum|len|types)\b)[A-Za-z_]{3,}\b")


class ReadGenerator:
    """Makes one random program."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def run(self) -> str:
        """A script that defines `program(decorate)`."""
        rng = self.rng
        lines = [HEADER, "def program(decorate):", "    global level", SETUP]
        lines += ["    level, Config.shared, read_default.__defaults__[0][0] = 1, 1, 1"]
        lines += ["    table['k'], out, counter = 1, [], itertools.count()"]
        lines += ["    Config.method = lambda self: self.x"]
        lines += ["    @decorate", "    def f(x):", "        y = x"]
        body = [rng.choice(USES).format(self.read()) for _ in range(rng.randint(1, 4))]
        lines += [*[f"        {line}" for line in body], "        return y"]
        for number in range(rng.randint(8, 16)):
            if number > 2 and rng.random() < 0.4:
                change = self.change(set(_WORD.findall(" ".join(body))))
                lines += ["    try:", f"        {change}", "    except AttributeError: pass"]
            lines.append("    out.append(attempt(f))")
        return "\n".join([*lines, "    return out"])

    def change(self, read: set[str]) -> str:
        """A statement that changes a number, mostly one that is read."""
        targets = ("config", "other", "data", "slotted", "config.inner")
        changes = [c.format(o=o, v=self.rng.randint(1, 3)) for c in CHANGES for o in targets]
        fitting = [c for c in changes if not read.isdisjoint(_WORD.findall(c))]
        return self.rng.choice(fitting if fitting and self.rng.random() < 0.9 else changes)

    def read(self) -> str:
        """An expression that reads a number."""
        rng = self.rng
        chance = rng.random()
        if chance < 0.02:
            return rng.choice(REFUSED)
        if chance < 0.4:
            return rng.choice(READS)
        if chance < 0.7:
            way = rng.choice(WAYS).format(rng.choice(OBJECTS))
            return rng.choice(ATTRIBUTES).format(way)
        way = rng.choice(WAYS).format(rng.choice(CONFIGS))
        return rng.choice(OF_CONFIGS).format(way)


def run(source: str, decorate: Callable[[Any], Any]) -> Any:
    """What the program collects."""
    from weft import Tensor

    environment: dict[str, Any] = {"Tensor": Tensor, "__name__": "fuzzed"}
    exec(compile(source, "<program of reads>", "exec", dont_inherit=True), environment)
    return environment["program"](decorate)


def difference(source: str) -> str | None:
    """What differs between jitted and plain execution, or None."""
    from weft import TinyJit

    expected = run(source, lambda function: function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = run(source, TinyJit)
    gc.collect(0)
    for number, (left, right) in enumerate(zip(found, expected, strict=True)):
        if left != right:
            return f"call {number} gives {left} instead of {right}"
    return None
