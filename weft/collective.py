"""Collectives: bytes that several places give each other, behind one small interface.

In: buffers, one for each place; a place is a device, or a process that runs the same program. Out:
the same buffers filled. Sits on `device`, under the runtimes that can reach other processes.
Invariant: every process asks for the same things in the same order, and names all places' buffers;
it touches those that are here. What is added is added in the order of the places, so every place
has the same bits, and has them again in the next run.

A runtime implements `exchange`, `lend` and `barrier`; everything else is made of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from weft.device import Buffer, Device
from weft.errors import ArgumentError

# writes the sum of all of them, in their order, into the one that is numbered
Add = Callable[[Sequence[Buffer], int], None]


@dataclass(frozen=True)
class Message:
    """Bytes from a memory of one place to a memory of another, equally large."""

    sender: int
    source: Buffer
    receiver: int
    target: Buffer


class Collective(ABC):
    """Places that know each other."""

    count: int

    @abstractmethod
    def is_here(self, place: int) -> bool:
        """Whether a place's memory is this process's."""

    @abstractmethod
    def exchange(self, messages: Sequence[Message]) -> None:
        """All of these at once: no source is a target. Returns when those of this process are
        done: its targets are filled, and its sources may change."""

    @abstractmethod
    def lend(self, messages: Sequence[Message]) -> AbstractContextManager[list[Buffer]]:
        """What the messages to this process would bring, to be read inside: where memory is shared
        it is the source itself, else the target."""

    @abstractmethod
    def barrier(self) -> None:
        """Returns when all processes have come here."""

    def send(self, source: Buffer, target: Buffer, sender: int, receiver: int) -> None:
        """One message."""
        self.exchange([Message(sender, source, receiver, target)])

    def all_to_all(self, targets: Sequence[Buffer], sources: Sequence[Buffer]) -> None:
        """Piece j of place i becomes piece i of place j."""
        given = [self._pieces(source) for source in sources]
        taken = [self._pieces(target) for target in targets]
        places = range(self.count)
        self.exchange([Message(i, given[i][j], j, taken[j][i]) for i in places for j in places])

    def all_gather(self, targets: Sequence[Buffer], sources: Sequence[Buffer]) -> None:
        """The memories of all places, one after another, in each."""
        places = range(self.count)
        taken = [self._pieces(target) for target in targets]
        self.exchange([Message(i, sources[i], j, taken[j][i]) for i in places for j in places])

    def reduce_scatter(self, values: Sequence[Buffer], add: Add) -> None:
        """Piece i of place i becomes the sum of all places' pieces i; the others stay."""
        pieces = [self._pieces(value) for value in values]
        places = range(self.count)
        messages = []
        for j in places:
            for i in places:
                if i != j:
                    own = pieces[j][j]
                    scratch = Buffer(own.device, own.size, own.dtype)
                    messages.append(Message(i, pieces[i][j], j, scratch))
        with self.lend(messages) as lent:
            found = iter(lent)
            for j in places:
                if self.is_here(j):
                    add([pieces[j][j] if i == j else next(found) for i in places], j)

    def all_reduce(self, values: Sequence[Buffer], add: Add) -> None:
        """Every place's memory becomes the sum of all: each adds up a piece, and all get it."""
        self.reduce_scatter(values, add)
        pieces = [self._pieces(value) for value in values]
        places = range(self.count)
        self.exchange(
            [Message(i, pieces[i][i], j, pieces[j][i]) for i in places for j in places if i != j]
        )

    def _pieces(self, value: Buffer) -> list[Buffer]:
        """As many parts as there are places, which differ by one element at most."""
        bounds = [value.size * i // self.count for i in range(self.count + 1)]
        return [
            value.view(stop - start, value.dtype, start * value.dtype.itemsize)
            for start, stop in zip(bounds, bounds[1:], strict=False)
        ]


def check(messages: Sequence[Message]) -> None:
    """An error if a message does not fit."""
    for message in messages:
        if message.source.nbytes != message.target.nbytes:
            raise ArgumentError(
                f"a message of {message.source.nbytes} bytes from place {message.sender} to "
                f"{message.target.nbytes} bytes of place {message.receiver}: they have to be equal"
            )


class InProcess(Collective):
    """Devices of one process."""

    def __init__(self, count: int) -> None:
        self.count = count

    def is_here(self, place: int) -> bool:
        return True

    def exchange(self, messages: Sequence[Message]) -> None:
        check(messages)
        for message in messages:
            Device[message.target.device].queue.copy(message.target, message.source)

    @contextmanager
    def lend(self, messages: Sequence[Message]) -> Iterator[list[Buffer]]:
        self.exchange(messages)
        yield [message.target for message in messages]

    def barrier(self) -> None:
        """Work of a process is done in order."""
