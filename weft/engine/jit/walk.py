"""A walk over everything outside of a function's arguments that it can read.

In: a function, and the code that its runs were seen to execute (`observe`). Out: `Walk`: the
structure of what that code can reach, the numbers in it, the places that lead to tensors, and what
has to be compared to find it unchanged; or the reason why the function cannot be followed.
Sits above `bytecode`, `observe` and `places`, below `guards`.
Invariant: a value that Python code can read is reached here (by a global, a cell, an attribute or
an element that executed code mentions), or the function is refused.

What is followed is the graph of Python objects from the names in executed code on. Of an object
those attributes count that some executed code mentions, by name or in a string; where attributes
are looked up by computed names, all of them. So it does not matter in which way an object is
reached: through a local variable, an argument of a helper, a container or what a call returns.
"""

from __future__ import annotations

import builtins
import contextvars
import enum
import functools
import keyword
import marshal
import operator
import re
import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

from weft.engine import host
from weft.engine.jit.bytecode import mentions_of
from weft.engine.jit.kinds import (
    FIXED,
    FIXED_MODULES,
    Records,
    attributes_of,
    digest,
    functions_in,
    hides_state,
    is_python_class,
    is_record,
    is_user_class,
    raw_memory_of,
)
from weft.engine.jit.objects import PLAIN, slots_of
from weft.engine.jit.observe import impurity_of, is_internal, is_library
from weft.engine.jit.places import MISSING, Place, cell_place
from weft.engine.jit.scope import Scope
from weft.knobs import ContextVar
from weft.tensor import Tensor

# elements of a container from which on it is known by a digest of all of them
MANY_ELEMENTS = 1000
# places beyond which following them would cost more than a replay saves
MOST_PLACES = 200_000
# functions, classes and modules are no state by themselves
_PROGRAM = (types.FunctionType, type, types.ModuleType, types.BuiltinFunctionType)
_VIEWS: tuple[Any, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_LRU_CACHE = type(functools.lru_cache(lambda: None))
TENSOR = object()  # stands for any tensor
_CONSTRUCTORS = ("__new__", "__init__", "__post_init__")
# methods with these names are hardly ever called by what a function does with an object
_UNLIKELY = frozenset(_CONSTRUCTORS) | frozenset(
    "__repr__ __str__ __format__ __del__ __init_subclass__ __class_getitem__ __setstate__"
    " __getstate__ __reduce__ __reduce_ex__ __copy__ __deepcopy__ __sizeof__ __dir__".split()
)
# checks that look inside of what is in a place
_INSIDE = frozenset("elements bytes records knob cache".split())


class Walk:
    """One walk over what a function can read."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.tokens: list[Any] = []
        self.raw: list[Any] = []
        self.number_places: list[Place] = []
        self.tensor_places: list[Place] = []
        self.roots: list[Place] = []
        self.checks: list[tuple[Place, str, Any]] = []
        self.kept: list[Any] = []
        self.refused: str | None = None
        self.seen: dict[int, int] = {}  # id of what was looked into: its number
        self.seen_names: set[tuple[int, str]] = set()  # globals, by the dictionary; classes
        self.alive: list[Any] = []  # keeps these ids
        self.edges: list[tuple[int, int]] = []  # (holder, held)
        self.objects: dict[int, tuple[int, Any]] = {}  # number: (its token, the object)
        self.holders: set[int] = set()  # numbers of what holds a tensor
        self.reached: set[types.CodeType] = set()
        self.mentioned: dict[types.CodeType, dict[str, Any]] = {}
        self.named: set[str] = set()  # attributes that objects such as attrgetter ask for
        # (place, whether it is looked into, number of the holder)
        self.pending: list[tuple[Place, bool, int]] = []

    def run(self, function: Any, extra: Sequence[Any]) -> None:
        """Everything from the function, the names in executed code, and classes of arguments on."""
        scope = self.scope
        for value in (function, *extra):
            self.add_root(Place("object", value, None, type(value).__name__))
        for code, names in scope.codes.items():
            self.add_globals(code, names)
        while self.pending and len(self.checks) < MOST_PLACES:
            place, is_opened, holder = self.pending.pop()
            self.visit(place, is_opened, holder)
        if self.pending:
            self.refuse("it reaches more Python objects than can be compared at every call")
        for code, names in scope.codes.items():
            if code in self.reached or code in scope.nested or is_internal(names.get("__name__")):
                continue
            if scope.free_names(code)[0] - {"__class__"} and not is_library(names.get("__name__")):
                self.refuse(
                    f"it calls {code.co_name}, which it reaches in a way the JIT cannot see"
                )

    def structure(self) -> tuple[Any, ...]:
        """What was found, without numbers. Objects that lead to tensors are known by their id:
        their memory is part of what is captured."""
        pending = list(self.holders)
        above: dict[int, list[int]] = {}
        for holder, held in self.edges:
            above.setdefault(held, []).append(holder)
        while pending:
            for holder in above.get(pending.pop(), ()):
                if holder not in self.holders:
                    self.holders.add(holder)
                    pending.append(holder)
        for number, (token, value) in self.objects.items():
            if number in self.holders:
                self.tokens[token] = (self.tokens[token], id(value))
                self.kept.append(value)
        return tuple(self.tokens)

    def refuse(self, reason: str) -> None:
        """Nothing that reads this can be replayed."""
        if self.refused is None:
            self.refused = reason

    # ------------------------------------------------------------ where it starts
    def add_root(self, place: Place, is_opened: bool = True, holder: int = -1) -> None:
        """A place that no container of the state leads to."""
        self.pending.append((place, is_opened, holder))
        if not isinstance(place.value(), _PROGRAM):
            self.roots.append(place)

    def add_globals(self, code: types.CodeType, names: dict[str, Any]) -> None:
        """The globals that code mentions."""
        found = mentions_of(code)
        is_user = not is_library(names.get("__name__"))
        wanted = found.loaded_globals
        if self.scope.is_by_name:
            wanted = wanted | {name for name in self.scope.strings if name in names}
            for name in self.scope.strings | self.scope.imported:
                self.add_module(name)
        for name in sorted(found.imported):
            self.add_module(name)
        for name in sorted(wanted):
            if name in names:
                self.add_global(names, name, is_user, name in self.scope.opened)
            elif is_user and hasattr(builtins, name):
                self.check_absent(names, name)
        for name in sorted(found.stored_globals - wanted):
            if is_user:
                self.add_written(Place("item", names, name, name))

    def add_module(self, name: str) -> None:
        module = sys.modules.get(name)
        if isinstance(module, types.ModuleType) and not is_internal(name):
            self.add_root(Place("item", sys.modules, name, name))

    def add_global(
        self, names: dict[str, Any], name: str, is_user: bool, is_opened: bool, holder: int = -1
    ) -> None:
        if (id(names), name) in self.seen_names:
            return
        self.seen_names.add((id(names), name))
        value = names[name]
        if not is_user and isinstance(value, (type, types.BuiltinFunctionType)):
            return
        if not is_user and isinstance(value, types.FunctionType):
            if value.__code__ not in self.scope.codes:
                return
        self.add_root(Place("item", names, name, name), is_opened, holder)

    def check_absent(self, names: dict[str, Any], name: str) -> None:
        """A builtin, as long as no global takes its name."""
        self.checks.append((Place("object", names, None, name), "absent", name))
        self.tokens.append(("builtin", name))

    def add_written(self, place: Place) -> None:
        """A place that is only assigned to: what matters is whether there is a tensor."""
        self.roots.append(place)
        value = place.value()
        self.tokens.append(("written", place.key, isinstance(value, Tensor)))
        if value is not MISSING:
            self.checks.append((place, "written", isinstance(value, Tensor)))

    # ------------------------------------------------------------ what is there
    def visit(self, place: Place, is_opened: bool, holder: int) -> None:
        """One place: a token for what it holds, a check, and where it leads to."""
        value = place.value()
        kind = type(value)
        if kind in (int, float, bool):
            self.token(place, kind)
            self.raw.append(value)
            self.number_places.append(place)
            self.check(place, "number", (len(self.raw) - 1, value))
        elif kind is str:
            self.token(place, value)
            self.check(place, "text", value)
        elif kind in PLAIN:
            self.token(place, (kind, value))
            self.check(place, "is", value)
        elif isinstance(value, Tensor):
            self.token(place, "tensor")
            self.tensor_places.append(place)
            self.check(place, "tensor", None)
            self.holders.add(holder)
        elif isinstance(value, ContextVar):
            self.token(place, value.value)
            self.check(place, "knob", value.value)
        elif isinstance(value, (list, tuple, dict, set, frozenset, deque, types.MappingProxyType)):
            self.visit_container(place, value, is_opened, holder)
        elif value is MISSING:
            self.token(place, "missing")
            self.check(place, "missing", place)
        elif (memory := raw_memory_of(value)) is not None:
            if host.is_numpy(value) and value.dtype.hasobject:
                self.refuse(f"it reads {place}, an array of Python objects")
            self.token(place, memory.token)
            self.check(place, "bytes", memory)
        else:
            self.check(place, "is", value)
            self.visit_object(place, value, holder)

    def token(self, place: Place, token: Any) -> None:
        key = place.key
        self.tokens.append((key if type(key) in PLAIN else id(key), token))

    def check(self, place: Place, how: str, expected: Any) -> None:
        """An element is compared with its container; only what is inside of it for itself."""
        if place.kind == "element":
            if how not in _INSIDE:
                return
            place = Place("object", place.value(), None, place.text)
        self.checks.append((place, how, expected))

    def enter(self, value: Any, holder: int) -> int | None:
        """The number of what is looked into now; None if that was done before."""
        number = self.seen.get(id(value))
        if number is None:
            number = self.seen[id(value)] = len(self.alive)
            self.alive.append(value)
            self.edges.append((holder, number))
            return number
        self.edges.append((holder, number))
        self.tokens.append(("again", number))
        return None

    def visit_container(self, place: Place, value: Any, is_opened: bool, holder: int) -> None:
        """Its elements, if it is looked into; very many plain ones by a digest."""
        kind = type(value)
        if not is_opened:
            self.token(place, kind)
            self.check(place, "type", kind)
            return
        if isinstance(value, dict) and value is sys.modules:
            return
        number = self.enter(value, holder)
        if number is None:
            self.check(place, "is", value)
            return
        if isinstance(value, types.MappingProxyType):
            value = dict(value)
        is_dict = isinstance(value, dict)
        keys = tuple(value) if is_dict else None
        elements = list(value.values()) if is_dict else list(value)
        has_tensors = any([isinstance(element, Tensor) for element in elements])
        snapshot = tuple([TENSOR if isinstance(e, Tensor) else e for e in elements])
        self.check(place, "elements", (kind, keys, snapshot, has_tensors))
        if isinstance(value, (set, frozenset)):
            self.token(place, (kind, tuple([_token_of_element(e) for e in elements])))
            self.kept += [e for e in elements if type(e) not in PLAIN]
            return
        if len(elements) > MANY_ELEMENTS and all([type(e) in PLAIN for e in elements]):
            contents = (
                marshal.dumps((keys, elements), 2) if _is_plain(keys) else repr(keys).encode()
            )
            self.token(place, (kind, len(elements), digest(contents)))
            return
        is_plain = kind in (list, tuple, deque)
        if is_plain and len(elements) > MANY_ELEMENTS and all(map(is_record, elements)):
            records = Records(elements)
            self.token(place, (kind, len(elements), records.token))
            self.check(place, "records", records)
            return
        names = keys if keys is not None else range(len(elements))
        shown = tuple([_token_of_element(name) for name in names]) if is_dict else len(elements)
        self.token(place, (kind, shown))
        self.kept += [name for name in names if type(name) not in PLAIN]
        for key in reversed(names):
            text = f"{place}[{key!r}]" if type(key) in PLAIN else f"{place}[...]"
            self.pending.append((Place("element", value, key, text), True, number))
        if kind not in (list, tuple, dict, deque):
            self.add_attributes(value, number)

    # ------------------------------------------------------------ objects
    def visit_object(self, place: Place, value: Any, holder: int) -> None:
        """Functions, classes, modules and objects with attributes."""
        if isinstance(value, types.BuiltinFunctionType):
            self.visit_builtin(place, value, holder)
            return
        number = self.enter(value, holder)
        if number is None:
            return
        if isinstance(value, types.FunctionType):
            self.visit_function(place, value, number)
        elif isinstance(value, type):
            self.identify(place, value)
            self.visit_classes(value)
            for name in _CONSTRUCTORS:
                for function in functions_in(getattr(value, name, None)):
                    self.mention(function)
        elif isinstance(value, types.ModuleType):
            self.token(place, value.__name__)
            self.visit_module(value, number)
        elif isinstance(value, types.MethodType):
            self.token(place, "method")
            self.hold(place, number, __self__=value.__self__, __func__=value.__func__)
        elif isinstance(value, functools.partial):
            self.token(place, "partial")
            parts = {"func": value.func, "args": value.args, "keywords": value.keywords}
            self.hold(place, number, **parts)
        elif isinstance(value, _LRU_CACHE):
            # what it holds is what calling it gives, until it computes anew
            self.token(place, ("cache", value.cache_info()[1:]))
            self.check(place, "cache", value.cache_info()[1:])
            self.hold(place, number, __wrapped__=value.__wrapped__)
        elif isinstance(value, (staticmethod, classmethod)):
            self.token(place, type(value))
            self.hold(place, number, __func__=value.__func__)
        elif isinstance(value, property):
            self.token(place, property)
            self.hold(place, number, fget=value.fget)
        elif isinstance(value, weakref.ReferenceType):
            self.token(place, "reference")
            self.add_root(Place("reference", value, None, f"{place}()"), True, number)
        elif isinstance(value, contextvars.ContextVar):
            self.token(place, "context")
            self.add_root(Place("context", value, None, f"{place}.get()"), True, number)
        elif isinstance(value, _VIEWS):
            self.token(place, type(value))
            self.hold(place, number, mapping=value.mapping)
        elif isinstance(value, types.CellType):
            self.token(place, "cell")
            self.pending.append((cell_place(value, str(place)), True, number))
        else:
            self.visit_instance(place, value, number)

    def hold(self, place: Place, number: int, **parts: Any) -> None:
        """Parts that cannot be replaced: each stands for itself."""
        for name, part in parts.items():
            self.add_root(Place("object", part, name, f"{place}.{name}"), True, number)

    def identify(self, place: Place, value: Any) -> None:
        """Known by identity."""
        self.token(place, id(value))
        self.kept.append(value)

    def visit_builtin(self, place: Place, value: Any, holder: int) -> None:
        """A function written in C. If it is called by its name, that is seen while it runs."""
        self.identify(place, value)
        owner = value.__self__
        if owner is not None and not isinstance(owner, (types.ModuleType, type)):
            self.hold(place, holder, __self__=owner)
        is_named = place.kind == "item" and isinstance(place.container, dict)
        is_named = is_named and place.container.get("__name__") is not None
        if not is_named or self.scope.calls_unseen:
            impure = impurity_of(value)
            if impure is not None:
                self.refuse(f"it calls {impure}, which may give something else in every call")

    def visit_function(self, place: Place, function: types.FunctionType, number: int) -> None:
        """What a function closes over, if it is one of those that ran."""
        code = function.__code__
        if code not in self.scope.codes:
            self.identify(place, function)
            self.mention(function)
            if is_internal(function.__globals__.get("__name__")):
                # a wrapper of weft's around a function of the user's
                for cell in function.__closure__ or ():
                    inner = cell_place(cell, str(place)).value()
                    if isinstance(inner, (*_PROGRAM, types.MethodType, functools.partial)):
                        self.hold(place, number, __wrapped__=inner)
            return
        self.token(place, ("function", id(code), id(function.__globals__)))
        self.kept += [code, function.__globals__]
        self.reached.add(code)
        loaded, stored = self.scope.free_names(code)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            if name in loaded:
                if id(cell) not in self.seen:
                    self.seen[id(cell)] = len(self.alive)
                    self.alive.append(cell)
                    self.add_root(cell_place(cell, name), name in self.scope.opened, number)
            elif name in stored:
                self.add_written(cell_place(cell, name))
        for name in ("__defaults__", "__kwdefaults__"):
            if getattr(function, name):
                part = Place("attribute", function, name, f"{place}.{name}")
                self.add_root(part, True, number)

    def mention(self, function: types.FunctionType) -> None:
        """A function of the user's that may be called, though no run has called it yet."""
        is_known = function.__code__ in self.scope.codes
        if not is_known and not is_library(function.__globals__.get("__name__")):
            self.mentioned.setdefault(function.__code__, function.__globals__)

    def visit_module(self, module: types.ModuleType, number: int) -> None:
        """Names in a module that executed code mentions as attributes."""
        if is_internal(module.__name__):
            return
        is_user = not is_library(module.__name__)
        scope = self.scope
        names = vars(module)
        wanted = scope.loaded & names.keys()
        if scope.is_dynamic and is_user and not _is_weft(module.__name__):
            wanted = {name for name in names if not name.startswith("__")}
        for name in sorted(wanted):
            is_opened = name in scope.opened or name not in scope.loaded
            self.add_global(names, name, is_user, is_opened, number)

    def visit_classes(self, kind: type) -> None:
        """Methods that ran, and values that all objects of a class share."""
        scope = self.scope
        for part in kind.__mro__:
            if (id(part), "") in self.seen_names or not is_user_class(part):
                continue
            self.seen_names.add((id(part), ""))
            is_dynamic = scope.is_dynamic and not _is_weft(part.__module__)
            self.alive.append(part)
            for name, value in part.__dict__.items():
                place = Place("class", part, name, f"{part.__name__}.{name}")
                functions = functions_in(value)
                if functions:
                    if any(function.__code__ in scope.codes for function in functions):
                        self.pending.append((place, True, -1))
                    elif name in scope.loaded or (name[:2] == "__" and name not in _UNLIKELY):
                        self.mention(functions[0])
                elif name in scope.loaded or (is_dynamic and not name.startswith("__")):
                    if not isinstance(value, types.MemberDescriptorType):
                        self.add_root(place, True)

    def visit_instance(self, place: Place, value: Any, number: int) -> None:
        """An object, by the attributes that executed code mentions."""
        kind: Any = type(value)
        if is_internal(kind.__module__):
            # weft's own: known by identity; what it calls is the user's
            self.identify(place, value)
            for function in functions_in(value):
                self.hold(place, number, function=function)
            return
        if isinstance(value, (operator.attrgetter, operator.methodcaller)):
            self.token(place, repr(value))
            self.named.update(re.findall(r"[A-Za-z_]\w*", repr(value)))
            return
        if isinstance(value, FIXED) or kind.__module__ in FIXED_MODULES:
            if not isinstance(value, threading.local):
                self.identify(place, value)
                return
        if kind.__module__.partition(".")[0] == "numpy" and ".random" not in kind.__module__:
            is_scalar = hasattr(kind, "tobytes") and hasattr(kind, "dtype")
            self.token(place, (kind, value.tobytes()) if is_scalar else id(value))
            self.kept.append(value)
            return
        if hasattr(kind, "__next__") and not is_python_class(kind):
            self.refuse(f"it reads {place}, a {kind.__name__}: every call may take from it")
        elif hides_state(kind):
            self.refuse(f"it reads {place}, a {kind.__name__}, into which the JIT cannot see")
        self.objects[number] = (len(self.tokens), value)
        self.token(place, (kind, self.own_value(value)))
        self.add_attributes(value, number)

    def own_value(self, value: Any) -> Any:
        """What an object is besides its attributes."""
        if isinstance(value, enum.Enum):
            return value._name_
        if isinstance(value, (int, float, str, bytes)):
            return next(k for k in (int, float, str, bytes) if isinstance(value, k)).__repr__(value)
        if type(value) is object:
            self.kept.append(value)
            return id(value)
        return None

    def add_attributes(self, value: Any, number: int) -> None:
        scope = self.scope
        kind: Any = type(value)
        inside = attributes_of(value)
        names: list[str] = []
        if type(inside) is dict:
            shape = Place("object", value, None, kind.__name__)
            self.checks.append((shape, "shape", (kind, len(inside))))
            names += [name for name in inside if type(name) is str]
        names += [name for name in slots_of(kind) if getattr(value, name, MISSING) is not MISSING]
        is_odd = kind.__getattribute__ is not object.__getattribute__
        for name in reversed(names):
            text = f"{kind.__name__}.{name}"
            place = Place("attribute", value, name, text)
            is_plain_name = name.isidentifier() and not keyword.iskeyword(name)
            if type(inside) is dict and name in inside and (is_odd or not is_plain_name):
                place = Place("item", inside, name, text)
            if name in scope.loaded or scope.is_dynamic:
                is_opened = name in scope.opened or name not in scope.loaded
                self.pending.append((place, is_opened, number))
            elif name in scope.stored:
                found = place.value()
                self.tokens.append(("written", name, isinstance(found, Tensor)))
                self.checks.append((place, "written", isinstance(found, Tensor)))
        self.visit_classes(kind)


def _is_plain(keys: tuple[Any, ...] | None) -> bool:
    return keys is None or all([type(key) in PLAIN for key in keys])


def _token_of_element(value: Any) -> Any:
    if type(value) is float:
        return float, value.hex()
    return (type(value), value) if type(value) in PLAIN else id(value)


def _is_weft(module: str) -> bool:
    """Names in weft's own modules and classes are asked for as names, never computed."""
    return module.partition(".")[0] == "weft"
