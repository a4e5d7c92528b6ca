"""Records every kernel of the corpus: its AST, its linear program and its source, as JSON.

In: the weft that is importable (of any commit), a path. Out: the record at that path. It runs as a
script of its own, with the corpus loaded by file path, so that today's programs meet any weft.
A program that an old commit cannot run is recorded as its error.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# the user's line behind a node: the same program may stand on another line tomorrow
ORIGIN = re.compile(r" *# \S+:\d+$", re.MULTILINE)

Record = dict[str, dict[str, str]]


def load_by_path(path: Path) -> Any:
    """The module in a file, whatever packages there are."""
    spec = importlib.util.spec_from_file_location(f"replayed_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # where dataclasses look for the module of a class
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def record_program(name: str, program: Callable[[], Any]) -> Record:
    """The kernels that a program compiles, in order."""
    from weft.engine import programs
    from weft.uop.text import nodes_text

    found: Record = {}
    lower = programs.lower

    def recording(ast: Any, renderer: Any) -> Any:
        spec = lower(ast, renderer)
        found[f"{name}/{len(found):02d} {spec.name}"] = {
            "kernel": ORIGIN.sub("", nodes_text(list(ast.toposort()), 1 << 30)),
            "program": ORIGIN.sub("", nodes_text(list(spec.uops), 1 << 30)),
            "source": spec.src,
        }
        return spec

    programs.lower = recording
    try:
        programs.clear_programs()
        program()
    except Exception as error:
        found[f"{name}/error"] = {"kernel": f"{type(error).__name__}: {error}"}
    finally:
        programs.lower = lower
    return found


def random_programs(count: int) -> dict[str, Callable[[], Any]]:
    """The first random programs of the fuzzer, by seed."""
    fuzz = importlib.import_module("test.fuzz.programs")

    def runner(seed: int) -> Callable[[], Any]:
        return lambda: fuzz.run_weft(fuzz.Generator(seed, 10).run().statements)

    return {f"random {seed:04d}": runner(seed) for seed in range(count)}


def record(random_count: int = 20, names: list[str] | None = None) -> Record:
    """The kernels of the corpus, and of some random programs."""
    from weft import Context

    corpus = load_by_path(HERE / "corpus.py")
    programs = {**corpus.PROGRAMS, **random_programs(random_count)}
    found: Record = {}
    with Context(CCACHE=0, SCACHE=0):
        for name, program in programs.items():
            if names is None or name in names:
                found |= record_program(name, program)
    return found


def write(path: Path, random_count: int) -> int:
    """Record to a file; how many kernels."""
    found = record(random_count)
    path.write_text(json.dumps(found, indent=1, sort_keys=True), encoding="utf-8")
    return len(found)


if __name__ == "__main__":
    print(write(Path(sys.argv[1]), int(sys.argv[2])))
