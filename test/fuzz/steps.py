"""Steps of random programs: data, elementwise ops, reductions, movement, and writes.

In: a `World`. Out: one statement more, or none where nothing fits. What is made of several ops, or
of places known at run time, is in `structures.py`.
Invariant: a view in weft is a view in NumPy, so that both sides see the same writes.
"""

from __future__ import annotations

import random

import numpy as np

from test.fuzz.world import DTYPES, World
from weft.dtype import (
    DType,
    dtypes,
    from_numpy_dtype,
    least_upper_dtype,
    least_upper_float,
    strong_dtype,
    to_numpy_dtype,
)

# ------------------------------------------------------------ data


def data(world: World) -> None:
    """Memory."""
    rng = world.rng
    shape = [rng.choice(world.sizes) for _ in range(rng.randint(0, 4))]
    while np.prod(shape) > world.most:
        shape.pop()
    dtype = rng.choice(DTYPES)
    low = 0 if dtype.startswith(("bool", "uint")) else -9
    array = world.numbers(low, 2 if dtype == "bool" else 10, tuple(shape), dtype)
    world.new(f"Tensor({array})", f"np.asarray({array})")


def constant(world: World) -> None:
    """Values that are computed from nothing, and are on no device."""
    rng = world.rng
    shape = tuple(rng.choice((1, 2, 3, 5)) for _ in range(rng.randint(0, 3)))
    dtype = rng.choice(("float32", "int32", "bool", "float16", "uint8"))
    kind = rng.choice(("zeros", "ones", "arange", "range", "full", "eye", "number"))
    n = rng.randint(1, 9)
    if kind == "arange":
        world.new(f"Tensor.arange({n})", f"np.arange({n}, dtype='int32')")
    elif kind == "range":
        start, step = rng.randint(-5, 5), rng.choice((-2, -1, 1, 3))
        places = f"{start}, {start + step * n}, {step}"
        world.new(f"Tensor.arange({places})", f"np.arange({places}, dtype='int32')")
    elif kind == "full":
        array = f"np.full({shape}, 3, dtype='{dtype}')"
        world.new(f"Tensor.full({shape}, 3, dtype=dtypes.{dtype})", array)
    elif kind == "eye":
        world.new(f"Tensor.eye({n}, dtype=dtypes.{dtype})", f"np.eye({n}, dtype='{dtype}')")
    elif kind == "number":
        world.new(f"Tensor({n}, dtype=dtypes.{dtype})", f"np.array({n}, dtype='{dtype}')")
    else:
        array = f"np.{kind}({shape}, dtype='{dtype}')"
        world.new(f"Tensor.{kind}(*{shape}, dtype=dtypes.{dtype})", array)


# ------------------------------------------------------------ elementwise

_UNARY = [
    ("-{x}", "-{x}"),
    ("{x}.abs()", "np.abs({x})"),
    ("{x}.relu()", "np.maximum({x}, 0)"),
    ("{x}.square()", "np.square({x})"),
    ("{x}.sign()", "np.sign({x})"),
    ("{x}.detach()", "{x}.copy()"),
    ("{x}.contiguous() + 1", "{x} + np.array(1, {x}.dtype)"),
    ("{x}.clone()", "{x}.copy()"),
]


def unary(world: World) -> None:
    """One op on one operand."""
    name = world.pick(lambda v: v.dtype.kind in "if")
    if name is not None:
        weft, numpy = world.rng.choice(_UNARY)
        world.bounded(weft.format(x=name), numpy.format(x=name), world.value(name).dtype)


def binary(world: World) -> None:
    """Two operands of one dtype."""
    left = world.pick()
    right = None if left is None else world.operand(left)
    if left is None or right is None:
        return
    dtype = world.value(left).dtype
    if dtype.kind == "b":
        op = world.rng.choice(("&", "|", "^"))
        world.new(f"{left} {op} {right}", f"{left} {op} {right}")
        return
    choices = ["+", "*", "-", "max", "min", "<", "==", "!=", ">="]
    choices += ["//", "%", "&", "|", "^"] if dtype.kind in "iu" else []
    _apply(world, world.rng.choice(choices), left, right, left, right, dtype)


def _apply(
    world: World, op: str, left: str, right: str, a: str, b: str, dtype: np.dtype[np.generic]
) -> None:
    """weft's `left op right` and NumPy's `a op b`, which is of `dtype` but for comparisons."""
    if op in ("max", "min"):
        tensor, other = (left, right) if left.isidentifier() else (right, left)
        world.new(f"{tensor}.{op}imum({other})", f"np.{op}imum({a}, {b})")
    elif op in ("<", "==", "!=", ">="):
        world.new(f"({left} {op} {right})", f"({a} {op} {b})")
    else:
        world.bounded(f"({left} {op} {right})", f"({a} {op} {b})", dtype)


def mixed(world: World) -> None:
    """Two operands of different dtypes: both are taken to the least one above them."""
    left = world.pick()
    right = None if left is None else world.operand(left, same_dtype=False)
    if left is None or right is None:
        return
    found = least_upper_dtype(*[from_numpy_dtype(world.value(n).dtype) for n in (left, right)])
    dtype = np.dtype(to_numpy_dtype(found))
    if dtype.kind == "b":
        return
    choices = ["+", "*", "-", "max", "<", "==", "where"]
    choices += ["//", "%", "&", "^"] if dtype.kind in "iu" else []
    a, b = (f"{name}.astype('{dtype}')" for name in (left, right))
    op = world.rng.choice(choices)
    if op != "where":
        _apply(world, op, left, right, a, b, dtype)
        return
    condition = world.pick(lambda v: v.dtype.kind == "b" and v.shape == world.value(left).shape)
    if condition is not None:
        world.new(f"{condition}.where({left}, {right})", f"np.where({condition}, {a}, {b})")


def scalar(world: World) -> None:
    """A Python number beside a tensor: it has a dtype only through its neighbour."""
    name = world.pick()
    if name is None:
        return
    number: int | float = world.rng.choice((-3, -1, 0, 1, 2, 5, 7, 2.0, -1.0))
    dtype = _with_number(world.value(name).dtype, number)
    if dtype.kind == "u" and number < 0:
        number = 3
    choices = ["+", "*", "-", "max", "min", "<", "==", ">="]
    # a division by zero is another test's
    choices += ["//", "%", "&", "|", "^"] if dtype.kind in "iu" and number else []
    value, other = f"{name}.astype('{dtype}')", f"np.array({number}, '{dtype}')"
    op = world.rng.choice(choices)
    if world.rng.random() < 0.4 and op not in ("//", "%"):
        _apply(world, op, str(number), name, other, value, dtype)
    else:
        _apply(world, op, name, str(number), value, other, dtype)


def _with_number(dtype: np.dtype[np.generic], number: float) -> np.dtype[np.generic]:
    weak: DType = dtypes.weakfloat if isinstance(number, float) else dtypes.weakint
    found = strong_dtype(least_upper_dtype(from_numpy_dtype(dtype), weak))
    return np.dtype(to_numpy_dtype(found))


def rounding(world: World) -> None:
    """Quarters, which are exact, and whole numbers again; and shifts."""
    name = world.pick(lambda v: v.dtype.kind != "b")
    if name is None:
        return
    value = world.value(name)
    if value.dtype.kind in "iu" and world.rng.random() < 0.5:
        op, amount = world.rng.choice(("<<", ">>")), world.rng.randint(0, 3)
        right = f"np.array({amount}, '{value.dtype}')"
        world.bounded(f"({name} {op} {amount})", f"({name} {op} {right})", value.dtype)
        return
    dtype = to_numpy_dtype(least_upper_float(from_numpy_dtype(value.dtype)))
    kind, numpy = world.rng.choice(
        [("floor", "floor"), ("ceil", "ceil"), ("trunc", "trunc"), ("round", "rint")]
    )
    quarter = f"({name}.astype('{np.dtype(dtype)}') / 4).astype('{np.dtype(dtype)}')"
    world.new(f"({name} / 4).{kind}()", f"np.{numpy}({quarter})")


def where(world: World) -> None:
    """A choice."""
    left = world.pick()
    right = world.operand(left) if left is not None else None
    if left is None or right is None:
        return
    both = np.broadcast(world.value(left), world.value(right)).shape
    condition = world.pick(lambda v: v.dtype.kind == "b" and v.shape == both)
    if condition is not None:
        world.new(f"{condition}.where({left}, {right})", f"np.where({condition}, {left}, {right})")


def cast(world: World) -> None:
    """Another dtype, or the same bits in one of the same width."""
    name = world.pick()
    if name is None:
        return
    value = world.value(name)
    if value.dtype.kind in "iu" and world.rng.random() < 0.2:
        swapped = value.dtype.name[1:] if value.dtype.kind == "u" else "u" + value.dtype.name
        if swapped != "uint64":
            bits = f"{name}.bitcast(dtypes.{swapped})"
            world.bounded(bits, f"np.array({name}, order='C').view('{swapped}')", swapped)
        return
    dtype = world.rng.choice(DTYPES)
    if value.dtype.kind == "f" and dtype.startswith("uint"):
        dtype = "int32"
    if dtype == value.dtype:
        return
    # what a negative number is as an unsigned one is large
    world.bounded(f"{name}.cast(dtypes.{dtype})", f"{name}.astype('{dtype}')", dtype)


# ------------------------------------------------------------ reductions

_WIDE = {"int8": "int32", "uint8": "uint32", "int16": "int32", "float16": "float32"}


def reduce(world: World) -> None:
    """Over some of the axes."""
    name = world.pick(lambda v: v.ndim > 0 and v.size > 0)
    if name is None:
        return
    rng, value = world.rng, world.value(name)
    axes = tuple(a for a in range(value.ndim) if rng.random() < 0.5) or (0,)
    keep = rng.random() < 0.4
    kind = rng.choice(("max", "min", "sum", "sum", "arg", "any", "cumsum"))
    kept = f"{axes}, keepdim={keep}", f"axis={axes}, keepdims={keep}"
    if kind == "any":
        kind = rng.choice(("any", "all"))
        world.new(f"{name}.{kind}({kept[0]})", f"np.{kind}({name}, {kept[1]})")
    elif value.dtype.kind == "b":
        return
    elif kind in ("max", "min"):
        world.new(f"{name}.{kind}({kept[0]})", f"np.{kind}({name}, {kept[1]})")
    elif kind == "arg":
        kind, axis = rng.choice(("argmax", "argmin")), axes[0]
        found = f"np.{kind}({name}, axis={axis}, keepdims={keep}).astype('int32')"
        world.new(f"{name}.{kind}({axis}, keepdim={keep})", f"np.asarray({found})")
    else:
        wide = _WIDE.get(str(value.dtype), str(value.dtype))
        arguments = kept if kind == "sum" else (f"{axes[0]}", f"axis={axes[0]}")
        total = f"np.{kind}({name}, {arguments[1]}, dtype='{wide}').astype('{value.dtype}')"
        weft = f"{name}.{kind}({arguments[0]}).cast(dtypes.{value.dtype})"
        world.bounded(weft, total, value.dtype)


# ------------------------------------------------------------ movement

Move = tuple[str | None, str]


def movement(world: World) -> None:
    """A view of a variable."""
    name = world.pick()
    if name is not None:
        weft, numpy = world.rng.choice(MOVES)(world, world.value(name))
        if weft is not None:
            world.new(weft.format(x=name), numpy.format(x=name))


def _permute(world: World, v: np.ndarray) -> Move:
    order = list(range(v.ndim))
    world.rng.shuffle(order)
    if not order:
        return None, ""
    return f"{{x}}.permute({tuple(order)})", f"{{x}}.transpose({tuple(order)})"


def factors(size: int, rng: random.Random) -> list[int] | None:
    """Some shape of so many elements."""
    shape = []
    for prime in (2, 3, 5, 7, 11, 17):
        while size > 1 and size % prime == 0:
            shape.append(prime)
            size //= prime
    if size != 1:
        return None
    rng.shuffle(shape)
    merged: list[int] = []
    for factor in shape:
        if merged and rng.random() < 0.5:
            merged[-1] *= factor
        else:
            merged.append(factor)
    return merged


def _reshape(world: World, v: np.ndarray) -> Move:
    merged = factors(v.size, world.rng)
    if merged is None:
        return None, ""
    if world.rng.random() < 0.3:
        merged.insert(world.rng.randint(0, len(merged)), 1)
    # weft's reshape is always a view; NumPy's only sometimes, and then they would differ on writes
    if not np.shares_memory(v.reshape(merged), v):
        return None, ""
    return f"{{x}}.reshape({tuple(merged)})", f"{{x}}.reshape({tuple(merged)})"


def _expand(world: World, v: np.ndarray) -> Move:
    rng = world.rng
    shape = tuple(rng.choice((2, 3)) if s == 1 and rng.random() < 0.7 else s for s in v.shape)
    if rng.random() < 0.3:
        shape = (2, *shape)
    if np.prod(shape) > max(3000, 2 * v.size):
        return None, ""
    return f"{{x}}.expand({shape})", f"np.broadcast_to({{x}}, {shape})"


def _pad(world: World, v: np.ndarray) -> Move:
    pads = tuple((world.rng.randint(0, 2), world.rng.randint(0, 2)) for _ in v.shape)
    return (f"{{x}}.pad({pads})", f"np.pad({{x}}, {pads})") if pads else (None, "")


def _slice(world: World, v: np.ndarray) -> Move:
    if 0 in v.shape or not v.ndim:
        return None, ""
    index = world.index(v.shape)
    return f"{{x}}[{index}]", f"{{x}}[{index}]"


def _flip(world: World, v: np.ndarray) -> Move:
    axes = tuple(a for a in range(v.ndim) if world.rng.random() < 0.5)
    return (f"{{x}}.flip({axes})", f"np.flip({{x}}, {axes})") if axes else (None, "")


def _integer(world: World, v: np.ndarray) -> Move:
    if not v.ndim or 0 in v.shape:
        return None, ""
    at = world.rng.randrange(-v.shape[0], v.shape[0])
    return f"{{x}}[{at}]", f"{{x}}[{at}, ...]"


MOVES = [_permute, _reshape, _expand, _pad, _slice, _flip, _integer]


# ------------------------------------------------------------ writes and realization


def assign(world: World) -> None:
    """Write through a view of a variable; the twin writes through the same NumPy view."""
    name = world.pick(lambda v: v.ndim > 0 and v.size > 0 and v.flags.writeable)
    if name is None:
        return
    value = world.value(name)
    index = world.index(value.shape)
    part = value[eval(f"np.s_[{index}]")]
    source = world.pick(lambda v: v.dtype == value.dtype and v.shape == part.shape)
    if source is not None and world.rng.random() < 0.7:
        world.emit(f"{name}[{index}] = {source}", f"{name}[{index}] = {source}.copy()")
    else:
        number = "True" if value.dtype.kind == "b" else str(world.rng.randint(0, 5))
        world.emit(f"{name}[{index}] = {number}", f"{name}[{index}] = {number}")


def update(world: World) -> None:
    """A variable is changed from what it holds: in place, shifted along itself, or turned round."""
    name = world.pick(lambda v: v.ndim > 0 and v.size > 0 and v.flags.writeable)
    if name is None:
        return
    rng, value = world.rng, world.value(name)
    number = 1 if value.dtype.kind == "b" else rng.choice((1, 2, 3))
    kind = rng.choice(("in place", "shift", "flip", "assign"))
    if kind == "shift" and value.shape[0] > 1:
        ways = [("1:", ":-1"), (":-1", "1:")]
        target, source = rng.choice(ways)
        world.emit(f"{name}[{target}] = {name}[{source}]", _copied(name, target, f"[{source}]"))
    elif kind == "flip":
        world.emit(f"{name}.assign({name}.flip(0))", _copied(name, "...", "[::-1]"))
    elif kind == "assign":
        source = world.pick(lambda v: v.dtype == value.dtype and v.shape == value.shape)
        if source is not None:
            world.emit(f"{name}.assign({source})", f"{name}[...] = {source}.copy()")
    else:
        op = rng.choice(("&=", "|=", "^=") if value.dtype.kind in "biu" else ("+=", "-=", "*="))
        if op == "*=":
            number = -1
        text = str(bool(number)) if value.dtype.kind == "b" else str(number)
        world.emit(f"{name} {op} {text}", f"{name} {op} np.array({text}, {name}.dtype)")


def _copied(name: str, target: str, source: str) -> str:
    return f"{name}[{target}] = {name}{source}.copy()"


def realize(world: World) -> None:
    """One or two variables are computed now."""
    first, second = world.pick(), world.pick()
    if first is None or second is None:
        return
    if first == second or world.rng.random() < 0.5:
        world.emit(f"{first}.realize()", "pass")
    else:
        world.emit(f"{first}.realize({second})", "pass")
