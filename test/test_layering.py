"""The house rules, checked over the files: who may import whom, and where things may stand.

`ORDER` is the order of the rooms. A module imports only from lines above its own; inside a room
that is a folder, files may import each other but not in a circle. A new file must be placed here.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "weft"

# In pipeline order. A line is one room: modules of one line may not import each other unless the
# line is a folder (ends in ".*"). A module's own name counts before the folder that it is in.
ORDER = """
errors
knobs
progress
compat_helpers
disk
download
sequences
watching
helpers
float_format
scalar
dtype
uop.spelling
uop.opset
budgets
fragment
machine
uop.layout
uop.args
uop.infer
uop.bounds
uop.evaluate
mixin.check
mixin.fitting
mixin.arith
mixin.dtype
mixin.unary
mixin.trigonometry
mixin.movement
mixin.reduce
mixin.padding
mixin.rearrange
uop.compat
uop.compat_kernel
uop.intern
uop.build
uop.node
uop.reproduce
uop.trace
uop.resolve
uop.pack_function
uop.match_pattern
uop.pattern
uop.compile_pattern
uop.matcher
uop.rewrite
uop.text
uop.spec_rules
uop.spec
uop.solver
uop.prove
uop.passes
uop.validate
uop.rules.*
uop.render
uop.compat_functions
uop.ops
uop.symbolic
uop.distinct
uop.scatter
uop.segments
uop.ranks
uop.template
uop.kernel_graph
uop.unpacked
uop.products
uop.chained_powers
uop.chained
slopes
gradient_rules
gradient_writes
gradient
amd.*
schedule.*
renderer.*
codegen.opt.*
codegen.decompose.*
codegen.*
contracts
device
collective
runtime.*
engine.*
mixin.once
mixin.creation
mixin.indexing
mixin.scan
mixin.stats
mixin.activation
mixin.linalg
mixin.winograd
mixin.conv
mixin.sort
mixin.rand
mixin.ring
mixin.neural
mixin.loss
mixin.resize
mixin.decompose
mixin.digest
mixin.bits
mixin.values
mixin.storage
mixin.shard
mixin.cached
mixin.compat
mixin.gradients
tensor
compat_uop
function
engine.jit.tensors
engine.jit.objects
engine.jit.bytecode
engine.jit.observe
engine.jit.kinds
engine.jit.scope
engine.jit.places
engine.jit.walk
engine.jit.guards
engine.jit.parameters
engine.jit.arguments
engine.jit.templates
engine.jit.trace
engine.jit.note_state
engine.jit.capture
engine.jit.check
engine.jit.launches
engine.jit.state
engine.jit.replay
engine.jit.graph
engine.jit.fast_path
engine.jit.pickling
engine.jit.calls
engine.jit.tinyjit
engine.jit
array_api.*
nn.formats.*
graphs.*
nn.*
torch.*
llm.*
apps.*
export.*
viz.*
commands.*
__main__
"""

# Rooms that stand beside each other: though one line is above the other, neither imports it.
SIBLINGS = [("schedule", "codegen"), ("schedule", "renderer")]

# Rooms that nobody imports; a device is found by its file's name.
PRIVATE = {"runtime", "viz", "commands"}
# ... but for these: the command line opens the viewer, `python -m weft` the command line
DOORS = {("commands", "viz"), ("__main__", "commands")}

# Weft imports inside a function: the registry loads a device by name, the simplifier registers
# itself with symbolic shapes. They say which module may do it.
HIDDEN_IMPORTS = {"device", "uop.symbolic", "uop.node"}

# Whose __init__ re-exports the public names. All others hold a docstring.
PUBLIC_PACKAGES = {
    "",
    "array_api",
    "export",
    "nn",
    "torch",
    "uop",
    "codegen.opt",
    "engine.jit",
    "renderer",
}

DEVICE_NAMES = {"CPU", "CUDA", "METAL", "AMD", "CL", "WEBGPU", "PYTHON", "NULL", "DISK"}
MAY_NAME_DEVICES = {"runtime", "renderer"}

LINES_AT_MOST = 600


@dataclass(frozen=True)
class Import:
    """One import of a weft module: what is imported, where, and whether inside a function."""

    target: str
    line: int
    hidden: bool


def module_name(path: Path) -> str:
    """`weft/uop/node.py` -> `uop.node`; a package is named by its folder, weft itself is ''."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = sorted(PACKAGE.rglob("*.py"))
MODULES = {module_name(path): path for path in FILES}
PLAIN_MODULES = sorted(
    name for name, path in MODULES.items() if path.name != "__init__.py" and name != "__main__"
)


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def rooms() -> dict[str, int]:
    """The room of each entry of ORDER, counted from the first line."""
    return {name: number for number, line in enumerate(room_lines()) for name in line.split()}


def room_lines() -> list[str]:
    return ORDER.strip().splitlines()


def room_of(module: str) -> tuple[int, bool] | None:
    """Number of a module's room, and whether that room is a folder. None: it has no place yet."""
    known = rooms()
    if module in known:
        return known[module], False
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        folder = ".".join(parts[:length]) + ".*"
        if folder in known:
            return known[folder], True
    return None


def imports_of(module: str) -> Iterator[Import]:
    """The weft modules that a module imports, hidden ones included, those for types excluded."""
    tree = parsed(MODULES[module])
    pending: list[tuple[ast.AST, bool]] = [(tree, False)]
    while pending:
        node, hidden = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending.extend((child, hidden) for child in node.orelse)
            continue
        inside = hidden or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        pending.extend((child, inside) for child in ast.iter_child_nodes(node))
        for target in imported_names(node, module):
            yield Import(target, getattr(node, "lineno", 0), hidden)


def imported_names(node: ast.AST, module: str) -> Iterator[str]:
    """The modules of weft that one statement imports, by their names in MODULES."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name == "weft" or alias.name.startswith("weft."):
                yield alias.name.removeprefix("weft").removeprefix(".")
        return
    if not isinstance(node, ast.ImportFrom):
        return
    base = node.module or ""
    if node.level:
        path = MODULES[module]
        package = path.parent.relative_to(PACKAGE).parts
        above = package[: len(package) - node.level + 1]
        base = ".".join(("weft", *above, *([base] if base else [])))
    if base != "weft" and not base.startswith("weft."):
        return
    name = base.removeprefix("weft").removeprefix(".")
    for alias in node.names:
        inner = f"{name}.{alias.name}" if name else alias.name
        yield inner if inner in MODULES else name


def top(module: str) -> str:
    return module.split(".")[0]


@pytest.mark.parametrize("module", PLAIN_MODULES)
def test_every_file_has_a_place(module: str) -> None:
    assert room_of(module) is not None, f"give weft/{module} a line in ORDER of {__file__}"


@pytest.mark.parametrize("module", PLAIN_MODULES)
def test_imports_go_down_only(module: str) -> None:
    place = room_of(module)
    if place is None:
        pytest.skip("has no place yet, which another test reports")
    room, is_folder = place
    for found in imports_of(module):
        where = f"weft/{module} line {found.line} imports weft.{found.target}"
        if found.target == "":
            assert found.hidden is False and top(module) in ("nn", "apps", "viz", "commands"), (
                f"{where}: only users of the public names import the public package"
            )
            continue
        other = room_of(found.target)
        if other is None:
            continue
        if other[0] == room:
            assert is_folder, f"{where}: both stand in one room"
        else:
            assert other[0] < room or found.hidden, f"{where}, which comes later in ORDER"


@pytest.mark.parametrize("module", PLAIN_MODULES)
def test_siblings_and_private_rooms_are_not_imported(module: str) -> None:
    for found in imports_of(module):
        where = f"weft/{module} line {found.line} imports weft.{found.target}"
        pair = (top(module), top(found.target))
        for left, right in SIBLINGS:
            assert pair not in ((left, right), (right, left)), f"{where}: they are siblings"
        if pair[1] in PRIVATE and pair[0] != pair[1] and pair not in DOORS:
            pytest.fail(f"{where}: nobody imports weft.{pair[1]}")


@pytest.mark.parametrize("module", PLAIN_MODULES)
def test_no_hidden_imports(module: str) -> None:
    hidden = [found for found in imports_of(module) if found.hidden]
    if module not in HIDDEN_IMPORTS:
        assert hidden == [], f"weft/{module} imports weft inside a function"


def test_no_circles() -> None:
    """Over all files, so it also holds inside the rooms that are folders."""
    graph = {
        module: {found.target for found in imports_of(module) if not found.hidden}
        for module in PLAIN_MODULES
    }
    left = {module: {t for t in targets if t in graph} for module, targets in graph.items()}
    while left:
        free = [module for module, targets in left.items() if not targets & left.keys()]
        assert free, f"these modules import each other in a circle: {sorted(left)}"
        for module in free:
            del left[module]


@pytest.mark.parametrize("path", [p for p in FILES if p.name == "__init__.py"], ids=module_name)
def test_packages_hold_a_docstring_only(path: Path) -> None:
    tree = parsed(path)
    assert ast.get_docstring(tree), f"{path} has no docstring"
    if module_name(path) not in PUBLIC_PACKAGES:
        assert len(tree.body) == 1, f"{path} holds more than a docstring"


@pytest.mark.parametrize("module", PLAIN_MODULES)
def test_every_file_opens_with_a_docstring(module: str) -> None:
    docstring = ast.get_docstring(parsed(MODULES[module]))
    assert docstring, f"weft/{module} does not say what comes in and what goes out"


@pytest.mark.parametrize("path", FILES, ids=str)
def test_files_are_short(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= LINES_AT_MOST, f"{path} has {lines} lines; split it by meaning"


@pytest.mark.parametrize("module", PLAIN_MODULES)
def test_only_knobs_read_the_environment(module: str) -> None:
    if module == "knobs":
        return
    for node in ast.walk(parsed(MODULES[module])):
        names = {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else set()
        if isinstance(node, ast.Attribute):
            names = {node.attr}
        found = names & {"environ", "getenv", "environb", "putenv"}
        is_os = not isinstance(node, ast.ImportFrom) or node.module == "os"
        is_os = is_os and (not isinstance(node, ast.Attribute) or ast.unparse(node.value) == "os")
        assert not (found and is_os), f"weft/{module}: line {getattr(node, 'lineno', 0)}"


@pytest.mark.parametrize("module", PLAIN_MODULES)
def test_no_device_is_compared_by_name(module: str) -> None:
    if top(module) in MAY_NAME_DEVICES:
        return
    for node in ast.walk(parsed(MODULES[module])):
        if not isinstance(node, ast.Compare):
            continue
        for part in ast.walk(node):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                name = part.value.split(":")[0].upper()
                assert name not in DEVICE_NAMES or part.value != part.value.upper(), (
                    f"weft/{module} line {part.lineno} compares with {part.value!r}: "
                    "ask the device for a capability"
                )


@pytest.mark.parametrize("module", PLAIN_MODULES)
def test_no_peer_is_imported(module: str) -> None:
    for node in ast.walk(parsed(MODULES[module])):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        for name in names:
            assert top(name) not in ("tinygrad", "jax", "tensorflow"), f"weft/{module}: {name}"
            assert top(name) != "torch" or top(module) == "torch", f"weft/{module}: {name}"


def test_the_checks_see_what_they_look_for() -> None:
    """The parts above on made-up names, so that a check that finds nothing is not just blind."""
    assert room_of("errors") == (0, False)
    assert room_of("schedule.anything") == room_of("schedule.other")
    assert room_of("codegen.opt.actions") != room_of("codegen.pipeline")
    assert room_of("misc") is None and room_of("uop.misc") is None
    statement = ast.parse("from weft.uop import node, nothing").body[0]
    MODULES.setdefault("uop.node", PACKAGE / "uop" / "node.py")
    assert list(imported_names(statement, "tensor")) == ["uop.node", "uop"]
    relative = ast.parse("from .errors import WeftError\nfrom . import knobs").body
    assert [list(imported_names(node, "dtype")) for node in relative] == [["errors"], ["knobs"]]
    places = [room_of(name) for name in "uop.node mixin.sort tensor engine.jit nn.optim".split()]
    assert None not in places and places == sorted(p for p in places if p is not None)
