"""One process, one framework, one workload: answers `bench.speed` with times.

usage: python -m bench.worker FRAMEWORK WORKLOAD OUTPUT.npy
In: after it said that it is ready, JSON lines {"calls": n}. Out: {"ms": [...], "waited": share}.
Invariant: nothing else is on standard output: what a framework prints goes to standard error.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench import frameworks, workloads

# TinyJit runs a function whose state is set up by its first call three times before it replays
WARM_UP = 4


def timed(step: Callable[[], Any]) -> tuple[Any, float]:
    """What it returns, and seconds."""
    started = time.perf_counter()
    result = step()
    return result, time.perf_counter() - started


def main() -> None:
    """Set up, warm up, then answer."""
    framework, name, path = sys.argv[1:4]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    step, to_numpy, facts = frameworks.prepare(framework, workloads.make(name))
    result, first = timed(step)
    # of a training step the first loss is compared
    np.save(path, np.array(to_numpy(result)))
    rest = sum(timed(step)[1] for _ in range(WARM_UP - 1))
    _, once = timed(step)
    ready = {"first_s": first, "warm_s": first + rest, "once_s": once, **facts()}
    print(json.dumps(ready), file=answers)
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        count = json.loads(line)["calls"]
        # refills the caches after another framework's turn
        step()
        watch = frameworks.Waiting()
        times = [timed(step)[1] * 1e3 for _ in range(count)]
        print(json.dumps({"ms": times, "waited": watch.share()}), file=answers)


if __name__ == "__main__":
    main()
