"""holders.py: lines whose tensors hold a device's memory, the largest first."""

from __future__ import annotations

from weft import Tensor
from weft.engine.holders import holders_text


def test_the_lines_that_hold_most_come_first() -> None:
    small = (Tensor.ones(1 << 8, device="NULL") * 2).contiguous().realize()
    large = [(Tensor.ones(1 << 20, device="NULL") * 2).contiguous().realize() for _ in range(3)]
    text = holders_text("NULL")
    assert text.startswith("held by tensors made at test_holders.py:")
    assert "(12.00 MiB) in 3" in text and text.index("in 3") < text.index("(1.00 KiB) in 1")
    assert small.shape and large


def test_views_and_other_devices_do_not_count() -> None:
    whole = (Tensor.ones(1 << 10, device="NULL:7") * 2).contiguous().realize()
    part = whole[:5]
    assert holders_text("NULL:7").endswith("(4.00 KiB) in 1")
    assert holders_text("NULL:8") == "" and part.shape == (5,)
