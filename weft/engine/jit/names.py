"""Which names outside itself a Python function reads: what a capture depends on.

In: a function. Out: chains such as `config.rate` or `self.norm.eps`, found in its bytecode and in
that of the Python functions, methods and callable objects it names.
Sits beside `objects`; the JIT evaluates the chains at every call and compares.
Invariant: finding names runs none of the user's code (no property, no `__getattr__`).

What lies beyond: values reached through local variables (but `a = self.b` and `for a in self.b` are
followed), through subscripts, and inside the standard library and other libraries.
"""

from __future__ import annotations

import builtins
import dis
import functools
import sys
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "MISSING"})()
# beyond so many functions nothing more is looked into
MOST_FUNCTIONS = 400
_SKIPPED = frozenset(
    "CACHE NOP PRECALL PUSH_NULL COPY_FREE_VARS RESUME EXTENDED_ARG MAKE_CELL NOT_TAKEN".split()
)
_LOADS_FREE = frozenset("LOAD_DEREF LOAD_CLASSDEREF LOAD_FROM_DICT_OR_DEREF".split())
_LOADS_LOCAL = frozenset("LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_BORROW LOAD_FAST_AND_CLEAR".split())
_LOADS_PAIR = frozenset(
    "LOAD_FAST_LOAD_FAST LOAD_FAST_BORROW_LOAD_FAST_BORROW STORE_FAST_LOAD_FAST".split()
)
_ATTRIBUTES = frozenset("LOAD_ATTR LOAD_METHOD".split())
_BINDS = frozenset("STORE_FAST STORE_ATTR STORE_GLOBAL STORE_DEREF POP_TOP".split())
# methods of containers that tell what is inside
_READING = frozenset("copy count get index items keys values".split())
# Py_TPFLAGS_HEAPTYPE: of every class that a `class` statement made
_WRITTEN_IN_PYTHON = 1 << 9
_FOREIGN = frozenset(sys.stdlib_module_names) | {"numpy", "torch", "scipy", "weft"}
# parts of weft that are written like a user's program
_FAMILIAR = ("weft.nn", "weft.apps")


@dataclass(frozen=True, slots=True)
class Chain:
    """A place outside the function: a closure cell, a name of a module or an object; attributes."""

    root: Any = field(compare=False)
    root_id: int
    name: str | None  # a key of `root`, a module's dictionary; None: `root` itself
    attributes: tuple[str, ...] = ()
    is_written: bool = False  # only written: what matters is whether there is a tensor
    is_opened: bool = False  # a container that is looked into, not only added to

    def __str__(self) -> str:
        first = self.name
        if first is None:
            first = "cell" if isinstance(self.root, types.CellType) else type(self.root).__name__
        return ".".join((first, *self.attributes))

    def find(self) -> tuple[Any, Any, Any]:
        """(container, key, value) as it is now; the value is MISSING if there is none."""
        root = self.root
        container: Any
        key: Any
        if self.name is not None:
            container, key, value = root, self.name, root.get(self.name, MISSING)
        elif type(root) is types.CellType:
            container, key = root, "cell_contents"
            try:
                value = root.cell_contents
            except ValueError:
                value = MISSING
        else:
            container, key, value = None, None, root
        for attribute in self.attributes:
            container, key = value, attribute
            try:
                value = getattr(value, attribute)
            except AttributeError:
                return container, key, MISSING
        return container, key, value

    def then(self, attribute: str) -> Chain:
        """The chain of an attribute of this."""
        return Chain(self.root, self.root_id, self.name, (*self.attributes, attribute))


def values_of(chains: Iterable[Chain]) -> list[Any]:
    """What is in each of these places now; asked at every call."""
    found = []
    for chain in chains:
        root = chain.root
        value = root
        try:
            if chain.name is not None:
                value = root.get(chain.name, MISSING)
            elif type(root) is types.CellType:
                value = root.cell_contents
            for attribute in chain.attributes:
                value = getattr(value, attribute)
        except (AttributeError, ValueError):
            # a cell that is empty, too
            value = MISSING
        found.append(value)
    return found


def object_chain(value: Any) -> Chain:
    """The chain of an object itself."""
    return Chain(value, id(value), None)


def find_names(function: Any, unwrap: Any = lambda value: value) -> list[Chain]:
    """The chains that a function depends on, each once, in order of appearance.

    `unwrap` gives the function inside a wrapper that is called in its place.
    """
    return list(_Finder(unwrap).run(function))


def static_attribute(value: Any, name: str) -> tuple[str, Any]:
    """An attribute without running code: its kind ("plain", "method", "property", "none"), it."""
    if isinstance(value, types.ModuleType):
        found = vars(value).get(name, MISSING)
        return ("none", None) if found is MISSING else ("plain", found)
    if isinstance(value, type):
        for part in value.__mro__:
            if name in part.__dict__:
                inner = part.__dict__[name]
                function = (
                    inner.__func__ if isinstance(inner, (staticmethod, classmethod)) else inner
                )
                return "plain", function
        return "none", None
    inside = getattr(value, "__dict__", None)
    own = inside.get(name, MISSING) if type(inside) is dict else MISSING
    for part in type(value).__mro__:
        if name not in part.__dict__:
            continue
        found = part.__dict__[name]
        if isinstance(found, (property, functools.cached_property)):
            return "property", found
        if isinstance(found, types.MemberDescriptorType):
            try:
                return "plain", found.__get__(value)
            except AttributeError:
                return "none", None
        if own is not MISSING:
            break
        if isinstance(found, types.FunctionType):
            return "method", found
        if isinstance(found, (staticmethod, classmethod)):
            return "plain", found.__func__
        return ("method", found) if hasattr(type(found), "__get__") else ("plain", found)
    return ("none", None) if own is MISSING else ("plain", own)


class _Finder:
    """Scans functions, and those they name."""

    def __init__(self, unwrap: Any) -> None:
        self.unwrap = unwrap
        self.chains: dict[Chain, None] = {}
        self.seen: set[tuple[int, int]] = set()
        self.pending: list[tuple[types.FunctionType, Chain | None]] = []

    def run(self, function: Any) -> Iterator[Chain]:
        self.add_callable(function, None)
        while self.pending and len(self.seen) < MOST_FUNCTIONS:
            scanned, bound = self.pending.pop(0)
            cells = dict(zip(scanned.__code__.co_freevars, scanned.__closure__ or (), strict=False))
            local: dict[str, Chain] = {}
            if bound is not None and scanned.__code__.co_argcount:
                local[scanned.__code__.co_varnames[0]] = bound
            self.scan(scanned.__code__, scanned.__globals__, cells, local)
        yield from self.chains

    def add_callable(self, value: Any, bound: Chain | None) -> None:
        """Whatever Python code a call of the value runs."""
        for _ in range(8):
            value = self.unwrap(value)
            if isinstance(value, functools.partial):
                value = value.func
            elif isinstance(value, types.MethodType):
                bound, value = object_chain(value.__self__), value.__func__
            else:
                break
        if isinstance(value, types.FunctionType):
            self.add_function(value, bound)
        elif isinstance(value, type):
            kind, found = static_attribute(value, "__init__")
            if kind == "plain" and isinstance(found, types.FunctionType):
                self.add_function(found, None)
        elif not isinstance(value, types.ModuleType):
            kind, found = static_attribute(value, "__call__")
            found = self.unwrap(found)
            if kind == "method" and isinstance(found, types.FunctionType):
                self.add_function(found, object_chain(value))

    def add_function(self, function: types.FunctionType, bound: Chain | None) -> None:
        module = function.__module__ or ""
        wrapped = getattr(function, "__wrapped__", None)
        if module.partition(".")[0] in _FOREIGN and not module.startswith(_FAMILIAR):
            if wrapped is not None:
                self.add_callable(wrapped, bound)
            return
        key = (id(function.__code__), 0 if bound is None else hash(bound))
        if key not in self.seen:
            self.seen.add(key)
            self.pending.append((function, bound))

    def scan(
        self,
        code: types.CodeType,
        names: dict[str, Any],
        cells: dict[str, Any],
        local: dict[str, Chain],
    ) -> None:
        steps = [i for i in dis.get_instructions(code) if i.opname not in _SKIPPED]
        stored = [i.argval for i in steps if i.opname == "STORE_FAST"]
        local = {name: chain for name, chain in local.items() if name not in stored}
        elements: dict[str, Chain] = {}
        for position, step in enumerate(steps):
            variable = step.argval[-1] if step.opname in _LOADS_PAIR else step.argval
            attributes = []
            after = position + 1
            while after < len(steps) and steps[after].opname in _ATTRIBUTES:
                attributes.append(steps[after].argval)
                after += 1
            if step.opname in _LOADS_LOCAL | _LOADS_PAIR and variable in elements:
                self.add_elements(elements[variable], attributes)
                continue
            base = _base(step, variable, names, cells, local)
            if base is None or _is_counter(steps, position, variable):
                continue
            following = steps[after : after + 3]
            if following and following[0].opname == "STORE_ATTR":
                self.add_written(base, [*attributes, following[0].argval])
            chain = self.follow(base, attributes, _is_opened(steps, after))
            if chain is None or not following:
                continue
            if following[0].opname == "STORE_FAST" and stored.count(following[0].argval) == 1:
                local[following[0].argval] = chain
            if [s.opname for s in following] == ["GET_ITER", "FOR_ITER", "STORE_FAST"]:
                elements[following[2].argval] = chain
            self.add_subscript(steps, after, chain, elements, stored)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                known = {n: cells[n] for n in constant.co_freevars if n in cells}
                self.scan(constant, names, known, {})

    def follow(self, base: Chain, attributes: list[str], is_opened: bool = False) -> Chain | None:
        """Adds the chain as far as it can be followed without running code; None: it ends."""
        chain = base
        _, _, value = base.find()
        parent: Any = None
        for attribute in attributes:
            if value is MISSING or _is_tensor(value):
                break
            kind, found = static_attribute(value, attribute)
            if kind == "property":
                getter = found.fget if isinstance(found, property) else found.func
                self.add_callable(getter, object_chain(value))
            if kind == "method":
                if isinstance(found, types.FunctionType) or self.unwrap(found) is not found:
                    self.add_callable(found, object_chain(value))
            if kind != "plain":
                if not _is_scenery(value):
                    self.add_chain(chain, value, attribute in _READING)
                return None
            chain, parent, value = chain.then(attribute), value, found
        if not _is_scenery(value) or _is_variable(chain, parent, value):
            self.add_chain(chain, value, is_opened)
        if value is not MISSING and not _is_tensor(value):
            self.add_callable(value, None)
        return chain

    def add_chain(self, chain: Chain, value: Any, is_opened: bool) -> None:
        """What the function depends on; of a container that it looks into, also what is inside."""
        is_opened = is_opened and isinstance(value, (list, tuple, dict))
        self.chains.setdefault(replace(chain, is_opened=True) if is_opened else chain)

    def add_written(self, base: Chain, attributes: list[str]) -> None:
        """A place that is assigned to."""
        chain = base
        _, _, value = base.find()
        for attribute in attributes:
            if value is MISSING or _is_tensor(value):
                return
            kind, value = static_attribute(value, attribute)
            chain = chain.then(attribute)
            if kind not in ("plain", "none"):
                return
        self.chains.setdefault(replace(chain, is_written=True))

    def add_subscript(
        self,
        steps: list[dis.Instruction],
        position: int,
        chain: Chain,
        elements: dict[str, Chain],
        stored: list[str],
    ) -> None:
        """`chain[...]`: what is called of an element, or the name that it gets."""
        end = _subscript_end(steps, position)
        if end is None:
            return
        attributes = []
        while end < len(steps) and steps[end].opname in _ATTRIBUTES:
            attributes.append(steps[end].argval)
            end += 1
        if not attributes and end < len(steps) and steps[end].opname == "STORE_FAST":
            if stored.count(steps[end].argval) == 1:
                elements[steps[end].argval] = chain
            return
        self.add_elements(chain, attributes)

    def add_elements(self, chain: Chain, attributes: list[str]) -> None:
        """Elements of a container: what is called of each."""
        _, _, value = chain.find()
        if isinstance(value, dict):
            value = list(value.values())
        if not isinstance(value, (list, tuple)) or len(value) > 1000:
            return
        for element in value:
            # what is written in C has no Python to look into
            if not type(element).__flags__ & _WRITTEN_IN_PYTHON or _is_tensor(element):
                continue
            self.follow(object_chain(element), attributes)


def _base(
    step: dis.Instruction,
    variable: Any,
    names: dict[str, Any],
    cells: dict[str, Any],
    local: dict[str, Chain],
) -> Chain | None:
    """Where an instruction starts a chain."""
    if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
        if variable not in names and hasattr(builtins, variable):
            return None
        return Chain(names, id(names), variable)
    if step.opname in _LOADS_FREE:
        cell = cells.get(variable)
        return None if cell is None else Chain(cell, id(cell), None)
    if step.opname in _LOADS_LOCAL or step.opname in _LOADS_PAIR:
        return local.get(variable)
    return None


def _subscript_end(steps: list[dis.Instruction], position: int) -> int | None:
    """Where a read `[...]` of what was just loaded ends; None if there is none."""
    for end, step in enumerate(steps[position : position + 6], position):
        if step.opname == "BINARY_SUBSCR" or (step.opname == "BINARY_OP" and step.argrepr == "[]"):
            return end + 1
        if not step.opname.startswith(("LOAD_", "BINARY_OP")):
            return None
    return None


def _is_opened(steps: list[dis.Instruction], position: int) -> bool:
    """Whether what was just loaded is read (`x[0]`, `for y in x`, `f(x)`), not bound or set."""
    if position >= len(steps):
        return False
    if steps[position].opname in _BINDS:
        return False
    for step in steps[position : position + 6]:
        if step.opname in ("STORE_SUBSCR", "DELETE_SUBSCR"):
            return False
        if not step.opname.startswith("LOAD_"):
            break
    return True


def _is_counter(steps: list[dis.Instruction], position: int, variable: Any) -> bool:
    """`calls += 1` only counts: as long as nothing else reads it, no result depends on it."""
    following = steps[position + 1 : position + 4]
    if len(following) < 3 or not following[0].opname.startswith(("LOAD_CONST", "LOAD_SMALL_INT")):
        return False
    stores = following[2].opname in ("STORE_GLOBAL", "STORE_DEREF", "STORE_NAME")
    return following[1].opname == "BINARY_OP" and stores and following[2].argval == variable


def _is_tensor(value: Any) -> bool:
    return hasattr(type(value), "_cell") and hasattr(type(value), "uop")


def _is_variable(chain: Chain, parent: Any, value: Any) -> bool:
    """Whether a class or a library's function is in a place that may hold another one tomorrow.

    `activation = Tensor.relu` and `self.norm = LayerNorm` are such places; `math.sqrt`, methods of
    classes and what weft's own modules import are not.
    """
    if isinstance(value, types.ModuleType):
        return False
    if chain.attributes:
        inside = getattr(parent, "__dict__", None)
        name = chain.attributes[-1]
        is_object = not isinstance(parent, (type, types.ModuleType))
        return is_object and type(inside) is dict and inside.get(name) is value
    if isinstance(chain.root, dict):
        return not str(chain.root.get("__name__", "")).startswith("weft.")
    return True


def _is_scenery(value: Any) -> bool:
    """Modules, classes and other people's functions: they are part of the program, not state."""
    if isinstance(value, (types.ModuleType, type, types.BuiltinFunctionType)):
        return True
    if isinstance(value, types.FunctionType):
        module = value.__module__ or ""
        return module.partition(".")[0] in _FOREIGN and not module.startswith(_FAMILIAR)
    return False
