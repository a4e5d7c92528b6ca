"""`torch.compile(..., backend="weft")` against eager: nets, gradients, memory, sizes, dropout."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from test.optional import need

torch = need("torch")

from bench.torch_nets import NETS  # noqa: E402
from test.torch.nets import compare, compiled, with_batch  # noqa: E402
from weft.torch import report, reset  # noqa: E402


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    reset()
    yield
    torch._dynamo.reset()


# ------------------------------------------------------------ nets (all of them: test.torch.nets)
@pytest.mark.parametrize("name", ["detector", "bert", "recommender"])
def test_a_net_gives_what_eager_gives(name: str) -> None:
    compare(name, is_training=False)


@pytest.mark.parametrize("name", ["gpt2", "autoencoder"])
def test_a_training_step_gives_the_gradients_of_eager(name: str) -> None:
    compare(name, is_training=True)


def test_autocast_computes_in_bfloat16() -> None:
    model, inputs = NETS["vit"](True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = model.eval()(*inputs)
        found = compiled(model)(*inputs)
    assert found.dtype is expected.dtype is torch.bfloat16
    exact = model.double()(inputs[0].double())
    theirs = (expected.double() - exact).abs().max()
    assert (found.double() - exact).abs().max() <= 2 * theirs + 1e-3
    assert not report().left_to_torch


# ------------------------------------------------------------ memory
def same(function: Any, *args: Any) -> None:
    """Results and arguments after a call are as eager leaves them."""
    theirs, mine = copy.deepcopy(args), copy.deepcopy(args)
    expected = function(*theirs)
    found = compiled(function)(*mine)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(mine, theirs)
    assert not report().left_to_torch, report()


def test_inputs_are_written_in_place() -> None:
    def function(x: Any, places: Any) -> Any:
        x.add_(1)
        x[:, 1] = x[:, 0]
        x.view(-1)[2] = 5.0
        x.index_put_((places,), torch.ones(4))
        return x.t().mul_(2), x.sum()

    same(function, torch.randn(4, 4), torch.tensor([0, 2]))


def test_outputs_that_are_views_share_memory_as_in_eager() -> None:
    def function(x: Any) -> Any:
        y = x + 1
        return (
            y,
            y[::2],
            y.t(),
            x.t().clone(),
            x.expand(2, 4, 4),
            (x * 2).unsqueeze(0).expand(3, 4, 4),
        )

    same(function, torch.randn(4, 4))
    found = compiled(function)(torch.randn(4, 4))
    assert found[1].data_ptr() == found[0].data_ptr() == found[2].data_ptr()
    assert found[5].stride() == (0, 4, 1)


@pytest.mark.parametrize("kind", ["slice", "steps", "transposed", "expanded", "channels_last"])
def test_inputs_are_read_where_they_lie(kind: str) -> None:
    base = torch.randn(2, 3, 6, 8)
    x = {
        "slice": base[:, 1:, 2:5, 3:],
        "steps": base[:, :, ::2, 1::3],
        "transposed": base.transpose(1, 3),
        "expanded": base[:1, :, :1].expand(4, 3, 5, 8),
        "channels_last": base.to(memory_format=torch.channels_last),
    }[kind]

    def function(x: Any) -> Any:
        return x * 2 + 1, x.sum((0, 2))

    expected = function(x)
    found = compiled(function)(x)
    torch.testing.assert_close(found, expected)
    assert found[0].stride() == expected[0].stride() or kind == "expanded"


def test_parameters_are_shared_and_not_copied() -> None:
    model = torch.nn.Linear(3, 2)
    fast = compiled(model)
    x = torch.randn(4, 3)
    with torch.no_grad():
        before = fast(x)
        model.weight.mul_(2)
        torch.testing.assert_close(fast(x), model(x))
        model.weight.data = torch.randn(2, 3)
        torch.testing.assert_close(fast(x), model(x))
    assert not torch.equal(before, fast(x)) and report().graphs <= 2


def test_results_are_new_memory_at_every_call() -> None:
    fast = compiled(lambda x: x * 2)
    first, second = fast(torch.ones(4)), fast(torch.zeros(4))
    assert first.tolist() == [2.0] * 4 and second.tolist() == [0.0] * 4


def test_running_statistics_are_updated() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    other = copy.deepcopy(model)
    fast, x = compiled(other), torch.randn(2, 3, 5, 5)
    for _ in range(2):
        torch.testing.assert_close(fast(x), model(x))
    torch.testing.assert_close(other.state_dict(), model.state_dict())


# ------------------------------------------------------------ sizes
@pytest.mark.parametrize(("name", "axis"), [("mlp", 0), ("llama", 1)])
def test_one_program_serves_all_sizes(name: str, axis: int) -> None:
    model, inputs = NETS[name](True)
    fast = compiled(model.eval(), dynamic=True)
    with torch.no_grad():
        for size in (3, 5, 9, 14):
            given = with_batch(inputs, size, axis)
            torch.testing.assert_close(fast(*given), model(*given), atol=1e-4, rtol=1e-4)
    found = report()
    assert (found.graphs, found.programs, found.symbolic, found.specialised) == (1, 1, 1, 0)


def test_sizes_that_come_often_get_a_program_of_their_own() -> None:
    fast = compiled(lambda x: (x @ x.t()).sum(1), dynamic=True)
    for number in range(30):
        x = torch.randn(3 + number % 2, 5)
        torch.testing.assert_close(fast(x), (x @ x.t()).sum(1))
    assert (report().symbolic, report().specialised) == (1, 2)


def test_sizes_beyond_the_bounds_are_compiled_for() -> None:
    fast = compiled(lambda x: (x * 2).sum(1), dynamic=True)
    for size in (3, 40, 17, 1000):
        x = torch.randn(size, 5)
        torch.testing.assert_close(fast(x), (x * 2).sum(1))
    assert report().specialised == 0 and report().symbolic <= 3


def test_a_batch_is_free_where_other_sizes_cannot_be() -> None:
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3, 2), torch.nn.MaxPool2d(2), torch.nn.Flatten()
    )
    fast = compiled(model, dynamic=True)
    for batch, size in ((2, 12), (5, 12), (7, 12), (3, 15), (6, 15)):
        x = torch.randn(batch, 1, size, size + 1)
        torch.testing.assert_close(fast(x), model(x))
    assert not report().left_to_torch and report().specialised == 0, report()


def test_a_training_step_of_free_batches() -> None:
    model, inputs = NETS["mlp"](True)
    fast = compiled(model, dynamic=True)
    for size in (3, 6):
        given = with_batch(inputs, size, 0)
        expected = torch.autograd.grad(model(*given).sum(), list(model.parameters()))
        found = torch.autograd.grad(fast(*given).sum(), list(model.parameters()))
        torch.testing.assert_close(found, expected)
    assert report().symbolic == 2 and report().programs == 2


# ------------------------------------------------------------ random numbers
def test_dropout_differs_in_every_call_and_repeats_for_a_seed() -> None:
    model = torch.nn.Dropout(0.25)
    fast, x = compiled(model), torch.ones(2000)
    torch.manual_seed(5)
    first, second = fast(x), fast(x)
    torch.manual_seed(5)
    again = fast(x)
    assert torch.equal(first, again) and not torch.equal(first, second)
    assert 0.2 < (first == 0).float().mean() < 0.3 and first.max() == pytest.approx(4 / 3)


def test_the_gradient_of_dropout_is_of_the_same_mask() -> None:
    fast, x = compiled(lambda x: torch.nn.functional.dropout(x, 0.5) * 3), torch.ones(100)
    x.requires_grad_()
    y = fast(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach())
    assert not report().left_to_torch


# ------------------------------------------------------------ what is left to PyTorch
def test_an_operator_without_a_lowering_is_run_by_pytorch_and_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def function(x: Any) -> Any:
        y = torch.relu(x) + 1
        return torch.linalg.det(y @ y.t() + torch.eye(3)) * x.sum(), y

    x = torch.randn(3, 3)
    for _ in range(2):
        torch.testing.assert_close(compiled(function)(x), function(x))
    left = report().left_to_torch
    assert [name for name in left if "linalg" in name] and report().programs == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("weft:")]
    assert len(lines) == len(left)


def test_a_custom_function_is_run_by_pytorch() -> None:
    @torch.library.custom_op("weft_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @twice.register_fake
    def _(x: Any) -> Any:
        return torch.empty_like(x)

    def function(x: Any) -> Any:
        return twice(x + 1).relu() * 3

    x = torch.randn(4)
    torch.testing.assert_close(compiled(function)(x), function(x))
    assert dict(report().left_to_torch) == {"weft_test.twice.default": 1}


def test_graphs_break_where_dynamo_breaks_them_and_nowhere_else() -> None:
    def function(x: Any) -> Any:
        y = x.sin()
        print("a side effect")
        return y * 2

    x = torch.randn(4)
    theirs = torch._dynamo.explain(function)(x)
    torch._dynamo.reset()
    torch.testing.assert_close(compiled(function)(x), function(x))
    assert report().graphs == theirs.graph_count == 2
