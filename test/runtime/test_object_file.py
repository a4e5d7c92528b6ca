"""Symbols of object files: of every format, of every system's kernels, and of damaged files."""

from __future__ import annotations

import pytest

from test.renderer.corpus import PROGRAMS, cases_of
from test.runtime.triples import SYSTEMS, System, needed_by, object_of
from weft.errors import CompileError
from weft.runtime.llvm import llvm_binding
from weft.runtime.object_file import object_symbols

each_system = pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.triple)


@each_system
def test_kernels_need_nothing_that_is_not_there(system: System) -> None:
    """The whole corpus; `python -m test.runtime.triples` prints what each needs."""
    needed = needed_by(PROGRAMS, system)
    assert system.allowed.issuperset(needed), dict(needed)


@each_system
def test_symbols_of_every_format(system: System) -> None:
    code = object_of(cases_of("elementwise")[0].kernel, system, "mine")
    assert "mine" in object_symbols(code).defined


@each_system
def test_calls_are_needed(system: System) -> None:
    binding = llvm_binding()
    object_of(cases_of("elementwise")[0].kernel, system)  # the targets are there now
    machine = binding.Target.from_triple(system.triple).create_target_machine()
    text = "declare void @a_function_of_others()\ndefine void @own() {\n"
    text += "  call void @a_function_of_others()\n  ret void\n}\n"
    module = binding.parse_assembly(f'target triple = "{system.triple}"\n{text}')
    symbols = object_symbols(machine.emit_object(module))
    assert symbols.needed - system.allowed == {"a_function_of_others"}
    assert "own" in symbols.defined


@each_system
def test_damaged_files_are_refused(system: System) -> None:
    code = object_of(cases_of("elementwise")[0].kernel, system)
    for length in (0, 1, 5, 30, 70, len(code) // 2, len(code) - 20):
        try:
            object_symbols(code[:length])
        except CompileError as error:
            assert "is damaged" in str(error)
    with pytest.raises(CompileError, match="starts like no object file"):
        object_symbols(b"nothing of the kind")
