"""Plan the memory of intermediate values: those that do not live at the same time share it.

What comes in: for each step which temporaries it touches, and their sizes. What goes out: an offset
for each temporary inside one arena per device, and the arenas' sizes.
Where it sits: between the schedule and its execution; planned once per cached schedule.
The one invariant: two temporaries overlap in memory only if their lives do not overlap in time.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from weft.helpers import round_up

# huge enough for any vector, and keeps neighbours out of each other's cache lines
ALIGNMENT = 256


class _Arena:
    """First fit over free gaps, neighbours joined."""

    def __init__(self) -> None:
        self.size = 0
        self.gaps: list[tuple[int, int]] = []  # (start, stop), ascending

    def take(self, nbytes: int) -> int:
        best: int | None = None
        for i, (start, stop) in enumerate(self.gaps):
            if stop - start >= nbytes and (best is None or stop - start < self._length(best)):
                best = i
        if best is not None:
            start, stop = self.gaps[best]
            self.gaps[best : best + 1] = [(start + nbytes, stop)] if stop - start > nbytes else []
            return start
        if self.gaps and self.gaps[-1][1] == self.size:
            start = self.gaps.pop()[0]
        else:
            start = self.size
        self.size = start + nbytes
        return start

    def _length(self, i: int) -> int:
        return self.gaps[i][1] - self.gaps[i][0]

    def give(self, start: int, nbytes: int) -> None:
        stop = start + nbytes
        gaps = sorted([*self.gaps, (start, stop)])
        joined: list[tuple[int, int]] = []
        for gap in gaps:
            if joined and joined[-1][1] == gap[0]:
                joined[-1] = (joined[-1][0], gap[1])
            else:
                joined.append(gap)
        self.gaps = joined


def plan_memory(
    touched: Sequence[Sequence[int]], sizes: dict[int, tuple[Hashable, int]]
) -> tuple[dict[int, int], dict[Hashable, int]]:
    """`touched[i]`: the memories of step i; `sizes`: device and bytes of those that are
    temporary."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for step, memories in enumerate(touched):
        for memory in memories:
            if memory in sizes:
                first.setdefault(memory, step)
                last[memory] = step
    begins: dict[int, list[int]] = {}
    ends: dict[int, list[int]] = {}
    for memory, step in first.items():
        begins.setdefault(step, []).append(memory)
        ends.setdefault(last[memory], []).append(memory)
    arenas: dict[Hashable, _Arena] = {}
    offsets: dict[int, int] = {}
    for step in range(len(touched)):
        for memory in begins.get(step, ()):
            device, nbytes = sizes[memory]
            arena = arenas.setdefault(device, _Arena())
            offsets[memory] = arena.take(round_up(max(1, nbytes), ALIGNMENT))
        for memory in ends.get(step, ()):
            device, nbytes = sizes[memory]
            arenas[device].give(offsets[memory], round_up(max(1, nbytes), ALIGNMENT))
    return offsets, {device: arena.size for device, arena in arenas.items()}
