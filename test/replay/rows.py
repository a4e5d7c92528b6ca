"""`python -m test.replay.rows FILE`: the kernels of `bench.speed`, of which none is run.

In: the weft that is importable, names of machines. Out: for every kernel of every row its actions
and a digest of its source, as JSON that `python -m test.replay diff` compares. Devices are as
NULL is, with the description of another machine; weights are zeros that nobody reads.
The one invariant: a row whose kernels are the same takes the same time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # before weft is imported; for who runs it, not for tests that import every file
    os.environ["DEV"] = "NULL"

import numpy as np  # noqa: E402

from bench import in_weft, workloads  # noqa: E402
from weft.device import Device  # noqa: E402
from weft.engine import programs  # noqa: E402
from weft.knobs import Context  # noqa: E402
from weft.machine import Target  # noqa: E402
from weft.runtime import ops_null  # noqa: E402

# machines that the table of `docs/bench.md` was measured on, and small ones
_WIDE = Target(
    name="wide", cores=2, vector_bytes=64, vector_registers=32, has_fma=True, products=1,
    l1=32 << 10, l2=1 << 20, l3=32 << 20, alias_bytes=4 << 10, broadcast_cycles=1 / 4,
    has_threads=True, has_half_conversion=True, has_max=False, has_streaming=True,
)  # fmt: skip
_NARROW = dict(vector_bytes=32, vector_registers=16, broadcast_cycles=1.0, l2=512 << 10, cores=4)
MACHINES: dict[str, Target] = {
    "wide2": _WIDE,
    "wide16": Target(
        **{
            **_WIDE.__dict__,
            "cores": 16,
            "products": 2,
            "broadcast_cycles": 1.0,
            "l1": 48 << 10,
            "l2": 2 << 20,
        }
    ),
    "narrow4": Target(**{**_WIDE.__dict__, **_NARROW}),
}
# what takes no time on a device, or has no kernels of its own
LEFT_OUT = ("dispatch100", "eager_op")


class _Zeros:
    """Takes the place of NumPy's generator."""

    def standard_normal(self, shape: Any, dtype: Any = np.float32) -> Any:
        return np.zeros(shape, dtype)

    def random(self, shape: Any, dtype: Any = np.float32) -> Any:
        return np.zeros(shape, dtype)

    def integers(self, low: int, high: int, shape: Any = None, dtype: Any = np.int64) -> Any:
        return np.zeros(shape if shape is not None else (), dtype)


def record_row(name: str) -> dict[str, dict[str, str]]:
    """The kernels of one row, in order."""
    found: dict[str, dict[str, str]] = {}
    lower: Callable[..., Any] = programs.lower

    def recording(ast: Any, renderer: Any) -> Any:
        spec = lower(ast, renderer)
        found[f"{name}/{len(found):03d} {spec.name}"] = {
            "actions": "\n".join(map(repr, spec.applied)),
            "source": hashlib.sha256(spec.src.encode()).hexdigest(),
        }
        return spec

    programs.lower = recording
    try:
        programs.clear_programs()
        module = in_weft.load("weft")
        function, arguments = in_weft.lazy(module, workloads.make(name))
        in_weft.realize(function(*arguments))
    except Exception as error:
        found[f"{name}/error"] = {"actions": f"{type(error).__name__}: {error}"}
    finally:
        programs.lower = lower
    return found


def main() -> None:
    """Record what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m test.replay.rows", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--machine", nargs="+", default=list(MACHINES), choices=list(MACHINES))
    parser.add_argument("--only", nargs="+", default=None, help="rows; all of them by default")
    options = parser.parse_args()
    workloads.generator = lambda name: _Zeros()  # type: ignore[assignment, return-value]
    rows = options.only or [row for row in workloads.CASES if row not in LEFT_OUT]
    found: dict[str, dict[str, str]] = {}
    for machine in options.machine:
        ops_null._TARGET = MACHINES[machine]
        Device["NULL"].__dict__.pop("renderer", None)
        with Context(CCACHE=0, SCACHE=0):
            for row in rows:
                for key, value in record_row(row).items():
                    found[f"{machine} {key}"] = value
    options.file.write_text(json.dumps(found, indent=1, sort_keys=True), encoding="utf-8")
    print(f"{len(found)} kernels in {options.file}")


if __name__ == "__main__":
    main()
