"""Expressions in tinygrad's API: what each gives there, and what it gives here.

    python -m test.programs.expressions --record    # write down what tinygrad gives (installed)
    python -m test.programs.expressions [text ...]  # where weft differs from what is written down

In: the table below, Python expressions over the names of `inputs`. Out: an outcome each: dtype,
shape and numbers of what came out, or the kind of the error.
Where it sits: beside `runner.py`, which does the same for whole programs.
Invariant: an expression is the same text for both libraries, and needs nothing that is not named in
`inputs`.
"""

from __future__ import annotations

import argparse
import builtins
import importlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

RECORD = Path(__file__).parent / "expressions.json"
PEER = "tinygrad"
# numbers that are kept of a result, evenly spaced
KEPT = 12

UNARY = (
    "abs acos acosh asin asinh atan atanh ceil celu cos cosh elu erf exp exp2 floor gelu "
    "hardsigmoid hardswish hardtanh isfinite isinf isnan leaky_relu log log10 log2 log_softmax "
    "logsigmoid mish neg quick_gelu reciprocal relu relu6 round rsqrt selu sigmoid sign silu sin "
    "sinh softmax softmin softplus softsign sqrt square swish tan tanh trunc logical_not"
).split()
BINARY = ("add sub mul div pow maximum minimum eq ne copysign logaddexp fmod mod isclose").split()
INTEGER = (
    "add sub mul div mod fmod maximum minimum bitwise_and bitwise_or bitwise_xor pow eq".split()
)
REDUCE = "sum prod max min mean var std any all argmax argmin logsumexp".split()
SLOPES = [name for name in UNARY if name not in ("isfinite", "isinf", "isnan", "logical_not")]


def table() -> Iterator[str]:
    """Every expression, the generated ones first."""
    for name in UNARY:
        yield f"x.{name}()"
        yield f"h.{name}()"
        yield f"i.{name}()"
    for name in UNARY:
        if name not in ("softmax", "log_softmax", "softmin"):
            yield f"edges.{name}()"
    for name in SLOPES:
        yield f"slope(lambda t: t.{name}(), q)"
    for name in BINARY:
        yield f"x.{name}(y)"
        yield f"x.{name}(2)"
        yield f"h.{name}(0.3)"
        yield f"x.{name}(h)"
        if name not in ("eq", "ne", "isclose"):
            yield f"slope(lambda t: t.{name}(y), q)"
            yield f"slope(lambda t: q.{name}(t), y)"
    for name in INTEGER:
        yield f"i.{name}(j)"
        yield f"i.{name}(3)"
        yield f"u8.{name}(u8)"
        yield f"b.{name}(b)"
    for op in ("+", "-", "*", "/", "//", "%", "**", "<", "==", "&", "|", "^", "<<", ">>"):
        yield f"i {op} 2"
        yield f"2 {op} j"
        yield f"i {op} j"
        yield f"x {op} 2"
        yield f"2 {op} x"
        yield f"u8 {op} 3"
        yield f"b {op} b"
        yield f"x {op} 'a'"
        yield f"x {op} None"
    for name in REDUCE:
        yield f"x.{name}()"
        yield f"x.{name}(0)"
        yield f"x.{name}(axis=1, keepdim=True)"
        yield f"h.{name}(-1)"
        yield f"i.{name}(0)"
        yield f"u8.{name}()"
        yield f"b.{name}()"
        yield f"edges.{name}()"
        yield f"x.{name}(2)"
        yield f"Tensor.zeros(0, 3).{name}(0)"
        yield f"Tensor.zeros(0, 3).{name}(1)"
        yield f"Tensor(3.0).{name}()"
        if name not in ("argmax", "argmin"):
            yield f"x.{name}((0, 1))"
        if name not in ("argmax", "argmin", "any", "all"):
            yield f"slope(lambda t: t.{name}(1), q)"
    yield from TABLE


TABLE = """
x.sum(dtype=dtypes.half)
x.sum(axis=(-1,))
x.prod(dtype="float64")
x.var(0, correction=0)
x.std((0, 1), True, 0)
x.var_mean(1)
x.std_mean(0)
x.max(axis=())
x.sum(())
x.cumsum()
x.cumsum(1)
x.cumprod(0)
x.cumprod()
x.cummax(1)
x.cummin(0)
x.logcumsumexp(1)
i.cumsum(1)
i.cummax(0)
b.cumsum(0)
Tensor(2.0).cumsum()
Tensor.zeros(0).cumsum()
slope(lambda t: t.cumsum(1), q)
slope(lambda t: t.cumprod(1), q)
slope(lambda t: t.cummax(1)[0], q)
slope(lambda t: t.logcumsumexp(1), q)
x.sort()
x.sort(0, descending=True)
i.sort(1)
b.sort(0)
x.argsort(1)
x.topk(2)
x.topk(2, dim=0, largest=False)
x.topk(9)
slope(lambda t: t.sort(1)[0], q)
slope(lambda t: t.topk(2)[0], q)
x.reshape(4, 3)
x.reshape((2, -1))
x.reshape(-1, -1)
x.reshape(5, 3)
x.reshape(None, 4)
x.view(12)
x.flatten()
x.flatten(1)
img.flatten(1, 2)
img.flatten(2, 1)
x.unflatten(1, (2, 2))
x.unflatten(1, (-1, 2))
x.unflatten(1, (3, 2))
x.permute(1, 0)
x.permute((1, 0))
x.permute(0)
x.permute(1, 1)
x.T
x.transpose()
x.transpose(0, -1)
x.transpose(0, 2)
img.transpose(1, 3).shape
x.expand(2, 3, 4)
x.expand(-1, 4)
x.expand(3, 5)
x.unsqueeze(0).expand(2, -1, -1)
x.shrink(((0, 2), (1, 3)))
x.shrink((None, (1, 3)))
x.shrink(((0, 5), (0, 1)))
x.shrink_to(2, 3)
x.pad_to(4, 5)
x.pad_to(2, 5)
x.pad((1, 2))
x.pad((1, 0, 2, 1))
x.pad(((1, 0), (0, 2)))
x.pad(((1, 0), None), value=3.0)
x.pad((-1, -1))
x.pad((1, 1), mode="reflect")
x.pad((2, 2, 1, 1), mode="replicate")
x.pad((2, 1, 1, 0), mode="circular")
x.pad((9, 1), mode="reflect")
x.pad((1, 1), mode="nothing")
x.pad((1,))
i.pad((1, 1), value=7)
i.pad((1, 1), value=1.5)
b.pad((1, 1), value=True)
x.pad((1, 1), value=-math.inf)
x.flip(0)
x.flip((0, 1))
x.flip(0, 1)
x.flip(2)
x.squeeze()
x.unsqueeze(0).squeeze(0)
x.unsqueeze(1).squeeze(0).shape
x.squeeze(5)
x.unsqueeze(-1)
x.unsqueeze(5)
x.repeat(2)
x.repeat(2, 1)
x.repeat((1, 2))
x.repeat(2, 1, 2)
x.repeat_interleave(2)
x.repeat_interleave(2, dim=1)
x.split(2)
x.split([1, 2])
x.split(2, dim=1)
x.split([1, 1])
x.chunk(2)
x.chunk(3, dim=1)
x.chunk(0)
x.roll(1)
x.roll(1, 0)
x.roll((1, -1), (0, 1))
x.rearrange("a b -> b a")
x.rearrange("a (b c) -> (a b) c", c=2)
x.rearrange("a b -> a")
x.rearrange("a b c -> a b c")
x.unfold(1, 2, 1)
x.unfold(0, 2, 2)
x.diagonal()
x.diagonal(1)
v.diag()
x.meshgrid(v)
v.meshgrid(v, indexing="xy")
v.meshgrid(v, indexing="no")
Tensor.stack(x, y)
Tensor.stack(x, y, dim=1)
x.stack(y, dim=-1)
Tensor.stack([x, y])
Tensor.cat(x, y)
x.cat(y, dim=1)
x.cat(i)
x.cat(v)
x.cat(y, dim=2)
x.tril()
x.triu(1)
x.tril(-1)
v.tril()
x.gather(1, index)
x.gather(0, index)
x.gather(2, index)
x.gather(1, v)
x.scatter(1, index, y)
x.scatter(0, index, 3.0)
x.scatter(1, index, y, reduce="add")
x.scatter(1, index, y, reduce="multiply")
x.scatter(1, index, y, reduce="no")
x.scatter_reduce(1, index, y, "sum")
x.scatter_reduce(1, index, y, "prod")
x.scatter_reduce(1, index, y, "mean")
x.scatter_reduce(1, index, y, "amax")
x.scatter_reduce(1, index, y, "amin", include_self=False)
x.scatter_reduce(1, index, y, "no")
x.masked_fill(b, 0.5)
x.masked_fill(b, math.nan)
i.masked_fill(b, -1)
x.masked_select(b)
x.masked_select(b, size=4)
x.masked_select(b, size=9, fill_value=-1)
x.nonzero()
i.nonzero(size=3)
i.nonzero(size=20, fill_value=-1)
b.where(x, y)
b.where(x, 0)
b.where(1, 0)
b.where(1.0, 0)
b.where(i, 0.5)
x.where(x, y)
i.where(x, y)
b.where(x, h)
x.one_hot(3)
i.one_hot(3)
Tensor([0, 2, 1]).one_hot(3)
Tensor([0, 4, -1]).one_hot(3)
x.lerp(y, 0.3)
x.lerp(y, p)
u8.lerp(u8, 0.5)
x.clip(-0.5, 0.5)
x.clip(None, 0.5)
x.clip(0.1)
x.clip()
x.clamp(0, 1)
i.clip(-2, 2)
x.clip(y, 1)
x.allclose(x)
x.isclose(x + 1e-9)
x.isclose(y)
x.dot(m)
x @ m
x.matmul(m)
v @ m
x @ v
x @ x
v @ v
img @ m
x.dot(v).shape
i @ i.T
h @ h.T
u8 @ u8.T
b @ b.T
x.matmul(y.T, dtype=dtypes.half)
x.linear(m, Tensor([1.0, 2, 3, 4, 5]))
x.linear(v)
x.linear(m, v)
x.einsum("ij->ji", x)
Tensor.einsum("ij,jk->ik", x, m)
Tensor.einsum("ij,ij->", x, y)
Tensor.einsum("ij,ij->i", x, y)
Tensor.einsum("i,j->ij", v, v)
Tensor.einsum("...j,jk->...k", img.reshape(1, 2, 9, 4), m)
Tensor.einsum("ij,jk", x, m)
Tensor.einsum("ij,kl->il", x, m)
Tensor.einsum("ii->i", m[:, :4])
Tensor.einsum("ij,jk->ik", x)
Tensor.einsum("ij->k", x)
Tensor.einsum("ijk->ij", x)
slope(lambda t: t @ m, q)
slope(lambda t: q @ t, m)
m.qr()[0].shape
[t.shape for t in m.svd()]
x.svd()[1]
m.T.newton_schulz(3, (2, -1.5, 0.5))
img.conv2d(w)
img.conv2d(w, padding=1)
img.conv2d(w, stride=2, padding=(1, 0))
img.conv2d(w, padding=(1, 0, 2, 1))
img.conv2d(w, dilation=2)
img.conv2d(w, groups=2)
img.conv2d(w[:, :1].cat(w[:1, :1]), groups=2)
img.conv2d(w, Tensor([1.0, 2, 3]))
img.conv2d(w[:, :, 0])
img.conv2d(w, padding=(1, 2, 3))
img.conv2d(x)
img.half().conv2d(w.half())
img[0].conv2d(w[:, :, 0])
img.conv_transpose2d(w.transpose(0, 1))
img.conv_transpose2d(w.transpose(0, 1), stride=2, padding=1, output_padding=1)
img.conv_transpose2d(w.transpose(0, 1), dilation=2)
slope(lambda t: t.conv2d(w), img)
slope(lambda t: img.conv2d(t, padding=1), w)
slope(lambda t: t.conv_transpose2d(w.transpose(0, 1), stride=2), img)
img.avg_pool2d()
img.avg_pool2d((3, 3), stride=1)
img.avg_pool2d(3, 2, padding=1)
img.avg_pool2d(3, 2, padding=1, count_include_pad=False)
img.avg_pool2d(5, 4, ceil_mode=True)
img.avg_pool2d((2,))
img.max_pool2d()
img.max_pool2d((3, 3), stride=1, dilation=2)
img.max_pool2d(3, 2, padding=1)
img.max_pool2d(5, 4, ceil_mode=True)
img.max_pool2d(2, return_indices=True)
img.max_unpool2d(img.max_pool2d(2, return_indices=True)[1].cast(dtypes.int), 2).shape
img.int().max_pool2d(2)
img.max_pool2d(3, 1, padding=2).shape
slope(lambda t: t.max_pool2d(2), img)
slope(lambda t: t.avg_pool2d(3, 2, padding=1), img)
img.interpolate((3, 4))
img.interpolate((9, 8), align_corners=True)
img.interpolate((9, 8), mode="nearest")
img.interpolate((4, 9), mode="nearest-exact")
img.interpolate((4,))
img.interpolate((4, 4), mode="cubic")
slope(lambda t: t.interpolate((9, 4)), img)
x.softmax(0)
x.softmax(axis=0, dtype=dtypes.half)
x.log_softmax(0)
h.softmax(dtype="float32")
x.layernorm()
x.layernorm((0, 1))
img.layernorm((2, 3), eps=1e-3)
img.batchnorm(Tensor([1.0, 2]), Tensor([0.5, 1]), Tensor([0.1, 0.2]), Tensor([2.0, 3]))
img.batchnorm(None, None, Tensor([0.1, 0.2]), Tensor([2.0, 3]))
x.normalize()
x.normalize(p=1.0, dim=0)
x.normalize(p=0)
x.normalize(p=math.inf)
x.dropout(0.0)
x.dropout(0.5)
x.dropout(2.0)
x.gelu(approximate="none")
x.gelu("tanh")
x.gelu("no")
x.leaky_relu(0.3)
x.elu(2.0)
x.celu(2.0)
x.selu(1.0, 2.0)
x.hardtanh(-0.5, 0.2)
x.softplus(2.0)
x.hardsigmoid(0.2, 0.4)
x.isinf(detect_negative=False)
x.erf()
x.scaled_dot_product_attention(y, y)
x[None, None].scaled_dot_product_attention(y[None, None], y[None, None], is_causal=True)
x.scaled_dot_product_attention(y, y, attn_mask=b[:, :3])
x.scaled_dot_product_attention(y, y, attn_mask=x[:, :3])
x.scaled_dot_product_attention(y, y, attn_mask=x[:, :3], is_causal=True)
q4.scaled_dot_product_attention(k4, k4, enable_gqa=True)
q4.scaled_dot_product_attention(k4, k4)
x.binary_crossentropy(p.clip(0, 1))
p.clip(0.1, 0.9).binary_crossentropy(b.float())
x.binary_crossentropy_logits(b)
x.binary_crossentropy_logits(b, reduction="sum")
x.binary_crossentropy_logits(b, pos_weight=Tensor([1.0, 2, 3, 4]))
x.binary_crossentropy_logits(b, reduction="no")
x.cross_entropy(Tensor([0, 1, 3]))
x.cross_entropy(Tensor([0, 1, 3]), reduction="none")
x.cross_entropy(Tensor([0, 1, 3]), label_smoothing=0.2)
x.cross_entropy(p / p.sum(1, keepdim=True))
x.cross_entropy(Tensor([0, 1]))
x.cross_entropy(Tensor([0, 1, 3]), label_smoothing=2.0)
x.sparse_categorical_crossentropy(Tensor([0, 1, 3]))
x.sparse_categorical_crossentropy(Tensor([0, 1, 3]), label_smoothing=0.1, reduction="sum")
x.sparse_categorical_crossentropy(Tensor([0, 1, 3]), reduction="no")
x.log_softmax().nll_loss(Tensor([0, 1, 3]))
x.log_softmax().nll_loss(Tensor([0, 1, 3]), weight=v)
x.log_softmax().nll_loss(Tensor([0, 1, 3]), ignore_index=1)
x.log_softmax().nll_loss(Tensor([0, 1, 3]), reduction="none")
slope(lambda t: t.cross_entropy(Tensor([0, 1, 3])), q)
slope(lambda t: t.binary_crossentropy_logits(b), q)
slope(lambda t: t.softmax().square(), q)
slope(lambda t: t.layernorm().square(), q)
slope(lambda t: t.gather(1, index), q)
slope(lambda t: t.scatter(1, index, y), q)
slope(lambda t: y.scatter_reduce(1, index, t, "sum"), q)
slope(lambda t: b.where(t, 0), q)
slope(lambda t: t.pad((1, 1), mode="reflect").square(), q)
slope(lambda t: t[1:, ::2].square(), q)
slope(lambda t: t[Tensor([0, 0, 2])].square(), q)
slope(lambda t: t.max(), q)
slope(lambda t: t.min(0), q)
slope(lambda t: t.prod(), q)
slope(lambda t: t.detach() * t, q)
slope(lambda t: t.clip(0.5, 1.0), q)
slope(lambda t: t.maximum(0.7), q)
slope(lambda t: t.where(t, 0), b)
slope(lambda t: t.cast(dtypes.half).square(), q)
slope(lambda t: t.int().float(), q)
slope(lambda t: t ** 2, q)
slope(lambda t: t ** 0.5, q)
slope(lambda t: 2 ** t, q)
slope(lambda t: t ** t, q)
slope(lambda t: t / 3, q)
slope(lambda t: 3 / t, q)
slope(lambda t: t % 0.3, q)
slope(lambda t: t // 0.3, q)
slope(lambda t: t.lerp(y, 0.3), q)
slope(lambda t: t.roll(1, 0) * t, q)
slope(lambda t: t.repeat(2, 1).square(), q)
slope(lambda t: t.T.contiguous() @ t, q)
slope(lambda t: t.interpolate((2,)), q.unsqueeze(0))
x[0]
x[-1]
x[5]
x[0, 1]
x[0, 1, 2]
x[:, 1]
x[1:3]
x[::2]
x[::-1]
x[:, ::-2]
x[3:1]
x[...]
x[..., 1]
x[None]
x[:, None]
x[..., None, 0]
x[[0, 2]]
x[[0, 2], [1, 3]]
x[:, [0, 2]]
x[Tensor([0, 2])]
x[Tensor([0, 2]), 1:3]
x[Tensor([[0, 1], [2, 0]])]
x[Tensor([-1])]
x[Tensor([0, 1]), Tensor([1, 2])]
x[0, Tensor([1, 2])]
x[Tensor([0]), None, Tensor([1])]
x[True]
x[1.5]
x["a"]
x[0:1.5]
x[..., ...]
x[Tensor([0.5])]
x[(1, 2)]
x[slice(0, 2), 1]
v[Tensor(2)]
v[[Tensor(1), Tensor(2)]]
set_item(x, 0, 5.0)
set_item(x, (slice(None), 1), v[:3])
set_item(x, (slice(0, 2), slice(1, 3)), Tensor.ones(2, 2))
set_item(x, (Tensor([0, 2]), 1), 7.0)
set_item(x, [0, 1], 2.0)
set_item(i, 0, 2.7)
set_item(x, 0, Tensor.ones(5))
set_item(x, (slice(None, None, 2),), 9.0)
set_item(x, ..., 1.0)
Tensor(1)
Tensor(1.5)
Tensor(True)
Tensor(None)
Tensor([])
Tensor([1, 2])
Tensor([1, 2.5])
Tensor([True, False])
Tensor([[1, 2], [3, 4]])
Tensor([[1, 2], [3]])
Tensor((1, 2))
Tensor([1, 2], dtype=dtypes.float16)
Tensor([1, 2], dtype="int8")
Tensor(["a"])
Tensor("no such file")
Tensor({})
Tensor(b"abc")
Tensor(2, dtype=dtypes.float)
Tensor(np.arange(4))
Tensor(np.arange(4.0))
Tensor(np.float32(2))
Tensor([1e40])
Tensor([2**40])
Tensor([-1], dtype=dtypes.uint8)
Tensor([True], dtype=dtypes.float)
Tensor([Tensor([1.0, 2]), Tensor([3.0, 4])])
Tensor.zeros(2, 3)
Tensor.zeros((2, 3), dtype=dtypes.int)
Tensor.zeros(2, 3, dtype="bool")
Tensor.ones(2)
Tensor.ones(())
Tensor.full((2, 2), 3)
Tensor.full((2,), 2.5)
Tensor.full((2,), True)
Tensor.full((2,), 3, dtype=dtypes.half)
Tensor.full(3, 2)
Tensor.arange(5)
Tensor.arange(2, 7)
Tensor.arange(2, 7, 2)
Tensor.arange(5, 0, -2)
Tensor.arange(1.0, 2, 0.25)
Tensor.arange(5, dtype=dtypes.float)
Tensor.arange(5.5)
Tensor.arange(3, 1)
Tensor.arange(0, 5, 0)
Tensor.linspace(0, 1, 5)
Tensor.linspace(5, 1, 3, dtype=dtypes.int)
Tensor.linspace(0, 1, 1)
Tensor.linspace(0, 1, 0)
Tensor.linspace(0, 1, -1)
Tensor.eye(3)
Tensor.eye(2, 3)
Tensor.eye(3, dtype=dtypes.int)
Tensor.eye(-1)
Tensor.empty(2, 3).shape
Tensor.empty(2, dtype=dtypes.int8).dtype
x.zeros_like()
i.ones_like()
x.full_like(3)
i.full_like(2.5)
x.full_like(1, dtype=dtypes.int)
x.empty_like().shape
x.rand_like().shape
i.randn_like().dtype
Tensor.rand(3).shape
Tensor.rand(2, 3, dtype=dtypes.half).dtype
Tensor.rand(2, dtype=dtypes.int)
Tensor.randn(2, 2).shape
Tensor.randint(5, low=-3, high=3).shape
Tensor.randint(5, low=-3.5, high=3)
Tensor.randint(5, dtype=dtypes.float)
Tensor.uniform(2, low=1, high=2).shape
Tensor.normal(2, mean=1.0, std=0.0)
Tensor.scaled_uniform(2, 2).shape
Tensor.glorot_uniform(2, 2).shape
Tensor.kaiming_uniform(2, 2).shape
Tensor.kaiming_normal(2, 2).shape
Tensor.randperm(5).sort()[0]
Tensor([0.0, 1.0, 0.0]).multinomial(2, replacement=True)
Tensor([0.2, 0.8]).multinomial(3)
Tensor([[0.0, 1.0], [1.0, 0.0]]).multinomial(1)
Tensor([[[1.0]]]).multinomial(1)
seeded(lambda: Tensor.rand(4))
seeded(lambda: Tensor.randn(4))
seeded(lambda: Tensor.randint(4))
seeded(lambda: Tensor.uniform(2, 2))
seeded(lambda: Tensor.normal(3))
seeded(lambda: Tensor.glorot_uniform(2, 3))
seeded(lambda: Tensor.kaiming_uniform(2, 3))
seeded(lambda: Tensor.kaiming_normal(2, 3))
seeded(lambda: Tensor.scaled_uniform(2, 3))
seeded(lambda: Tensor.randperm(6))
seeded(lambda: Tensor([0.2, 0.3, 0.5]).multinomial(5, replacement=True))
seeded(lambda: Tensor.rand(4, dtype=dtypes.half))
x.cast(dtypes.int)
x.cast("half")
x.cast("nothing")
x.cast(3)
edges.cast(dtypes.half)
edges.cast(dtypes.bool)
i.cast(dtypes.uint8)
i.cast(dtypes.bool)
b.cast(dtypes.float)
x.bitcast(dtypes.int32)
x.bitcast(dtypes.uint8)
x.bitcast(dtypes.int64)
x.bitcast(dtypes.float64).shape
u8.bitcast(dtypes.int8)
b.bitcast(dtypes.uint8)
x.half()
x.bfloat16().float()
x.double()
i.float()
x.int()
x.long()
x.short()
x.bool()
x.shape
x.ndim
x.numel()
x.dtype
x.size()
x.size(0)
x.element_size()
x.nbytes()
x.is_floating_point()
i.is_floating_point()
len(x)
len(Tensor(3))
x.tolist()
x[0, 0].item()
x.item()
i.tolist()
b.tolist()
h.tolist()
bool(Tensor([1]))
bool(x)
int(Tensor([3]))
float(Tensor([3]))
float(x)
[t.shape for t in x]
list(Tensor(3))
1 in Tensor([1, 2])
x.numpy().dtype
i.numpy().dtype
h.numpy().dtype
x.data().format
i.data().shape
repr(Tensor([1, 2]).dtype)
str(dtypes.float16)
repr(dtypes.uint8)
x.assign(y)
x.assign(i)
x.assign(v)
x.assign(3.0)
x.contiguous()
x.detach()
x.clone()
x.realize()
x.to("CPU").shape
x.to(None).shape
x.to("NOTHING").realize()
x.backward()
x.sum().backward().shape
x.gradient(x)
x.sum().gradient(x)
x.sum().gradient(y)
x.gradient(x, gradient=y)
x.sequential([Tensor.relu, lambda t: t + 1])
x.bitwise_not()
i.bitwise_not()
~i
~b
~x
-b
-u8
i.lshift(2)
i.rshift(1)
u8.lshift(9)
i.div(2, rounding_mode="trunc")
i.div(2, rounding_mode="floor")
x.div(2, rounding_mode="trunc")
x.div(2, rounding_mode="no")
i.div(0)
i.mod(-3)
i.fmod(-3)
x.mod(-0.3)
i.pow(2)
i.pow(-1)
i.pow(0.5)
x.pow(2)
x.pow(0)
x.pow(-1)
x.pow(0.5)
edges.pow(2)
edges.pow(0)
edges.pow(0.5)
edges.pow(-1)
edges.maximum(0)
edges.minimum(0)
edges < 0
edges == edges
edges.sign()
edges.sort()[0]
edges.clip(-1, 1)
x.rsub(2)
2 - x
2 / x
2 ** x
x.nothing
x.sum(axis="a")
x.reshape("a")
x.sum(1, 2, 3, 4)
x.permute(1)
x + Tensor.ones(5)
x + v[:3]
x.keccak()
Tensor(b"abc").keccak("sha3_256")
Tensor(b"abc").keccak("shake_128")
Tensor(b"abc").keccak("no")
Tensor([1, 2, 3]).element_size()
Tensor.manual_seed(3)
seeded(lambda: nn.Linear(4, 3)(x))
seeded(lambda: nn.Linear(4, 3, bias=False).weight)
seeded(lambda: nn.Conv1d(2, 3, 3)(img[0]))
seeded(lambda: nn.Conv2d(2, 3, 3, stride=2, padding=1)(img))
seeded(lambda: nn.Conv2d(2, 4, 3, groups=2, bias=False)(img))
nn.LayerNorm(4)(x)
nn.LayerNorm((3, 4), eps=0.1, elementwise_affine=False)(x)
nn.LayerNorm2d(2)(img)
nn.RMSNorm(4, eps=1e-6)(x)
nn.GroupNorm(1, 2)(img)
nn.GroupNorm(2, 2, affine=False)(img)
nn.InstanceNorm(2)(img)
nn.BatchNorm(2)(img)
nn.BatchNorm2d(2, affine=False, track_running_stats=False)(img)
nn.Embedding(5, 3).weight.shape
[t.shape for t in nn.LSTMCell(4, 5)(x)]
nn.ConvTranspose2d(2, 3, 3, stride=2, output_padding=1)(img).shape
sorted(nn.state.get_state_dict(nn.BatchNorm(2)))
sorted(nn.state.get_state_dict(nn.LSTMCell(4, 5)))
sorted(nn.state.get_state_dict({"a": [nn.Linear(2, 2)], "b": (nn.LayerNorm(2),)}))
len(nn.state.get_parameters([nn.Linear(2, 2), nn.BatchNorm(2)]))
trained(lambda p: nn.optim.SGD(p, lr=0.1))
trained(lambda p: nn.optim.SGD(p, lr=0.1, momentum=0.9))
trained(lambda p: nn.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01))
trained(lambda p: nn.optim.SGD(p, lr=0.1, momentum=0.9, classic=True))
trained(lambda p: nn.optim.Adam(p, lr=0.1))
trained(lambda p: nn.optim.Adam(p, lr=0.1, b1=0.8, b2=0.9, eps=1e-3))
trained(lambda p: nn.optim.AdamW(p, lr=0.1, weight_decay=0.1))
trained(lambda p: nn.optim.LAMB(p, lr=0.1, weight_decay=0.1))
trained(lambda p: nn.optim.LARS(p, lr=0.1))
trained(lambda p: nn.optim.Muon(p, lr=0.1))
trained(lambda p: nn.optim.OptimizerGroup(nn.optim.SGD(p[:1], lr=0.1), nn.optim.LARS(p[1:])))
nn.optim.SGD([])
nn.optim.SGD([x], lr=0.1).step()
""".strip().splitlines()


def inputs(library: str) -> dict[str, Any]:
    """What the expressions name: the same numbers for every library."""
    module = importlib.import_module(library)
    tensor, dtypes = module.Tensor, module.dtypes
    draw = np.random.default_rng(0)
    floats = draw.standard_normal((3, 4)).astype(np.float32)

    def array(*shape: int) -> Any:
        return tensor(draw.standard_normal(shape).astype(np.float32))

    def slope(function: Any, at: Any) -> Any:
        """The gradient of what the function gives, weighted so that no two elements are alike."""
        given = at.detach().clone().realize()
        result = function(given)
        weight = (tensor.arange(result.numel()).reshape(result.shape) % 7 + 1).cast(dtypes.float)
        return (result.cast(dtypes.float) * weight).sum().gradient(given)[0]

    def set_item(given: Any, index: Any, value: Any) -> Any:
        copy = given.contiguous().clone().realize()
        copy[index] = value
        return copy

    def trained(optimiser: Any) -> Any:
        """Two matrices after three steps."""
        params = [tensor(draw.standard_normal((3, 4)).astype(np.float32)) for _ in range(2)]
        weight = tensor(draw.standard_normal((3, 4)).astype(np.float32))
        with module.Context(TRAINING=1):
            chosen = optimiser(params)
            for _ in range(3):
                chosen.zero_grad()
                (params[0] * weight + params[1].square()).sum().backward()
                chosen.step()
        return params

    def seeded(function: Any) -> Any:
        tensor.manual_seed(42)
        return function()

    return {
        "Tensor": tensor,
        "dtypes": dtypes,
        "math": math,
        "np": np,
        "nn": module.nn,
        "slope": slope,
        "trained": trained,
        "set_item": set_item,
        "seeded": seeded,
        "x": tensor(floats),
        "y": array(3, 4),
        "q": tensor(np.abs(floats) * 0.4 + 0.1),
        "p": tensor(np.abs(floats) + 0.1),
        "h": tensor((floats * 2).astype(np.float16)),
        "v": array(4),
        "m": array(4, 5),
        "i": tensor(np.array([[3, -5, 7, 0], [2, 2, -1, 4], [-3, 6, 1, -8]], np.int32)),
        "j": tensor(np.array([[2, 3, -2, 1], [5, 1, 3, -4], [2, 7, 4, 3]], np.int32)),
        "b": tensor(floats > 0),
        "u8": tensor(np.array([[3, 250, 7, 1], [2, 2, 130, 4], [200, 6, 1, 9]], np.uint8)),
        "index": tensor(np.array([[0, 2, 1], [2, 1, 0], [1, 1, 2]], np.int32)),
        "edges": tensor(
            np.array(
                [
                    math.nan,
                    math.inf,
                    -math.inf,
                    -0.0,
                    0.0,
                    1.0,
                    -1.0,
                    0.5,
                    2.5,
                    -2.5,
                    100.0,
                    -100.0,
                ],
                np.float32,
            )
        ),
        "img": array(1, 2, 6, 6),
        "w": array(3, 2, 3, 3),
        "q4": array(1, 4, 3, 8),
        "k4": array(1, 2, 3, 8),
    }


# ------------------------------------------------------------ outcomes
def outcome(expression: str, library: str) -> Any:
    """What an expression gives: plain data that JSON holds."""
    names = inputs(library)
    try:
        return _plain(eval(expression, names), names["Tensor"])
    except Exception as error:
        kinds = [kind.__name__ for kind in type(error).__mro__ if hasattr(builtins, kind.__name__)]
        return {"error": kinds[: kinds.index("Exception") + 1]}


def _plain(value: Any, tensor: type) -> Any:
    if isinstance(value, tensor):
        return _numbers(value)
    if isinstance(value, (tuple, list)):
        return [_plain(each, tensor) for each in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return {"float": repr(value)} if isinstance(value, float) else {"text": str(value)}


def _numbers(value: Any) -> dict[str, Any]:
    dtype, shape = str(value.dtype), [int(size) for size in value.shape]
    flat = np.asarray(value.flatten().tolist() if value.numel() else [])
    places = np.unique(np.linspace(0, max(flat.size - 1, 0), KEPT).astype(int))
    kept = flat[places] if flat.size else flat
    numbers = [repr(float(f"{x:.7g}")) if kept.dtype.kind == "f" else x for x in kept.tolist()]
    return {"dtype": dtype, "shape": shape, "values": numbers}


def same(found: Any, wanted: Any) -> bool:
    """Whether what weft gives is what tinygrad gave: floats within the last bits of their dtype."""
    if isinstance(wanted, list):
        matching = isinstance(found, list) and len(found) == len(wanted)
        return matching and all(map(same, found, wanted))
    if not isinstance(wanted, dict) or not isinstance(found, dict):
        return bool(found == wanted)
    if "error" in wanted:
        return "error" in found and _caught(found["error"], wanted["error"][0])
    if "dtype" not in wanted or "dtype" not in found:
        return bool(found == wanted)
    if (found["dtype"], found["shape"]) != (wanted["dtype"], wanted["shape"]):
        return False
    ours, theirs = ([float(x) for x in each["values"]] for each in (found, wanted))
    relative = {"dtypes.half": 4e-3, "dtypes.bfloat16": 2e-2}.get(wanted["dtype"], 2e-5)
    absolute = {"dtypes.half": 2e-3, "dtypes.bfloat16": 1e-2}.get(wanted["dtype"], 2e-6)
    return bool(np.allclose(ours, theirs, relative, absolute, equal_nan=True))


def _caught(found: list[str], wanted: str) -> bool:
    """Whether `except wanted` catches it; an error of the inside (a KeyError of a table) is any."""
    return wanted in found or wanted in ("Exception", "UnboundLocalError", "ZeroDivisionError")


def recorded() -> dict[str, Any]:
    """What tinygrad gave."""
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def record() -> None:
    """Write down what tinygrad gives."""
    rows = [
        f"{json.dumps(each)}: {json.dumps(outcome(each, PEER))}" for each in dict.fromkeys(table())
    ]
    RECORD.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


def main() -> None:
    """Record, or show what differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("expressions", nargs="*")
    parser.add_argument("--record", action="store_true", help="run tinygrad and write it down")
    given = parser.parse_args()
    if given.record:
        record()
        return
    wanted = recorded()
    for expression in given.expressions or wanted:
        found = outcome(expression, "weft")
        if expression not in wanted or not same(found, wanted[expression]):
            print(f"{expression}\n    tinygrad {wanted.get(expression)}\n    weft     {found}")


if __name__ == "__main__":
    main()
