"""Machine: what the compiler knows of the processor that it compiles for.

In: nothing; devices fill a `Target` in from what the machine tells of itself. Out: `Target`, a
frozen description that schedule, optimiser and renderers ask. Sits above all of them, so that none
has a number of its own that belongs to a processor.
Invariant: every default is safe for any machine. A figure that is wrong costs time, never a wrong
result. `weft doctor` shows the description of each device, and measures what of it can be measured.

Times are in cycles of one core. Most decisions compare ratios of them, so what matters of a figure
is how it stands to the others: a vector addition that is issued is 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from weft.dtype import DType, dtypes
from weft.errors import ArgumentError
from weft.fragment import Fragment
from weft.uop.opset import OPSET, Ops


@dataclass(frozen=True)
class GroupTimes:
    """What products take on a core that runs groups of threads. Times are in cycles.

    The second part is of fragments that read shared memory by themselves. It is fitted to 16
    tilings of a product of 4096 (bfloat16, sm_90: `python -m bench.cuda --only kernels`); the
    first part to the products of `docs/cuda.md` through fragments in registers, on the same chip.
    """

    far_bytes: float = 40.0  # that a core gets in a cycle from behind its shared memory
    far_exposed: float = 0.3  # share of the time for these that other work does not hide
    half_busy: float = 3.0  # warps of a core that keep half of its units busy
    barrier_cycles: float = 80.0  # of a block of terms: the barrier and the first reads after it
    fetch_cycles: float = 600.0  # until what is fetched has come
    start_cycles: float = 1500.0  # until a group has begun
    reserved_bytes: int = 1 << 10  # of a core's shared memory that a group takes beside its own
    # ------------------------------------------------------------ fragments in shared memory
    overhead: float = 1.1  # how much longer a block takes than its busiest unit
    alone_overhead: float = 0.1  # and as much more if no other warps have work meanwhile
    latency: float = 800.0  # until what is fetched comes, while products read beside it
    stream_bytes: float = 56.0  # that come in a cycle then
    end_cycles: float = 600.0  # of a block that has no other beside it, at its end
    store_bytes: float = 16.0  # of sums that a core stores in a cycle


@dataclass(frozen=True)
class Target:
    """One kind of processor. Sizes are in bytes, times in cycles. The defaults suit any."""

    name: str = "generic"
    cores: int = 1
    # ------------------------------------------------------------ arithmetic
    vector_bytes: int = 16  # of one vector register; 0: no vectors, every value is scalar
    vector_registers: int = 16
    has_fma: bool = False
    products: int = 2  # multiply-adds of whole vectors that a core begins in a cycle
    sum_latency: int = 4  # until a sum can be added to again
    in_flight: int = 128  # vector instructions that a core works on at a time, of those in order
    # where an op takes other than the op table says, in vector instructions
    op_costs: tuple[tuple[Ops, float], ...] = ()
    # ------------------------------------------------------------ memory
    l1: int = 32 << 10
    l2: int = 512 << 10  # per core
    l3: int = 8 << 20  # shared by the cores
    l3_cores: int = 4  # that L3 feeds at the same time as if each was alone
    line_bytes: int = 64
    page_bytes: int = 4 << 10  # prefetch streams end at its end
    # what lies this far apart shares lines of L1, which evict each other: its size over its ways
    alias_bytes: int = 4 << 10
    streams: int = 4  # rows read side by side that the prefetchers follow at full speed
    stream_bytes: int = 256 << 10  # of one such row after which it costs nothing to begin elsewhere
    # a vector of a stream out of L2, and out of what is behind it, beyond one out of L1
    l2_cycles: float = 1.0
    far_cycles: float = 1.25
    # ops on 32-bit elements that a core does while it gets one byte from memory
    balance: float = 16 / 3
    # the first vector of a row somewhere in L2, and behind it, that no prefetcher saw coming
    l2_miss: float = 4.0
    far_miss: float = 16.0
    # a piece of a row in memory that no prefetcher led to: latency over those waited for at once
    restart_cycles: float = 75.0
    # an element of a lane that is apart from the others: read, written, written among `alias_bytes`
    gather_cycles: float = 2.0
    scatter_cycles: float = 2.5
    alias_cycles: float = 12.0
    # a number read into all lanes: less than a load where the instruction that needs it does so
    broadcast_cycles: float = 1.0
    stack_bytes: int = 3 << 20  # of fast memory that a kernel may have on a thread's stack
    has_streaming: bool = False  # stores that leave the caches alone (x86)
    # ------------------------------------------------------------ launches
    # to wake another core up, or to begin a kernel: work that is shorter gains nothing by it
    launch_cycles: int = 1 << 13
    # share of a round by which the last core is late, for each doubling of their number
    late_share: float = 1 / 16
    core_rounds: int = 4  # rounds of shared loops for each core, which even out a slow one
    has_threads: bool = False  # THREAD axes: the kernel runs part of its outermost axis per call
    max_buffers: int = 256
    # ------------------------------------------------------------ instructions
    index_dtype: DType = dtypes.int64
    has_half_conversion: bool = False  # float16 <-> float32 in one instruction
    has_max: bool = True  # MAX of floats in one instruction, NaN and zeros included (not on x86)
    has_rounding: bool = True  # TRUNC in one instruction (x86 has it from SSE4.1 on)
    # ------------------------------------------------------------ groups of threads, as GPUs have
    has_local: bool = False  # LOCAL axes, shared memory and barriers
    group_threads: int = 1  # at most so many in a group, which shares memory and barriers
    group_limits: tuple[int, ...] = ()  # and so many along x, y and z
    grid_limits: tuple[int, ...] = ()  # groups along x, y and z
    shared_bytes: int = 0  # memory that a group shares
    warp_size: int = 1  # threads of a group that run in step
    thread_lanes: int = 4  # elements of one access of a thread, whatever fits `vector_bytes`
    core_threads: int = 1  # threads that a core holds at a time, to hide what each waits for
    thread_registers: int = 0  # of 32 bits, that a thread may have; 0: not limited by us
    # memory that a group shares if the launch asks for so much; 0: no more than the above
    most_shared_bytes: int = 0
    core_shared_bytes: int = 0  # what the groups on one core have of it together
    core_registers: int = 0  # of 32 bits, for all threads of a core
    group_times: GroupTimes = GroupTimes()
    fragments: tuple[Fragment, ...] = ()  # products of matrices that the lanes of a warp compute
    # bytes of a copy from memory to shared memory that a thread need not wait for
    async_copies: tuple[int, ...] = ()
    # ints of 32 and 64 bits are added to, or made at least as great as, others in memory by one
    # instruction, whoever else does so
    has_atomics: bool = False
    # SCAN and RANK: prefixes and counts over the elements that the threads of a group hold
    has_prefixes: bool = False
    has_matrix_loads: bool = False  # a warp reads fragments by rows of 16 bytes, exchanging them
    features: tuple[str, ...] = ()  # further names, sorted, of what only one renderer asks about

    def op_cost(self, op: Ops) -> float:
        """Vector instructions of one op: what it becomes where the machine has none for it."""
        for other, cost in self.op_costs:
            if other is op:
                return cost
        return OPSET[op].cost

    @property
    def vector_lanes(self) -> int:
        """Lanes of a vector of 32-bit elements, which most are."""
        return self.vector_bytes // 4

    @property
    def scratch_bytes(self) -> int:
        """Bytes of what is packed: it stays in L2 beside what passes by."""
        return self.l2 * 3 // 4

    @property
    def again_bytes(self) -> int:
        """Bytes of an operand that every tile of a kernel reads again, out of L3 in time."""
        return 4 * self.l2

    @property
    def near_bytes(self) -> int:
        """Bytes of operands that come in time for a small tile: several times L2 as long as L3
        feeds all cores, and what is in L2 where they are more."""
        return self.again_bytes if self.cores <= self.l3_cores else self.l2

    @property
    def row_room(self) -> int:
        """Bytes that a value may take in fast memory between the loops of one kernel: what a core
        keeps in L2 and a little more, for it is read in order. A group's memory is too small."""
        return 0 if self.has_local else min(2 * self.l2, self.stack_bytes * 2 // 3)

    @property
    def parallel_parts(self) -> int:
        """Parts of a sum that keep all cores busy to the end, also if one is late: a power of two,
        and the same for all machines of up to 16 cores, whose sums then round alike."""
        return max(64, 1 << (4 * self.cores - 1).bit_length())

    @property
    def launch_elements(self) -> int:
        """Elements that a core adds up in the time of a launch: a kernel of fewer is not worth one
        of its own, nor worth sharing."""
        return 2 * self.launch_cycles

    @property
    def launch_ops(self) -> int:
        """Ops on 32-bit elements that a core does in the time of a launch."""
        return self.launch_cycles * max(self.vector_lanes, 1)

    @property
    def half_line(self) -> int:
        """Elements of 32 bits in half a line: memory is used well if as many are neighbours."""
        return self.line_bytes // 8


# for values that belong to no device yet, and tests
GENERIC = Target()

# the machine of a device; of several: one that has no more than each of them
Machines: TypeAlias = Callable[[Any], Target]


def generic(device: Any) -> Target:
    """Every device is like any other."""
    return GENERIC


def weakest(targets: list[Target]) -> Target:
    """What all of several machines can do: they run the same kernels, each on its part."""
    return replace(
        targets[0],
        max_buffers=min(t.max_buffers for t in targets),
        l2=min(t.l2 for t in targets),
        has_local=any(t.has_local for t in targets),
        most_shared_bytes=min(t.most_shared_bytes for t in targets),
        fragments=tuple(
            [f for f in targets[0].fragments if all([f in t.fragments for t in targets])]
        ),
        async_copies=targets[0].async_copies if all([t.async_copies for t in targets]) else (),
        has_atomics=all([t.has_atomics for t in targets]),
        has_prefixes=all([t.has_prefixes for t in targets]),
        has_matrix_loads=all([t.has_matrix_loads for t in targets]),
    )


@dataclass(frozen=True)
class MachineKernel:
    """A kernel in machine code, with how it is launched: what `custom_kernel` takes beside UOps.

    Its arguments are the addresses of so many tensors, of which it writes those in `writes`.
    """

    name: str
    code: bytes = field(repr=False)
    target: str
    buffers: int
    groups: tuple[int, int, int]
    threads: tuple[int, int, int]
    writes: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        for what in ("groups", "threads"):
            sizes = getattr(self, what)
            if len(sizes) != 3 or not all([isinstance(n, int) and n > 0 for n in sizes]):
                raise ArgumentError(f"{self.name}: {what} are three positive numbers, not {sizes}")
