"""Plans: what they hold, and that a damaged one is an error before a line is printed."""

from __future__ import annotations

import dataclasses
import random
import time
from typing import Any

import numpy as np
import pytest

from test.export.mutations import mutated
from test.export.nets import CASES
from weft import Tensor, Variable
from weft.errors import ExportError
from weft.export.build import build_plan
from weft.export.capture import capture
from weft.export.export import PORTABLE
from weft.export.names import identifier
from weft.export.plan import Copy, Launch, Plan, seal, verify


def plan_of(name: str) -> Plan:
    """The plan of one of the nets."""
    case = CASES[name]()
    return build_plan(capture(case.function, case.given(), name), PORTABLE)


@pytest.fixture(scope="module")
def gpt() -> Plan:
    """A plan with state, a size and several kernels."""
    return plan_of("gpt")


def test_a_plan_names_what_it_takes_and_keeps(gpt: Plan) -> None:
    assert [value.name for value in gpt.inputs] == ["token"]
    assert [(size.name, size.low, size.high) for size in gpt.sizes] == [("position", 0, 15)]
    assert {memory.name for memory in gpt.of_kind("state")} == {"blocks_0_cache", "blocks_1_cache"}
    assert "head_weight" in {memory.name for memory in gpt.of_kind("constant")}
    assert all(kernel.lines for kernel in gpt.kernels)
    assert gpt.arena_bytes < sum(memory.nbytes for memory in gpt.of_kind("scratch")) + 256


def test_what_a_capture_runs_is_undone() -> None:
    case = CASES["lstm"]()
    net = case.function.__self__
    before = net.h
    capture(case.function, case.given(), "lstm")
    assert net.h is before and not net.h.numpy().any()


def test_two_states_of_equal_contents_stay_two() -> None:
    states = plan_of("lstm").of_kind("state")
    assert sorted(memory.name for memory in states) == ["c", "h"]
    assert len({memory.offset for memory in states}) == 2


def test_random_draws_and_seeds_are_events() -> None:
    plan = build_plan(capture(lambda x: x + Tensor.rand(4), (Tensor.ones(4),), "r"), PORTABLE)
    assert plan.events == (("draw", 4),)


# ------------------------------------------------------------ refusals
def read_out(x: Tensor) -> Tensor:
    return x * x.sum().item()


def counting() -> Any:
    calls = []

    def function(x: Tensor) -> Tensor:
        calls.append(1)
        return x * len(calls)

    return function


def writes_input(x: Tensor) -> Tensor:
    x.assign(x + 1)
    return x * 2


def branches(x: Tensor) -> Tensor:
    if x.sum().item() > 0:
        return x + 1
    return x - 1


def truth(x: Tensor) -> Tensor:
    return x if x.sum() > 0 else -x


def selects(x: Tensor) -> Tensor:
    return x.masked_select(x > 0)


def selects_by_mask(x: Tensor) -> Tensor:
    return x[x > 0]


def places(x: Tensor) -> Tensor:
    return x.nonzero()


def on_the_host(x: Tensor) -> Tensor:
    return Tensor(np.sin(x.numpy())) * 2


def dice(x: Tensor) -> Tensor:
    return x * random.random()


def clock(x: Tensor) -> Tensor:
    return x + time.time()


def elsewhere(x: Tensor) -> Tensor:
    return x.to("PYTHON") + 1


def grows() -> Any:
    class Net:
        def __init__(self) -> None:
            self.seen = Tensor.zeros(1).contiguous().realize()

        def step(self, x: Tensor) -> Tensor:
            self.seen = self.seen.cat(x)
            return self.seen

    return Net().step


LINE = r"test_plan\.py:\d+"
READS = rf"{LINE} \(\w+\) cannot be exported: {LINE}: \w+ reads the values.*where\(\) instead"
FREE = Variable("n", 1, 8)


@pytest.mark.parametrize(
    ("function", "inputs", "says"),
    [
        (read_out, (Tensor.ones(3),), f"{READS}.*return the Tensor and read it outside"),
        (branches, (Tensor.ones(3),), READS),
        (truth, (Tensor.ones(3),), rf"{LINE}: the truth of a Tensor is not known.*where\(\)"),
        (selects, (Tensor.ones(3),), "masked_select reads the values.*keep all elements and a"),
        (selects_by_mask, (Tensor.ones(3),), READS),
        (places, (Tensor.ones(3),), "nonzero reads the values"),
        (on_the_host, (Tensor.ones(3),), "numpy reads the values"),
        (
            dice,
            (Tensor.ones(3),),
            rf"{LINE} \(dice\) .*: it calls Random.random.*has to be a Tensor",
        ),
        (clock, (Tensor.ones(3),), rf"{LINE} \(clock\) .*: it calls time.time"),
        (elsewhere, (Tensor.ones(3),), "works on CPU, PYTHON.*move its weights and inputs to one"),
        (grows(), (Tensor.ones(3),), r"step\) cannot be exported: it does something else in every"),
        (counting(), (Tensor.ones(3),), "cannot be exported"),
        (writes_input, (Tensor.ones(3),), f"{LINE} writes to the input x"),
        (lambda x: 3.0, (Tensor.ones(3),), "exported functions give Tensors"),
        (lambda x: None, (Tensor.ones(3),), "gives no Tensor and keeps no state"),
        (lambda: Tensor.ones(3), (), "at least one Tensor"),
        (3, (Tensor.ones(3),), "takes a function"),
        (lambda x: x, (Tensor.zeros(0),), "has no elements"),
        (lambda x, n: x[:n] * 2, (Tensor.ones(8), FREE), r"variable n .* bind it, as n.bind\(1\)"),
    ],
    ids=[
        "item",
        "branch",
        "truth",
        "selection",
        "mask",
        "places",
        "host",
        "dice",
        "clock",
        "devices",
        "growth",
        "counter",
        "input written",
        "number",
        "nothing",
        "no input",
        "no function",
        "empty",
        "free variable",
    ],
)
def test_what_cannot_be_exported_is_refused_by_name(function: Any, inputs: Any, says: str) -> None:
    with pytest.raises(ExportError, match=says):
        build_plan(capture(function, inputs, "f"), PORTABLE)


def test_state_that_is_none_at_first_is_refused() -> None:
    class Net:
        hidden: Any = None

        def step(self, x: Tensor) -> Tensor:
            self.hidden = x if self.hidden is None else self.hidden + x
            return self.hidden * 2

    with pytest.raises(ExportError, match="hidden"):
        build_plan(capture(Net().step, (Tensor.ones(3),), "f"), PORTABLE)


# ------------------------------------------------------------ mutations
def test_a_changed_plan_is_an_error(gpt: Plan) -> None:
    rng = random.Random(1)
    for _ in range(200):
        changed = mutated(gpt, rng)
        if changed == gpt:
            continue
        with pytest.raises(ExportError):
            verify(changed)


def test_a_changed_plan_that_is_sealed_again_is_an_error_or_whole(gpt: Plan) -> None:
    """What passes must be a plan that is as safe: no exception but ExportError."""
    rng = random.Random(2)
    refused = 0
    for _ in range(300):
        changed = mutated(gpt, rng)
        try:
            changed = seal(changed)
        except (AttributeError, TypeError, LookupError):
            continue  # not even a plan
        try:
            verify(changed)
        except ExportError:
            refused += 1
    assert refused > 150


@pytest.mark.parametrize(
    "change",
    "offset,argument,kernel,writes constant,overlap,arena,states,dtype,bounds,copy".split(","),
)
def test_what_would_touch_other_memory_is_refused(gpt: Plan, change: str) -> None:
    memories, steps = list(gpt.memories), list(gpt.steps)
    scratch = [n for n, m in enumerate(memories) if m.kind == "scratch"]
    first = next(i for i, s in enumerate(steps) if isinstance(s, Launch))
    launch = steps[first]
    assert isinstance(launch, Launch)
    rest: dict[str, Any] = {}
    if change == "offset":
        n = scratch[0]
        memories[n] = dataclasses.replace(memories[n], offset=gpt.arena_bytes)
    elif change == "argument":
        steps[first] = dataclasses.replace(
            launch, arguments=((launch.arguments[0][0], 1 << 30), *launch.arguments[1:])
        )
    elif change == "kernel":
        steps[first] = dataclasses.replace(launch, kernel=len(gpt.kernels) - 1)
    elif change == "writes constant":
        constant = next(n for n, m in enumerate(memories) if m.kind == "constant")
        steps[first] = dataclasses.replace(launch, arguments=((constant, 0), *launch.arguments[1:]))
    elif change == "overlap":
        for n in scratch:
            memories[n] = dataclasses.replace(memories[n], offset=0)
    elif change == "arena":
        rest["arena_bytes"] = gpt.arena_bytes // 2
    elif change == "states":
        rest["state_bytes"] = gpt.state_bytes + 1
    elif change == "dtype":
        wide = dataclasses.replace(memories[scratch[0]].dtype, itemsize=0)
        memories[scratch[0]] = dataclasses.replace(memories[scratch[0]], dtype=wide)
    elif change == "bounds":
        rest["sizes"] = (dataclasses.replace(gpt.sizes[0], high=gpt.sizes[0].high + 1),)
    else:
        steps.append(Copy(scratch[0], next(n for n, m in enumerate(memories) if m.kind == "input")))
    changed = dataclasses.replace(gpt, memories=tuple(memories), steps=tuple(steps), **rest)
    with pytest.raises(ExportError, match="the plan is not whole"):
        verify(seal(changed))


def test_names_are_identifiers_of_c_and_javascript() -> None:
    assert identifier("layers.0.weight") == "layers_0_weight"
    assert [identifier(name) for name in ("int", "2x", "", "ä-b")] == ["int_", "_2x", "value", "b"]


def test_a_size_is_narrowed_to_what_slices_allow() -> None:
    table = Tensor.arange(16).float().contiguous().realize()
    start = Variable("start", 0, 40)

    def window(x: Tensor, start: Any) -> Tensor:
        return table[start : start + 4] * x

    plan = build_plan(capture(window, (Tensor.ones(4), start.bind(3)), "w"), PORTABLE)
    assert [(size.low, size.high) for size in plan.sizes] == [(0, 12)]
