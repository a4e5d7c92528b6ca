"""LLVM in process: IR text to object bytes, object bytes to callable addresses, facts of the host.

In: LLVM IR as text, written by a renderer. Out: an object file (`LLVMCompiler.compile`), the
address of a function of it (`load`), and what the host's CPU can do (`target`). Used by devices
that run on the host. llvmlite is imported on first use, because the import alone costs 70 ms.
Invariant: every call into LLVM happens under `_lock` or `compiling()`, and no IR pass is ever run.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import mmap
import os
import platform
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.device import Compiler, hold_across_fork
from weft.errors import CompileError
from weft.helpers import diskcache_get, diskcache_put
from weft.knobs import CCACHE, NUM_CPU_THREADS
from weft.runtime.object_file import object_symbols, windows_symbols

# A finalizer of loaded code may run inside any of our own calls, hence re-entrant.
_lock = threading.RLock()
# llvmlite has a lock of its own; holding ours across a fork means that no thread of weft has it.
hold_across_fork(_lock)


class _Compiling:
    """Knows the threads inside LLVM without `_lock`; a fork waits until there are no others.

    LLVM has locks of its own, which a child would find taken for ever. Nobody may begin to compile
    while he holds a lock that is held across forks.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside: set[int] = set()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._wait, after_in_parent=self._go_on, after_in_child=self._go_on
            )

    def __enter__(self) -> None:
        with self._changed:
            self._inside.add(threading.get_ident())

    def __exit__(self, *exception: object) -> None:
        with self._changed:
            self._inside.discard(threading.get_ident())
            self._changed.notify_all()

    def _wait(self) -> None:
        self._changed.acquire()
        # a signal handler may fork when its own thread has just come back from LLVM
        while self._inside - {threading.get_ident()}:
            self._changed.wait()

    def _go_on(self) -> None:
        self._changed.release()


_compiling = _Compiling()


def compiling() -> _Compiling:
    """Around calls of LLVM that do not hold the lock of this file."""
    return _compiling


# A function that the source calls and does not define.
_DECLARATION = re.compile(r"^declare [^@\n]*@(?!llvm\.)\"?([^\s\"(]+)", re.MULTILINE)

SOURCE_HINT = "run with DEBUG=4 to see the source of every kernel"


@functools.cache
def llvm_binding() -> Any:
    """llvmlite's binding module, with the native target ready."""
    try:
        binding = importlib.import_module("llvmlite.binding")
    except ImportError as error:
        raise CompileError(
            f"compiling for the CPU needs the package llvmlite, which does not import: {error}; "
            "install it with `pip install llvmlite`"
        ) from error
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    # Without a native assembly parser, inline assembly in IR aborts the process.
    binding.initialize_native_asmparser()
    return binding


# *** facts of the host ***


@dataclass(frozen=True)
class CacheFacts:
    """The data caches of one core, in bytes."""

    l1: int = 32 << 10
    l2: int = 512 << 10
    l3: int = 8 << 20
    line: int = 64
    alias: int = 4 << 10  # of L1: what lies this far apart falls into the same lines


@dataclass(frozen=True)
class CPUFacts:
    """What codegen and renderers may know of the host's CPU. Sizes are in bytes."""

    cpu: str
    triple: str
    features: frozenset[str]
    vector_bytes: int
    vector_registers: int
    has_fma: bool
    products: int
    has_half_conversion: bool
    has_max: bool
    has_streaming: bool
    has_rounding: bool
    caches: CacheFacts
    page_bytes: int
    cores: int


def target() -> CPUFacts:
    """The facts of this host. `cores` follows the knob NUM_CPU_THREADS, also inside a Context."""
    return _facts(usable_cores())


@functools.lru_cache(maxsize=64)
def _facts(cores: int) -> CPUFacts:
    with _lock:
        binding = llvm_binding()
        triple = str(binding.get_process_triple())
        cpu = str(binding.get_host_cpu_name())
        features = frozenset(
            name for name, present in binding.get_host_cpu_features().items() if present
        )
    vector_bytes, vector_registers = _vector_unit(triple, features)
    is_arm = triple.startswith(("aarch64", "arm64"))
    is_x86 = triple.startswith(("x86_64", "i686"))
    return CPUFacts(
        cpu=cpu,
        triple=triple,
        features=features,
        vector_bytes=vector_bytes,
        vector_registers=vector_registers,
        # Every 64-bit ARM has these from its first version on.
        has_fma=is_arm or "fma" in features,
        # the first AMD CPUs with these vectors compute them in two halves
        products=1 if cpu == "znver4" and vector_bytes == 64 else 2,
        has_half_conversion=is_arm or "f16c" in features or "zfh" in features,
        # x86 ignores NaN, but has a MAX of integers with SSE4.1
        has_max=not (is_x86 and "sse4.1" in features),
        has_streaming=is_x86,
        has_rounding=is_arm or "sse4.1" in features,
        caches=cache_facts(),
        page_bytes=mmap.PAGESIZE,
        cores=cores,
    )


def _vector_unit(triple: str, features: frozenset[str]) -> tuple[int, int]:
    """(bytes of a vector register, number of them)."""
    if "avx512f" in features:
        # avx512vl gives the 32 registers to the narrower vectors too; every core since has it.
        return 64, 32
    if "avx2" in features or "avx" in features:
        return (32 if "avx2" in features else 16), 16
    return 16, (16 if triple.startswith(("x86_64", "i686")) else 32)


@functools.cache
def cache_facts() -> CacheFacts:
    """The data caches as the operating system tells of them, sensible defaults elsewhere."""
    found: dict[str, int] = {}
    for entry in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            kind = (entry / "type").read_text().strip()
            level = int((entry / "level").read_text())
            size = _bytes_of((entry / "size").read_text().strip())
        except (OSError, ValueError, IndexError):
            continue
        if kind == "Instruction" or level not in (1, 2, 3) or size <= 0:
            continue
        found[f"l{level}"] = size
        if level == 1:
            found.update(_line_facts(entry, size))
    return CacheFacts(**found)


def _bytes_of(text: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def _line_facts(entry: Path, size: int) -> dict[str, int]:
    """Line and alias of a cache, where it tells its lines and ways."""
    try:
        line = int((entry / "coherency_line_size").read_text())
        ways = int((entry / "ways_of_associativity").read_text())
    except (OSError, ValueError):
        return {}
    return {"line": line, "alias": size // ways} if line > 0 and 0 < ways < size else {}


def usable_cores() -> int:
    """Cores this process may use: its affinity, a container's quota, the knob NUM_CPU_THREADS."""
    available = _available_cores()
    asked = NUM_CPU_THREADS.value
    return min(available, asked) if asked > 0 else available


@functools.cache
def _available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    return max(1, min(count, _quota_cores() or count))


def _quota_cores() -> int | None:
    """Whole cores granted by a container's CPU quota. Spinning threads beyond it only burn it."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()[:2]
        return None if quota == "max" else max(1, -(-int(quota) // int(period)))
    except (OSError, ValueError):
        return None


# *** IR text to object bytes ***


class LLVMCompiler(Compiler):
    """Compiles LLVM IR text for the host: code generation only, no IR passes.

    Passes double the time and change no run time here, because renderers emit explicit vectors.
    """

    def __init__(self, opt_level: int = 2) -> None:
        self.opt_level = opt_level
        self._machine: Any = None
        # kept by hand: cached properties of Python 3.11 have a lock of their own, for all objects,
        # which one thread takes before LLVM's and another after it
        self._key: str | None = None
        self._host: tuple[str, str] | None = None

    @property
    def cachekey(self) -> str:
        """Names everything but the source that decides the bytes: LLVM, CPU, features, level."""
        if self._key is None:
            facts = target()
            version = ".".join(map(str, llvm_binding().llvm_version_info))
            features = hashlib.sha256(",".join(sorted(facts.features)).encode()).hexdigest()[:16]
            self._key = f"llvm-{version}-{facts.triple}-{facts.cpu}-{features}-opt{self.opt_level}"
        return self._key

    def compile(self, src: str) -> bytes:
        with _lock, self._parsed(src) as module:
            code = bytes(self._target_machine().emit_object(module))
        self.check(src, code)
        return code

    def check(self, src: str, code: bytes) -> None:
        """Refuses code that needs what the process does not have: loading it would abort."""
        symbols = object_symbols(code)
        # The object shows more than the source: code generation adds calls to run-time helpers.
        _check_exported(_DECLARATION.findall(src) if symbols is None else symbols.needed)

    def complete(self, src: str) -> str:
        """The source with the target that it is for."""
        if "target triple" in src:
            return src
        # No line break, so that the line numbers of LLVM's messages are those of the source.
        triple, layout = self._host_text()
        return triple + ("" if "target datalayout" in src else layout) + src

    def _host_text(self) -> tuple[str, str]:
        """Triple and layout of the host."""
        if self._host is None:
            with _lock:
                machine = self._target_machine()
                triple = f'target triple = "{machine.triple}" '
                self._host = (triple, f'target datalayout = "{machine.target_data}" ')
        return self._host

    def assembly(self, src: str) -> str:
        """The machine code of `src` as text, for people."""
        with _lock, self._parsed(src) as module:
            return str(self._target_machine().emit_assembly(module))

    def _target_machine(self) -> Any:
        if self._machine is None:
            self._machine = create_target_machine(self.opt_level)
        return self._machine

    @contextlib.contextmanager
    def _parsed(self, src: str) -> Iterator[Any]:
        """A verified module.

        In a context of its own, so that its types and constants are freed with it. Closed here, the
        module first: a collector that meets both in an error's traceback knows no order.
        """
        binding = llvm_binding()
        with contextlib.closing(binding.create_context()) as context, contextlib.ExitStack() as own:
            try:
                module = binding.parse_assembly(self.complete(src), context)
                own.enter_context(contextlib.closing(module))
                module.verify()
            except RuntimeError as error:
                raise CompileError(
                    f"LLVM refuses the IR of a kernel: {str(error).strip()}\n{SOURCE_HINT}"
                ) from None
            yield module


def compile_own(source: str, opt_level: int) -> bytes:
    """Object bytes of code that weft brings along, kept on disk: every process needs the same."""
    compiler = LLVMCompiler(opt_level)
    if not CCACHE.value:
        return compiler.compile(source)
    key = hashlib.sha256(f"{compiler.cachekey}\n{source}".encode()).hexdigest()
    found = diskcache_get("runtime", key)
    if isinstance(found, bytes):
        return found
    code = compiler.compile(source)
    diskcache_put("runtime", key, code)
    return code


def create_target_machine(opt_level: int) -> Any:
    """A target machine for the host. An engine takes its machine over, so each needs a new one."""
    facts = target()
    with _lock:
        binding = llvm_binding()
        features = binding.get_host_cpu_features().flatten()
        host = binding.Target.from_triple(facts.triple)
        return host.create_target_machine(
            cpu=facts.cpu, features=features, opt=opt_level, codemodel="jitdefault", jit=True
        )


def _check_exported(names: Iterable[str]) -> None:
    """Refuses names that the process does not export."""
    with _lock:
        # LLVM sees the process's own symbols (libc, libm) only once there is an engine.
        _find_engine()
        find = llvm_binding().address_of_symbol
        missing = sorted({name for name in names if find(name) is None})
    if missing:
        raise CompileError(
            f"a kernel calls {', '.join(missing)}, which this process does not have; "
            "it may call its own functions, llvm.* intrinsics and what libc and libm export; "
            f"{SOURCE_HINT}"
        )


def _check_symbols(code: bytes, wanted: Sequence[str] = ()) -> None:
    """Refuses code that does not define all `wanted`, or needs a symbol that the process lacks.

    LLVM's loader would abort the process. The IR alone does not show what is needed: code
    generation adds calls to run-time helpers, say for half-precision that the CPU lacks.
    """
    symbols = object_symbols(code)
    if not symbols.defined.issuperset(wanted):
        raise CompileError(
            f"an object file lacks {', '.join(sorted(set(wanted) - symbols.defined))}; "
            f"it defines {', '.join(sorted(symbols.defined))}"
        )
    _check_exported(symbols.needed)


# *** object bytes to addresses ***

# One engine holds this many objects: an engine takes a millisecond to make, and is freed only when
# all the code in it is dead.
_OBJECTS_PER_ENGINE = 64


class _Engine:
    """An MCJIT engine and the objects loaded into it. Freed with the last `LoadedCode` of it."""

    live_objects = 0

    def __init__(self) -> None:
        binding = llvm_binding()
        # llvmlite's memory manager keeps the sections of an object together. LLVM's own may put
        # code and constants more than 2 GiB apart once large tensors fill the address space.
        self.handle = binding.create_mcjit_compiler(
            binding.parse_assembly(""), create_target_machine(2), use_lmm=True
        )
        self.count = 0
        if sys.platform == "win32":
            for name, address in windows_symbols().items():
                binding.add_symbol(name, address)

    def add(self, code: bytes, symbols: Sequence[str]) -> list[int]:
        binding = llvm_binding()
        self.handle.add_object_file(binding.ObjectFileRef.from_data(code))
        self.handle.finalize_object()
        self.count += 1
        _Engine.live_objects += 1
        # Asked before another object may define the same name: the newest definition wins.
        addresses = [int(self.handle.get_function_address(symbol)) for symbol in symbols]
        if 0 in addresses:
            raise CompileError(f"an object file lacks {symbols[addresses.index(0)]}")
        return addresses

    def __del__(self, finalizing: Any = sys.is_finalizing) -> None:
        # At exit threads may still be inside the code; the process frees it anyway.
        if finalizing() or not hasattr(self, "handle"):
            return
        with _lock:
            _Engine.live_objects -= self.count
            self.handle.close()


@dataclass(frozen=True)
class LoadedCode:
    """A function in memory. The address is valid as long as this object lives."""

    address: int
    engine: _Engine


_open_engine: _Engine | None = None


def _find_engine() -> _Engine:
    """The engine that takes the next object."""
    global _open_engine
    if _open_engine is None or _open_engine.count >= _OBJECTS_PER_ENGINE:
        _open_engine = _Engine()
    return _open_engine


def load(code: bytes, symbol: str) -> LoadedCode:
    """Loads an object file and finds `symbol` in it, in 0.05 ms, however many there are."""
    return load_all(code, (symbol,))[0]


def load_all(code: bytes, symbols: Sequence[str]) -> list[LoadedCode]:
    """Loads an object file and finds several functions in it."""
    _check_symbols(code, symbols)
    with _lock:
        if _Engine.live_objects >= _object_limit():
            raise CompileError(
                f"{_Engine.live_objects} kernels are loaded and the operating system allows no "
                "more memory mappings; drop compiled kernels or raise vm.max_map_count"
            )
        engine = _find_engine()
        return [LoadedCode(address, engine) for address in engine.add(code, symbols)]


@functools.cache
def _object_limit() -> int:
    """Objects that fit the operating system's bound on mappings: an object takes three."""
    try:
        mappings = int(Path("/proc/sys/vm/max_map_count").read_text())
    except (OSError, ValueError):
        return sys.maxsize
    # A quarter is left to buffers, libraries and threads.
    return max(64, mappings // 4)


def disassemble(src: str) -> str:
    """Machine code of IR text, for DEBUG=7."""
    return LLVMCompiler().assembly(src)


def machine_name() -> str:
    """The architecture's plain name, known without LLVM: x86_64, aarch64, ..."""
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(
        platform.machine().lower(), platform.machine().lower()
    )
