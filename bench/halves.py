"""What half types cost: CPU time of one thread for fused work in float16 and bfloat16.

usage: python -m bench.halves
In: nothing. Out: a line for each dtype, milliseconds of each kind of work, the best of some calls.
CPU time of one thread hardly feels what else runs on the machine. For another checkout beside this
one: `PYTHONPATH=CHECKOUT python -P bench/halves.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

os.environ["NUM_CPU_THREADS"] = "1"

from weft import Tensor, TinyJit  # noqa: E402

CALLS = 15


def chain(x: Tensor) -> Tensor:
    """Ten operators, written out: each of them rounds."""
    return 0.5 * x * (1 + (0.7978845608 * (x + 0.044715 * x * x * x)).tanh()) * 1.1 + 0.1


WORK: dict[str, Callable[..., Tensor]] = {
    "chain": chain,
    "gelu": lambda x: x.gelu(),
    "softmax": lambda x: x.softmax(-1),
    "layernorm": lambda x: x.layernorm(),
    "product and relu": lambda x, w: (x[:256] @ w).relu(),
    "attention": lambda q, k, v: q.scaled_dot_product_attention(k, v),
}


def milliseconds(work: Callable[..., Tensor], inputs: list[Tensor]) -> float:
    """The least CPU time of a replayed call."""
    step = TinyJit(lambda *given: work(*given).realize())
    times = []
    for call in range(CALLS + 3):
        start = time.process_time()
        step(*inputs)
        if call >= 3:
            times.append(time.process_time() - start)
    return min(times) * 1e3


def main() -> None:
    """One line for each dtype."""
    for dtype in ("float32", "float16", "bfloat16"):
        matrices = [Tensor.randn(2048, 2048).cast(dtype).contiguous().realize() for _ in range(2)]
        heads = [Tensor.randn(8, 512, 64).cast(dtype).contiguous().realize() for _ in range(3)]
        found = []
        for name, work in WORK.items():
            count = {"attention": 3, "product and relu": 2}.get(name, 1)
            given = heads if count == 3 else matrices[:count]
            found.append(f"{name} {milliseconds(work, given):.2f}")
        print(f"{dtype}: {', '.join(found)}", flush=True)


if __name__ == "__main__":
    main()
