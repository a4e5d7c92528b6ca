"""Arguments to try each row of the table of lowerings with: `samples()`.

Each sample calls one operator of ATen as a graph would. Shapes are small, and uneven where an
operator has edges: windows that do not divide, strides, groups, negative axes, several dtypes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from test.optional import need

torch = need("torch")

# an operator with its overload, positional arguments, named ones
Sample = tuple[str, tuple[Any, ...], dict[str, Any]]


def _floats(*shape: int, least: float = -3.0, most: float = 3.0) -> Any:
    return torch.rand(*shape) * (most - least) + least


def _ints(*shape: int, least: int = -20, most: int = 20) -> Any:
    return torch.randint(least, most, shape)


def _bools(*shape: int) -> Any:
    return torch.rand(*shape) > 0.5


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-7, 30.0, -30.0, math.inf, -math.inf, math.nan]


def samples() -> dict[str, list[Sample]]:
    """For each row of the table, by its name, what to try."""
    torch.manual_seed(7)
    found: dict[str, list[Sample]] = {}

    def add(row: str, *args: Any, op: str | None = None, **kwargs: Any) -> None:
        name = op or (row if "." in row else f"{row}.default")
        found.setdefault(row, []).append((name, args, kwargs))

    for family in (_unary, _binary, _activations, _movement, _made, _reductions, _products):
        family(add)
    for family in (_indices, _windows, _norms, _random):
        family(add)
    return found


Add = Callable[..., None]


def _unary(add: Add) -> None:
    special = torch.tensor(SPECIAL)
    everywhere = (
        "abs atan ceil cos erf exp exp2 floor neg reciprocal relu sigmoid sign sgn sin sinh tanh "
        "trunc isnan isinf isfinite square round cosh asinh expm1 erfc clone alias detach positive "
        "lift_fresh_copy lift_fresh contiguous logical_not hardsigmoid hardswish silu mish tan"
    ).split()
    for name in everywhere:
        finite = special[:9] if name in ("hardswish", "tan", "sinh", "cosh") else special
        wide = finite if name not in ("sin", "cos", "silu", "mish") else special[:9]
        add(name, wide)
        if name not in ("relu", "silu", "mish", "hardsigmoid", "hardswish", "erfc"):
            add(name, _floats(2, 3).to(torch.float64))
    for name in ("log", "log2", "log10", "log1p", "sqrt", "rsqrt"):
        add(name, torch.tensor(SPECIAL))
        add(name, _floats(7, least=0.01, most=50))
    for name in ("acos", "asin", "atanh"):
        add(name, _floats(9, least=-0.99, most=0.99))
    add("acosh", _floats(9, least=1.0, most=9.0))
    add("round.decimals", _floats(9), decimals=2)
    add("bitwise_not", _ints(5))
    add("bitwise_not", _bools(5))
    add("abs", _ints(5))
    add("neg", _ints(5).to(torch.int8))
    add("exp", _floats(5).to(torch.bfloat16))
    add("sigmoid", _floats(5).to(torch.float16))
    add("sin", _ints(5))
    add("nan_to_num", torch.tensor(SPECIAL))
    add("nan_to_num", torch.tensor(SPECIAL), 1.0, 2.0, -2.0)
    add("_to_copy", _floats(5), dtype=torch.int32)
    add("_to_copy", _floats(5), dtype=torch.bfloat16)
    add("to", _floats(5), torch.float64, op="to.dtype")
    add("view.dtype", _floats(5), torch.int32)
    add("fill", _floats(2, 3), 2.5, op="fill.Scalar")
    add("copy", _floats(2, 3), _ints(3))


def _binary(add: Add) -> None:
    x, y, row = _floats(3, 4), _floats(3, 4), _floats(4)
    special = torch.tensor(SPECIAL)
    pairs = (
        special[:, None].expand(12, 12).contiguous(),
        special[None].expand(12, 12).contiguous(),
    )
    i, j = _ints(3, 4), _ints(3, 4)
    j[j == 0] = 3
    for name in ("add", "sub"):
        add(name, x, row, op=f"{name}.Tensor")
        add(name, x, i, op=f"{name}.Tensor", alpha=2)
        add(name, i, 2.5, op=f"{name}.Scalar")
        add(name, x.to(torch.bfloat16), row.to(torch.bfloat16), op=f"{name}.Tensor")
    add("rsub", x, 2, op="rsub.Scalar")
    add("rsub", x, y, op="rsub.Tensor", alpha=3)
    add("mul", x, row, op="mul.Tensor")
    add("mul", _bools(4), _bools(4), op="mul.Tensor")
    add("mul", x, 3, op="mul.Scalar")
    add("div", i, j, op="div.Tensor")
    add("true_divide", x, y, op="true_divide.Tensor")
    for mode in ("floor", "trunc"):
        add("div", i, j, op="div.Tensor_mode", rounding_mode=mode)
        add("div", x, y, op="div.Tensor_mode", rounding_mode=mode)
    add("floor_divide", i, j)
    add("floor_divide", x * 10, y)
    add("remainder", i, j, op="remainder.Tensor")
    add("remainder", x, 0.75, op="remainder.Scalar")
    add("fmod", i, j, op="fmod.Tensor")
    add("fmod", x, 0.75, op="fmod.Scalar")
    for name in ("maximum", "minimum", "fmax", "fmin"):
        add(name, *pairs)
    add("maximum", i, j)
    add("pow", x.abs(), row, op="pow.Tensor_Tensor")
    add("pow", x, 3, op="pow.Tensor_Scalar")
    add("pow", x.abs(), 0.5, op="pow.Tensor_Scalar")
    add("pow", 2.0, x, op="pow.Scalar")
    add("pow", i, 2, op="pow.Tensor_Scalar")
    add("atan2", pairs[0][:9, :9], pairs[1][:9, :9])
    add("hypot", x, y)
    add("copysign", x, y, op="copysign.Tensor")
    add("copysign", x, -1.0, op="copysign.Scalar")
    add("logaddexp", x, y)
    add("heaviside", torch.tensor([-1.0, 0.0, 2.0]), torch.tensor([0.5, 0.5, 0.5]))
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        add(name, i, j, op=f"{name}.Tensor")
        add(name, _bools(4), _bools(4), op=f"{name}.Tensor")
        add(name, i, 5, op=f"{name}.Scalar")
    add("bitwise_and.Tensor", i, j)
    for name in ("bitwise_left_shift", "bitwise_right_shift"):
        add(name, i, j.abs() % 5, op=f"{name}.Tensor")
    for name in ("__lshift__", "__rshift__"):
        add(name, i, 3, op=f"{name}.Scalar")
    for name in ("logical_and", "logical_or", "logical_xor"):
        add(name, i % 2, _bools(3, 4))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        add(name, *pairs, op=f"{name}.Tensor")
        add(name, i, 3, op=f"{name}.Scalar")
    add("where", _bools(3, 4), x, row, op="where.self")
    add("where", _bools(3, 4), i, x, op="where.self")
    add("clamp", special, -1, 2.5)
    add("clamp", x, _floats(4) - 2, _floats(4) + 2, op="clamp.Tensor")
    add("clip", x, None, 1.0)
    add("clamp_min", x, 0.5)
    add("clamp_max", i, 5)
    add("masked_fill", x, _bools(4), -math.inf, op="masked_fill.Scalar")
    add("masked_fill", x, _bools(3, 4), torch.tensor(2), op="masked_fill.Tensor")
    add("addcmul", x, y, row, value=2)
    add("addcdiv", x, y, row.abs() + 1)
    add("lerp", x, y, 0.3, op="lerp.Scalar")
    add("lerp", x, y, _floats(4), op="lerp.Tensor")


def _activations(add: Add) -> None:
    x, g = _floats(3, 5), _floats(3, 5)
    add("gelu", x)
    add("gelu", x, approximate="tanh")
    add("hardtanh", x, -1.0, 2.0)
    add("leaky_relu", x, 0.2)
    add("elu", x, 1.5, 1.0, 1.0)
    add("softplus", x * 10, 2, 15)
    add("sigmoid_backward", g, x.sigmoid())
    add("tanh_backward", g, x.tanh())
    add("threshold_backward", g, x, 0)
    add("gelu_backward", g, x)
    add("gelu_backward", g, x, approximate="tanh")
    add("silu_backward", g, x)
    add("leaky_relu_backward", g, x, 0.2, False)
    add("hardtanh_backward", g, x, -1.0, 2.0)


def _movement(add: Add) -> None:
    x = _floats(2, 3, 4)
    for name in ("view", "reshape", "_unsafe_view", "view_copy"):
        add(name, x, [4, -1])
    add("_reshape_copy", x, [4, 6])
    for name in ("permute", "permute_copy"):
        add(name, x, [2, 0, -2])
    for name in ("t", "t_copy", "numpy_T"):
        add(name, x[0])
    for name in ("transpose", "transpose_copy"):
        add(name, x, 0, -1, op=f"{name}.int")
    for name in ("expand", "expand_copy"):
        add(name, x[:, :1], [2, 6, -1])
    for name in ("unsqueeze", "unsqueeze_copy"):
        add(name, x, -1)
    for name in ("squeeze", "squeeze_copy"):
        add(name, x[:, :1])
        add(name, x[:, :1], 1, op=f"{name}.dim")
        add(name, x[:1, :1], [0, 1, 2], op=f"{name}.dims")
    for name in ("slice", "slice_copy"):
        add(name, x, 1, -2, 9223372036854775807, op=f"{name}.Tensor")
        add(name, x, 2, 0, 4, 3, op=f"{name}.Tensor")
    for name in ("select", "select_copy"):
        add(name, x, 1, -1, op=f"{name}.int")
    for name in ("split", "split_copy", "unsafe_split"):
        add(name, x, 3, 2, op=f"{name}.Tensor")
    for name in ("split_with_sizes", "split_with_sizes_copy", "unsafe_split_with_sizes"):
        add(name, x, [1, 3], 2)
    for name in ("unbind", "unbind_copy"):
        add(name, x, 1, op=f"{name}.int")
    add("chunk", x, 2, -1)
    for name in ("cat", "concat"):
        add(name, [x, x * 2, torch.zeros(0)], 1)
        add(name, [x, _ints(2, 1, 4)], 1)
    add("stack", [x, x + 1], -1)
    add("flip", x, [0, 2])
    add("roll", x, [1, -2], [0, 2])
    add("roll", x, [3])
    add("repeat", x, [2, 1, 1, 3])
    add("repeat_interleave.self_int", x, 2, 1)
    for name in ("unfold", "unfold_copy"):
        add(name, x, 2, 3, 1)
    for name in ("diagonal", "diagonal_copy"):
        add(name, x, 1, 1, 2)
    for name in ("as_strided", "as_strided_copy"):
        add(name, x, [3, 4], [4, 1], 2)
        add(name, x, [3, 3], [5, 2])
    add("constant_pad_nd", x, [1, 2, -1, 1], 2.5)
    add("pad", x, [1, 1], "reflect")
    for rank, size in ((1, 3), (2, 4), (3, 5)):
        image = (
            _floats(*(2, 3, 4, 5, 3)[:rank], 4, 5)[..., :size]
            if rank < 3
            else _floats(1, 2, 3, 4, 5)
        )
        sides = [1, 2] * rank if rank < 3 else [1, 1] * rank
        for kind in ("reflection", "replication"):
            name = f"{kind}_pad{rank}d"
            add(name, image, sides)
            made = getattr(torch.ops.aten, name)(image, sides)
            add(f"{name}_backward", torch.randn_like(made), image, sides)
    add("tril", x, -1)
    add("triu", x, 1)
    add("pixel_shuffle", _floats(1, 8, 2, 3), 2)
    add("slice_scatter", x, _floats(2, 3, 2), 2, 1, 3)
    add("slice_scatter", x, _floats(2, 3, 2), 2, 0, 4, 2)
    add("slice_scatter", x, _floats(2, 3, 2), -1, 1, 4, 2)
    add("select_scatter", x, _floats(2, 4), 1, -1)
    add("slice_backward", _floats(2, 2, 4), [2, 3, 4], 1, 0, 2, 1)
    add("select_backward", _floats(2, 4), [2, 3, 4], 1, 2)
    add("diagonal_scatter", _floats(4, 4), _floats(3), 1)


def _made(add: Add) -> None:
    x = _floats(2, 3)
    add("full", [2, 3], 2.5)
    add("full", [2], 7, dtype=torch.int64)
    add("zeros", [2, 3])
    add("ones", [2], dtype=torch.int32)
    add("new_full", x, [2, 2], 3.0)
    add("new_zeros", x, [2, 2])
    add("new_ones", x, [2, 2])
    add("full_like", x, 5)
    add("zeros_like", x)
    add("ones_like", x, dtype=torch.int64)
    add("scalar_tensor", 2.5)
    add("arange.start_step", 2, 11, 3)
    add("arange.start_step", 0.5, 2.0, 0.25)
    add("arange.start", 2, 7)
    add("arange", 5)
    add("arange.default", 6)
    add("linspace", 0, 1, 7)
    add("eye", 3)
    add("eye", 3, 4, op="eye.m")


def _reductions(add: Add) -> None:
    x, i = _floats(2, 3, 4), _ints(2, 3, 4)
    add("sum", x)
    add("sum", x, [0, -1], True, op="sum.dim_IntList")
    add("sum", i.to(torch.int8), [1], op="sum.dim_IntList")
    add("sum", _bools(5))
    add("sum", x.to(torch.bfloat16), [1], op="sum.dim_IntList")
    add("mean", x)
    add("mean", x, [1, 2], True, op="mean.dim")
    add("mean", i, [1], op="mean.dim", dtype=torch.float32)
    add("prod", x)
    add("prod", i % 5, 1, True, op="prod.dim_int")
    add("prod.dim_int", x, -1)
    spotted = x.clone()
    spotted[0, 1, 2] = math.nan
    for name in ("amax", "amin"):
        add(name, spotted, [1], True)
        add(name, i)
    for name in ("max", "min"):
        add(name, spotted)
        add(f"{name}.default", i)
        add(f"{name}.other", x, x.flip(0))
        add(f"{name}.dim", x, 1)
        add(f"{name}.dim", spotted, -1, True)
    for name in ("argmax", "argmin"):
        add(name, x)
        add(name, spotted, 2, True)
        add(name, i % 3, 1)
    for name in ("any", "all"):
        add(name, i % 3)
        add(name, i % 3, 1, True, op=f"{name}.dim")
    for name in ("var", "std", "var_mean"):
        add(f"{name}.correction", x, [1])
        add(f"{name}.correction", x, [0, 2], correction=0, keepdim=True)
    add("var", x)
    add("var.dim", x, [1], False, True)
    for order in (2, 1, 0, 3, math.inf, -math.inf):
        add("linalg_vector_norm", x, order, [1])
    add("cumsum", x, 1)
    add("cumsum", i, -1)
    add("cumprod", x, 1)
    add("cummax", x, 1)
    add("cummin", x, -1)
    add("logcumsumexp", x, 1)
    add("logsumexp", x, [1], True)
    for name in ("_softmax", "_log_softmax"):
        add(name, x, -1, False)
        add(name, x, 1, False)
    add("softmax", x, 1, op="softmax.int")
    add("log_softmax", x, 1, op="log_softmax.int")
    add("_softmax_backward_data", _floats(2, 3), _floats(2, 3).softmax(1), 1, torch.float32)
    add("_log_softmax_backward_data", _floats(2, 3), _floats(2, 3).log_softmax(1), 1, torch.float32)
    add("nonzero_static", _bools(3, 4), size=5)


def _products(add: Add) -> None:
    a, b, batch = _floats(3, 4), _floats(4, 5), _floats(2, 3, 4)
    add("mm", a, b)
    add("mm", a.to(torch.bfloat16), b.to(torch.bfloat16))
    add("bmm", batch, _floats(2, 4, 5))
    add("matmul", batch, b)
    add("mv", a, _floats(4))
    add("dot", _floats(4), _floats(4))
    add("vdot", _floats(4), _floats(4))
    add("linear", batch, _floats(5, 4), _floats(5))
    add("addmm", _floats(5), a, b)
    add("addmm", _floats(3, 5), a, b, beta=0.5, alpha=2)
    add("addmv", _floats(3), a, _floats(4))
    add("baddbmm", _floats(2, 3, 5), batch, _floats(2, 4, 5), beta=0.5)
    add("addbmm", _floats(3, 5), batch, _floats(2, 4, 5))
    add("addr", _floats(3, 4), _floats(3), _floats(4))
    add("_int_mm", _ints(3, 4).to(torch.int8), _ints(4, 5).to(torch.int8))
    q, k, v = _floats(2, 2, 5, 4), _floats(2, 2, 6, 4), _floats(2, 2, 6, 4)
    flash = "_scaled_dot_product_flash_attention_for_cpu"
    add(flash, q, k, v)
    add(flash, q, k, v, 0.0, False, scale=0.3, attn_mask=_floats(5, 6))
    add(flash, q, q, q, 0.0, True)
    add("scaled_dot_product_attention", q, k, v, _bools(5, 6) | torch.eye(5, 6).bool())
    for causal, mask in ((False, None), (True, None), (False, _floats(5, 5))):
        y, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, q, q, 0.0, causal, attn_mask=mask
        )
        args = (torch.randn_like(y), q, q, q, y, sums, 0.0, causal)
        add(f"{flash}_backward", *args, attn_mask=mask)


def _indices(add: Add) -> None:
    x = _floats(3, 4, 5)
    for name in ("index", "_unsafe_index"):
        op = "index.Tensor" if name == "index" else "_unsafe_index.Tensor"
        add(name, x, [None, torch.tensor([0, 2, 2])], op=op)
        add(name, x, [torch.tensor([0, 2]), None, torch.tensor([[1], [4]])], op=op)
    add("index", x, [torch.tensor([0, -1])], op="index.Tensor")
    add("index_select", x, -2, torch.tensor([3, 0, 3]))
    add("gather", x, 1, _ints(3, 2, 5, least=0, most=4))
    add("take", x, _ints(6, least=0, most=60))
    add("embedding", _floats(7, 3), _ints(2, 4, least=0, most=7))
    add("embedding_dense_backward", _floats(2, 4, 3), _ints(2, 4, least=0, most=7), 7, -1, False)
    add("embedding_dense_backward", _floats(2, 4, 3), _ints(2, 4, least=0, most=7), 7, 2, False)
    order = torch.argsort(torch.rand(3, 4, 5), 1)[:, :2]
    add("scatter.src", x, 1, order, _floats(3, 3, 5))
    add("scatter.value", x, 1, order, 2.5)
    add("scatter.reduce", x, 1, order, _floats(3, 3, 5), reduce="add")
    add("scatter.value_reduce", x, 1, order, 2.0, reduce="multiply")
    many = _ints(3, 2, 5, least=0, most=4)
    add("scatter_add", x, 1, many, _floats(3, 2, 5))
    for kind in ("sum", "amax", "mean"):
        add("scatter_reduce", x, 1, many, _floats(3, 2, 5), kind, op="scatter_reduce.two")
    add("index_add", x, 1, torch.tensor([0, 2, 2]), _floats(3, 3, 5), alpha=2)
    add("index_copy", x, 1, torch.tensor([2, 0]), _floats(3, 2, 5))
    add("index_fill", x, 1, torch.tensor([2, 0]), 7.0, op="index_fill.int_Scalar")
    for name in ("index_put", "_unsafe_index_put"):
        add(name, x, [torch.tensor([2, 0])], _floats(2, 4, 5))
        add(name, x, [None, torch.tensor([3, 1]), torch.tensor([0, 0])], _floats(3, 2))
        add(name, x, [torch.tensor([2, -1]), torch.tensor([1, 1])], _floats(5), True)
    add("index_put", x, [_bools(3, 4)], torch.tensor(1.5))
    add("masked_scatter", x, _bools(3, 4, 5), _floats(60))
    apart = torch.randperm(24).reshape(4, 6).float()
    add("sort", apart, 1)
    add("sort", apart, 0, True)
    add("sort.stable", apart.long() % 5, stable=True, dim=1)
    add("argsort", apart, 1, True)
    add("topk", apart, 3)
    add("topk", apart, 2, 0, False)
    edges = torch.tensor([1.0, 2.0, 4.0])
    add("searchsorted.Tensor", edges, torch.tensor([[0.0, 1.0, 3.0], [4.0, 5.0, 2.0]]))
    add("searchsorted.Tensor", edges, torch.tensor([1.0, 3.0]), right=True)
    add("searchsorted.Scalar", edges, 2.0)
    add("bucketize.Tensor", torch.tensor([0.0, 1.0, 3.0]), edges, right=True)
    add("bucketize.Scalar", 3.0, edges)
    add("one_hot", torch.tensor([0, 2, 1]), 4)


def _windows(add: Add) -> None:
    x, w = _floats(2, 4, 7, 6), _floats(6, 2, 3, 2)
    settings = ([2, 1], [1, 0], [1, 2], False, [0, 0], 2)
    add("convolution", x, w, _floats(6), *settings)
    add("convolution", _floats(1, 3, 9), _floats(4, 3, 3), None, [1], [1], [1], False, [0], 1)
    add("convolution", _floats(1, 2, 3, 4, 3), _floats(2, 2, 2, 2, 2), None, [1] * 3, [0] * 3,
        [1] * 3, False, [0] * 3, 1)  # fmt: skip
    turned = _floats(4, 3, 3, 3)
    add("convolution", x, turned, _floats(3), [2, 2], [1, 1], [1, 1], True, [1, 0], 1)
    made = torch.ops.aten.convolution(x, w, None, *settings)
    add("convolution_backward", torch.randn_like(made), x, w, [6], *settings, [True, True, True])
    made = torch.ops.aten.convolution(x, turned, None, [2, 2], [1, 1], [1, 1], True, [1, 0], 1)
    add("convolution_backward", torch.randn_like(made), x, turned, None, [2, 2], [1, 1], [1, 1],
        True, [1, 0], 1, [True, True, False])  # fmt: skip
    for rank in (1, 2, 3):
        space = (7, 6, 5)[:rank]
        image = _floats(2, 2, *space)
        kernel, stride, padding = [3] * rank, [2] * rank, [1] * rank
        name = f"max_pool{rank}d_with_indices"
        for ceil in (False, True):
            add(name, image, kernel, stride, padding, [1] * rank, ceil)
            if rank > 1:
                y, places = getattr(torch.ops.aten, name)(
                    image, kernel, stride, padding, [1] * rank, ceil
                )
                add(f"{name}_backward", torch.randn_like(y), image, kernel, stride, padding,
                    [1] * rank, ceil, places)  # fmt: skip
        add(f"max_pool{rank}d", image, [2] * rank)
        for counts in (True, False):
            add(f"avg_pool{rank}d", image, kernel, stride, padding, True, counts)
            if rank > 1:
                y = getattr(torch.ops.aten, f"avg_pool{rank}d")(
                    image, kernel, stride, padding, True, counts
                )
                add(f"avg_pool{rank}d_backward", torch.randn_like(y), image, kernel, stride,
                    padding, True, counts, None)  # fmt: skip
        add(f"adaptive_avg_pool{rank}d", image, [1] * rank)
        add(f"adaptive_avg_pool{rank}d", image, [4, 3, 2][:rank])
        if rank > 1:
            add(f"_adaptive_avg_pool{rank}d", image, [4, 3, 2][:rank])
            grad = _floats(2, 2, *[4, 3, 2][:rank])
            add(f"_adaptive_avg_pool{rank}d_backward", grad, image)
        add(f"adaptive_max_pool{rank}d", _floats(2, 2, *[4, 6, 2][:rank]), [2, 3, 1][:rank])
    y, places = torch.ops.aten.max_pool2d_with_indices(x, [2, 2], [1, 2], [0, 0], [2, 1])
    add("max_pool2d_with_indices", x, [2, 2], [1, 2], [0, 0], [2, 1])
    add("max_pool2d_with_indices_backward", torch.randn_like(y), x, [2, 2], [1, 2], [0, 0], [2, 1],
        False, places)  # fmt: skip
    resizes = {
        "upsample_nearest1d": ([7], ()), "upsample_nearest2d": ([7, 3], ()),
        "upsample_nearest3d": ([7, 3, 4], ()), "_upsample_nearest_exact1d": ([7], ()),
        "_upsample_nearest_exact2d": ([7, 3], ()), "_upsample_nearest_exact3d": ([7, 3, 4], ()),
        "upsample_linear1d": ([7], (False,)), "upsample_bilinear2d": ([8, 3], (True,)),
        "upsample_trilinear3d": ([6, 3, 4], (False,)), "upsample_bicubic2d": ([7, 8], (False,)),
    }  # fmt: skip
    for name, (size, rest) in resizes.items():
        image = _floats(1, 2, *(4, 5, 3)[: len(size)])
        add(name, image, size, *rest)
        y = getattr(torch.ops.aten, name)(image, size, *rest)
        add(f"{name}_backward", torch.randn_like(y), size, list(image.shape), *rest)
    add("im2col", x, [2, 3], [1, 1], [1, 0], [2, 1])
    y = torch.ops.aten.im2col(x, [2, 3], [1, 1], [1, 0], [2, 1])
    add("col2im", y, [7, 6], [2, 3], [1, 1], [1, 0], [2, 1])


def _norms(add: Add) -> None:
    x, w, b = _floats(3, 4, 5), _floats(4), _floats(4)
    mean, var = _floats(4), _floats(4, least=0.5, most=2)
    batch = (x, w, b, mean, var)
    for training in (True, False):
        add("_native_batch_norm_legit_functional", *batch, training, 0.1, 1e-5)
    add("native_batch_norm", *batch, False, 0.1, 1e-5)
    add("_native_batch_norm_legit", *batch, False, 0.1, 1e-5)
    add("_native_batch_norm_legit.no_stats", x, w, b, True, 0.1, 1e-5)
    add("_native_batch_norm_legit_no_training", *batch, 0.1, 1e-5)
    saved = x.mean((0, 2)), (x.var((0, 2), correction=0) + 1e-5).rsqrt()
    for training in (True, False):
        add("native_batch_norm_backward", _floats(3, 4, 5), x, w, mean, var, *saved, training, 1e-5,
            [True, True, True])  # fmt: skip
    add("native_layer_norm", x, [5], _floats(5), _floats(5), 1e-5)
    add("native_layer_norm", x, [4, 5], None, None, 1e-5)
    gamma = _floats(5)
    y, m, r = torch.ops.aten.native_layer_norm(x, [5], gamma, gamma, 1e-5)
    add("native_layer_norm_backward", torch.randn_like(y), x, [5], m, r, gamma, gamma, [True] * 3)
    add("native_group_norm", x, w, b, 3, 4, 5, 2, 1e-5)
    y, m, r = torch.ops.aten.native_group_norm(x, w, b, 3, 4, 5, 2, 1e-5)
    add("native_group_norm_backward", torch.randn_like(y), x, m, r, w, 3, 4, 5, 2, [True] * 3)
    states = (_floats(2, 3), _floats(2, 3))
    weights = (_floats(12, 4), _floats(12, 3), _floats(12), _floats(12))
    for reverse in (False, True):
        add("mkldnn_rnn_layer", _floats(5, 2, 4), *weights, *[s[None] for s in states], reverse, [],
            2, 3, 1, True, False, False, False)  # fmt: skip


def _random(add: Add) -> None:
    x = torch.full((4000,), 0.25)
    add("rand", [4000])
    add("rand_like", x)
    add("uniform", x, -1.0, 3.0)
    add("randn", [4000])
    add("randn_like", x)
    add("normal_functional", x, 2.0, 3.0)
    add("normal.float_float", 2.0, 3.0, [4000])
    add("randint", 10, [4000])
    add("randint.default", 10, [4000])
    add("randint_like", x, 10)
    add("randint.low", -5, 5, [4000])
    add("randint_like.low_dtype", x, -5, 5)
    add("bernoulli", x)
    add("bernoulli.default", x)
    add("bernoulli.p", x, 0.25)
    add("native_dropout", x + 1, 0.25, True)
    add("randperm", 4000)
    for name in ("empty", "empty_like", "new_empty"):
        args = {"empty": ([2, 3],), "empty_like": (x,), "new_empty": (x, [2, 3])}[name]
        add(name, *args, op="empty.memory_format" if name == "empty" else None)
    add("empty_strided", [2, 3], [1, 2])
    add("new_empty_strided", x, [2, 3], [1, 2])
    add("empty_permuted", [2, 3], [1, 0])
    add("prims.iota", 5, start=2, step=3, dtype=torch.int64, device="cpu", requires_grad=False)


# rows whose values are random, or nothing at all: tested by what they are like
RANDOM = {
    "rand", "rand_like", "uniform", "randn", "randn_like", "normal_functional",
    "normal.float_float", "randint", "randint.default", "randint_like", "randint.low",
    "randint_like.low_dtype", "bernoulli", "bernoulli.default", "bernoulli.p", "native_dropout",
    "randperm",
}  # fmt: skip
EMPTY = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"}
