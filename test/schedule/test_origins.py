"""Every kernel names the user's line it comes from, gradients and updates of parameters too."""

from __future__ import annotations

from pathlib import Path

from weft import Tensor, nn

LINES = Path(__file__).read_text().splitlines()


def test_every_kernel_of_a_training_step_names_a_line() -> None:
    weight, bias = Tensor.ones(4, 3).contiguous(), Tensor.zeros(4).contiguous()
    x = Tensor.ones(2, 3).contiguous()
    Tensor.realize(weight, bias, x)
    norm = nn.BatchNorm2d(4)
    optimizer = nn.optim.Adam([weight, bias, norm.weight, norm.bias], lr=0.1)
    with Tensor.train():
        hidden = norm((x @ weight.T + bias).reshape(2, 4, 1, 1))
        loss = hidden.square().sum()
        loss.backward()
        updates = optimizer.schedule_step()
    items = loss.schedule(*updates)
    named = [item.origin for item in items]
    assert None not in named
    assert {path for path, _ in named} == {__file__}
    texts = {LINES[line - 1].strip() for _, line in named}
    assert texts == {
        "hidden = norm((x @ weight.T + bias).reshape(2, 4, 1, 1))",
        "loss = hidden.square().sum()",
        "updates = optimizer.schedule_step()",
    }
    assert all(f"from {__file__}:" in repr(item) for item in items)


def test_a_write_names_the_line_of_what_is_written() -> None:
    target = Tensor.zeros(8).contiguous().realize()
    source = Tensor.ones(4).contiguous().realize()
    target[2:6] = source * 3
    (item,) = target.schedule()
    assert item.origin is not None
    assert LINES[item.origin[1] - 1].strip() == "target[2:6] = source * 3"


def test_the_parts_of_a_long_sum_name_its_line() -> None:
    source = Tensor.ones(300_000).contiguous().realize()
    total = source.sum()
    items = total.schedule()
    assert len(items) > 1
    named = {LINES[item.origin[1] - 1].strip() for item in items if item.origin is not None}
    assert named == {"total = source.sum()"} and all(item.origin is not None for item in items)
