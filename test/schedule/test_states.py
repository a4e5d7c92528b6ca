"""Several states of one storage in one schedule: every value reads the state it was made of."""

from __future__ import annotations

from weft import Tensor


def small(x: Tensor) -> Tensor:
    return x.clip(-50, 50)


def test_writes_kept_apart_inside_each_other_happen_once() -> None:
    def round_of(a: Tensor, lot: Tensor) -> None:
        a += 1
        value = small(a - (a + lot.contiguous()))
        a[:2] = value[1:3]

    a = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
    lots = [Tensor([0, 1, 2, 3]), Tensor([4, 5, 6, 7])]
    for lot in lots:
        round_of(a, lot)
    assert a.tolist() == [-5.0, -6.0, 5.0, 6.0]


def test_a_loop_over_the_first_elements_does_not_store_all_of_them() -> None:
    def step(x: Tensor) -> list[Tensor]:
        before = small(small(x * 2) + x.max())
        x += 1
        return [Tensor.cat(before[:2], x[2:]), small(x * 2)]

    x = Tensor([-4.0, -1.0, 2.0, -4.0]).realize()
    first, second, third = step(x), step(x), step(x)
    assert [t.tolist() for t in first] == [[-6.0, 0.0, 3.0, -3.0], [-6.0, 0.0, 6.0, -6.0]]
    assert x.tolist() == [-1.0, 2.0, 5.0, -1.0]
    assert [t.tolist() for t in second] == [[-3.0, 3.0, 4.0, -2.0], [-4.0, 2.0, 8.0, -4.0]]
    assert [t.tolist() for t in third] == [[0.0, 6.0, 5.0, -1.0], [-2.0, 4.0, 10.0, -2.0]]
