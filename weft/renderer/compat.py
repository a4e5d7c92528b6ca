"""What programs written for tinygrad ask a renderer, in terms of its target.

In: a renderer (the mixin's `self`). Out: facts. Sits under `base.py`.
Invariant: nothing in weft itself needs these; the target says the same.
"""

from __future__ import annotations

from typing import Any


class RendererNames:
    """One property for each name."""

    target: Any

    @property
    def has_local(self) -> bool:
        """Whether threads come in groups."""
        return bool(self.target.has_local)

    @property
    def has_shared(self) -> bool:
        """Whether a group shares memory."""
        return self.shared_max > 0

    @property
    def has_threads(self) -> bool:
        """Whether a kernel is split over cores."""
        return bool(self.target.has_threads)

    @property
    def supports_float4(self) -> bool:
        """Whether there are vectors."""
        return bool(self.target.vector_bytes)

    @property
    def tensor_cores(self) -> list[Any]:
        """The fragments of its tensor cores."""
        return list(self.target.fragments)

    @property
    def shared_max(self) -> int:
        """Bytes that a group shares."""
        return int(self.target.shared_bytes)

    @property
    def local_max(self) -> tuple[int, ...] | None:
        """Threads of a group along x, y, z at most."""
        return tuple(self.target.group_limits) or None

    @property
    def global_max(self) -> tuple[int, ...] | None:
        """Groups along x, y, z at most."""
        return tuple(self.target.grid_limits) or None
