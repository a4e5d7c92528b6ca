"""Nothing that a test waits for may keep it for ever: every wait names its limit."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from test.children import Child

ROOT = Path(__file__).resolve().parent.parent
TESTS = sorted((ROOT / "test").rglob("*.py"))
# functions that wait unless a limit is given by name
WITH_TIMEOUT = {
    *(f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output")),
    *("urllib.request.urlopen", "socket.create_connection", "http.client.HTTPConnection"),
}
# methods that wait for ever when nothing is given
WAITS = {"join", "wait", "result", "acquire"}


def unlimited(tree: ast.Module) -> Iterator[str]:
    """The calls that may never return."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name = ast.unparse(node.func)
        has_timeout = "timeout" in {keyword.arg for keyword in node.keywords}
        is_bare = not node.args and not node.keywords
        if name == "subprocess.Popen":
            yield f"line {node.lineno}: {name}, instead of Child of test/children.py"
        elif name in WITH_TIMEOUT and not has_timeout:
            yield f"line {node.lineno}: {name} without timeout="
        elif node.func.attr in WAITS and is_bare and not isinstance(node.func.value, ast.Constant):
            yield f"line {node.lineno}: {name}() without a limit"


@pytest.mark.parametrize("path", TESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_test_waits_without_a_limit(path: Path) -> None:
    assert list(unlimited(ast.parse(path.read_text(encoding="utf-8")))) == []


def test_the_check_sees_what_it_looks_for() -> None:
    wrong = "subprocess.run(['a'])\nthread.join()\nsubprocess.Popen(['a'])\n"
    assert len(list(unlimited(ast.parse(wrong)))) == 3
    right = "subprocess.run(['a'], timeout=3)\nthread.join(3)\n', '.join(['a'])\n"
    assert list(unlimited(ast.parse(right))) == []


def test_a_child_ends_with_its_block_and_with_its_time() -> None:
    endless = [sys.executable, "-c", "print('on', flush=True)\nwhile True: pass"]
    with Child(endless, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == "on\n"
    assert child.returncode != 0
    with Child(endless, limit=0.5, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        # until it is killed
        child.stdout.read()
    assert child.returncode != 0


@pytest.mark.parametrize("hang", ["time.sleep(100)", "ctypes.PyDLL(None).sleep(100)"])
def test_a_test_that_hangs_is_named(hang: str, tmp_path: Path) -> None:
    """By the alarm, or by a dump of its stack where native code hears no alarm."""
    (tmp_path / "test_it.py").write_text(
        textwrap.dedent(f"""
            import ctypes, time
            def test_that_hangs():
                {hang}
        """)
    )
    (tmp_path / "conftest.py").write_text(
        "import test.conftest\n"
        "test.conftest.HEARD_WITHIN = 1\n"
        "from test.conftest import pytest_runtest_protocol\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-o", "timeout=1", "-o", "timeout_method=signal", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 1
    assert "test_that_hangs" in done.stdout + done.stderr
