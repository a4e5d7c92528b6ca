"""Many kernels compiled at once: the same bytes, the same errors, no thread left behind."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from weft.errors import CompileError
from weft.knobs import Context
from weft.runtime import llvm, llvm_parallel
from weft.runtime.llvm import LLVMCompiler
from weft.runtime.llvm_parallel import ParallelLLVMCompiler

BROKEN = "define void @broken(ptr %a, i64 %b, i64 %e) {\n  ret i32 1\n}"
UNKNOWN = (
    "declare void @no_such_function()\n"
    "define void @unknown(ptr %a, i64 %b, i64 %e) {\n  call void @no_such_function()\n  ret void\n}"
)


def kernel(number: int) -> str:
    return (
        f"define void @kernel{number}(ptr %a, i64 %b, i64 %e) {{\n"
        f"  %p = load ptr, ptr %a\n  %v = load <8 x float>, ptr %p, align 4\n"
        + "".join(
            f"  %v{i + 1} = fmul <8 x float> {'%v' if i == 0 else f'%v{i}'}, "
            f"splat (float {float(number + i)})\n"
            for i in range(20)
        )
        + "  store <8 x float> %v20, ptr %p, align 4\n  ret void\n}"
    )


@pytest.fixture
def threads() -> Iterator[None]:
    """More than one core, and none of our threads alive afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llvm_parallel, "usable_cores", lambda: 4)
        yield
    assert [t for t in threading.enumerate() if t.name == "weft-compile"] == []


def test_the_bytes_are_those_of_one_after_the_other(threads: None) -> None:
    sources = [kernel(number) for number in range(40)]
    assert llvm_parallel._driver() is not None
    together = ParallelLLVMCompiler().compile_all(iter(sources))
    single = LLVMCompiler()
    assert together == [single.compile(source) for source in sources]


def test_no_sources(threads: None) -> None:
    assert ParallelLLVMCompiler().compile_all([]) == []


@pytest.mark.parametrize("bad", [BROKEN, UNKNOWN, "no IR at all"])
def test_errors_are_those_of_one_alone(threads: None, bad: str) -> None:
    compiler = ParallelLLVMCompiler()
    with pytest.raises(CompileError) as alone:
        LLVMCompiler().compile(bad)
    with pytest.raises(CompileError) as together:
        compiler.compile_all([kernel(1), bad, kernel(2)])
    assert str(together.value) == str(alone.value)
    assert len(compiler.compile_all([kernel(1), kernel(2)])) == 2


def test_an_error_while_a_source_is_made_ends_the_threads(threads: None) -> None:
    def sources() -> Iterator[str]:
        yield kernel(1)
        yield kernel(2)
        raise KeyError("a lowering that failed")

    with pytest.raises(KeyError, match="a lowering that failed"):
        ParallelLLVMCompiler().compile_all(sources())


def test_an_error_inside_a_thread_is_raised(threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object, machine: int, source: bytes) -> bytes:
        raise MemoryError("none left")

    monkeypatch.setattr(llvm_parallel._Driver, "compile", fail)
    with pytest.raises(MemoryError, match="none left"):
        ParallelLLVMCompiler().compile_all([kernel(n) for n in range(5)])


def test_one_core_and_a_library_without_our_functions(
    threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [LLVMCompiler().compile(kernel(1))]
    monkeypatch.setattr(llvm_parallel, "_driver", lambda: None)
    assert ParallelLLVMCompiler().compile_all([kernel(1)]) == expected
    monkeypatch.undo()
    with Context(NUM_CPU_THREADS=1):
        assert ParallelLLVMCompiler().compile_all([kernel(1)]) == expected


def test_a_system_without_threads(threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    sources = [kernel(number) for number in range(3)]
    assert ParallelLLVMCompiler().compile_all(sources) == [
        LLVMCompiler().compile(source) for source in sources
    ]


def test_several_threads_compile_at_once(threads: None) -> None:
    compiler = ParallelLLVMCompiler()
    sources = [kernel(number) for number in range(10)]
    expected = [LLVMCompiler().compile(source) for source in sources]
    found: list[list[bytes]] = []
    users = [
        threading.Thread(target=lambda: found.append(compiler.compile_all(sources)))
        for _ in range(3)
    ]
    for user in users:
        user.start()
    for user in users:
        user.join(300)
    assert found == [expected] * 3


def test_what_a_refused_source_leaves_behind_can_be_collected() -> None:
    """The collector has no order: a module that was closed after its context crashed."""
    for _ in range(20):
        try:
            LLVMCompiler().compile(BROKEN)
        except CompileError as error:
            cycle: list[object] = [error]
            cycle.append(cycle)
    gc.collect()


FORKS = """
import os, signal, sys, threading
from test.runtime.test_llvm_parallel import kernel
from weft.runtime import llvm, llvm_parallel
llvm_parallel.usable_cores = lambda: 4
compiler = llvm_parallel.ParallelLLVMCompiler()
expected = compiler.compile_all([kernel(n) for n in range(3)])
stop = False
def compile_for_ever():
    while not stop:
        compiler.compile_all([kernel(n) for n in range(20)])
threading.Thread(target=compile_for_ever).start()
bad = 0
for _ in range(15):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(compiler.compile_all([kernel(n) for n in range(3)]) != expected)
    bad += os.waitpid(child, 0)[1] != 0
stop = True
print(bad)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_that_is_forked_while_threads_compile_can_compile() -> None:
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, "0\n", "")


def test_a_compiler_that_is_asked_for_its_target_while_another_compiles() -> None:
    """Whoever has LLVM's lock may need what another thread is asking for: there is no second."""
    has_lock, is_asking = threading.Event(), threading.Event()
    found: list[str] = []

    class Asking(LLVMCompiler):
        def _target_machine(self) -> object:
            is_asking.set()
            return super()._target_machine()

    def compile_another() -> None:
        with llvm._lock:
            has_lock.set()
            # by then the other waits for this lock, if it does not already
            is_asking.wait(0.2)
            found.append(LLVMCompiler().complete(""))

    threads = [
        threading.Thread(target=compile_another, daemon=True),
        threading.Thread(
            target=lambda: has_lock.wait(300) and found.append(Asking().complete("")), daemon=True
        ),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert len(found) == 2 and found[0] == found[1]
