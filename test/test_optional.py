"""What is optional stays so: no file takes a package for granted that a machine may lack."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from test.bare import NEEDED, OF_PYTEST
from test.optional import BROUGHT_BY, found, need, need_program, optional

ROOT = Path(__file__).resolve().parent.parent
OWN = {"weft", "test", "bench", "examples", "docs", "conftest", "common"}
# programs written for tinygrad are read as text, and run with another import
PROGRAMS = ROOT / "test" / "programs"
TESTS = [
    path
    for path in sorted((ROOT / "test").rglob("*.py"))
    if path.parent != PROGRAMS or path.name.startswith("test_")
]
# behind a door that catches the ImportError: `weft.torch` itself
BEHIND = ROOT / "weft" / "torch"
OTHERS = [*sorted((ROOT / "weft").rglob("*.py")), *sorted((ROOT / "examples").rglob("*.py"))]


def imports_of(tree: ast.Module) -> Iterator[tuple[str, int, bool]]:
    """(package, line, whether its absence is expected) of every import, also inside functions."""
    pending: list[tuple[ast.AST, bool]] = [(tree, False)]
    while pending:
        node, expected = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending += [(child, expected) for child in node.orelse]
            continue
        if isinstance(node, ast.Try):
            caught = " ".join(ast.unparse(h.type) for h in node.handlers if h.type is not None)
            guarded = expected or "ImportError" in caught or "ModuleNotFoundError" in caught
            pending += [(child, guarded) for child in node.body]
            rest = [*node.handlers, *node.orelse, *node.finalbody]
            pending += [(child, expected) for child in rest]
            continue
        pending += [(child, expected) for child in ast.iter_child_nodes(node)]
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        for name in names:
            yield name.partition(".")[0], getattr(node, "lineno", 0), expected


def unguarded(source: str, allowed: set[str]) -> list[str]:
    """What a file imports as if it had to be there."""
    known = allowed | OWN | sys.stdlib_module_names
    return [
        f"line {line} imports {package}"
        for package, line, expected in imports_of(ast.parse(source))
        if package not in known and not expected
    ]


@pytest.mark.parametrize("path", TESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_test_takes_an_optional_package_for_granted(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    wrong = unguarded(source, NEEDED | OF_PYTEST)
    assert wrong == [], f'{wrong}: use optional("...") or need("...") of test/optional.py'
    if path.name != Path(__file__).name:
        assert "importorskip" not in source, "need() of test/optional.py names the command"


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_weft_and_its_examples_need_llvmlite_and_numpy_only(path: Path) -> None:
    is_behind = path.is_relative_to(BEHIND) and path != BEHIND / "__init__.py"
    allowed = NEEDED | {"torch"} if is_behind else NEEDED
    wrong = unguarded(path.read_text(encoding="utf-8"), allowed)
    assert wrong == [], f"{wrong}: catch the ImportError and say what brings the package"


def test_the_check_sees_what_it_looks_for() -> None:
    assert unguarded("import torch.nn", NEEDED) == ["line 1 imports torch"]
    assert unguarded("def f():\n    from scipy import special", NEEDED) == ["line 2 imports scipy"]
    guarded = "try:\n    import torch\nexcept ImportError:\n    torch = None\nimport numpy, os"
    assert unguarded(guarded, NEEDED) == []
    assert unguarded("try:\n    import torch\nexcept OSError:\n    pass", NEEDED) != []


def test_what_is_absent_is_asked_for_by_who_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BROUGHT_BY, "no_such_package", "build it")
    module = optional("no_such_package.part")
    for ask in (lambda: need("no_such_package"), lambda: module.anything):
        with pytest.raises(pytest.skip.Exception) as caught:
            ask()
        assert "no_such_package" in str(caught.value) and "build it" in str(caught.value)
    monkeypatch.setitem(BROUGHT_BY, "no-such-program", "make it")
    with pytest.raises(pytest.skip.Exception, match="no-such-program is not installed: make it"):
        need_program("no-such-program")


def test_the_commands_name_extras_that_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    for name, command in BROUGHT_BY.items():
        if "'.[" in command:
            extra = command.split("'.[")[1].split("]")[0]
            listed = " ".join(extras[extra])
            package = {"z3": "z3-solver", "ptxas": "nvidia-cuda-nvcc"}.get(name, name)
            assert package in listed, f"{extra} does not bring {name}"


def test_bare_blocks_what_is_installed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("value = 3\n")
    code = (
        "import test.bare, sys\n"
        "assert not any(isinstance(f, test.bare.Blocked) for f in sys.meta_path)\n"
        "test.bare.block()\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "import numpy, llvmlite, mine, json, weft, weft.nn\n"
        "try:\n    import mypy\nexcept ModuleNotFoundError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout in ("mypy is blocked by test.bare\n", "No module named 'mypy'\n")


def test_found_is_none_for_a_package_that_does_not_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As PyTorch where one of its libraries is missing."""
    (tmp_path / "broken_package.py").write_text("raise OSError('libmissing.so: cannot open')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(BROUGHT_BY, "broken_package", "mend it")
    assert found("broken_package") is None
