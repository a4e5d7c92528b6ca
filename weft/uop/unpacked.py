"""Unpacked: which values are computed out of so much less memory that they are not worth storing.

In: the bytes of a value, of what it is computed from, and of the wide elements among those. Out:
whether it counts as unpacked, as the weights of a quantised model are.
Sits above schedule and codegen, which ask it of a tensor graph and of a kernel.
Invariant: both mean the same, so that what the one leaves to the other is not made twice.
"""

from __future__ import annotations

# how much larger than what it is made of such a value is
SHARE = 2
# of the bytes that are read, those of elements as wide as its own at most: scales
SCALES = 1 / 2


def is_unpacked(size: int, read: int, wide: int) -> bool:
    """Whether `size` bytes are computed out of `read`, `wide` of them no narrower than its own.

    A block of 32 floats out of 16 bytes and a scale of a half; then out of 32 floats.

    >>> is_unpacked(128, 18, 0), is_unpacked(128, 128, 128)
    (True, False)
    """
    return SHARE * read <= size and wide <= SCALES * read
