"""Merge kernels that run over the same ranges and read the same data: several stores share one
kernel.

What comes in: built kernels. What goes out: fewer built kernels.
Where it sits: after build, before order. An Adam update of one parameter (parameter, first and
second moment) and the mean and variance of the same rows become one kernel each.
The one invariant: merged kernels do not read each other's results, and where one overwrites what
another reads, both touch the very same element at the same time.
"""

from __future__ import annotations

from weft.budgets import KERNEL_BUFFERS, KERNEL_OPS, NESTS
from weft.machine import Machines, generic
from weft.schedule.build import Built
from weft.schedule.draft import volume
from weft.schedule.limit import is_wide
from weft.schedule.order import CycleError, all_dependencies, data_levels, order_kernels
from weft.uop.node import UOp
from weft.uop.opset import Ops

HOSTS_TRIED = 8


def merge_kernels(kernels: list[Built], machines: Machines = generic) -> list[Built]:
    """Greedy, first fit, level by level; undone as a whole if it would make kernels wait for each
    other."""
    levels = data_levels(kernels)
    groups: dict[tuple[object, ...], list[int]] = {}
    result: list[Built] = []
    for kernel in kernels:
        draft = kernel.draft
        if not kernel.stores or draft.heavy or not draft.ranges:
            result.append(kernel)
            continue
        sizes = tuple(axis.src[0] for axis in draft.ranges)
        hosts = groups.setdefault((levels[kernel], draft.device, sizes), [])
        # only the latest few are tried, so that thousands of equal kernels cost linear time
        for place in hosts[-HOSTS_TRIED:]:
            merged = _try_merge(result[place], kernel, machines)
            if merged is not None:
                result[place] = merged
                break
        else:
            hosts.append(len(result))
            result.append(kernel)
    if len(result) == len(kernels):
        return kernels
    try:
        order_kernels(result, all_dependencies(result))
    except CycleError:
        return kernels
    return result


def _try_merge(host: Built, guest: Built, machines: Machines) -> Built | None:
    shared = host.draft.buffers & guest.draft.buffers
    if not shared and not (host.waits.keys() & guest.waits.keys()):
        return None
    if host.draft.count + guest.draft.count > KERNEL_OPS // 2:
        return None
    if len(host.draft.buffers | guest.draft.buffers) > KERNEL_BUFFERS // 2:
        return None
    if is_wide(machines, host, guest):
        return None
    if any(not (a <= b or b <= a) for a in _positions(host) for b in _positions(guest)):
        return None
    renamed = _rename(guest, host)
    if in_place_conflict([*host.stores, *renamed]):
        return None
    combined = _combine(host, guest, renamed)
    host.draft.reductions.extend(_map_sets(guest, host))
    return combined


def _combine(host: Built, guest: Built, stores: list[UOp]) -> Built:
    """One kernel with the outputs of both."""
    draft = host.draft
    draft.count += guest.draft.count
    draft.buffers |= guest.draft.buffers
    draft.next_number += guest.draft.next_number
    return Built(
        draft,
        [*host.stores, *stores],
        {**host.reads, **guest.reads},
        {**host.overwrites, **guest.overwrites},
        {**host.waits, **guest.waits},
        [*host.writes, *guest.writes],
    )


def _positions(kernel: Built) -> list[frozenset[int]]:
    """The reductions' outer ranges by place, comparable between kernels."""
    places = {axis: i for i, axis in enumerate(kernel.draft.ranges)}
    return [frozenset(places[a] for a in s if a in places) for s in kernel.draft.reductions]


def _map_sets(guest: Built, host: Built) -> list[frozenset[UOp]]:
    return [frozenset(host.draft.ranges[i] for i in s) for s in _positions(guest)]


def _rename(guest: Built, host: Built) -> list[UOp]:
    """The guest's stores over the host's ranges, its own reduce ranges renumbered."""
    changes = dict(zip(guest.draft.ranges, host.draft.ranges, strict=True))
    offset = host.draft.next_number
    for node in UOp.sink(*guest.stores).toposort():
        if node.op is Ops.RANGE and node not in changes:
            number = tuple(n + offset for n in node.arg.number)
            changes[node] = UOp.range(node.src[0], number, node.arg.kind)
    return [store.substitute(changes) for store in guest.stores]


def in_place_conflict(stores: list[UOp]) -> bool:
    """Does any load touch a written storage at another element than the one being written?"""
    places: dict[UOp, UOp] = {}
    for store in stores:
        memory, index = store.src[0].src[0], store.src[0].src[1]
        if places.setdefault(memory, index) is not index:
            return True
    for node in UOp.sink(*stores).toposort():
        if node.op is Ops.LOAD and node.src[0].op is Ops.INDEX:
            memory, index = node.src[0].src[0], node.src[0].src[1]
            if memory in places and places[memory] is not index:
                return True
    return False


def join_nests(kernels: list[Built], machines: Machines = generic) -> list[Built]:
    """Small kernels of one level become loop nests of one program: one launch instead of many.

    Fifty small parameters of an optimiser step are then a few launches.
    """
    levels = data_levels(kernels)
    latest: dict[tuple[object, ...], int] = {}
    result: list[Built] = []
    for kernel in kernels:
        draft = kernel.draft
        if not kernel.stores or draft.heavy or not _is_small(kernel, machines):
            result.append(kernel)
            continue
        group = (levels[kernel], draft.device)
        place = latest.get(group)
        if place is not None and _may_join(result[place], kernel, machines):
            host = result[place]
            result[place] = _combine(host, kernel, _renumber(kernel, host.draft.next_number))
        else:
            latest[group] = len(result)
            result.append(kernel)
    if len(result) == len(kernels):
        return kernels
    try:
        order_kernels(result, all_dependencies(result))
    except CycleError:
        return kernels
    return result


def _is_small(kernel: Built, machines: Machines) -> bool:
    """Whether it is a launch more than it is work."""
    draft = kernel.draft
    return volume(draft.ranges) <= machines(draft.device).launch_elements


def _may_join(host: Built, guest: Built, machines: Machines) -> bool:
    if len(host.stores) + len(guest.stores) > NESTS:
        return False
    if host.draft.count + guest.draft.count > KERNEL_OPS // 2:
        return False
    if len(host.draft.buffers | guest.draft.buffers) > KERNEL_BUFFERS:
        return False
    if is_wide(machines, host, guest):
        return False
    work = _reduced_points(host) + _reduced_points(guest)
    if work > machines(host.draft.device).launch_elements * NESTS:
        return False
    # nests run one after another: neither may write what the other touches
    ours, theirs = _touched(host), _touched(guest)
    return not (ours[1] & (theirs[0] | theirs[1]) or theirs[1] & ours[0])


def _reduced_points(kernel: Built) -> int:
    """How often the innermost work of a kernel is done at most: nests add up."""
    total = 0
    for store in kernel.stores:
        axes = {u for u in store.toposort() if u.op is Ops.RANGE}
        total += volume(frozenset(axes))
    return total


def _touched(kernel: Built) -> tuple[set[UOp], set[UOp]]:
    """The storages read and the storages written."""
    written = {store.src[0].src[0] for store in kernel.stores}
    nodes = UOp.sink(*kernel.stores).toposort()
    read = {u.src[0].src[0] for u in nodes if u.op is Ops.LOAD}
    return read, written


def _renumber(guest: Built, offset: int) -> list[UOp]:
    changes = {
        u: UOp.range(u.src[0], tuple(n + offset for n in u.arg.number), u.arg.kind)
        for u in UOp.sink(*guest.stores).toposort()
        if u.op is Ops.RANGE
    }
    return [store.substitute(changes) for store in guest.stores]
