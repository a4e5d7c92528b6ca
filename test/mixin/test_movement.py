"""Movement against NumPy; it copies nothing and computes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.mixin.compare import check
from test.optional import need, optional
from weft import GlobalCounters, Tensor
from weft.dtype import dtypes
from weft.errors import IndexingError, ShapeError
from weft.uop.node import UOp

torch = optional("torch")
hypothesis = need("hypothesis")
given, settings, st = hypothesis.given, hypothesis.settings, hypothesis.strategies

DATA = np.arange(24, dtype=np.int32).reshape(2, 3, 4)

CASES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "reshape": (lambda t: t.reshape(4, -1), lambda x: x.reshape(4, -1)),
    "view": (lambda t: t.view((6, 4)), lambda x: x.reshape(6, 4)),
    "permute": (lambda t: t.permute(2, 0, 1), lambda x: x.transpose(2, 0, 1)),
    "transpose": (lambda t: t.transpose(0, -1), lambda x: x.swapaxes(0, -1)),
    "T": (lambda t: t.T, lambda x: x.T),
    "flip": (lambda t: t.flip(0, -1), lambda x: x[::-1, :, ::-1]),
    "expand": (lambda t: t[:, :1].expand(2, 5, 4), lambda x: np.broadcast_to(x[:, :1], (2, 5, 4))),
    "expand new axis": (
        lambda t: t.expand(5, -1, -1, 4),
        lambda x: np.broadcast_to(x, (5, 2, 3, 4)),
    ),
    "shrink": (lambda t: t.shrink((None, (1, 3), (0, 2))), lambda x: x[:, 1:3, 0:2]),
    "squeeze": (lambda t: t[:, :1].squeeze(1), lambda x: x[:, 0]),
    "unsqueeze": (lambda t: t.unsqueeze(-1), lambda x: x[..., None]),
    "flatten": (lambda t: t.flatten(1), lambda x: x.reshape(2, 12)),
    "unflatten": (lambda t: t.unflatten(2, (2, -1)), lambda x: x.reshape(2, 3, 2, 2)),
    "repeat": (lambda t: t.repeat(2, 1, 3), lambda x: np.tile(x, (2, 1, 3))),
    "repeat_interleave": (lambda t: t.repeat_interleave(2, 1), lambda x: np.repeat(x, 2, 1)),
    "roll": (lambda t: t.roll((1, -1), (0, 2)), lambda x: np.roll(x, (1, -1), (0, 2))),
    "roll flat": (lambda t: t.roll(5), lambda x: np.roll(x, 5)),
    "stack": (lambda t: t.stack(t + 1, dim=1), lambda x: np.stack([x, x + 1], 1)),
    "cat": (lambda t: t.cat(t + 1, t, dim=-1), lambda x: np.concatenate([x, x + 1, x], -1)),
    "diagonal": (lambda t: t.diagonal(1, 1, 2), lambda x: x.diagonal(1, 1, 2)),
    "diagonal low": (lambda t: t.diagonal(-1, 1, 2), lambda x: x.diagonal(-1, 1, 2)),
    "tril": (lambda t: t.tril(1), lambda x: np.tril(x, 1)),
    "triu": (lambda t: t.triu(-1), lambda x: np.triu(x, -1)),
    "unfold": (
        lambda t: t.unfold(2, 2, 1),
        lambda x: torch.tensor(x).unfold(2, 2, 1).numpy(),
    ),
    "unfold far": (
        lambda t: t.unfold(1, 1, 2),
        lambda x: torch.tensor(x).unfold(1, 1, 2).numpy(),
    ),
    "pad": (
        lambda t: t.pad((1, 2, 0, 1), value=7),
        lambda x: np.pad(x, ((0, 0), (0, 1), (1, 2)), constant_values=7),
    ),
    "pad axes": (
        lambda t: t.pad((None, (1, 0), (0, 2))),
        lambda x: np.pad(x, ((0, 0), (1, 0), (0, 2))),
    ),
    "pad negative": (
        lambda t: t.pad((-1, 1)),
        lambda x: np.pad(x, ((0, 0), (0, 0), (0, 1)))[:, :, 1:],
    ),
    "pad reflect": (
        lambda t: t.pad((2, 1), mode="reflect"),
        lambda x: np.pad(x, ((0, 0), (0, 0), (2, 1)), mode="reflect"),
    ),
    "pad replicate": (
        lambda t: t.pad((2, 1), mode="replicate"),
        lambda x: np.pad(x, ((0, 0), (0, 0), (2, 1)), mode="edge"),
    ),
    "pad circular": (
        lambda t: t.pad((2, 1), mode="circular"),
        lambda x: np.pad(x, ((0, 0), (0, 0), (2, 1)), mode="wrap"),
    ),
    "pad_to": (lambda t: t.pad_to(2, 4, None), lambda x: np.pad(x, ((0, 0), (0, 1), (0, 0)))),
    "shrink_to": (lambda t: t.shrink_to(1, None, 2), lambda x: x[:1, :, :2]),
    "rearrange": (
        lambda t: t.rearrange("a b (c d) -> (a c) b d", d=2),
        lambda x: x.reshape(2, 3, 2, 2).transpose(0, 2, 1, 3).reshape(4, 3, 2),
    ),
    "rearrange rest": (
        lambda t: t.rearrange("... c -> c ..."),
        lambda x: x.transpose(2, 0, 1),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_movement(name: str) -> None:
    ours, reference = CASES[name]
    check(ours(Tensor(DATA)), reference(DATA))


@pytest.mark.parametrize("name", CASES)
def test_movement_of_unrealized_values(name: str) -> None:
    ours, reference = CASES[name]
    check(ours(Tensor(DATA) * 2 + 1), reference(DATA * 2 + 1))


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(
    st.sampled_from(["constant", "reflect", "replicate", "circular"]),
    st.tuples(*[st.integers(1, 6)] * 2),
    st.tuples(*[st.integers(-4, 5)] * 4),
)
def test_pads_that_grow_and_crop_agree_with_pytorch(
    mode: str, shape: tuple[int, ...], padding: tuple[int, ...]
) -> None:
    array = np.arange(1, 1 + shape[0] * shape[1], dtype=np.float32).reshape(1, 1, *shape)
    try:
        wanted = torch.nn.functional.pad(torch.from_numpy(array), padding, mode=mode).numpy()
    except RuntimeError:
        return  # nothing is left, or more is copied than there is
    check(Tensor(array).pad(padding, mode=mode), wanted)


@pytest.mark.parametrize("axes", [0, -1, (0, 2), [2, -1], (0, 1), (), (0, 1, 2, 3), (1,)])
def test_squeeze_of_several_axes(axes: Any) -> None:
    shape = (1, 3, 1, 1)
    wanted = torch.zeros(shape).squeeze(tuple(axes) if isinstance(axes, list) else axes).shape
    assert Tensor.zeros(*shape).squeeze(axes).shape == tuple(wanted)


def test_squeeze_refuses_an_axis_twice() -> None:
    with pytest.raises(IndexingError, match="each may be there once"):
        Tensor.zeros(1, 2, 1).squeeze((0, -3))
    with pytest.raises(IndexingError):
        Tensor.zeros(1, 2, 1).squeeze((0, 3))


def test_split_and_chunk() -> None:
    tensor = Tensor(np.arange(10, dtype=np.int32))
    assert [part.tolist() for part in tensor.split([3, 7])] == [[0, 1, 2], list(range(3, 10))]
    assert [part.shape[0] for part in tensor.split(4)] == [4, 4, 2]
    assert [part.shape[0] for part in tensor.chunk(3)] == [4, 4, 2]
    with pytest.raises(ShapeError, match="the sum must be 10"):
        tensor.split([3, 3])


def test_meshgrid() -> None:
    for indexing in ("ij", "xy"):
        ours = Tensor([1, 2, 3]).meshgrid(Tensor([4, 5]), indexing=indexing)
        theirs = np.meshgrid([1, 2, 3], [4, 5], indexing=indexing)
        for found, wanted in zip(ours, theirs, strict=True):
            check(found, wanted)


def test_diag() -> None:
    check(Tensor([1, 2, 3]).diag(), np.diag([1, 2, 3]))


def test_views_share_storage() -> None:
    whole = Tensor(DATA).contiguous()
    for view in (whole.T, whole[0], whole.flip(1), whole.reshape(24), whole[:, ::2]):
        assert view._cell is whole._cell
    for new in (whole.pad((1, 1)), whole + 1, whole.cat(whole), whole.sum(0), whole.float()):
        assert new._cell is not whole._cell


def test_a_chain_in_front_of_a_reduce_is_one_kernel() -> None:
    tensor = Tensor(DATA).realize()
    GlobalCounters.reset()
    chain = tensor.permute(2, 0, 1).reshape(4, 6).flip(0).pad((1, 1)).shrink(((1, 3), None))
    chain.sum().realize()
    assert GlobalCounters.kernel_count == 1


def test_shapes_of_uops() -> None:
    n = UOp.variable("n", 1, 10).bind(3)
    buffer = UOp.new_buffer("CPU", 20, dtypes.float32).reshape(10, 2)
    part = buffer.shrink(((0, n), None))
    assert part.shape[1] == 2
    assert part.permute(1, 0).shape[0] == 2


@pytest.mark.parametrize(
    ("formula", "sizes", "what"),
    [("a b -> b a", {"c": 3}, "no axis is called c"), ("a b -> b a ...", {}, "on the right only")],
)
def test_rearrange_with_axes_that_are_not_there(
    formula: str, sizes: dict[str, int], what: str
) -> None:
    with pytest.raises(AssertionError, match=what):
        Tensor.ones(2, 3).rearrange(formula, **sizes)
