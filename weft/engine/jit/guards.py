"""Guards: what a function can read besides its arguments, compared at every call.

In: a function. Out: `Guards`, the other half of a call's key: the structure and the numbers that a
walk found, and a check, compiled to straight Python, that tells whether a walk would find them
again; `Watch`, which keeps the guards of a function from call to call.
Sits above `walk`, below the JIT, which asks at every call.
Invariant: a check that succeeds means that a walk would find the same structure.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from weft.engine.jit.objects import PLAIN
from weft.engine.jit.observe import Observed, adopt
from weft.engine.jit.places import MISSING, Place
from weft.engine.jit.scope import Scope, root_codes
from weft.engine.jit.walk import TENSOR, Walk
from weft.tensor import Tensor

# functions from which on no further ones are foreseen, and how far ahead
MOST_FUNCTIONS = 400
MOST_ROUNDS = 16
# guards of calls before that are asked first
MOST_RECENT = 4


class Guards:
    """What a function can read, as it was when it was walked over."""

    def __init__(self, function: Any, scope: Scope, extra: Sequence[Any] = ()) -> None:
        walk = Walk(scope)
        walk.run(function, extra)
        while scope.add_names(walk.named):
            walk = Walk(scope)
            walk.run(function, extra)
        self.extra = tuple(extra)
        self.structure = walk.structure()
        self.kept = walk.kept  # objects that the structure knows by their id
        self.places = walk.roots  # from where tensors are found
        self.number_places = walk.number_places
        self.tensor_places = walk.tensor_places
        self.refused = walk.refused
        self.mentioned = walk.mentioned
        self.raw = walk.raw
        self.numbers = [_number_key(value) for value in walk.raw]
        self._checks = walk.checks
        self._check: Callable[[], int] | None = None
        self._environment: dict[str, Any] = {}

    def has_objects_of(self, other: Guards) -> bool:
        """Whether both were found in the same places."""
        return len(self._checks) == len(other._checks) and all(
            mine[0].container is its[0].container
            for mine, its in zip(self._checks, other._checks, strict=True)
        )

    def tensors(self) -> set[int]:
        """The ids of tensors that the function can read now."""
        return {id(place.value()) for place in self.tensor_places}

    def is_current(self) -> bool:
        """Whether a walk would find the same structure; numbers are read anew. False: it may not,
        or it was not worth while to compile the check."""
        if self._check is None:
            return False
        found = self._check()
        if found == 1:
            self._read_numbers()
        return found > 0

    def _read_numbers(self) -> None:
        self.raw = [place.value() for place in self.number_places]
        self.numbers = [_number_key(value) for value in self.raw]
        for number, value in enumerate(self.raw):
            self._environment[f"n{number}"] = value

    def compile(self) -> None:
        """Make the check: it is for calls that find what the one before found."""
        env: dict[str, Any] = {
            "Tensor": Tensor,
            "MISSING": MISSING,
            "same_elements": _same_elements,
        }
        lines = ["def check():", " same = 2", " try:"]
        names: dict[int, str] = {}
        for place, how, expected in self._checks:
            name = names.setdefault(id(place.container), f"c{len(names)}")
            env[name] = place.container
            read = place.expression(name)
            if how == "number":
                index, value = expected
                env[f"n{index}"] = value
                lines.append(f"  x = {read}")
                lines.append(f"  if x is not n{index}:")
                lines.append(f"   if type(x) is not {type(value).__name__}: return 0")
                lines.append("   same = 1")
                continue
            value = f"v{len(env)}"
            env[value] = expected
            lines.append(f"  if {_failure(how, read, value)}: return 0")
        lines += [" except (AttributeError, LookupError, ValueError): return 0", " return same"]
        exec(compile("\n".join(lines), "<guards>", "exec"), env)
        self._environment = env
        self._check = env["check"]

    def changed_since(self, before: Guards) -> Place | None:
        """A place that held another number, text or number of elements before; None: there is no
        such place. What was not there before, or is a tensor in one of them, does not count."""
        earlier = before._plain_values()
        for key, (place, value) in self._plain_values().items():
            if key in earlier and earlier[key][1] != value:
                return place
        return None

    def _plain_values(self) -> dict[tuple[int, str, Any], tuple[Place, Any]]:
        found = {}
        values: list[tuple[Place, Any]] = []
        for place, value in zip(self.number_places, self.numbers, strict=True):
            values.append((place, (type(value), value)))
        for place, how, expected in self._checks:
            if how == "text" or (how == "is" and type(expected) in PLAIN):
                values.append((place, (type(expected), expected)))
            elif how == "elements":
                values.append((place, len(expected[2])))
        for place, value in values:
            found[id(place.container), place.kind, _hashable(place.key)] = (place, value)
        return found


def _failure(how: str, read: str, value: str) -> str:
    """The condition under which a place does not hold what is expected."""
    return {
        "is": f"{read} is not {value}",
        "text": f"{read} is not {value} and {read} != {value}",
        "tensor": f"not isinstance({read}, Tensor)",
        "written": f"isinstance({read}, Tensor) is not {value}",
        "type": f"type({read}) is not {value}",
        "shape": f"type({read}) is not {value}[0] or len({read}.__dict__) != {value}[1]",
        "absent": f"{value} in {read}",
        "missing": f"{value}.value() is not MISSING",
        "elements": f"not same_elements({read}, {value})",
        "bytes": f"not {value}.is_in({read})",
        "records": f"not {value}.are_same()",
        "knob": f"{read}.value != {value}",
        "cache": f"{read}.cache_info()[1:] != {value}",
    }[how]


def _number_key(value: Any) -> Any:
    """1, 1.0 and True are different, and so are 0.0 and -0.0; the type is in the structure."""
    return value.hex() if type(value) is float else value


def _hashable(key: Any) -> Any:
    return key if type(key) in PLAIN else id(key)


def _same_elements(value: Any, expected: tuple[Any, ...]) -> bool:
    """Whether a container holds the very same elements; of tensors, any."""
    kind, keys, elements, has_tensors = expected
    if type(value) is not kind or len(value) != len(elements):
        return False
    if keys is not None:
        if not all(map(operator.is_, value, keys)):
            return False
        value = value.values()
    if not has_tensors:
        return all(map(operator.is_, value, elements))
    for found, wanted in zip(value, elements, strict=False):
        if found is not wanted and not (wanted is TENSOR and isinstance(found, Tensor)):
            return False
    return True


class Watch:
    """The guards of one function, from call to call."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.observed = Observed()
        self.observed.codes.update(root_codes(function))
        for names in self.observed.codes.values():
            adopt(str(names.get("__name__") or ""))
        self.scope = Scope(self.observed.codes)
        self._recent: list[Guards] = []

    def now(self, extra: tuple[Any, ...]) -> Guards:
        """The guards as they are now; quickly, if it is what a call before found."""
        for guards in self._recent:
            if guards.extra == extra and guards.is_current():
                return guards
        return self.walk(extra)

    def walk(self, extra: tuple[Any, ...]) -> Guards:
        """As `now`, whatever was found before."""
        found = Guards(self.function, self.scope, extra)
        for position, guards in enumerate(self._recent):
            if guards.structure == found.structure:
                self._recent[position] = found
                if guards.has_objects_of(found):
                    found.compile()
                return found
        self._recent.insert(0, found)
        del self._recent[MOST_RECENT:]
        return found

    def predict(self, extra: tuple[Any, ...]) -> bool:
        """Take functions that are reached for functions that will run; whether there are any.

        Most runs execute nothing else, and find their state where the first one found it.
        """
        is_new = False
        for _ in range(MOST_ROUNDS):
            mentioned = Guards(self.function, self.scope, extra).mentioned
            if not mentioned or len(self.scope.codes) > MOST_FUNCTIONS:
                break
            self.observed.codes.update(mentioned)
            is_new = self.grew() or is_new
        return is_new

    def grew(self) -> bool:
        """Whether code is known since that was not before."""
        if len(self.observed.codes) == len(self.scope.codes):
            return False
        self.scope = Scope(self.observed.codes)
        self._recent = []
        return True
