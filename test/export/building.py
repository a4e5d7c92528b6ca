"""Exported C, built and called: what the tests of `weft/export` share.

In: a function and inputs. Out: `CModel`, whose calls go through the exported header's functions by
ctypes; `build`, a child `cc` with every warning an error.
"""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from test.children import Child
from test.optional import need_program

_numbers = itertools.count()
WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def compile_c(compiler: str, arguments: Sequence[str]) -> None:
    """Run a compiler; what it says is the assertion's text."""
    program = need_program(compiler)
    with Child([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
        said, _ = child.communicate()
    assert child.returncode == 0 and not said.strip(), f"{compiler} {arguments}: {said[:4000]}"


def has_program(name: str) -> bool:
    """Whether a program is there."""
    return shutil.which(name) is not None


class CModel:
    """An exported model as a shared library."""

    def __init__(
        self,
        source: Path,
        inputs: Sequence[np.ndarray],
        outputs: Sequence[np.ndarray],
        compiler: str = "cc",
        flags: Sequence[str] = ("-O2",),
        weights: Path | None = None,
    ) -> None:
        self.name = source.stem
        # a library that is loaded already is not read again under the same name
        library = source.with_name(f"{self.name}_{next(_numbers)}.so")
        warnings = WARNINGS if compiler != "tcc" else ["-std=c11"]
        compile_c(
            compiler,
            [
                *warnings,
                *flags,
                "-DWEFT_NO_MAIN",
                "-shared",
                "-fPIC",
                str(source),
                "-o",
                str(library),
                "-lm",
            ],
        )
        self.library = ctypes.CDLL(str(library))
        self.outputs = outputs
        self.context = ctypes.c_void_p()
        if weights is None:
            self.code = self.call("create", ctypes.byref(self.context))
        else:
            path = str(weights).encode()
            self.code = self.call("load", path, ctypes.byref(self.context))

    def call(self, name: str, *arguments: Any) -> int:
        """One function of the header."""
        return int(getattr(self.library, f"{self.name}_{name}")(*arguments))

    def close(self) -> None:
        """Free the context."""
        self.library[f"{self.name}_destroy"](self.context)

    def run(self, inputs: Sequence[np.ndarray], sizes: Sequence[int] = ()) -> list[np.ndarray]:
        """New outputs of one call."""
        made = [np.zeros_like(output) for output in self.outputs]
        code = self.run_into(inputs, sizes, made)
        assert code == 0, f"{self.name}_run gives {code}"
        return made

    def run_into(
        self, inputs: Sequence[np.ndarray], sizes: Sequence[int], outputs: Sequence[np.ndarray]
    ) -> int:
        """The code of one call."""

        def table(arrays: Sequence[np.ndarray]) -> tuple[Any, Any]:
            pointers = (ctypes.c_void_p * max(1, len(arrays)))(*[a.ctypes.data for a in arrays])
            lengths = (ctypes.c_size_t * max(1, len(arrays)))(*[a.nbytes for a in arrays])
            return pointers, lengths

        given, given_bytes = table(inputs)
        made, made_bytes = table(outputs)
        numbers = (ctypes.c_int64 * max(1, len(sizes)))(*sizes)
        return self.call(
            "run_checked",
            self.context,
            given,
            given_bytes,
            ctypes.c_size_t(len(inputs)),
            numbers,
            ctypes.c_size_t(len(sizes)),
            made,
            made_bytes,
            ctypes.c_size_t(len(outputs)),
        )
