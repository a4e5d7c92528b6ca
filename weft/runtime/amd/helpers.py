"""Helpers in memory: compiled once for each form, and kept on disk.

In: forms. Out: addresses of their helpers, and of the functions `launch` and `find`. On top of the
writers of text; the builder of records asks it.
Invariant: a helper's text depends on its form and on weft's own sources only, so that what is kept
on disk under both is right.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from weft.amd import semantics
from weft.disk import diskcache_get, diskcache_put
from weft.errors import CompileError
from weft.knobs import CCACHE
from weft.runtime.amd import compute, control, exchange, matrix, memory
from weft.runtime.amd.forms import Form
from weft.runtime.llvm import LLVMCompiler, LoadedCode, compile_own, load

_LEVEL = 1
_WRITERS: dict[str, Callable[[Form], str]] = {
    "vector": compute.write_vector,
    "mixed": compute.write_vector,
    "packed": compute.write_vector,
    "ternary": compute.write_vector,
    "dual": compute.write_dual,
    "scalar": compute.write_scalar,
    "lane": exchange.write_lane_access,
    "below": exchange.write_count_below,
    "permute": exchange.write_permute,
    "swizzle": exchange.write_fixed_permute,
    "relative": exchange.write_relative,
    "index_mode": exchange.write_index_mode,
    "access": memory.write_access,
    "scalar_load": memory.write_scalar_load,
    "atomic": memory.write_atomic,
    "matrix": matrix.write_product,
    "branch": control.write_branch,
    "stop": control.write_stop,
    "count": control.write_count,
    "trace": control.write_trace,
    "jump": control.write_jump,
}


def helper_text(form: Form) -> str:
    """The LLVM IR of a form's helper."""
    writer = _WRITERS.get(form.kind)
    if writer is None:
        raise CompileError(f"the emulator has no helpers for {form.kind}")
    return writer(form)


class Helpers:
    """Addresses of helpers, compiled when they are first asked for."""

    def __init__(self) -> None:
        self._loaded: dict[Form, LoadedCode] = {}
        self._lock = threading.RLock()
        self.compiled = 0

    def addresses(self, forms: Iterable[Form]) -> dict[Form, int]:
        """Where the helpers of some forms are."""
        with self._lock:
            return {form: self._find(form).address for form in dict.fromkeys(forms)}

    def _find(self, form: Form) -> LoadedCode:
        found = self._loaded.get(form)
        if found is None:
            found = self._loaded[form] = load(self._code(form), "helper")
        return found

    def _code(self, form: Form) -> bytes:
        compiler = _compiler()
        key = ""
        if CCACHE.value:
            named = f"{compiler.cachekey}\n{_version()}\n{form!r}"
            key = hashlib.sha256(named.encode()).hexdigest()
            kept = diskcache_get("amd_helpers", key)
            if isinstance(kept, bytes):
                return kept
        code = compiler.compile(helper_text(form))
        self.compiled += 1
        if key:
            diskcache_put("amd_helpers", key, code)
        return code

    @functools.cached_property
    def launch(self) -> LoadedCode:
        return load(compile_own(control.launch_function(), 2), "launch")

    @functools.cached_property
    def find(self) -> LoadedCode:
        return load(compile_own(memory.find_function(), 2), "find")

    @functools.cached_property
    def conflicts(self) -> LoadedCode:
        return load(compile_own(memory.conflict_function(), 2), "conflicts")


@functools.cache
def _compiler() -> LLVMCompiler:
    return LLVMCompiler(_LEVEL)


@functools.cache
def _version() -> str:
    """A hash of the sources that helpers are written by."""
    folders = [Path(str(semantics.__file__)).parent, Path(__file__).parent]
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


HELPERS = Helpers()
