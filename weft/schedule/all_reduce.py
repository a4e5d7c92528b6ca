"""Combine values of several devices on each of them: transfers and kernels that add.

What comes in: a value of each of some devices, an op, and the devices that want the result. What
goes out: the result on each of these.
Where it sits: under `shard`, for sums along the axis that is cut.
The one invariant: every device gets the same bits: an element is combined in one order only.

Small values are sent to everybody, and each adds them: one round of messages. Larger ones are cut:
each device adds up one piece and sends it to the others, so that each sends and receives twice
(n - 1) / n of the value instead of n - 1 times all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.helpers import prod
from weft.knobs import RING
from weft.uop.layout import even_bounds
from weft.uop.node import UOp
from weft.uop.opset import Ops

# bytes of a value from which on it is cut: below, messages cost more than what they carry
LARGE = 1 << 16


def on_device(value: UOp, device: str) -> UOp:
    """A value on a device; what is there, or on none, stays as it is."""
    if value.device is None or value.device == device:
        return value
    if any([type(size) is int and size == 0 for size in value.shape]):
        return filled(UOp.const(value.dtype, 0), value.shape)
    return UOp(Ops.COPY, value.dtype, (value,), device)


def filled(const: UOp, shape: tuple[Any, ...]) -> UOp:
    """A number in every element."""
    if not shape:
        return const
    return const._mop(Ops.RESHAPE, (1,) * len(shape))._mop(Ops.EXPAND, shape)


def all_reduce(
    partial: Sequence[tuple[UOp, str]], op: Ops, devices: tuple[str, ...]
) -> tuple[UOp, ...]:
    """Values and their devices, combined on each of `devices`."""
    values = [value for value, _ in partial]
    if len(values) == 1 or all([value.device is None for value in values]):
        whole = _combined(values, op)
        return tuple([on_device(whole, device) for device in devices])
    shape = values[0].shape
    is_known = all([type(size) is int for size in shape])
    nbytes = prod(shape) * values[0].dtype.itemsize if is_known else 0
    is_small = len(devices) < 3 or nbytes < LARGE
    if not is_known or RING.value == 0 or (RING.value == 1 and is_small):
        return _by_everybody(values, op, devices)
    flat = [value._mop(Ops.RESHAPE, (prod(shape),)) for value in values]
    by_piece = _around_ring if RING.value >= 2 else _by_pieces
    return tuple([whole._mop(Ops.RESHAPE, shape) for whole in by_piece(flat, op, devices)])


def _by_everybody(values: list[UOp], op: Ops, devices: tuple[str, ...]) -> tuple[UOp, ...]:
    """Each device gets all values."""
    stored = [_stored(value) for value in values]
    return tuple([_combined([on_device(v, device) for v in stored], op) for device in devices])


def _by_pieces(values: list[UOp], op: Ops, devices: tuple[str, ...]) -> tuple[UOp, ...]:
    """Each device gets a piece of all values, and sends their sum to the others."""
    stored = [_stored(value) for value in values]
    bounds = even_bounds(values[0].shape[0], len(devices))
    pieces = []
    for number, device in enumerate(devices):
        own = [on_device(_piece(value, bounds, number), device) for value in stored]
        pieces.append(_stored(_combined(own, op)))
    return _joined(pieces, devices)


def _around_ring(values: list[UOp], op: Ops, devices: tuple[str, ...]) -> tuple[UOp, ...]:
    """Each piece goes once around, and each device adds its own: only neighbours talk."""
    stored = [_stored(value) for value in values]
    count = len(devices)
    places = [str(value.device) for value in stored]
    bounds = even_bounds(values[0].shape[0], count)
    pieces = []
    for number in range(count):
        total: UOp | None = None
        for step in range(len(stored)):
            turn = (number + 1 + step) % len(stored)
            own = _piece(stored[turn], bounds, number)
            if total is not None:
                own = own.alu(op, on_device(_stored(total), places[turn]))
            total = own
        assert total is not None
        pieces.append(_stored(on_device(_stored(total), devices[number])))
    return _joined(pieces, devices)


def _piece(value: UOp, bounds: tuple[int, ...], number: int) -> UOp:
    return value._mop(Ops.SHRINK, ((bounds[number], bounds[number + 1]),))


def _joined(pieces: list[UOp], devices: tuple[str, ...]) -> tuple[UOp, ...]:
    return tuple(
        [
            UOp(Ops.CAT, pieces[0].dtype, tuple([on_device(p, device) for p in pieces]), 0)
            for device in devices
        ]
    )


def _stored(value: UOp) -> UOp:
    """Computed once, and not by each of its readers."""
    if value.op in (Ops.CONTIGUOUS, Ops.COPY):
        return value
    return UOp(Ops.CONTIGUOUS, value.dtype, (value,))


def _combined(values: Sequence[UOp], op: Ops) -> UOp:
    """In the order of the devices."""
    result = values[0]
    for value in values[1:]:
        result = result.alu(op, value)
    return result
