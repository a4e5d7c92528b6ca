"""Steps of devices that belong to several processes: who does what, and who tells whom.

In: transfers and schedules. Out: the same done by this process, as far as it is concerned.
Sits under realize. Invariant: a device without a rank is each process's own; one with a rank is
that process's, and its programs are made and run there alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

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


def transfer(target: Buffer, source: Buffer) -> None:
    """Move bytes between devices, of which some may be other processes'."""
    receiver, sender = Device[target.device], Device[source.device]
    if receiver.rank is None and sender.rank is None:
        receiver.queue.copy(target, source)
        return
    if sender.rank is None or sender.rank == receiver.rank:
        if receiver.is_here:
            receiver.queue.copy(target, source)
        return
    ranks = sender.ranks
    if receiver.rank is None:
        if sender.is_here:
            receiver.queue.copy(target, source)
        ranks.broadcast(target, sender.rank)
    elif sender.is_here:
        ranks.send(source, receiver.rank)
    elif receiver.is_here:
        ranks.receive(target, sender.rank)


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
