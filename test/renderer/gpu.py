"""The corpus on a GPU: `python -m test.renderer.gpu [names]`, on a machine that has one.

Every kernel runs as PTX from LLVM and as CUDA C from NVRTC, on the contents that it had on the
CPU, from aligned and from unaligned memory. Prints what is beyond the corpus's tolerance, and how
many outputs are the CPU's to the bit. Exits with 1 where something is.
"""

from __future__ import annotations

import sys
import time

from test.renderer.corpus import PROGRAMS, Case, cases_of, check_contents
from weft import Device
from weft.codegen.pipeline import lower
from weft.contracts import BaseDevice
from weft.device import Buffer
from weft.dtype import dtypes
from weft.engine.programs import facts_of
from weft.knobs import Context
from weft.renderer.base import ProgramSpec
from weft.runtime.ops_cuda import CUDADevice, choose_toolchain, describe_target


def run_on_gpu(
    device: BaseDevice, case: Case, spec: ProgramSpec, lib: bytes, offset: int
) -> list[bytes]:
    """The contents of the buffers after a run; they begin `offset` elements after aligned ones."""
    buffers = []
    for contents, dtype in zip(case.before, case.dtypes, strict=True):
        start = offset * dtype.itemsize
        base = Buffer(device.name, len(contents) + start, dtypes.uint8).allocate()
        buffers.append(base.view(len(contents) // dtype.itemsize, dtype, start).copyin(contents))
    program = device.load(facts_of(spec), lib)
    program(buffers, [case.values[v.arg.name] for v in spec.variables], wait=True)
    return [bytes(buffer.as_memoryview()) for buffer in buffers]


def main(names: list[str]) -> int:
    device = Device["CUDA"]
    assert isinstance(device, CUDADevice)
    cases = [case for name in names or PROGRAMS for case in cases_of(name)]
    failed = 0
    for toolchain in ("llvm", "nvrtc"):
        with Context(CUDA_CC=toolchain):
            renderer, compiler = choose_toolchain(
                device.context, describe_target(device.context), device.arch
            )
        specs = [lower(case.kernel, renderer()) for case in cases]
        started, used = time.perf_counter(), time.process_time()
        libs = compiler.compile_all([spec.src for spec in specs])
        seconds = time.perf_counter() - started, time.process_time() - used
        equal = outputs = 0
        for case, spec, lib in zip(cases, specs, libs, strict=True):
            for offset in (0, 1):
                try:
                    found = run_on_gpu(device, case, spec, lib, offset)
                    check_contents(case, spec, found)
                except Exception as error:
                    failed += 1
                    print(f"{toolchain} {case.name} +{offset}: {type(error).__name__}: {error}")
                    continue
                outputs += len(spec.outs)
                same = [found[slot] == case.after[slot] for slot in spec.outs]
                equal += sum(same)
                if toolchain == "llvm" and not offset and not all(same):
                    print(f"other bits: {case.name}")
        print(
            f"{toolchain}: {len(cases)} kernels compiled in {seconds[0]:.2f} s "
            f"({seconds[1]:.2f} of the CPU); {equal} of {outputs} outputs are the CPU's to the bit"
        )
    print(f"{failed} runs failed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
