"""A reader of pickles that builds plain data and nothing else.

In: the bytes of a pickle, a table of allowed names, a function for persistent ids. Out: numbers,
text, bytes, lists, tuples, dicts, sets, what the table's builders make of those, and `Standin`s
for objects whose classes the table only knows by name.
Used by the PyTorch reader. Invariant: a name in a pickle is looked up in the table and nowhere
else: nothing is imported and nothing outside the table is called.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from weft.errors import DataError

# builders take the arguments as a tuple and check them; other values stand for themselves
Builder = Callable[[tuple[Any, ...]], Any]
_LONGEST_LINE = 1 << 16
_PLAIN_KEYS = (str, int, float, bool, bytes, type(None))


class Named:
    """An allowed name of a pickle: `build` makes a value of arguments, if it can be called.

    One that `is_standin` may also be left as it is, and is then the text of its name.
    """

    __slots__ = ("build", "is_standin", "name", "value")

    def __init__(
        self, name: str, value: Any = None, build: Builder | None = None, is_standin: bool = False
    ) -> None:
        self.name = name
        self.value = value
        self.build = build
        self.is_standin = is_standin

    def __repr__(self) -> str:
        return f"<{self.name}>"


class Standin:
    """An object of a class that is not looked up: what it was made of, and nothing that acts."""

    __slots__ = ("arguments", "items", "name", "state", "values")

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.name = name
        self.arguments = arguments
        self.state: Any = None
        # what a subclass of dict, or of list, holds
        self.items: dict[Any, Any] = {}
        self.values: list[Any] = []

    def set_state(self, state: Any) -> None:
        """The attributes: a dict, a pair of dicts (the second for slots), or what a class chose."""
        self.state = state

    def attributes(self) -> dict[Any, Any]:
        """Its attributes by name; what a class chose instead is called "state"."""
        parts = self.state if isinstance(self.state, tuple) else (self.state,)
        if len(parts) <= 2 and all(isinstance(part, (dict, type(None))) for part in parts):
            return {key: value for part in parts if part for key, value in part.items()}
        return {"state": self.state}

    def plain(self) -> Any:
        """What stands for it: a dict, a list, or (a tuple of) what it was made of."""
        if self.items:
            return dict(self.items)
        if self.values:
            return list(self.values)
        attributes = self.attributes()
        if attributes or not self.arguments:
            return {"args": self.arguments, **attributes} if self.arguments else attributes
        return self.arguments[0] if len(self.arguments) == 1 else self.arguments


def refusal(where: str, name: str) -> DataError:
    """The error for a name that a pickle may not use."""
    return DataError(
        f"{where} refers to {name[:120]!r}, which is neither a tensor nor plain data, so it is not "
        "loaded: a checkpoint of a whole model or of functions runs code. Save model.state_dict() "
        "instead"
    )


class PickleReader:
    """Reads pickles out of `data`, one after another, from `position` on."""

    def __init__(
        self,
        data: bytes,
        names: Mapping[str, Named],
        persistent: Callable[[Any], Any],
        where: str,
    ) -> None:
        self.data = data
        self.position = 0
        self.names = names
        self.persistent = persistent
        self.where = where

    def load(self) -> Any:
        """The value of the next pickle."""
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        while True:
            code = self._take(1)
            if code == b".":
                break
            action = _ACTIONS.get(code)
            if action is None:
                raise self._damaged(f"the opcode {code!r} is unknown")
            action(self)
        if len(self.stack) != 1 or self.marks:
            raise self._damaged("it does not end with one value")
        return self.stack.pop()

    # ------------------------------------------------------------ bytes and stack
    def _damaged(self, why: str) -> DataError:
        return DataError(f"{self.where}: the pickle is damaged at byte {self.position}: {why}")

    def _take(self, length: int) -> bytes:
        if length > len(self.data) - self.position:
            raise self._damaged(f"{length} more bytes are asked for than there are")
        self.position += length
        return self.data[self.position - length : self.position]

    def _number(self, length: int) -> int:
        return int.from_bytes(self._take(length), "little")

    def _line_bytes(self) -> bytes:
        end = self.data.find(b"\n", self.position, self.position + _LONGEST_LINE)
        if end < 0:
            raise self._damaged("a line has no end")
        line = self._take(end - self.position)
        self.position += 1
        return line

    def _line(self) -> str:
        return self._decoded(self._line_bytes())

    def _decoded(self, data: bytes) -> str:
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise self._damaged("a text is not UTF-8") from None

    def _pop(self) -> Any:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise self._damaged("a value is missing")
        return self.stack.pop()

    def _pop_to_mark(self) -> list[Any]:
        if not self.marks:
            raise self._damaged("a mark is missing")
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def _top(self, kind: type | tuple[type, ...], what: str) -> Any:
        value = self._pop()
        self.stack.append(value)
        if not isinstance(value, kind):
            raise self._damaged(f"{what} on a {type(value).__name__}")
        return value

    # ------------------------------------------------------------ containers
    def _put(self, target: dict[Any, Any], items: list[Any]) -> None:
        if len(items) % 2:
            raise self._damaged("a key has no value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[self._key(key)] = value

    def _key(self, key: Any) -> Any:
        """A key that is hashed in a moment: nested tuples could take for ever, or be too deep."""
        if isinstance(key, Standin):
            key = key.plain()
        elif isinstance(key, Named) and key.is_standin:
            key = key.name
        parts = key if type(key) is tuple else (key,)
        if not all(type(part) in _PLAIN_KEYS for part in parts):
            raise self._damaged("a key is neither a number nor text nor a tuple of those")
        return key

    def set_item(self) -> None:
        value, key = self._pop(), self._pop()
        target = self._top((dict, Standin), "setting an item")
        self._put(target.items if isinstance(target, Standin) else target, [key, value])

    def set_items(self) -> None:
        items = self._pop_to_mark()
        target = self._top((dict, Standin), "setting items")
        self._put(target.items if isinstance(target, Standin) else target, items)

    def append(self) -> None:
        value = self._pop()
        target = self._top((list, Standin), "appending")
        (target.values if isinstance(target, Standin) else target).append(value)

    def extend(self) -> None:
        items = self._pop_to_mark()
        target = self._top((list, Standin), "appending")
        (target.values if isinstance(target, Standin) else target).extend(items)

    def add_items(self) -> None:
        items = [self._key(item) for item in self._pop_to_mark()]
        self._top(set, "adding").update(items)

    def dict_of_marked(self) -> None:
        items = self._pop_to_mark()
        found: dict[Any, Any] = {}
        self._put(found, items)
        self.stack.append(found)

    def frozenset_of_marked(self) -> None:
        self.stack.append(frozenset(self._key(item) for item in self._pop_to_mark()))

    def tuple_of(self, count: int) -> None:
        items = [self._pop() for _ in range(count)]
        self.stack.append(tuple(reversed(items)))

    # ------------------------------------------------------------ memo
    def get(self, number: int) -> None:
        if number not in self.memo:
            raise self._damaged(f"the value {number} is used before it is there")
        self.stack.append(self.memo[number])

    def put(self, number: int) -> None:
        value = self._pop()
        self.stack.append(value)
        self.memo[number] = value

    def text_number(self) -> int:
        line = self._line()
        if not line.isascii() or not line.isdigit() or len(line) > 18:
            raise self._damaged("a number is none")
        return int(line)

    # ------------------------------------------------------------ values
    def push_int_line(self) -> None:
        line = self._line()
        if line in ("00", "01"):
            self.stack.append(line == "01")
            return
        try:
            self.stack.append(int(line.removesuffix("L")))
        except ValueError:
            raise self._damaged("a number is none") from None

    def push_float_line(self) -> None:
        try:
            self.stack.append(float(self._line()))
        except ValueError:
            raise self._damaged("a number is none") from None

    def push_long(self, width: int) -> None:
        self.stack.append(int.from_bytes(self._take(self._number(width)), "little", signed=True))

    def push_text(self, width: int) -> None:
        self.stack.append(self._decoded(self._take(self._number(width))))

    def push_bytes(self, width: int) -> None:
        self.stack.append(self._take(self._number(width)))

    def push_old_text(self, width: int) -> None:
        """Text of Python 2, whose encoding is not known: latin1 loses nothing."""
        self.stack.append(self._take(self._number(width)).decode("latin1"))

    def push_old_text_line(self) -> None:
        line = self._line()
        if len(line) < 2 or line[0] != line[-1] or line[0] not in "'\"" or "\\" in line:
            raise self._damaged("a text has no quotes, or escapes")
        self.stack.append(line[1:-1])

    def push_text_line(self) -> None:
        try:
            self.stack.append(self._line_bytes().decode("raw_unicode_escape"))
        except UnicodeDecodeError:
            raise self._damaged("a text has wrong escapes") from None

    # ------------------------------------------------------------ names and builders
    def push_name(self, name: str) -> None:
        found = self.names.get(name)
        if found is None:
            raise refusal(self.where, name)
        self.stack.append(found if found.build is not None else found.value)

    def name_on_stack(self) -> None:
        name, module = self._pop(), self._pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise self._damaged("a name is no text")
        self.push_name(f"{module}.{name}")

    def build(self) -> None:
        arguments, named = self._pop(), self._pop()
        if not isinstance(named, Named) or not isinstance(arguments, tuple):
            raise self._damaged("something that is no builder is called")
        self.stack.append(call_builder(named, arguments, self.where))

    def build_with_names(self) -> None:
        extra = self._pop()
        if not isinstance(extra, dict):
            raise self._damaged("named arguments are no dict")
        self.build()
        if extra:
            self._top(Standin, "named arguments").set_state(extra)

    def set_state(self) -> None:
        """Attributes: a stand-in keeps them, a container (a state dict's versions) does not."""
        state = self._pop()
        target = self._top(object, "setting attributes")
        if isinstance(target, Standin):
            set_state = Named("attributes", build=lambda given: target.set_state(given[0]))
            call_builder(set_state, (state,), self.where)
        elif not isinstance(state, (dict, tuple, type(None))):
            raise self._damaged("attributes are no dict")

    def push_persistent(self) -> None:
        self.stack.append(self.persistent(self._pop()))


def call_builder(named: Named, arguments: tuple[Any, ...], where: str) -> Any:
    """What an allowed name makes of the arguments, which it checks."""
    if named.build is None:
        raise DataError(f"{where}: {named.name} is called, but is no builder")
    try:
        return named.build(arguments)
    except DataError:
        raise
    except (TypeError, ValueError, IndexError, KeyError, OverflowError) as error:
        raise DataError(f"{where}: {named.name} is built of wrong values: {error}") from None


def _push(value: Any) -> Callable[[PickleReader], None]:
    return lambda reader: reader.stack.append(value)


def _memoize(reader: PickleReader) -> None:
    reader.put(len(reader.memo))


_ACTIONS: dict[bytes, Callable[[PickleReader], Any]] = {
    # the frame of it: protocol, frames, marks
    b"\x80": lambda r: r._take(1),
    b"\x95": lambda r: r._take(8),
    b"(": lambda r: r.marks.append(len(r.stack)),
    b"0": lambda r: r._pop_to_mark() if r.marks and r.marks[-1] == len(r.stack) else r._pop(),
    b"1": lambda r: r._pop_to_mark(),
    b"2": lambda r: r.stack.append(r._top(object, "a copy")),
    # constants
    b"N": _push(None),
    b"\x88": _push(True),
    b"\x89": _push(False),
    b"]": lambda r: r.stack.append([]),
    b"}": lambda r: r.stack.append({}),
    b")": _push(()),
    b"\x8f": lambda r: r.stack.append(set()),
    # numbers
    b"I": PickleReader.push_int_line,
    b"L": PickleReader.push_int_line,
    b"F": PickleReader.push_float_line,
    b"J": lambda r: r.stack.append(int.from_bytes(r._take(4), "little", signed=True)),
    b"K": lambda r: r.stack.append(r._number(1)),
    b"M": lambda r: r.stack.append(r._number(2)),
    b"G": lambda r: r.stack.append(struct.unpack(">d", r._take(8))[0]),
    b"\x8a": lambda r: r.push_long(1),
    b"\x8b": lambda r: r.push_long(4),
    # text and bytes
    b"S": PickleReader.push_old_text_line,
    b"T": lambda r: r.push_old_text(4),
    b"U": lambda r: r.push_old_text(1),
    b"V": PickleReader.push_text_line,
    b"X": lambda r: r.push_text(4),
    b"\x8c": lambda r: r.push_text(1),
    b"\x8d": lambda r: r.push_text(8),
    b"B": lambda r: r.push_bytes(4),
    b"C": lambda r: r.push_bytes(1),
    b"\x8e": lambda r: r.push_bytes(8),
    b"\x96": lambda r: r.push_bytes(8),
    # containers
    b"s": PickleReader.set_item,
    b"u": PickleReader.set_items,
    b"a": PickleReader.append,
    b"e": PickleReader.extend,
    b"\x90": PickleReader.add_items,
    b"\x91": PickleReader.frozenset_of_marked,
    b"d": PickleReader.dict_of_marked,
    b"l": lambda r: r.stack.append(r._pop_to_mark()),
    b"t": lambda r: r.stack.append(tuple(r._pop_to_mark())),
    b"\x85": lambda r: r.tuple_of(1),
    b"\x86": lambda r: r.tuple_of(2),
    b"\x87": lambda r: r.tuple_of(3),
    # memo
    b"g": lambda r: r.get(r.text_number()),
    b"h": lambda r: r.get(r._number(1)),
    b"j": lambda r: r.get(r._number(4)),
    b"p": lambda r: r.put(r.text_number()),
    b"q": lambda r: r.put(r._number(1)),
    b"r": lambda r: r.put(r._number(4)),
    b"\x94": _memoize,
    # names, builders, persistent ids
    b"c": lambda r: r.push_name(f"{r._line()}.{r._line()}"),
    b"\x93": PickleReader.name_on_stack,
    b"R": PickleReader.build,
    b"\x81": PickleReader.build,
    b"\x92": PickleReader.build_with_names,
    b"b": PickleReader.set_state,
    b"Q": PickleReader.push_persistent,
}
