"""Steps of devices that belong to several processes: who does what, and who tells whom.

In: transfers and schedules. Out: the same done by this process, as far as it is concerned.
Sits under realize. Invariant: a device without a rank is each process's own; one with a rank is
that process's, and its programs are made and run there alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from weft.collective import Message
from weft.device import Buffer, Device
from weft.engine.prepared import Prepared


class AbsentRunner:
    """The program of a device of another process."""

    name = "absent"
    variables: tuple[str, ...] = ()
    ops = mem = 0

    def __call__(self, arguments: Any, values: Any, wait: bool, origin: Any) -> float | None:
        return None


ABSENT: Any = AbsentRunner()


def transfer(pairs: Sequence[tuple[Buffer, Buffer]]) -> None:
    """Move bytes between devices, (target, source) each, of which some may be other processes'.

    Between processes it is one exchange: no target is a source.
    """
    messages: list[Message] = []
    ranks: Any = None
    for target, source in pairs:
        receiver, sender = Device[target.device], Device[source.device]
        if sender.rank is None or sender.rank == receiver.rank:
            if receiver.is_here:
                receiver.queue.copy(target, source)
            continue
        ranks = sender.ranks
        # what each process has of its own is filled in all of them
        takers = range(ranks.count) if receiver.rank is None else (receiver.rank,)
        messages += [Message(sender.rank, source, taker, target) for taker in takers]
    if messages:
        ranks.exchange(messages)


def agree(prepared: Prepared, devices: Sequence[str]) -> None:
    """An error if another process is about to run another schedule."""
    found = next((d for name in devices if (d := Device[name]).rank is not None), None)
    if found is None:
        return
    if prepared.digest is None:
        rows = [(s.device, s.arguments, s.is_transfer) for s in prepared.steps]
        shown = repr((rows, prepared.inputs, prepared.overwritten))
        prepared.digest = hashlib.sha256(shown.encode()).digest()
    origin = next((step.origin for step in prepared.steps if step.origin), ("unknown", 0))
    found.ranks.agree(prepared.digest, f"line {origin[1]} of {origin[0]}")
