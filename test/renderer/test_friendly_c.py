"""Friendly C: every kernel of the corpus in one file, without a warning, computes the same."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.children import Child
from test.optional import need_program
from test.renderer.corpus import PROGRAMS, cases_of, check_contents
from test.renderer.programs import call
from weft.codegen.pipeline import lower
from weft.machine import Target
from weft.renderer.base import program_params, program_variables
from weft.renderer.friendly_c import FriendlyC, PlainC

TARGETS: dict[str, tuple[type[FriendlyC], Target]] = {
    "vectors": (FriendlyC, Target(name="c", vector_bytes=16)),
    "wide": (FriendlyC, Target(name="wide", vector_bytes=32, has_fma=True, has_threads=True)),
    "widest": (FriendlyC, Target(name="widest", vector_bytes=64, has_fma=True)),
    "plain": (PlainC, Target(name="plain", vector_bytes=0)),
}
WIDE = "#if defined(__FMA__)\n#include <immintrin.h>\n#endif"
INCLUDES = "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n#include <string.h>"


def wrapper(name: str, spec: Any, renderer: FriendlyC) -> str:
    """A function that takes its arguments as the CPU's kernels do."""
    params, variables = program_params(spec.uops), program_variables(spec.uops)
    first = 1 + max((param.arg.slot for param in params), default=-1)
    given = []
    for param in params:
        given.append(f"({renderer.memory_type(param.dtype)} *)args[{param.arg.slot}]")
    for place, variable in enumerate(variables):
        kind = renderer.type(variable.dtype)
        given.append(f"({kind})((const int64_t *)args)[{first + place}]")
    given += ["begin", "end"] if renderer.is_shared_by_threads(spec.uops) else []
    head = f"void call_{name}(void **args, int64_t begin, int64_t end)"
    return f"{head} {{ (void)args; (void)begin; (void)end; {name}({', '.join(given)}); }}"


@pytest.mark.parametrize("kind", TARGETS)
def test_every_kernel_computes_the_same(kind: str, tmp_path: Path) -> None:
    compiler = need_program("cc")
    language, target = TARGETS[kind]
    renderer = language(target)
    texts, made = [], []
    for program in PROGRAMS:
        for case in cases_of(program):
            name = f"kernel{len(made)}"
            spec = lower(case.kernel, renderer)
            texts.append(renderer.render(name, spec.uops))
            texts.append(wrapper(name, spec, renderer))
            made.append((case, spec, name))
    declared = [f"void call_{name}(void **args, int64_t begin, int64_t end);" for *_, name in made]
    source = tmp_path / "corpus.c"
    shared = ["#pragma STDC FP_CONTRACT OFF", *renderer.shared_lines()]
    source.write_text("\n".join([INCLUDES, WIDE, *shared, *declared, *texts, ""]))
    warnings = "-Wall -Wextra -Wpedantic -Werror -Wno-unknown-pragmas -Wno-psabi".split()
    # instructions of the widest vectors, where this machine has them
    native = ["-march=native"] if kind == "widest" else []
    command = [compiler, "-std=c11", "-O1", *native, *warnings, "-shared", "-fPIC", str(source)]
    command += ["-o", str(tmp_path / "corpus.so"), "-lm"]
    with Child(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
        said, _ = child.communicate()
    assert child.returncode == 0, said[:3000]
    library = ctypes.CDLL(str(tmp_path / "corpus.so"))
    for case, spec, name in made:
        buffers = [np.frombuffer(contents, np.uint8).copy() for contents in case.before]
        values = [case.values[variable.arg.name] for variable in spec.variables]
        address = ctypes.cast(getattr(library, f"call_{name}"), ctypes.c_void_p).value or 0
        call(address, buffers, values, spec.threads_n)
        check_contents(case, spec, [buffer.tobytes() for buffer in buffers])
