"""What counts as unpacked: much smaller in memory, and made of narrower elements but for scales."""

from __future__ import annotations

from weft.uop.unpacked import SCALES, SHARE, is_unpacked


def test_quantised_blocks_are_unpacked() -> None:
    # 32 floats of 4 bits or 8 bits each, with a scale of 2 or of 4 bytes
    for narrow, wide in ((16, 0), (16, 4), (32, 0), (32, 4)):
        assert is_unpacked(4 * 32, narrow + max(wide, 2), wide)


def test_as_much_memory_is_not_unpacked() -> None:
    assert not is_unpacked(128, 128 // SHARE + 1, 0)
    assert is_unpacked(128, 128 // SHARE, 0)


def test_wide_elements_that_are_combined_are_not_unpacked() -> None:
    read = 32
    most = int(SCALES * read)
    assert is_unpacked(128, read, most) and not is_unpacked(128, read, most + 1)
