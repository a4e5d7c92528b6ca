"""A small program to watch: a jitted layer, index arithmetic, several source lines."""

from __future__ import annotations

from weft import Tensor, TinyJit


def main(calls: int = 6) -> int:
    """What runs; the number is the same every time."""
    weights = Tensor.rand(32, 32).realize()

    @TinyJit
    def layer(x: Tensor) -> Tensor:
        y = (x @ weights).relu()
        return y.softmax().realize()

    x = Tensor.rand(32, 32).realize()
    for _ in range(calls):
        layer(x)
    return int((Tensor.arange(100) % 7 // 2 * 3 + 4).sum().item())


if __name__ == "__main__":
    print(main())
