"""Grammars out of JSON schemas, and out of llama.cpp's notation for grammars (GBNF).

In: a schema, or a text. Out: a `Grammar`. Between `grammar` and `constrain`. Invariant: what is
made of the grammar is valid by the schema; a part of a schema that cannot be kept is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from weft.errors import DataError
from weft.llm.grammar import Bytes, Grammar, Rule, Symbol, byte_range, code_points, literal

_DIGIT = byte_range(0x30, 0x39)
_HEX = Bytes(_DIGIT.mask | byte_range(0x41, 0x46).mask | byte_range(0x61, 0x66).mask)
# parts of a schema that say nothing about what is valid
_NOTES = {
    *("title", "description", "default", "examples", "example", "$schema", "$id", "$comment"),
    *("$defs", "definitions", "deprecated", "readOnly", "writeOnly", "strict", "name", "nullable"),
}
_OF_KIND = {
    "object": {"properties", "required", "additionalProperties", "minProperties", "maxProperties"},
    "array": {"items", "prefixItems", "minItems", "maxItems"},
    "string": {"minLength", "maxLength", "format"},
    "integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    "number": set(),
    "boolean": set(),
    "null": set(),
}
_DATE = "dddd-dd-dd"
_TIME = "dd:dd:dd"
_FORMATS = {
    "date": (_DATE,),
    "time": (_TIME + "Z",),
    "date-time": (_DATE + "T" + _TIME + "Z",),
    "uuid": ("-".join("x" * count for count in (8, 4, 4, 4, 12)),),
}
MOST_NUMBERS = 2000


class SchemaGrammar:
    """The grammar of the JSON texts that a schema takes."""

    def __init__(self, schema: Any) -> None:
        self.grammar = Grammar()
        self._schema = schema
        self._references: dict[str, Rule] = {}
        self._depth = 0
        self._space = self._spaces()
        self._string = self._strings()
        self._values: Rule | None = None
        self.grammar.define(Rule(0), [(self._rule(schema),)])

    # -------------------------------------------------------- JSON
    def _spaces(self) -> Rule:
        """Nothing, a space, or a new line with an indentation: models may not write blanks for
        ever."""
        new = self.grammar.new
        indent = self.grammar.repeated(literal(" "), 0, 24)
        return new([(), literal(" "), (*literal("\n"), indent)])

    def _strings(self) -> Rule:
        """A letter of a string."""
        plain = code_points([(0x20, 0x21), (0x23, 0x5B), (0x5D, 0x10FFFF)])
        escaped = Bytes(sum(1 << byte for byte in b'"\\/bfnrt'))
        unicode = (*literal("\\u"), _HEX, _HEX, _HEX, _HEX)
        return self.grammar.new([*plain, (*literal("\\"), escaped), unicode])

    def _digits(self) -> Rule:
        return self.grammar.repeated((_DIGIT,), 0, 18)

    def _whole(self) -> Rule:
        new = self.grammar.new
        some = new([literal("0"), (byte_range(0x31, 0x39), self._digits())])
        return new([(some,), (*literal("-"), some)])

    def _number(self) -> Rule:
        new, digits = self.grammar.new, self._digits()
        fraction = new([(), (*literal("."), _DIGIT, digits)])
        sign = new([(), literal("+"), literal("-")])
        exponent = new([(), (Bytes((1 << 0x65) | (1 << 0x45)), sign, _DIGIT, new([(), (_DIGIT,)]))])
        return new([(self._whole(), fraction, exponent)])

    def _value(self) -> Rule:
        """Any JSON."""
        if self._values is None:
            self._values = self.grammar.new()
            kinds = ("object", "array", "string", "number", "boolean", "null")
            self.grammar.define(self._values, [(self._kind(kind, {}),) for kind in kinds])
        return self._values

    # -------------------------------------------------------- schemas
    def _rule(self, schema: Any) -> Rule:
        if schema is True or schema == {}:
            return self._value()
        if not isinstance(schema, dict):
            raise DataError(f"a schema is an object, not {str(schema)[:80]!r}")
        self._depth += 1
        if self._depth > 64:
            raise DataError("a schema that is nested deeper than 64")
        try:
            return self._rule_of(schema)
        finally:
            self._depth -= 1

    def _rule_of(self, schema: Mapping[str, Any]) -> Rule:
        new = self.grammar.new
        if "$ref" in schema:
            return self._reference(schema["$ref"])
        if "const" in schema:
            return new([literal(json.dumps(schema["const"], ensure_ascii=False))])
        if "enum" in schema:
            values = schema["enum"]
            if not isinstance(values, list) or not values:
                raise DataError("enum is a list with at least one value")
            return new([literal(json.dumps(value, ensure_ascii=False)) for value in values])
        for name in ("anyOf", "oneOf"):
            if name in schema:
                others = {k for k in schema if k not in _NOTES} - {name, "type"}
                if others:
                    raise DataError(f"{name} beside {sorted(others)} is not read")
                return new([(self._rule(each),) for each in schema[name]])
        if "allOf" in schema:
            return self._rule(_merged(schema))
        return self._typed(schema)

    def _typed(self, schema: Mapping[str, Any]) -> Rule:
        kinds = schema.get("type")
        if kinds is None:
            kinds = _implied(schema)
        kinds = kinds if isinstance(kinds, list) else [kinds]
        known = set().union(*(_OF_KIND.get(str(kind), set()) for kind in kinds))
        for name in schema:
            if name not in known and name not in _NOTES and name != "type":
                raise DataError(
                    f"{name!r} in a schema of type {kinds} is not read; read are "
                    f"{' '.join(sorted(known)) or 'none'}, enum, const, anyOf, oneOf, allOf, $ref"
                )
        if schema.get("nullable") is True:
            kinds = [*kinds, "null"]
        return self.grammar.new([(self._kind(str(kind), schema),) for kind in kinds])

    def _reference(self, name: Any) -> Rule:
        if name in self._references:
            return self._references[name]
        target = self._schema
        if not isinstance(name, str) or not name.startswith("#"):
            raise DataError(f"$ref {str(name)[:80]!r} leads out of the schema")
        for part in name.removeprefix("#").strip("/").split("/") if name != "#" else []:
            part = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(target, dict) or part not in target:
                raise DataError(f"$ref {name[:80]!r} leads nowhere")
            target = target[part]
        # it may name itself inside
        rule = self._references[name] = self.grammar.new()
        self.grammar.define(rule, [(self._rule(target),)])
        return rule

    def _kind(self, kind: str, schema: Mapping[str, Any]) -> Rule:
        new = self.grammar.new
        if kind == "object":
            return self._object(schema)
        if kind == "array":
            return self._array(schema)
        if kind == "string":
            return self._text(schema)
        if kind == "integer":
            return self._integer(schema)
        if kind == "number":
            return self._number()
        if kind == "boolean":
            return new([literal("true"), literal("false")])
        if kind == "null":
            return new([literal("null")])
        raise DataError(f"a schema of type {kind[:40]!r}; there are {' '.join(_OF_KIND)}")

    def _text(self, schema: Mapping[str, Any]) -> Rule:
        form = schema.get("format")
        if form is not None:
            if form not in _FORMATS or "minLength" in schema or "maxLength" in schema:
                raise DataError(f"the format {form!r}; read are {' '.join(_FORMATS)}")
            symbols: list[Symbol] = []
            for letter in _FORMATS[form][0]:
                symbols += {"d": (_DIGIT,), "x": (_HEX,)}.get(letter, literal(letter))
            return self.grammar.new([(*literal('"'), *symbols, *literal('"'))])
        least, most = _bounds(schema, "minLength", "maxLength")
        inner = self.grammar.repeated((self._string,), least, most)
        return self.grammar.new([(*literal('"'), inner, *literal('"'))])

    def _integer(self, schema: Mapping[str, Any]) -> Rule:
        low = max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf) + 1)
        high = min(schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf) - 1)
        if low == -math.inf and high == math.inf:
            return self._whole()
        if low in (0, 1) and high == math.inf:
            some = (byte_range(0x31, 0x39), self._digits())
            return self.grammar.new([some, literal("0")] if low == 0 else [some])
        if not 0 <= high - low <= MOST_NUMBERS:
            raise DataError(
                f"integers from {low} to {high}; read are ranges of at most {MOST_NUMBERS} numbers"
            )
        numbers = range(math.ceil(low), math.floor(high) + 1)
        return self.grammar.new([literal(str(number)) for number in numbers])

    def _array(self, schema: Mapping[str, Any]) -> Rule:
        least, most = _bounds(schema, "minItems", "maxItems")
        first = schema.get("prefixItems", [])
        rest = schema.get("items", not first)
        comma = (*literal(","), self._space)
        if first:
            if least not in (0, len(first)) or most not in (None, len(first)) or rest:
                raise DataError("prefixItems with other items than those is not read")
            items: list[Symbol] = []
            for i, each in enumerate(first):
                items += [*(comma if i else ()), self._rule(each)]
            inside = self.grammar.new([tuple(items)])
        else:
            item = self._rule(rest)
            if most == 0:
                inside = self.grammar.new([()])
            else:
                more = self.grammar.repeated(
                    (*comma, item), max(least - 1, 0), None if most is None else most - 1
                )
                some = (item, more, self._space)
                inside = self.grammar.new([some] if least else [some, ()])
        return self.grammar.new([(*literal("["), self._space, inside, *literal("]"))])

    def _object(self, schema: Mapping[str, Any]) -> Rule:
        if "minProperties" in schema or "maxProperties" in schema:
            raise DataError("minProperties and maxProperties are not read")
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        if not isinstance(properties, dict) or not isinstance(required, list):
            raise DataError("properties is an object of schemas, required a list of names")
        missing = [name for name in required if name not in properties]
        if missing:
            raise DataError(f"required names {missing[:4]}, which properties does not have")
        more = schema.get("additionalProperties", not properties)
        comma = (*literal(","), self._space)
        colon = (*literal(":"), self._space)
        end = (self._space, *literal("}"))
        if more:
            key = self._kind("string", {})
            member = (key, *colon, self._rule(True if more is True else more))
            others = self.grammar.repeated((*comma, *member), 0, None)
            begun = self.grammar.new([(others, *end)])
            fresh = self.grammar.new([(*member, others, *end), literal("}")])
        else:
            begun, fresh = self.grammar.new([end]), self.grammar.new([literal("}")])
        # from the last one back: with members in front of it, and without
        for name, each in reversed(properties.items()):
            member = (*literal(json.dumps(name, ensure_ascii=False)), *colon, self._rule(each))
            skips = name not in required
            now_begun = [(*comma, *member, begun), *([(begun,)] if skips else [])]
            now_fresh = [(*member, begun), *([(fresh,)] if skips else [])]
            begun, fresh = self.grammar.new(now_begun), self.grammar.new(now_fresh)
        return self.grammar.new([(*literal("{"), self._space, fresh)])


def _bounds(schema: Mapping[str, Any], low: str, high: str) -> tuple[int, int | None]:
    least, most = schema.get(low, 0), schema.get(high)
    is_whole = all(value is None or (type(value) is int and value >= 0) for value in (least, most))
    if not is_whole or least is None:
        raise DataError(f"{low} is {least!r} and {high} {most!r}; numbers are wanted")
    return least, most


def _implied(schema: Mapping[str, Any]) -> str | list[str]:
    for kind, names in _OF_KIND.items():
        if any(name in schema for name in names):
            return kind
    return ["object", "array", "string", "number", "boolean", "null"]


def _merged(schema: Mapping[str, Any]) -> dict[str, Any]:
    """allOf of objects as one object."""
    found: dict[str, Any] = {k: v for k, v in schema.items() if k != "allOf"}
    for each in schema["allOf"]:
        if not isinstance(each, dict) or "$ref" in each:
            raise DataError("allOf of anything but plain schemas is not read")
        for name, value in each.items():
            if name == "properties":
                found[name] = {**found.get(name, {}), **value}
            elif name == "required":
                found[name] = [*found.get(name, []), *value]
            elif found.setdefault(name, value) != value:
                raise DataError(f"allOf says two things about {name!r}")
    return found


# ------------------------------------------------------------ GBNF
def parse_gbnf(text: str) -> Grammar:
    """A grammar in llama.cpp's notation; `root` is the sentence.

    >>> len(parse_gbnf('root ::= "yes" | "no" [0-9]+').rules)
    4
    """
    return _Gbnf(text).parse()


class _Gbnf:
    """Reads rules: names, "texts", [classes], ( groups ), | and * + ? {m,n}."""

    def __init__(self, text: str) -> None:
        if len(text) > 1 << 18:
            raise DataError(f"a grammar of {len(text)} letters; 262144 are read")
        self._text = text
        self._place = 0
        self._grammar = Grammar()
        self._names: dict[str, Rule] = {"root": Rule(0)}
        self._depth = 0

    def parse(self) -> Grammar:
        self._skip(True)
        while self._place < len(self._text):
            name = self._name()
            self._skip(False)
            self._want("::=")
            self._skip(True)
            self._grammar.define(self._rule(name), self._alternatives())
            self._skip(True)
        for name, rule in self._names.items():
            if self._grammar.rules[rule.number] is None:
                raise DataError(f"the grammar has no rule {name!r}")
        return self._grammar

    def _wrong(self, what: str) -> DataError:
        line = self._text.count("\n", 0, self._place) + 1
        found = self._text[self._place : self._place + 20]
        return DataError(f"line {line} of the grammar: {what} is wanted, found {found!r}")

    def _skip(self, with_lines: bool) -> None:
        while self._place < len(self._text):
            letter = self._text[self._place]
            if letter == "#":
                while self._place < len(self._text) and self._text[self._place] != "\n":
                    self._place += 1
            elif letter in " \t\r" or (letter == "\n" and (with_lines or self._depth)):
                self._place += 1
            else:
                return

    def _want(self, text: str) -> None:
        if not self._text.startswith(text, self._place):
            raise self._wrong(repr(text))
        self._place += len(text)

    def _name(self) -> str:
        begin = self._place
        while self._place < len(self._text) and (
            self._text[self._place].isalnum() or self._text[self._place] in "-_"
        ):
            self._place += 1
        if begin == self._place:
            raise self._wrong("a name")
        return self._text[begin : self._place]

    def _rule(self, name: str) -> Rule:
        if name not in self._names:
            self._names[name] = self._grammar.new()
        return self._names[name]

    def _alternatives(self) -> list[tuple[Symbol, ...]]:
        found = [self._sequence()]
        while self._text.startswith("|", self._place):
            self._place += 1
            self._skip(True)
            found.append(self._sequence())
        return found

    def _sequence(self) -> tuple[Symbol, ...]:
        found: list[Symbol] = []
        while self._place < len(self._text) and self._text[self._place] not in "|)\n":
            item = self._item()
            self._skip(False)
            found += self._times(item)
            self._skip(False)
        return tuple(found)

    def _item(self) -> tuple[Symbol, ...]:
        letter = self._text[self._place]
        if letter == '"':
            return self._quoted()
        if letter == "[":
            return (self._grammar.new(code_points(self._class())),)
        if letter == ".":
            self._place += 1
            return (self._grammar.new(code_points([(0, 0x10FFFF)])),)
        if letter == "(":
            self._place += 1
            self._depth += 1
            if self._depth > 64:
                raise DataError("a grammar that is nested deeper than 64")
            self._skip(True)
            inner = self._alternatives()
            self._want(")")
            self._depth -= 1
            return (self._grammar.new(inner),)
        return (self._rule(self._name()),)

    def _times(self, item: tuple[Symbol, ...]) -> tuple[Symbol, ...]:
        letter = self._text[self._place : self._place + 1]
        bounds: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if letter in bounds and letter:
            self._place += 1
            return (self._grammar.repeated(item, *bounds[letter]),)
        if letter != "{":
            return item
        end = self._text.find("}", self._place)
        low, comma, high = self._text[self._place + 1 : end].partition(",")
        if (
            end < 0
            or not low.strip().isdecimal()
            or (high.strip() and not high.strip().isdecimal())
        ):
            raise self._wrong("{m}, {m,} or {m,n}")
        self._place = end + 1
        least = int(low)
        most = int(high) if high.strip() else (None if comma else least)
        return (self._grammar.repeated(item, least, most),)

    def _quoted(self) -> tuple[Symbol, ...]:
        self._place += 1
        letters: list[str] = []
        while not self._text.startswith('"', self._place):
            letters.append(chr(self._letter()))
        self._place += 1
        return literal("".join(letters))

    def _class(self) -> list[tuple[int, int]]:
        self._place += 1
        negated = self._text.startswith("^", self._place)
        self._place += negated
        ranges: list[tuple[int, int]] = []
        while not self._text.startswith("]", self._place):
            low = high = self._letter()
            if self._text.startswith("-", self._place) and self._text[self._place + 1 :][:1] != "]":
                self._place += 1
                high = self._letter()
            ranges.append((low, high))
        self._place += 1
        return _complement(ranges) if negated else ranges

    def _letter(self) -> int:
        if self._place >= len(self._text):
            raise self._wrong("an end of a text or class")
        letter = self._text[self._place]
        self._place += 1
        if letter != "\\":
            return ord(letter)
        kind = self._text[self._place : self._place + 1]
        self._place += 1
        size = {"x": 2, "u": 4, "U": 8}.get(kind)
        if size is not None:
            digits = self._text[self._place : self._place + size]
            self._place += size
            try:
                value = int(digits, 16)
            except ValueError:
                raise self._wrong("hexadecimal digits") from None
            if value > 0x10FFFF:
                raise self._wrong("a letter")
            return value
        plain = {"n": "\n", "r": "\r", "t": "\t"}
        if not kind:
            raise self._wrong("a letter behind \\")
        return ord(plain.get(kind, kind))


def _complement(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    found, next_one = [], 0
    for low, high in sorted(ranges):
        if low > next_one:
            found.append((next_one, low - 1))
        next_one = max(next_one, high + 1)
    if next_one <= 0x10FFFF:
        found.append((next_one, 0x10FFFF))
    return found
