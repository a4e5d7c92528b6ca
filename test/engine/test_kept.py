"""Compiled kernels on disk: a second process compiles nothing, and damage never misleads it."""

from __future__ import annotations

import errno
import os
import subprocess
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from test.engine.keeping import forget, said_by, start
from weft import Device, Tensor, Variable, disk, dtypes
from weft.device import ProgramFacts
from weft.engine import kept, programs
from weft.knobs import Context
from weft.uop.node import UOp
from weft.uop.resolve import sym_infer


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that were made, and not found."""
    found: list[str] = []
    make = programs.lower

    def lower(ast: UOp, renderer: Any) -> Any:
        found.append(ast.arg.name)
        return make(ast, renderer)

    monkeypatch.setattr(programs, "lower", lower)
    return found


def compute() -> Any:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    return ((x @ x).exp().sum(0) * x.relu().contiguous()).tolist()


CODE = """
import sys
from weft import Tensor
from weft.engine import programs
if sys.argv[1:] == ["known"]:
    def lower(*args): raise SystemExit("a kernel was made that should be known")
    programs.lower = lower
x = Tensor([[1.0, 2.0], [3.0, 4.0]])
print(((x @ x).exp().sum(0) * x.relu().contiguous()).tolist())
"""


class TestFound:
    def test_what_is_kept_is_not_made_again(self, cache: Path, lowered: list[str]) -> None:
        first = compute()
        assert lowered
        lowered.clear()
        forget()
        assert compute() == first
        assert lowered == []

    def test_a_second_process_compiles_nothing(self, cache: Path) -> None:
        for arguments in ((), ("known",)):
            out = said_by(start(cache, CODE, *arguments))
            assert out == f"{compute()}\n"

    def test_kernels_of_a_variable(self, cache: Path, lowered: list[str]) -> None:
        size = Variable("size", 1, 64)
        data = Tensor.arange(64).float().contiguous().realize()
        forget()
        for round_number in range(2):
            for value in (3, 50):
                total = data.shrink(((0, size.bind(value)),)).add(1).sum().item()
                assert total == value * (value + 1) / 2
            if round_number == 0:
                costs = [(runner.ops, runner.mem) for runner in programs._runners.values()]
                assert lowered and any(isinstance(ops, UOp) for ops, _ in costs)
                lowered.clear()
                forget()
        assert lowered == []
        again = [(runner.ops, runner.mem) for runner in programs._runners.values()]
        values = {"size": 7}
        assert sorted(sym_infer(ops, values) for ops, _ in again) == sorted(
            sym_infer(ops, values) for ops, _ in costs
        )

    def test_facts_of_groups_are_kept(self, cache: Path) -> None:
        size = UOp.variable("n", 1, 100)
        facts = ProgramFacts(
            name="kernel",
            threads_n=3,
            buffer_count=2,
            variables=("n",),
            ops=size * 2,
            mem=17,
            global_size=(size, 4, 1),
            local_size=(32, 1, 1),
        )
        kept.keep("key", facts, b"bytes\nof the program")
        assert kept.load("key") == (facts, b"bytes\nof the program")

    def test_what_may_not_be_kept(self, cache: Path) -> None:
        device = Device["CPU"]
        arguments = (b"content", device.renderer, device.compiler, programs.code_knobs())
        assert kept.key_of(*arguments) is not None
        for knobs in ({"CCACHE": 0}, {"DEBUG": 4}, {"SPEC": 1}):
            with Context(**knobs):
                assert kept.key_of(*arguments) is None


class TestKeys:
    def test_everything_that_decides_the_bytes_is_in_the_key(
        self, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        device = Device["CPU"]

        class Renderer:
            target = replace(device.renderer.target, name="another-cpu")

        class Compiler:
            cachekey = "llvm-99"

        knobs = programs.code_knobs()
        keys = [
            kept.key_of(b"content", device.renderer, device.compiler, knobs),
            kept.key_of(b"other", device.renderer, device.compiler, knobs),
            kept.key_of(b"content", Renderer, device.compiler, knobs),
            kept.key_of(b"content", device.renderer, Compiler, knobs),
            kept.key_of(b"content", device.renderer, device.compiler, (*knobs, 1)),
        ]
        monkeypatch.setattr(kept, "own_code", lambda: "another version of weft")
        keys.append(kept.key_of(b"content", device.renderer, device.compiler, knobs))
        assert len(set(keys)) == len(keys) and None not in keys

    def test_an_edited_file_is_another_version(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        package = tmp_path / "weft"
        (package / "engine").mkdir(parents=True)
        (package / "nn").mkdir()
        for name in ("dtype.py", "engine/kept.py", "nn/linear.py"):
            (package / name).write_text("x = 1\n")
        monkeypatch.setattr(kept, "__file__", str(package / "engine" / "kept.py"))
        fingerprint = kept.own_code.__wrapped__
        first = fingerprint()
        assert fingerprint() == first
        (package / "nn" / "linear.py").write_text("x = 22\n")
        assert fingerprint() == first, "a layer decides nothing about a given kernel"
        (package / "dtype.py").write_text("x = 22\n")
        assert fingerprint() != first


class TestTrouble:
    def test_a_flipped_bit_in_every_byte_of_an_entry(self, cache: Path) -> None:
        Tensor([1, 2]).add(1).realize()
        entry = min(disk.cache_entries(), key=lambda entry: entry.size)
        whole = entry.path.read_bytes()
        for place in range(len(whole)):
            changed = bytearray(whole)
            changed[place] ^= 1 << (place % 8)
            assert disk._decode_entry(entry.path, bytes(changed)) is None, place
        entry.path.write_bytes(changed)
        assert not disk.is_whole(entry)
        # the kernel is made again, and its entry is whole again
        forget()
        with pytest.warns(RuntimeWarning, match="damaged"):
            assert Tensor([1, 2]).add(1).tolist() == [2, 3]
        assert disk.is_whole(entry) and entry.path.read_bytes() == whole

    @pytest.mark.parametrize(
        "content",
        [b"", b"[]\nx", b"no json\nx", b'{"name": 1, "other": 2}\nx', b'{"ops": {"a": 1}}\nx'],
    )
    def test_a_whole_entry_that_holds_something_else(
        self, cache: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
    ) -> None:
        monkeypatch.setattr(kept, "diskcache_get", lambda table, key: content)
        assert kept.load("key") is None
        assert Tensor([1, 2]).add(1).tolist() == [2, 3]

    def test_code_that_does_not_load_here_is_made_again(
        self, cache: Path, monkeypatch: pytest.MonkeyPatch, lowered: list[str]
    ) -> None:
        """An entry from a system with other libraries."""
        code = Device["CPU"].compiler.compile("define void @f(ptr %a, i64 %b, i64 %e) { ret void }")
        alien = (ProgramFacts("kernel_that_is_not_in_it", 1, 2, ()), code)
        monkeypatch.setattr(kept, "load", lambda key: alien)
        assert Tensor([1, 2]).add(1).tolist() == [2, 3]
        assert lowered

    def test_a_disk_that_takes_nothing(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        real_open = os.open

        def refuse(path: Any, flags: int, *mode: int, **options: Any) -> int:
            if flags & os.O_CREAT:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            return real_open(path, flags, *mode, **options)

        monkeypatch.setattr(os, "open", refuse)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            first = compute()
            forget()
            assert compute() == first
        assert len(said) == 1 and "disk cache is not used" in str(said[0].message)

    def test_two_processes_at_once(self, cache: Path) -> None:
        children = [start(cache, CODE) for _ in range(2)]
        for child in children:
            out = said_by(child)
            assert out == f"{compute()}\n"
        assert all(disk.is_whole(entry) for entry in disk.cache_entries())

    def test_killed_at_any_moment(self, cache: Path) -> None:
        for seconds in (0.25, 0.35, 0.45):
            child = start(cache, CODE)
            try:
                child.wait(seconds)
            except subprocess.TimeoutExpired:
                child.kill()
            child.communicate()
            assert all(disk.is_whole(entry) for entry in disk.cache_entries())
        assert said_by(start(cache, CODE)) == f"{compute()}\n"


def test_equal_kernels_are_made_once(cache: Path, lowered: list[str]) -> None:
    tensors = [Tensor.empty(8, dtype=dtypes.float32) for _ in range(6)]
    for tensor in tensors:
        tensor.assign(Tensor([0.5]).expand(8)).realize()
    lowered.clear()
    results = [tensor.add(2).contiguous() for tensor in tensors]
    Tensor.realize(*results)
    assert [result.tolist() for result in results] == [[2.5] * 8] * 6
    assert len(lowered) <= 1
