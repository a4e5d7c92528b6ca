"""Kernels for NVIDIA GPUs, run by the host: what NVPTX would get, with stand-ins for the machine.

LLVM IR that a GPU's thread runs is LLVM IR for a CPU as well, once the hardware's indices are
variables. The threads run one after another, so that a kernel with barriers cannot run here (the
interpreter runs those), and neither can conversions that only NVPTX has.
"""

from __future__ import annotations

import ctypes
import itertools
import re
from collections.abc import Sequence

import numpy as np

from test.renderer.corpus import Case, launch_sizes
from weft.renderer.base import ProgramSpec
from weft.renderer.groups import WORD_SHIFT
from weft.runtime import llvm

_INDEX = re.compile(
    r"call (?:range\(i32 0, \d+\) )?i32 @llvm\.nvvm\.read\.ptx\.sreg\.([a-z.]+)\(\)"
)
_PLACES = [f"{kind}.{axis}" for kind in ("ctaid", "tid") for axis in "xyz"]


def host_text(source: str) -> str:
    """The module with variables in place of the hardware's indices."""
    text = source.replace('target triple = "nvptx64-nvidia-cuda"\n', "")
    text = text.replace("ptx_kernel ", "").replace("noinline optnone", "noinline")
    text = re.sub(r"(?m)^declare .*@llvm\.nvvm\..*\n|^!nvvm\.annotations.*\n|^!1 = .*\n", "", text)
    text = _INDEX.sub(lambda found: f"load i32, ptr @{found[1]}", text)
    variables = [f"@{place} = global i32 0" for place in _PLACES]
    given = ", ".join(f"i32 %{place}" for place in _PLACES)
    stores = [f"  store i32 %{place}, ptr @{place}" for place in _PLACES]
    setter = [f"define void @place({given}) {{", *stores, "  ret void", "}"]
    return "\n".join([*variables, *setter, text])


def can_run(source: str) -> bool:
    """Whether the host can stand in for the machine."""
    return "barrier" not in source and "@llvm.nvvm.ff" not in source and "x2.to" not in source


def run_on_host(
    case: Case, spec: ProgramSpec, offset: int = 0, with_words: bool = False
) -> list[bytes]:
    """The contents of the buffers after a run; they begin `offset` bytes after an aligned place.

    `with_words`: the arguments are in a table, as in a graph.
    """
    code = llvm.LLVMCompiler().compile(host_text(spec.src))
    kernel, place = llvm.load_all(code, (spec.name, "place"))
    memories = [np.zeros(len(contents) + 64, np.uint8) for contents in case.before]
    places = [-memory.ctypes.data % 32 + offset for memory in memories]
    for memory, start, contents in zip(memories, places, case.before, strict=True):
        memory[start : start + len(contents)] = np.frombuffer(contents, np.uint8)
    addresses = [m.ctypes.data + start for m, start in zip(memories, places, strict=True)]
    groups, threads = launch_sizes(spec, case.values)
    words, arguments = _arguments(spec, addresses, case.values, groups, with_words)
    kinds = [ctypes.c_uint64, *[kind for kind, _ in arguments]]
    run = ctypes.CFUNCTYPE(None, *kinds)(kernel.address)
    put = ctypes.CFUNCTYPE(None, *[ctypes.c_int32] * 6)(place.address)
    table = words.ctypes.data if with_words else 0
    # a graph's grid may be larger than asked for
    more = [g + (isinstance(s, int) is False and with_words) for g, s in _sizes(spec, groups)]
    for where in itertools.product(*[range(n) for n in (*more, *threads)]):
        put(*where)
        run(table, *[value for _, value in arguments])
    return [
        memory[start : start + len(contents)].tobytes()
        for memory, start, contents in zip(memories, places, case.before, strict=True)
    ]


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
