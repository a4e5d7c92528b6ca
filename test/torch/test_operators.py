"""Every row of the table of lowerings against PyTorch's own operator."""

from __future__ import annotations

from typing import Any

import pytest

from test.optional import need

torch = need("torch")
make_fx = need("torch.fx.experimental.proxy_tensor").make_fx
from test.torch.samples import EMPTY, RANDOM, Sample, samples  # noqa: E402
from weft.torch import report, reset  # noqa: E402
from weft.torch.backend import compile_graph  # noqa: E402
from weft.torch.table import TABLE  # noqa: E402

SAMPLES = samples()
# rows of one function are tried in one graph
ROWS: dict[str, list[str]] = {}
for _name, _row in TABLE.items():
    if _name in SAMPLES:
        key = next(
            (
                n
                for n in ROWS
                if TABLE[n].function is _row.function and (n in EMPTY) == (_name in EMPTY)
            ),
            _name,
        )
        ROWS.setdefault(key, []).append(_name)


def cases(row: str) -> list[Sample]:
    """The samples of a row, and of others that are lowered by the same function."""
    return [sample for name in ROWS[row] for sample in SAMPLES[name]]


def operator_of(name: str) -> Any:
    found: Any = torch.ops.prims if name.startswith("prims.") else torch.ops.aten
    for part in name.removeprefix("prims.").split("."):
        found = getattr(found, part)
    return found


def run(cases: list[Sample]) -> tuple[list[Any], list[Any]]:
    """What PyTorch gives and what weft gives, for all samples of a row in one graph."""
    tensors: list[Any] = []

    def lifted(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            return _Place(len(tensors) - 1)
        if isinstance(value, (list, tuple)):
            return type(value)(lifted(part) for part in value)
        return value

    calls = [
        (operator_of(name), lifted(args), {k: lifted(v) for k, v in kwargs.items()})
        for name, args, kwargs in cases
    ]

    def function(given: list[Any]) -> list[Any]:
        found = []
        for operator, args, kwargs in calls:
            result = operator(
                *_placed(args, given), **{k: _placed(v, given) for k, v in kwargs.items()}
            )
            found += result if isinstance(result, (tuple, list)) else [result]
        return found

    graph = make_fx(function, tracing_mode="fake")([t.clone() for t in tensors])
    expected = function([t.clone() for t in tensors])
    compiled = compile_graph(graph, tensors)
    return expected, compiled([t.clone() for t in tensors])


class _Place:
    def __init__(self, number: int) -> None:
        self.number = number


def _placed(value: Any, given: list[Any]) -> Any:
    if isinstance(value, _Place):
        return given[value.number]
    if isinstance(value, (list, tuple)):
        return type(value)(_placed(part, given) for part in value)
    return value


def close(found: Any, expected: Any) -> None:
    assert found.dtype == expected.dtype and found.shape == expected.shape
    torch.testing.assert_close(found, expected, equal_nan=True, check_stride=False)


@pytest.mark.parametrize("row", [row for row in ROWS if row not in RANDOM | EMPTY])
def test_gives_what_pytorch_gives(row: str) -> None:
    reset()
    expected, found = run(cases(row))
    assert not report().left_to_torch, report()
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        # a layer's last result is room for its gradient, of which nobody says what is in it
        is_room = row == "mkldnn_rnn_layer" and theirs.dtype == torch.uint8
        if theirs is not None and not is_room:
            close(mine, theirs)


@pytest.mark.parametrize("row", [row for row in ROWS if row in RANDOM | EMPTY])
def test_is_distributed_as_pytorch_distributes(row: str) -> None:
    reset()
    torch.manual_seed(3)
    expected, found = run(cases(row))
    assert not report().left_to_torch, report()
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        if row in RANDOM:
            a, b = mine.double(), theirs.double()
            assert abs(a.mean() - b.mean()) < 0.12 * (1 + b.std())
            assert abs(a.std() - b.std()) < 0.1 * (1 + b.std())


def test_every_row_is_tried() -> None:
    left = []
    for name in TABLE:
        try:
            operator_of(name)
        except AttributeError:
            continue
        if name not in SAMPLES:
            left.append(name)
    assert left == []
