"""Kernels for NVIDIA GPUs, run by the host: what NVPTX would get, with stand-ins for the machine.

LLVM IR that a GPU's thread runs is LLVM IR for a CPU as well, once the hardware's indices are
parameters. The threads of a kernel without barriers run one after another, those of one with
barriers each in a thread of the host, group by group. Conversions that only NVPTX has cannot run.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import re
import threading
from collections.abc import Callable, Sequence

import numpy as np

from test.renderer.corpus import Case, launch_sizes
from weft.renderer.base import ProgramSpec
from weft.renderer.groups import WORD_SHIFT
from weft.runtime import llvm

_INDEX = re.compile(
    r"call (?:range\(i32 0, \d+\) )?i32 @llvm\.nvvm\.read\.ptx\.sreg\.([a-z.]+)\(\)"
)
_PLACES = [f"{kind}.{axis}" for kind in ("ctaid", "tid") for axis in "xyz"]


# a thread of the host that waits for another one gives up after so many seconds
_LIMIT = 60


def host_text(source: str, barrier: int = 0) -> str:
    """The module with parameters in place of the hardware's indices, and a call of the function at
    an address in place of each barrier."""
    text = source.replace('target triple = "nvptx64-nvidia-cuda"\n', "")
    text = text.replace("ptx_kernel ", "").replace("noinline optnone", "noinline")
    text = re.sub(r"(?m)^declare .*@llvm\.nvvm\..*\n|^!nvvm\.annotations.*\n|^!1 = .*\n", "", text)
    text = _INDEX.sub(lambda found: f"add i32 %{found[1]}, 0", text)
    text = text.replace("@llvm.nvvm.ex2.approx.ftz.f(", "@llvm.exp2.f32(")
    text = re.sub(
        r"call float @llvm\.nvvm\.div\.approx\.ftz\.f\(float (.*?), float (.*?)\)",
        r"fdiv float \1, \2",
        text,
    )
    text = text.replace('syncscope("device") ', "")
    text = text.replace("@llvm.nvvm.barrier0()", f"inttoptr (i64 {barrier} to ptr)()")
    given = "".join(f", i32 %{place}" for place in _PLACES)
    return re.sub(r"(?m)^(define .*?|  call void @anywhere\(.*?)\)", rf"\1{given})", text)


def can_run(source: str) -> bool:
    """Whether the host can stand in for the machine."""
    absent = ("@llvm.nvvm.ff", "x2.to", "@llvm.nvvm.shfl", "@llvm.nvvm.vote")
    return not any([name in source for name in absent])


def run_on_host(
    case: Case, spec: ProgramSpec, offset: int = 0, with_words: bool = False
) -> list[bytes]:
    """The contents of the buffers after a run; they begin `offset` bytes after an aligned place.

    `with_words`: the arguments are in a table, as in a graph.
    """
    groups, threads = launch_sizes(spec, case.values)
    meeting = threading.Barrier(math.prod(threads), timeout=_LIMIT)
    # the callback must live as long as the code that calls it
    wait = ctypes.CFUNCTYPE(None)(lambda: meeting.wait(_LIMIT) and None)
    address = ctypes.cast(wait, ctypes.c_void_p).value or 0
    code = llvm.LLVMCompiler().compile(host_text(spec.src, address))
    (kernel,) = llvm.load_all(code, (spec.name,))
    memories = [np.zeros(len(contents) + 64, np.uint8) for contents in case.before]
    places = [-memory.ctypes.data % 32 + offset for memory in memories]
    for memory, start, contents in zip(memories, places, case.before, strict=True):
        memory[start : start + len(contents)] = np.frombuffer(contents, np.uint8)
    addresses = [m.ctypes.data + start for m, start in zip(memories, places, strict=True)]
    words, arguments = _arguments(spec, addresses, case.values, groups, with_words)
    kinds = [ctypes.c_uint64, *[kind for kind, _ in arguments], *[ctypes.c_int32] * 6]
    run = ctypes.CFUNCTYPE(None, *kinds)(kernel.address)
    table = words.ctypes.data if with_words else 0
    # a graph's grid may be larger than asked for
    more = [g + (isinstance(s, int) is False and with_words) for g, s in _sizes(spec, groups)]
    values = [value for _, value in arguments]
    if "barrier0" in spec.src:
        _run_together(more, threads, lambda *where: run(table, *values, *where), meeting)
    else:
        for where in itertools.product(*[range(n) for n in (*more, *threads)]):
            run(table, *values, *where)
    return [
        memory[start : start + len(contents)].tobytes()
        for memory, start, contents in zip(memories, places, case.before, strict=True)
    ]


def _run_together(
    groups: Sequence[int],
    threads: Sequence[int],
    run: Callable[..., None],
    meeting: threading.Barrier,
) -> None:
    """Every thread of a group in one of the host: they share memory, and wait for each other."""

    def work(thread: tuple[int, ...]) -> None:
        for group in itertools.product(*[range(n) for n in groups]):
            run(*group, *thread)
            # the next group has the same shared memory
            meeting.wait(_LIMIT)

    workers = [
        threading.Thread(target=work, args=(thread,), daemon=True)
        for thread in itertools.product(*[range(n) for n in threads])
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(_LIMIT)
    assert not any(worker.is_alive() for worker in workers), "threads wait for each other"


def _sizes(spec: ProgramSpec, groups: Sequence[int]) -> list[tuple[int, object]]:
    return list(zip(groups, spec.global_size or (1, 1, 1), strict=True))


def _arguments(
    spec: ProgramSpec,
    addresses: Sequence[int],
    values: dict[str, int],
    groups: Sequence[int],
    with_words: bool,
) -> tuple[np.ndarray, list[tuple[type, int]]]:
    """The table of words, and type and value of each argument behind it."""
    names = iter([variable.arg.name for variable in spec.variables])
    cells: list[int] = []
    found: list[tuple[type, int]] = []
    for kind, number in spec.layout[1:]:
        if kind == "buffer":
            # the table has an address some bytes before, as that of a whole arena
            word, part = addresses[number] - 8, 8
            found.append(
                (
                    ctypes.c_uint64,
                    (len(cells) << WORD_SHIFT) + part if with_words else addresses[number],
                )
            )
        elif kind == "value":
            word = values[next(names)]
            width = ctypes.c_int64 if number == 8 else ctypes.c_int32
            found.append((width, len(cells) if with_words else word))
        else:
            word = groups[number]
            found.append((ctypes.c_int32, len(cells) if with_words else word))
        cells.append(word)
    return np.array([cell % (1 << 64) for cell in cells] or [0], np.uint64), found
