"""Random programs whose gradients are taken after their values were looked at.

In: a seed. Out: None, or what differs between weft and the reference.
A program is a list of statements over a few float64 tensors. Values are read, printed, realized,
cloned, detached and written to at random moments, in part under TinyJit; the reference (PyTorch
where there is one, else weft) computes the same without looking and without writing in place.
Invariant: a gradient is right or refused. A program that writes in place may be refused, with one
of the two errors that say so; nothing else may differ.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from test.optional import found
from weft import Tensor, TinyJit, dtypes
from weft.errors import ArgumentError

SHAPE = (2, 3)
REFUSALS = ("can no longer be differentiated", "a gradient needs the value that a Tensor had")
UNARY = ("sin", "tanh", "sigmoid", "square", "relu", "exp")
BINARY = ("add", "sub", "mul", "maximum")
LOOKS = ("numpy", "tolist", "item", "realize", "repr", "realize all", "half numpy")


@dataclass(frozen=True)
class Statement:
    """`out = op(sources)`; a look has no `out`, a write changes its first source."""

    op: str
    out: str
    sources: tuple[str, ...]
    number: int = 0

    def __str__(self) -> str:
        return f"{self.out or '_'} = {self.op}({', '.join(self.sources)}, {self.number})"


@dataclass
class Program:
    """Statements over leaves; the loss is the sum of `wanted`."""

    seed: int
    leaves: tuple[str, ...]
    is_asked: bool
    is_jitted: bool
    statements: list[Statement]
    wanted: tuple[str, ...]
    rounds: int

    def source(self) -> str:
        """As one reads it."""
        head = f"leaves {self.leaves}, asked {self.is_asked}, jitted {self.is_jitted}"
        lines = [str(statement) for statement in self.statements]
        return "\n".join([f"# {head}, {self.rounds} rounds", *lines, f"loss = sum {self.wanted}"])

    @property
    def writes(self) -> bool:
        """Whether anything is written in place."""
        return any(s.op in ("assign", "assign part", "iadd") for s in self.statements)


def generate(seed: int, length: int = 12) -> Program:
    """A random program."""
    draw = random.Random(seed)
    leaves = tuple(f"x{i}" for i in range(draw.randint(1, 3)))
    is_jitted = draw.random() < 0.2
    names = list(leaves)
    # leaves and other names of one storage are not written to: their views would see it
    fixed = set(leaves)
    statements: list[Statement] = []
    for number in range(length):
        out, kind = f"v{number}", draw.random()
        source, other = draw.choice(names), draw.choice(names)
        own = [name for name in names if name not in fixed]
        if kind < 0.3:
            looks = ("realize", "realize all", "repr") if is_jitted else LOOKS
            statements.append(Statement(draw.choice(looks), "", (source, other)))
            continue
        if kind < 0.42 and own:
            op = draw.choice(("assign", "assign part", "iadd"))
            target = draw.choice(own)
            statements.append(Statement(op, "", (target, source), draw.randint(0, 1)))
            continue
        if kind < 0.65:
            op, sources = draw.choice(UNARY), (source,)
        elif kind < 0.85:
            op, sources = draw.choice(BINARY), (source, other)
        else:
            many = ("matmul", "spread", "turn", "shift", "where", "cat", "clone", "contiguous")
            op = draw.choice((*many, "detach", "no_grad", "jit", "copy"))
            if is_jitted and op == "jit":
                op = "clone"
            sources = (source, other)
            if op in ("detach", "contiguous"):
                fixed |= {source, out}
        statements.append(Statement(op, out, sources, draw.randint(0, 1)))
        names.append(out)
    wanted = tuple(draw.sample(names, min(len(names), 2)))
    # the last value has most behind it
    wanted = tuple(dict.fromkeys((*wanted, names[-1])))
    rounds = draw.choice((1, 1, 2, 3)) if not is_jitted else 4
    return Program(seed, leaves, draw.random() < 0.7, is_jitted, statements, wanted, rounds)


# ------------------------------------------------------------ what statements mean
def compute(lib: Any, op: str, a: Any, b: Any, number: int) -> Any:
    """A statement without a look: the same words for both libraries."""
    if op in ("sin", "tanh", "sigmoid", "square", "relu"):
        return getattr(a, op)()
    if op == "exp":
        return (a * 0.3).exp()
    if op in ("add", "sub", "mul"):
        return {"add": a + b, "sub": a - b, "mul": a * b}[op]
    if op == "maximum":
        # ties would be shared otherwise
        return lib.maximum(a, b * 0.75 + 0.1234)
    if op == "matmul":
        return a @ (b.reshape(3, 2) @ a) * 0.2
    if op == "spread":
        return a.sum(number, keepdim=True).expand(*SHAPE) * 0.5
    if op == "turn":
        return a.reshape(3, 2).permute(1, 0) + b
    if op == "shift":
        return lib.cat([a[:, 1:], b[:, :1]], 1) * 1.0
    if op == "where":
        return lib.where(a > 0.1, b, a * 0.5)
    if op == "cat":
        return lib.cat([a[:1], b[1:]], 0)
    raise AssertionError(op)


class Missing(Exception):
    """A statement uses what no statement made: a program that was made too small."""


class Values(dict[str, Any]):
    """The tensors by name."""

    def __missing__(self, name: str) -> Any:
        raise Missing(name)


class Reference:
    """Out of place, never looked at."""

    def __init__(self, library: Any) -> None:
        self.lib = library

    def step(self, values: dict[str, Any], statement: Statement) -> None:
        """One statement."""
        op, number = statement.op, statement.number
        if op in LOOKS:
            return
        a = values[statement.sources[0]]
        b = values[statement.sources[-1]]
        if op in ("clone", "contiguous", "copy"):
            values[statement.out] = a * 1.0
        elif op in ("detach", "no_grad"):
            values[statement.out] = (a if op == "detach" else a * 2.0 + b).detach()
        elif op == "jit":
            values[statement.out] = ((a * 2.0).sin() + b).detach()
        elif op == "assign":
            values[statement.sources[0]] = b * 0.5
        elif op == "iadd":
            values[statement.sources[0]] = a + b * 0.25
        elif op == "assign part":
            rows = [a[i : i + 1] if i != number else b[i : i + 1] * 3.0 for i in range(2)]
            values[statement.sources[0]] = self.lib.cat(rows, 0)
        else:
            values[statement.out] = compute(self.lib, op, a, b, number)


def _torch() -> Any:
    return found("torch")


class _Words:
    """weft's words for what PyTorch has as functions."""

    @staticmethod
    def cat(parts: list[Tensor], axis: int) -> Tensor:
        """As torch.cat."""
        return parts[0].cat(*parts[1:], dim=axis)

    @staticmethod
    def where(condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """As torch.where."""
        return condition.where(a, b)

    @staticmethod
    def maximum(a: Tensor, b: Tensor) -> Tensor:
        """As torch.maximum."""
        return a.maximum(b)


def starts(program: Program, number: int) -> list[np.ndarray[Any, Any]]:
    """The values of the leaves in a round."""
    draw = np.random.default_rng(program.seed * 8 + number)
    return [draw.uniform(-1.5, 1.5, SHAPE) for _ in program.leaves]


def expected(program: Program, data: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """The gradients of the leaves by the reference."""
    torch = _torch()
    values = Values()
    if torch is not None:
        reference = Reference(torch)
        leaves = [torch.tensor(array, requires_grad=True) for array in data]
    else:
        reference = Reference(_Words)
        leaves = [Tensor(array).requires_grad_() for array in data]
    values.update(zip(program.leaves, leaves, strict=True))
    for statement in program.statements:
        reference.step(values, statement)
    loss = sum((values[name] * (i + 1.0)).sum() for i, name in enumerate(program.wanted))
    if torch is not None:
        if loss.requires_grad:
            loss.backward()
        grads = [None if leaf.grad is None else leaf.grad.numpy() for leaf in leaves]
        return [np.zeros(SHAPE) if grad is None else grad for grad in grads]
    return [grad.numpy() for grad in loss.gradient(*leaves)]


# ------------------------------------------------------------ weft, looking and writing
def _look(op: str, values: dict[str, Tensor], sources: tuple[str, ...]) -> None:
    tensor = values[sources[0]]
    if op == "numpy":
        tensor.numpy()
    elif op == "half numpy":
        tensor[:1].numpy()
    elif op == "tolist":
        tensor.tolist()
    elif op == "item":
        tensor.sum().item()
    elif op == "realize":
        tensor.realize()
    elif op == "repr":
        repr(tensor)
    else:
        tensor.realize(*[values[name] for name in values if name.startswith("v")])


def _step(values: dict[str, Tensor], statement: Statement, jitted: Callable[..., Tensor]) -> None:
    op, number = statement.op, statement.number
    if op in LOOKS:
        _look(op, values, statement.sources)
        return
    a, b = values[statement.sources[0]], values[statement.sources[-1]]
    if op == "clone":
        values[statement.out] = a.clone()
    elif op == "copy":
        values[statement.out] = a.contiguous() * 1.0
    elif op == "contiguous":
        values[statement.out] = a.contiguous()
    elif op == "detach":
        values[statement.out] = a.detach()
    elif op == "no_grad":
        with Tensor.no_grad():
            values[statement.out] = a * 2.0 + b
    elif op == "jit":
        # a function's result is a leaf, whether it ran or was replayed
        values[statement.out] = jitted(a, b)
    elif op == "assign":
        a.assign(b * 0.5)
    elif op == "iadd":
        a += b * 0.25
    elif op == "assign part":
        a[number : number + 1].assign(b[number : number + 1] * 3.0)
    else:
        values[statement.out] = compute(_Words, op, a, b, number)


def _loss(program: Program, leaves: list[Tensor], jitted: Callable[..., Tensor]) -> Tensor:
    values = Values(zip(program.leaves, leaves, strict=True))
    for statement in program.statements:
        _step(values, statement, jitted)
    loss = (values[program.wanted[0]] * 1.0).sum()
    for i, name in enumerate(program.wanted[1:], 2):
        loss = loss + (values[name] * float(i)).sum()
    return loss


def _by_backward(program: Program, leaves: list[Tensor], jitted: Any) -> list[Any]:
    loss = _loss(program, leaves, jitted)
    if program.seed % 3:
        loss.item()
    for leaf in leaves:
        leaf.grad = None
    loss.backward()
    return [np.zeros(SHAPE) if leaf.grad is None else leaf.grad.numpy() for leaf in leaves]


def difference(program: Program) -> str | None:
    """What differs from the reference, or None."""
    jitted = TinyJit(lambda a, b: (a * 2.0).sin() + b)
    leaves = [Tensor(array, dtype=dtypes.float64).realize() for array in starts(program, 0)]
    for leaf in leaves:
        if program.is_asked:
            leaf.requires_grad_()

    def gradients(*given: Tensor) -> list[Tensor]:
        return _loss(program, list(given), jitted).gradient(*given)

    whole = TinyJit(gradients)
    for number in range(program.rounds):
        data = starts(program, number)
        if number:
            # the leaves of the next round, written in place as an optimiser does
            for leaf, array in zip(leaves, data, strict=True):
                leaf.assign(Tensor(array, dtype=dtypes.float64))
        try:
            if program.is_jitted:
                found = [grad.numpy() for grad in whole(*[leaf.realize() for leaf in leaves])]
            else:
                found = _by_backward(program, leaves, jitted)
        except ArgumentError as error:
            if "nothing that can be differentiated" in str(error):
                found = [np.zeros(SHAPE)] * len(leaves)
            elif program.writes and any(text in str(error) for text in REFUSALS):
                return None
            else:
                return f"round {number}: {error}"
        for name, mine, theirs in zip(program.leaves, found, expected(program, data), strict=True):
            if not np.allclose(mine, theirs, rtol=1e-9, atol=1e-11, equal_nan=True):
                return f"round {number}: gradient of {name}\n{mine}\ninstead of\n{theirs}"
    return None


def shrink(program: Program, fails: Callable[[Program], bool]) -> Program:
    """Fewer statements that still fail."""
    current = program
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for number in reversed(range(len(current.statements))):
            rest = current.statements[:number] + current.statements[number + 1 :]
            smaller = Program(
                current.seed,
                current.leaves,
                current.is_asked,
                current.is_jitted,
                rest,
                current.wanted,
                current.rounds,
            )
            try:
                if fails(smaller):
                    current, is_smaller = smaller, True
            except Missing:
                continue
    return current


def check_seed(seed: int, length: int = 12) -> str | None:
    """A report on one seed."""

    def fails(program: Program) -> bool:
        return _report(program) is not None

    program = generate(seed, length)
    if not fails(program):
        return None
    small = shrink(program, fails)
    return f"seed {seed}: {_report(small)}\n{small.source()}\n"


def _report(program: Program) -> str | None:
    try:
        return difference(program)
    except Missing:
        raise
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
