"""What the AMD device asks of a GPU: memory, code, and a queue of packets.

In: nothing. Out: `Agent`, the contract, and `Kernel`. Implemented by HSA (`hsa.py`) where there is
hardware, and by the emulator (`emulated.py`).
Invariant: packets of the queue are done in order; a signal counts down to 0 when its packet is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from weft.runtime.amd.aql import Dispatch


@dataclass(frozen=True)
class Kernel:
    """A kernel in memory: what a packet names, and what its launch has to give."""

    name: str
    handle: int
    kernarg_bytes: int
    group_bytes: int
    private_bytes: int
    owner: Any = None  # keeps the code in memory


class Agent(Protocol):
    """A GPU."""

    arch: str
    description: str
    cores: int

    def allocate(self, nbytes: int) -> int:
        """The address of memory that kernels may touch; MemoryError where there is none."""

    def free(self, address: int) -> None: ...

    def copy_in(self, address: int, source: memoryview) -> None: ...

    def copy_out(self, target: memoryview, address: int) -> None: ...

    def load(self, name: str, code: bytes) -> Kernel:
        """The kernel of a code object."""

    def arguments(self, contents: bytes) -> int:
        """The address of a copy of a kernel's arguments, valid until the queue has passed it."""

    def submit(self, dispatch: Dispatch, name: str) -> int:
        """Puts a packet into the queue; a number for `wait`."""

    def wait(self, number: int) -> None:
        """Returns when the packet is done, or raises what went wrong with it or one before."""

    def elapsed(self, number: int) -> float:
        """Seconds that a packet took, once it is done."""
