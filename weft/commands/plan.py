"""`weft plan`: what training a GPT over N devices takes, in each way of `nn.parallel`, on paper.

What comes in: the sizes of a model, and a description of a device and its links. What goes out: a
table: flops and bytes of a step, memory of a device, and the time that follows from them. Where it
sits: with the other commands; it runs nothing. The one invariant: bytes are those that the schedule
moves (`test/commands/test_plan.py` counts them), times are these divided by what was described.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from weft.contracts import bytes_text
from weft.errors import ArgumentError
from weft.schedule.all_reduce import LARGE

NAME = "plan"
HELP = "Predict memory, traffic and time of training a GPT on N devices, for each way to cut it."

# weights, gradients, and two moments of AdamW
_STATE_BYTES, _FLOAT = 16, 4
# activations that a block keeps for its gradient, in elements of its input: its own, the norms',
# the query's, key's, value's, attention's, and those of the layer that is four times as wide
_KEPT = 16


@dataclass(frozen=True)
class Shape:
    """A GPT and its batch."""

    symbols: int = 50257
    context: int = 1024
    width: int = 768
    heads: int = 12
    layers: int = 12
    batch: int = 8

    @property
    def tokens(self) -> int:
        return self.batch * self.context

    @property
    def activation(self) -> int:
        """Bytes of what goes from block to block."""
        return self.tokens * self.width * _FLOAT

    @property
    def tensors(self) -> list[int]:
        """Elements of each parameter."""
        wide = self.width
        block = [wide, wide] * 2 + [wide * wide, wide] * 4
        block += [4 * wide * wide, 4 * wide, 4 * wide * wide, wide]
        ends = [self.symbols * wide, self.context * wide, wide, wide, self.symbols * wide]
        return block * self.layers + ends

    @property
    def parameters(self) -> int:
        return sum(self.tensors)

    @property
    def flops(self) -> int:
        """Of a step: forward, and twice as much backward."""
        products = self.layers * 12 * self.width**2 + self.symbols * self.width
        attention = 2 * self.layers * self.width * self.context
        return 6 * self.tokens * (products + attention)


@dataclass(frozen=True)
class Kind:
    """A device and its links: what it achieves, not what is printed on it."""

    flops: float
    memory: float
    link: float  # bytes a second that a device sends
    latency: float = 1e-5  # seconds of a message


@dataclass(frozen=True)
class Cost:
    """A step on one of the devices."""

    way: str
    flops: float
    sent: float
    messages: float
    memory: float
    seconds: float


def sent_by_all_reduce(nbytes: int, count: int) -> float:
    """Bytes that each device sends, as `schedule/all_reduce.py` does it."""
    if count < 3 or nbytes < LARGE:
        return nbytes * (count - 1)
    return 2 * nbytes * (count - 1) / count


def plan(shape: Shape, kind: Kind, count: int, micro: int = 4) -> list[Cost]:
    """All ways over so many devices, the fastest first."""
    if count < 1 or micro < 1:
        raise ArgumentError(f"plan takes at least 1 device and micro-batch, found {count}, {micro}")
    ways: list[Callable[[Shape, int], tuple[float, float, float, float]]] = [_one]
    if count > 1:
        ways = [_data, _sharded, _tensor, _sequence, _pipeline]
    found = []
    for way in ways:
        sent, messages, state, kept = way(shape, count)
        flops = shape.flops / count
        compute = flops / kind.flops
        if way is _pipeline:
            # devices wait while the first micro-batches come and the last ones go
            compute *= (micro + count - 1) / micro
        seconds = compute + sent / kind.link + messages * kind.latency
        found.append(Cost(way.__name__[1:], flops, sent, messages, state + kept, seconds))
    return sorted(found, key=lambda cost: (cost.memory > kind.memory, cost.seconds))


def _kept(shape: Shape) -> float:
    """Bytes that a step keeps for its gradients: activations and scores."""
    scores = shape.batch * shape.heads * shape.context**2 * _FLOAT
    guesses = shape.tokens * shape.symbols * _FLOAT
    return shape.layers * (_KEPT * shape.activation + scores) + 2 * guesses


# Each: bytes and messages that a device sends, bytes of its state, bytes that its step keeps.
def _one(shape: Shape, count: int) -> tuple[float, float, float, float]:
    return 0.0, 0.0, _STATE_BYTES * shape.parameters, _kept(shape)


def _data(shape: Shape, count: int) -> tuple[float, float, float, float]:
    sent = sum([sent_by_all_reduce(size * _FLOAT, count) for size in shape.tensors])
    messages = len(shape.tensors) * 2 * (count - 1)
    return sent, messages, _STATE_BYTES * shape.parameters, _kept(shape) / count


def _sharded(shape: Shape, count: int) -> tuple[float, float, float, float]:
    gathered = shape.parameters * _FLOAT
    sent, messages, _, kept = _data(shape, count)
    # gathered weights are there until their gradients are
    state = _STATE_BYTES * shape.parameters / count + gathered
    return sent + gathered * (count - 1) / count, 1.5 * messages, state, kept


def _tensor(shape: Shape, count: int) -> tuple[float, float, float, float]:
    sums = 4 * shape.layers
    blocks = shape.layers * 12 * shape.width**2
    state = _STATE_BYTES * (shape.parameters - blocks + blocks / count)
    sent = sums * sent_by_all_reduce(shape.activation, count)
    return sent, sums * 2 * (count - 1), state, _kept(shape) / count


def _sequence(shape: Shape, count: int) -> tuple[float, float, float, float]:
    # keys and values go around, and so do their gradients
    ring = 5 * shape.layers * shape.activation * (count - 1) / count
    sent, messages, state, kept = _data(shape, count)
    return sent + ring, messages + 5 * shape.layers * (count - 1), state, kept


def _pipeline(shape: Shape, count: int) -> tuple[float, float, float, float]:
    # to the next stage and back, the last one's to the first, where the head is
    ends = shape.parameters - shape.layers * (12 * shape.width**2 + 13 * shape.width)
    stage = -(-shape.layers // count) / shape.layers
    state = _STATE_BYTES * (ends + (shape.parameters - ends) * stage)
    return 2.0 * shape.activation, 2.0, state, _kept(shape) * stage


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The sizes, and what a device can do; by default GPT-2 small on eight fast GPUs."""
    for name, value in vars(Shape()).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--micro", type=int, default=4, help="micro-batches of the pipeline")
    parser.add_argument("--flops", type=float, default=3e13, help="a second, of one device")
    parser.add_argument("--memory", type=float, default=80e9, help="bytes of one device")
    parser.add_argument("--link", type=float, default=5e10, help="bytes a second that one sends")
    parser.add_argument("--latency", type=float, default=1e-5, help="seconds of a message")


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    shape = Shape(**{name: getattr(args, name) for name in vars(Shape())})
    kind = Kind(args.flops, args.memory, args.link, args.latency)
    print(
        f"{shape.parameters} parameters, {shape.flops:.3g} flops a step of {shape.tokens} tokens, "
        f"{args.devices} devices"
    )
    print(f"{'way':10} {'step':>10} {'tokens/s':>10} {'sent':>26} {'memory':>28}")
    for cost in plan(shape, kind, args.devices, args.micro):
        fits = "" if cost.memory <= kind.memory else "  does not fit"
        print(
            f"{cost.way:10} {cost.seconds * 1e3:7.1f} ms {shape.tokens / cost.seconds:10.3g} "
            f"{bytes_text(int(cost.sent)):>26} {bytes_text(int(cost.memory)):>28}{fits}"
        )
    return 0
