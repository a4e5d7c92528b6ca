"""Random calls of the methods in the table: shapes, axes, indices and geometries that fit together.

In: hypothesis' choices. Out: (row, case, dtype) for `check_values`, one strategy a family.
Sits above the table, below `test_hypothesis.py`.
Invariant: every call is a legal one; what is illegal is the business of the tests of errors.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from test.methods import rows_binary, rows_conv, rows_indexing, rows_movement, rows_reduce
from test.methods.row import Case, Input, Row, Shape, given, index
from test.methods.rows_unary import ACTIVATIONS, ROUNDING, TRANSCENDENTAL
from test.methods.table import TABLE
from test.optional import need

hypothesis = need("hypothesis")
st = hypothesis.strategies

Call = tuple[Row, Case, str]
Draw = Any

SIZES = st.one_of(st.integers(1, 5), st.sampled_from((0, 1, 8, 17, 33)))
FULL_SIZES = st.one_of(st.integers(1, 5), st.sampled_from((8, 17)))


def shapes(least: int = 0, most: int = 4, sizes: Any = SIZES) -> st.SearchStrategy[Shape]:
    """Shapes of few elements."""
    found = st.lists(sizes, min_size=least, max_size=most).map(tuple)
    return found.filter(lambda shape: int(np.prod(shape)) <= 2000)


def named(name: str, which: int = 0) -> Row:
    """A row of the table."""
    return [row for row in TABLE if row.name == name][which]


def like(each: Input, shape: Shape) -> Input:
    """The same domain in another shape."""
    return replace(each, shape=shape, data=None)


@st.composite
def unary(draw: Draw) -> Call:
    """A function of one value."""
    row = draw(st.sampled_from((*TRANSCENDENTAL, *ACTIVATIONS, *ROUNDING)))
    dtype = draw(st.sampled_from(row.dtypes))
    options = draw(st.sampled_from([asked.kwargs for asked in row.cases]))
    chosen = like(row.cases[0].inputs[0], draw(shapes()))
    return row, Case((chosen,), (), options), dtype


@st.composite
def broadcast(draw: Draw, count: int) -> list[Shape]:
    """Shapes that broadcast to one."""
    whole = draw(shapes())
    found = []
    for _ in range(count):
        kept = whole[draw(st.integers(0, len(whole))) :]
        found.append(tuple(1 if draw(st.booleans()) and draw(st.booleans()) else n for n in kept))
    return found


@st.composite
def binary(draw: Draw) -> Call:
    """A function of two values, broadcast."""
    families = (rows_binary.ARITHMETIC, rows_binary.COMPARISONS, rows_binary.BITWISE)
    rows = [row for family in (*families, rows_binary.SHIFTS) for row in family]
    plain = [r for r in rows if len(r.cases[0].inputs) == 2 and not r.cases[0].kwargs]
    row = draw(st.sampled_from(plain))
    first, second = row.cases[0].inputs
    left, right = draw(broadcast(2))
    return row, Case((like(first, left), like(second, right))), draw(st.sampled_from(row.dtypes))


@st.composite
def choice(draw: Draw) -> Call:
    """where, with three shapes that broadcast."""
    row = named("where")
    condition, yes, no = draw(broadcast(3))
    inputs = (Input(condition, dtype="bool"), Input(yes), Input(no))
    return row, Case(inputs), draw(st.sampled_from(row.dtypes))


@st.composite
def axes_of(draw: Draw, shape: Shape, several: bool) -> Any:
    """None, an axis from either end, or several."""
    if not shape:
        return None
    axis = st.integers(-len(shape), len(shape) - 1)
    choices = [st.none(), axis]
    if several:
        chosen = st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True)
        signs = st.booleans()
        choices.append(
            chosen.flatmap(
                lambda found: st.tuples(
                    *[signs.map(lambda s, a=a: a - len(shape) if s else a) for a in found]
                )
            )
        )
    return draw(st.one_of(*choices))


@st.composite
def reduction(draw: Draw) -> Call:
    """A reduction over random axes."""
    rows = [row for row in rows_reduce.REDUCTIONS if "dtype" not in row.cases[0].kwargs]
    row = draw(st.sampled_from(rows))
    extreme = row.name in ("max", "min", "argmax", "argmin", "logsumexp")
    spread = row.name.startswith(("var", "std"))
    sizes = st.integers(2, 9) if spread else FULL_SIZES if extreme else SIZES
    shape = draw(shapes(1 if spread else 0, 4, sizes))
    axis = draw(axes_of(shape, not row.name.startswith("arg")))
    options = {} if axis is None else {"axis": axis}
    if draw(st.booleans()):
        options["keepdim"] = True
    chosen = like(row.cases[0].inputs[0], shape)
    return row, Case((chosen,), (), options), draw(st.sampled_from(row.dtypes))


@st.composite
def along(draw: Draw) -> Call:
    """A scan or a softmax along an axis."""
    softmaxes = [row for row in rows_reduce.SOFTMAXES if "dtype" not in row.cases[0].kwargs]
    row = draw(st.sampled_from((*rows_reduce.SCANS, *softmaxes)))
    shape = draw(shapes(1, 3))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    chosen = like(row.cases[0].inputs[0], shape)
    return row, Case((chosen,), (), {"axis": axis}), draw(st.sampled_from(row.dtypes))


# ------------------------------------------------------------ chains of movements
@st.composite
def movement_step(draw: Draw, shape: Shape) -> tuple[str, Case]:
    """One movement that suits a shape."""
    rank = len(shape)
    kinds = ["unsqueeze", "flatten", "squeeze", "T"]
    kinds += ["permute", "flip", "shrink", "roll", "pad", "repeat", "expand"] if rank else []
    kind = draw(st.sampled_from(kinds))
    one = (Input(shape),)
    if kind == "unsqueeze":
        return kind, Case(one, (), {"dim": draw(st.integers(-rank - 1, rank))})
    if kind == "permute":
        return kind, Case(one, tuple(draw(st.permutations(range(rank)))))
    if kind == "flip":
        axes = draw(st.lists(st.integers(0, rank - 1), min_size=1, unique=True))
        return kind, Case(one, tuple(axes))
    if kind == "shrink":
        box = []
        for size in shape:
            start = draw(st.integers(0, size))
            box.append((start, draw(st.integers(start, size))))
        return kind, Case(one, (), {"arg": tuple(box)})
    if kind == "roll":
        dim = draw(st.integers(-rank, rank - 1))
        return kind, Case(one, (), {"shifts": draw(st.integers(-9, 9)), "dims": dim})
    if kind == "pad":
        pairs = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in shape)
        return kind, Case(one, (), {"padding": pairs})
    if kind == "repeat":
        return kind, Case(one, tuple(draw(st.integers(1, 2)) for _ in shape))
    if kind == "expand":
        return kind, Case(one, (draw(st.integers(1, 3)), *shape))
    return kind, Case(one)


@st.composite
def movements(draw: Draw) -> Call:
    """A chain of movements, then perhaps a sum: views of views of views."""
    shape = draw(shapes(0, 3))
    steps: list[tuple[Row, Case]] = []
    probe = np.zeros(shape)
    for _ in range(draw(st.integers(1, 5))):
        if probe.size > 500 or probe.ndim > 5:
            break
        kind, asked = draw(movement_step(probe.shape))
        row = named(kind)
        steps.append((row, asked))
        probe = row.expected([probe], asked)[0]

    def reference(x: Any) -> Any:
        for row, asked in steps:
            x = row.reference(x, *asked.args, **asked.kwargs)
        return x

    def call(x: Any) -> Any:
        for row, asked in steps:
            x = row.run([x], asked)[0]
        return x

    name = "+".join(f"{row.name}{asked.args or asked.kwargs}" for row, asked in steps)
    chain = Row(name, reference, (), rows_movement.ALL, call=call)
    return chain, Case((Input(shape),)), draw(st.sampled_from(chain.dtypes))


@st.composite
def joins(draw: Draw) -> Call:
    """cat, stack and split."""
    shape = draw(shapes(1, 3))
    axis = draw(st.integers(0, len(shape) - 1))
    kind = draw(st.sampled_from(("cat", "stack", "split")))
    row = named(kind)
    dtype = draw(st.sampled_from(row.dtypes))
    if kind == "split":
        total = shape[axis]
        cuts = sorted(draw(st.lists(st.integers(0, total), max_size=3)))
        ends = [*cuts, total]
        sizes = [b - a for a, b in zip([0, *cuts], ends, strict=True)]
        return row, Case((Input(shape),), (), {"sizes": sizes, "dim": axis}), dtype
    inputs = []
    for _ in range(draw(st.integers(1, 4))):
        size = draw(st.integers(0, 4)) if kind == "cat" else shape[axis]
        inputs.append(Input((*shape[:axis], size, *shape[axis + 1 :])))
    return row, Case(tuple(inputs), (), {"dim": axis}), dtype


# ------------------------------------------------------------ indices
@st.composite
def basic_key(draw: Draw, shape: Shape) -> tuple[Any, ...]:
    """Ints, slices, new axes and an ellipsis."""
    key: list[Any] = []
    for size in shape[: draw(st.integers(0, len(shape)))]:
        kind = draw(st.sampled_from(("int", "slice", "slice", "none")))
        if kind == "none":
            key.append(None)
        if kind == "int" and size:
            key.append(draw(st.integers(-size, size - 1)))
            continue
        bound = st.one_of(st.none(), st.integers(-size - 2, size + 2))
        step = st.sampled_from((None, 1, 2, 3, -1, -2))
        key.append(slice(draw(bound), draw(bound), draw(step)))
    if draw(st.booleans()):
        key.insert(draw(st.integers(0, len(key))) if not key else len(key), Ellipsis)
    return tuple(key)


@st.composite
def advanced_key(draw: Draw, shape: Shape) -> tuple[Any, ...]:
    """Slices and lists of ints that broadcast, side by side."""
    common = draw(st.sampled_from(((2,), (3,), (2, 2), (1,), (0,))))
    first = draw(st.integers(0, len(shape) - 1))
    last = draw(st.integers(first, len(shape) - 1))
    key: list[Any] = [slice(None)] * first
    for size in shape[first : last + 1]:
        count = int(np.prod(common))
        flat = draw(st.lists(st.integers(-size, size - 1), min_size=count, max_size=count))
        key.append(np.array(flat, dtype=np.int32).reshape(common).tolist())
    return tuple(key)


@st.composite
def reads(draw: Draw) -> Call:
    """x[key]."""
    row = rows_indexing.READS[0]
    if draw(st.booleans()):
        shape = draw(shapes(0, 4))
        key = draw(basic_key(shape))
    else:
        shape = draw(shapes(1, 3, FULL_SIZES))
        key = draw(advanced_key(shape))
    return row, Case((Input(shape),), (), {"key": key}), draw(st.sampled_from(row.dtypes))


@st.composite
def writes(draw: Draw) -> Call:
    """x[key] = value, the value broadcast."""
    row = rows_indexing.WRITES[0]
    if draw(st.booleans()):
        shape = draw(shapes(0, 3))
        key = draw(basic_key(shape))
    else:
        shape = draw(shapes(1, 3, FULL_SIZES))
        key = draw(advanced_key(shape))
    target = np.zeros(shape)[key].shape
    value = target[draw(st.integers(0, len(target))) :]
    asked = Case((Input(shape), Input(value)), (), {"key": key})
    return row, asked, draw(st.sampled_from(row.dtypes))


@st.composite
def placed(draw: Draw) -> Call:
    """gather, scatter and scatter_reduce along an axis."""
    shape = draw(shapes(1, 3, FULL_SIZES))
    dim = draw(st.integers(0, len(shape) - 1))
    where = tuple(
        draw(st.integers(0, 6)) if i == dim else draw(st.integers(1, n))
        for i, n in enumerate(shape)
    )
    rows = rows_indexing.GATHER_SCATTER
    row = draw(st.sampled_from([r for r in rows if r.name in ("gather", "scatter_reduce")]))
    dtype = draw(st.sampled_from(row.dtypes))
    places = index(where, shape[dim])
    if row.name == "gather":
        return row, Case((Input(shape), places), (), {"dim": dim}), dtype
    options = {
        "dim": dim,
        "reduce": row.cases[0].kwargs["reduce"],
        "include_self": draw(st.booleans()),
    }
    inputs = (Input(shape, 0.5, 2), places, Input(where, 0.5, 2))
    return row, Case(inputs, (), options), dtype


@st.composite
def orders(draw: Draw) -> Call:
    """sort, argsort and topk, with ties."""
    row = draw(st.sampled_from(rows_indexing.ORDER))
    shape = draw(shapes(1, 3, st.one_of(SIZES, st.just(40))))
    dim = draw(st.integers(-len(shape), len(shape) - 1))
    options: dict[str, Any] = {"dim": dim}
    if row.name == "topk":
        options["k"] = draw(st.integers(0, shape[dim]))
        options["largest"] = draw(st.booleans())
    else:
        options["descending"] = draw(st.booleans())
    dtype = draw(st.sampled_from(row.dtypes))
    if draw(st.booleans()):
        size = int(np.prod(shape))
        few = st.sampled_from((0.0, -0.0, 1.0, -1.0, 2.0))
        flat = draw(st.lists(few, min_size=size, max_size=size)) if size <= 60 else [1.0] * size
        return row, Case((given(np.array(flat).reshape(shape)),), (), options), dtype
    return row, Case((Input(shape),), (), options), dtype


# ------------------------------------------------------------ products and windows
@st.composite
def products(draw: Draw) -> Call:
    """Matrix products of stacks that broadcast."""
    row = named("matmul")
    batches = draw(broadcast(2))
    sizes = st.one_of(st.integers(0, 6), st.sampled_from((9, 16, 33, 65)))
    m, k, n = draw(sizes), draw(sizes), draw(sizes)
    left, right = (*batches[0][-2:], m, k), (*batches[1][-2:], k, n)
    if draw(st.booleans()) and draw(st.booleans()):
        left, right = (k,), (k, n)
    return row, Case((Input(left), Input(right))), draw(st.sampled_from(row.dtypes))


@st.composite
def geometry(draw: Draw, rank: int) -> dict[str, Any]:
    """Stride, dilation and padding of windows."""
    each = st.tuples(*[st.integers(1, 3)] * rank)
    found: dict[str, Any] = {"stride": draw(each), "dilation": draw(each)}
    found["padding"] = draw(st.tuples(*[st.integers(0, 2)] * (2 * rank)))
    return {key: value for key, value in found.items() if draw(st.booleans())}


def reach(kernel: Shape, options: dict[str, Any]) -> Shape:
    """The least sizes that a window fits."""
    gaps = options.get("dilation", (1,) * len(kernel))
    return tuple((k - 1) * gap + 1 for k, gap in zip(kernel, gaps, strict=True))


@st.composite
def convolution(draw: Draw) -> Call:
    """Convolution and its transpose, in 1 to 3 axes, with groups."""
    transposed = draw(st.booleans())
    row = named("conv_transpose2d" if transposed else "conv2d")
    rank = draw(st.integers(1, 3))
    kernel = draw(st.tuples(*[st.integers(1, 3)] * rank))
    options = draw(geometry(rank))
    groups = draw(st.integers(1, 2))
    inner, outer = (groups * draw(st.integers(1, 3)) for _ in range(2))
    space = tuple(n + draw(st.integers(0, 3)) for n in reach(kernel, options))
    if groups > 1:
        options["groups"] = groups
    x = Input((draw(st.integers(1, 2)), inner, *space))
    channels = (inner, outer // groups) if transposed else (outer, inner // groups)
    inputs = [x, Input((*channels, *kernel))]
    if draw(st.booleans()):
        inputs.append(Input((outer,)))
    if transposed:
        steps = options.get("stride", (1,) * rank)
        options["output_padding"] = tuple(draw(st.integers(0, s - 1)) for s in steps)
        spread = [(n - 1) * s for n, s in zip(space, steps, strict=True)]
        cut = rows_conv.padding_pairs(options.get("padding", 0), rank)
        if any(a + b > n for (a, b), n in zip(cut, spread, strict=True)):
            options.pop("padding")
    return row, Case(tuple(inputs), (), options), draw(st.sampled_from(row.dtypes))


@st.composite
def pooling(draw: Draw) -> Call:
    """Pooling; padding is at most half a window, as PyTorch demands."""
    row = draw(st.sampled_from(rows_conv.POOLING[:3]))
    kernel = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    options: dict[str, Any] = {"kernel_size": kernel}
    for name in ("stride", "dilation"):
        if draw(st.booleans()):
            options[name] = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    if draw(st.booleans()):
        options["padding"] = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    if draw(st.booleans()):
        options["ceil_mode"] = True
    if "return_indices" in row.cases[0].kwargs:
        options["return_indices"] = True
    if row.name == "avg_pool2d" and draw(st.booleans()):
        options["count_include_pad"] = False
    space = tuple(n + draw(st.integers(0, 4)) for n in reach(kernel, options))
    shape = (*draw(st.sampled_from(((), (2,), (2, 1)))), *space)
    return row, Case((Input(shape),), (), options), draw(st.sampled_from(row.dtypes))


@st.composite
def differentiable(draw: Draw) -> Call:
    """A small call of a differentiable method, in float64."""
    smooth = st.one_of(
        unary(), binary(), reduction(), along(), movements(), reads(), placed(), products(),
        convolution(), pooling(), joins(),
    )  # fmt: skip

    def fits(call: Call) -> bool:
        row, asked, _ = call
        sizes = [int(np.prod(i.shape)) for i in asked.inputs]
        return row.gradient and "float64" in row.dtypes and 0 < max(sizes) and max(sizes) <= 12

    row, asked, _ = draw(smooth.filter(fits))
    return row, asked, "float64"
