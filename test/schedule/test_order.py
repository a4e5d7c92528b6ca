"""order.py: after what is read is written, before what is read is overwritten."""

from __future__ import annotations

from typing import Any

import pytest

from weft.schedule.order import CycleError, order_kernels


class Kernel:
    """What the order knows of a kernel: nothing."""

    def __init__(self, name: str) -> None:
        self.name = name


def ordered(names: str, **needs: str) -> str:
    kernels: dict[str, Any] = {name: Kernel(name) for name in names}
    wanted = {k: {kernels[n] for n in needs.get(name, "")} for name, k in kernels.items()}
    return "".join(k.name for k in order_kernels(list(kernels.values()), wanted))


def test_free_kernels_keep_the_order_of_the_graph() -> None:
    assert ordered("abc") == "abc"


def test_a_kernel_waits_for_all_that_it_needs() -> None:
    assert ordered("abc", a="c", b="a") == "cab"
    assert ordered("abcd", a="bcd") == "bcda"


def test_a_circle_names_who_is_stuck() -> None:
    with pytest.raises(CycleError) as found:
        ordered("abcd", b="c", c="b", d="c")
    assert [kernel.name for kernel in found.value.stuck] == ["b", "c", "d"]  # type: ignore[attr-defined]


def test_a_long_chain_is_ordered_without_recursion() -> None:
    count = 20_000
    kernels: list[Any] = [Kernel(str(i)) for i in range(count)]
    needs = {kernels[i]: {kernels[i + 1]} for i in range(count - 1)} | {kernels[-1]: set()}
    assert order_kernels(kernels, needs) == kernels[::-1]
