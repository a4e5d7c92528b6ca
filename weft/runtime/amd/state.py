"""Where things are: the state of a wave, and the record of an instruction.

In: nothing. Out: offsets in bytes, which compiled helpers, the builder of records and Python share.
First of the emulator.
Invariant: a wave's state is one piece of memory. Operands of records are offsets into it, so that a
helper adds one number to one pointer to find a register.
"""

from __future__ import annotations

from dataclasses import dataclass

# scalar registers, as the instructions number them
SGPR_COUNT = 128
VCC, EXEC = 106, 126
M0, M0_CDNA = 125, 124
# what follows them, each 8 bytes apart
SCC = 512
BIN = 576  # what is written to the register that is none
STATUS = 640
FAULT_ADDRESS = 648
FAULT_RECORD = 656
NEXT = 664  # the record to go on with
LDS, LDS_BYTES = 672, 680
ALLOCATIONS, ALLOCATION_COUNT = 688, 696
BUDGET = 704  # jumps backwards that are left
SCRATCH, SCRATCH_BYTES = 712, 720  # of a wave, lane after lane; bytes of a lane
MODE = 728
CODE, CODE_BYTES = 736, 744
RECORD_OF_WORD, RECORDS = 752, 760
FIND = 768  # the function that looks for the allocation of an address
CONFLICTS = 776  # the function that counts conflicts of banks
# What a wave counts is kept from group to group: a group begins with the bytes before it.
HEAD_BYTES = 896
BYTES_READ, BYTES_WRITTEN, LDS_BYTES_MOVED, LDS_CONFLICTS = 896, 904, 912, 920
BARRIERS = 928
TRACE = 936  # where the next entry of a trace goes, and where they end
VGPRS = 1024
VGPR_COUNT = 256
# floats are rounded to the nearest, and nothing is flushed
DEFAULT_MODE = 0xF0
# what a wave may end or pause with
RUNNING, ENDED, AT_BARRIER, STOPPED = 0, 1, 2, 3
BAD_ADDRESS, BAD_LDS, BAD_JUMP, UNSUPPORTED, OUT_OF_BUDGET, BAD_SCRATCH = 8, 9, 10, 11, 12, 13
BAD_REGISTER = 14

# a record: the helper, a pointer, eight words, and the allocation that was found last
RECORD_BYTES = 64
HELPER, POINTER, WORDS, FOUND_START, FOUND_END = 0, 8, 16, 48, 56
WORD_COUNT = 8


@dataclass(frozen=True)
class Shape:
    """Sizes that depend on the lanes of a wave."""

    lanes: int
    has_accumulators: bool = False

    @property
    def register_bytes(self) -> int:
        return 4 * self.lanes

    @property
    def wave_bytes(self) -> int:
        count = VGPR_COUNT * (2 if self.has_accumulators else 1)
        return VGPRS + count * self.register_bytes

    def scalar(self, index: int) -> int:
        return 4 * index

    def vector(self, index: int) -> int:
        return VGPRS + index * self.register_bytes

    def accumulator(self, index: int) -> int:
        return self.vector(VGPR_COUNT + index)
