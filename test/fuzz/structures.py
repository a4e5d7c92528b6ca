"""Steps of random programs that are made of several ops, or of places known at run time only.

In: a `World`. Out: one statement more, or none where nothing fits: products, convolutions, windows,
joins, gathers, scatters, sorts, and sizes and positions that are variables.
Invariant: a size that is a variable stays inside its statement, or the tensor is not used again.
"""

from __future__ import annotations

import numpy as np

from test.fuzz.steps import factors
from test.fuzz.world import World

# sums of products of these are exact in the dtype itself
_EXACT = ("float32", "float64", "int32", "int64")


def matmul(world: World) -> None:
    """Vectors, matrices and stacks of them."""
    left = world.pick(lambda v: v.ndim > 0 and str(v.dtype) in _EXACT and v.size > 0)
    if left is None:
        return
    a = world.value(left)

    def fits(b: np.ndarray) -> bool:
        if b.ndim == 0 or b.dtype != a.dtype or b.shape[max(0, b.ndim - 2)] != a.shape[-1]:
            return False
        try:
            stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        except ValueError:
            return False
        columns = b.shape[-1] if b.ndim > 1 else 1
        rows = a.shape[-2] if a.ndim > 1 else 1
        return int(np.prod(stack)) * rows * columns * a.shape[-1] <= 20 * world.most

    right = world.pick(fits)
    if right is not None:
        world.bounded(f"({left} @ {right})", f"np.asarray({left} @ {right})", a.dtype)


def _image(world: World, rank: int) -> tuple[str, str, np.ndarray] | None:
    """A variable as (batch, channels, *space); as it is, or reshaped."""
    name = world.pick(lambda v: v.ndim == 2 + rank and str(v.dtype) in _EXACT and v.size > 0)
    if name is not None:
        return name, name, world.value(name)
    name = world.pick(lambda v: str(v.dtype) in _EXACT and 1 <= v.size <= 2000)
    if name is None:
        return None
    shape = factors(world.value(name).size, world.rng)
    if shape is None:
        return None
    while len(shape) > 2 + rank:
        shape[-2:] = [shape[-2] * shape[-1]]
    shape = [1] * (2 + rank - len(shape)) + shape
    text = f"{name}.reshape({tuple(shape)})"
    return text, text, world.value(name).reshape(shape)


def conv(world: World) -> None:
    """One to three axes, groups, strides, gaps, padding, a bias; sometimes transposed."""
    rng = world.rng
    rank = rng.choice((1, 2, 2, 2, 3))
    image = _image(world, rank)
    if image is None:
        return
    weft, numpy, value = image
    channels = value.shape[1]
    groups = rng.choice([g for g in (1, 1, 2, 3, channels) if channels % g == 0])
    outputs = groups * rng.randint(1, 3)
    stride, dilation, padding = rng.choice((1, 1, 2)), rng.choice((1, 1, 2)), rng.randint(0, 2)
    kernel = tuple(
        rng.randint(1, max(1, min(3, (size + 2 * padding - 1) // dilation + 1)))
        for size in value.shape[2:]
    )
    if channels // groups * outputs > 400 or value.size * outputs > 5 * world.most:
        return
    shape = (outputs, channels // groups, *kernel)
    weight = world.numbers(-3, 4, shape, str(value.dtype))
    if rng.random() < 0.5:
        # a few large sums, then many small steps
        weft, numpy = f"{weft}.relu()", f"np.maximum({numpy}, 0)"
    bias = world.numbers(-3, 4, (outputs,), str(value.dtype)) if rng.random() < 0.3 else None
    more = "" if bias is None else f"bias=Tensor({bias}), "
    plus = "" if bias is None else f" + {bias}.reshape({(1, -1, *[1] * rank)})"
    world.bounded(
        f"{weft}.conv2d(Tensor({weight}), {more}groups={groups}, stride={stride}, "
        f"dilation={dilation}, padding={padding})",
        f"twins.conv({numpy}, {weight}, {groups}, {stride}, {dilation}, {padding}){plus}",
        value.dtype,
    )


def pool(world: World) -> None:
    """The greatest or the sum of windows."""
    rng = world.rng
    rank = rng.choice((1, 2, 2))
    image = _image(world, rank)
    if image is None:
        return
    weft, numpy, value = image
    kernel = tuple(rng.randint(1, min(3, size)) for size in value.shape[2:])
    stride = rng.choice((1, 2, 3))
    if rng.random() < 0.5:
        padding = rng.randint(0, min(kernel) // 2)
        weft = f"{weft}.max_pool2d({kernel}, stride={stride}, padding={padding})"
        world.new(weft, f"twins.max_pool({numpy}, {kernel}, {stride}, 1, {padding})")
    elif value.dtype.kind == "f":
        # what is averaged over 1, 2, 4 or 8 elements is exact, and whole again
        kernel = tuple(1 << (k > 1) for k in kernel)
        count = int(np.prod(kernel))
        world.bounded(
            f"{weft}.avg_pool2d({kernel}, stride={stride}) * {count}",
            f"twins.sum_pool({numpy}, {kernel}, {stride})",
            value.dtype,
        )


def cat(world: World) -> None:
    """Joined along an axis, or along a new one."""
    rng = world.rng
    name = world.pick(lambda v: v.ndim > 0 and v.size < world.most / 4)
    if name is None:
        return
    value = world.value(name)
    axis = rng.randrange(value.ndim)
    others = [n for n in world.names if _same_but(value, world.value(n), axis)]
    parts = [name, *rng.choices(others, k=rng.randint(1, 2))]
    if rng.random() < 0.3 and all(world.value(n).shape == value.shape for n in parts):
        first, rest = parts[0], ", ".join(parts[1:])
        joined = ", ".join(parts)
        world.new(f"{first}.stack({rest}, dim={axis})", f"np.stack([{joined}], axis={axis})")
        return
    joined = ", ".join(parts)
    world.new(f"Tensor.cat({joined}, dim={axis})", f"np.concatenate([{joined}], axis={axis})")


def _same_but(a: np.ndarray, b: np.ndarray, axis: int) -> bool:
    if a.dtype != b.dtype or a.ndim != b.ndim:
        return False
    return all(i == axis or m == n for i, (m, n) in enumerate(zip(a.shape, b.shape, strict=True)))


def sort(world: World) -> None:
    """Along an axis, and where it came from (the first of equals first)."""
    name = world.pick(lambda v: v.ndim > 0 and 0 < v.size <= 500 and v.dtype.kind != "b")
    if name is None:
        return
    axis = world.rng.randrange(world.value(name).ndim)
    if world.rng.random() < 0.5:
        world.new(f"{name}.sort({axis})[0]", f"np.sort({name}, axis={axis})")
    else:
        order = f"np.argsort({name}, axis={axis}, kind='stable').astype('int32')"
        world.new(f"{name}.argsort({axis})", order)


# ------------------------------------------------------------ places known at run time


def _places(world: World, size: int, least: int = 0) -> str | None:
    """Places along an axis of `size`: a variable of ints, brought inside."""
    name = world.pick(
        lambda v: str(v.dtype) in ("int32", "int64") and v.ndim <= 2 and least <= v.size <= 60
    )
    if name is None:
        return None
    back = f" - {size}" if world.rng.random() < 0.3 else ""
    return f"({name} % {size}{back})"


def gather(world: World) -> None:
    """Elements at places that memory holds."""
    rng = world.rng
    name = world.pick(lambda v: v.ndim > 0 and v.size > 0)
    if name is None:
        return
    value = world.value(name)
    axis = rng.randrange(value.ndim)
    if rng.random() < 0.4:
        shape = list(value.shape)
        shape[axis] = rng.randint(1, 4)
        index = world.numbers(0, value.shape[axis], tuple(shape), "int32")
        world.new(
            f"{name}.gather({axis}, Tensor({index}))",
            f"np.take_along_axis({name}, {index}.astype('int64'), {axis})",
        )
        return
    places = _places(world, value.shape[axis])
    if places is None or value.size * 60 > 20 * world.most:
        return
    before = ":, " * axis
    # one place alone is a view in NumPy
    world.new(f"{name}[{before}{places}]", f"{name}[{before}{places}].copy()")


def scatter(world: World) -> None:
    """Elements go to places that memory holds: into a new tensor, or into this one."""
    rng = world.rng
    name = world.pick(lambda v: v.ndim > 0 and 0 < v.size <= 500 and v.flags.writeable)
    if name is None:
        return
    value = world.value(name)
    axis = rng.randrange(value.ndim)
    kind = rng.choice(("scatter", "add", "mask", "write"))
    if kind == "mask":
        mask = world.pick(lambda v: v.dtype.kind == "b" and v.shape == value.shape)
        if mask is not None:
            number = "True" if value.dtype.kind == "b" else str(rng.randint(0, 5))
            world.emit(f"{name}[{mask}] = {number}", f"{name}[{mask}] = {number}")
        return
    if kind == "write":
        places = _places(world, value.shape[0], 1)
        if places is not None:
            number = "True" if value.dtype.kind == "b" else str(rng.randint(0, 5))
            world.emit(f"{name}[{places}] = {number}", f"{name}[{places}] = {number}")
        return
    if kind == "add" and value.dtype.kind == "b":
        return
    shape = list(value.shape)
    shape[axis] = rng.randint(1, 4)
    index = world.numbers(0, value.shape[axis], tuple(shape), "int32")
    low = -3 if value.dtype.kind in "if" else 0
    source = world.numbers(low, 2, tuple(shape), str(value.dtype))
    reduce = ", reduce='add'" if kind == "add" else ""
    world.bounded(
        f"{name}.scatter({axis}, Tensor({index}), Tensor({source}){reduce})",
        f"twins.scatter({name}, {axis}, {index}, {source}, {kind == 'add'})",
        value.dtype,
    )


# ------------------------------------------------------------ sizes and positions as variables


def symbolic_size(world: World) -> None:
    """The first n elements of an axis, where n has a value when the kernel runs."""
    rng = world.rng
    name = world.pick(lambda v: v.ndim > 0 and v.size > 0 and v.dtype.kind in "iuf")
    if name is None:
        return
    value = world.value(name)
    axis = rng.randrange(value.ndim)
    size = value.shape[axis]
    n = rng.randint(1, size)
    bound = f"Variable('n{world.count}', 1, {size}).bind({n})"
    before = ":, " * axis
    weft, numpy = f"{name}[{before}:{bound}]", f"{name}[{before}:{n}]"
    dtype = str(value.dtype)
    wide = {"int8": "int32", "int16": "int32", "uint8": "uint32", "float16": "float32"}
    if rng.random() < 0.5:
        weft, numpy = (
            f"({weft} * 2 + 1)",
            f"({numpy} * np.array(2, '{dtype}') + np.array(1, '{dtype}'))",
        )
    if rng.random() < 0.3:
        weft, numpy = f"{weft}.flip({axis})", f"np.flip({numpy}, {axis})"
    if rng.random() < 0.3:
        order = tuple(rng.sample(range(value.ndim), value.ndim))
        weft, numpy = f"{weft}.permute({order})", f"{numpy}.transpose({order})"
        axis = order.index(axis)
    kind = rng.choice(("sum", "max", "both", "as it is"))
    if kind == "as it is":
        world.new(f"{weft} + 0", f"np.array({numpy})", used_again=False)
    elif kind == "max":
        world.new(f"{weft}.max({axis})", f"np.asarray(np.max({numpy}, axis={axis}))")
    else:
        axes = axis if kind == "sum" else tuple(range(value.ndim))
        total = f"np.asarray(np.sum({numpy}, axis={axes}, dtype='{wide.get(dtype, dtype)}'))"
        cast = f"{weft}.sum({axes}).cast(dtypes.{dtype})"
        world.bounded(cast, f"{total}.astype('{dtype}')", dtype)


def symbolic_place(world: World) -> None:
    """A few elements from a position that has a value when the kernel runs; read or written."""
    rng = world.rng
    name = world.pick(lambda v: v.ndim > 0 and v.shape[0] > 1 and v.size > 0)
    if name is None:
        return
    value = world.value(name)
    size = value.shape[0]
    length = rng.randint(1, size - 1)
    at = rng.randint(0, size - length)
    bound = f"Variable('p{world.count}', 0, {size - length}).bind({at})"
    world.count += 1
    part = f"(lambda at: {name}[at : at + {length}])({bound})"
    if rng.random() < 0.6 or not value.flags.writeable:
        world.new(part, f"{name}[{at}:{at + length}]")
        return
    number = "True" if value.dtype.kind == "b" else str(rng.randint(0, 5))
    world.emit(f"{part}.assign({number})", f"{name}[{at}:{at + length}] = {number}")
