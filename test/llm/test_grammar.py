"""Grammars over tokens: what is made of allowed tokens is valid, and all that is valid can be."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from weft.errors import DataError
from weft.llm.grammar import Automaton, GrammarConstraint, Vocabulary, code_points
from weft.llm.schema import SchemaGrammar, parse_gbnf

WORDS = ['{"', '": ', '", "', "hello wor", '"}', "é", "null", "}}", "true", "12", '"a"', "[]", "\n"]
PIECES = [bytes([i]) for i in range(256)] + [word.encode() for word in WORDS] + [b"<end>"]
END = len(PIECES) - 1
VOCABULARY = Vocabulary(PIECES, (), (END,))


def accepts(automaton: Automaton, text: str) -> bool:
    state = automaton.start
    for byte in text.encode():
        state = automaton.step(state, byte)
    return automaton.may_end(state)


def made(automaton: Automaton, seed: int) -> str | None:
    """A text of allowed tokens; None where it does not end by itself."""
    pick = random.Random(seed)
    constraint, data = GrammarConstraint(automaton), b""
    for _ in range(3000):
        tokens = constraint.allowed().nonzero()[0].tolist()
        # strings are ended now and then
        token = 34 if 34 in tokens and pick.random() < 0.3 else pick.choice(tokens)
        if token == END:
            return data.decode()
        data += PIECES[token]
        if constraint.advance(token):
            return data.decode()
    return None


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 9},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "bé", 3]}, "minItems": 1, "maxItems": 3},
        "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]},
        "day": {"type": "string", "format": "date"},
        "any": {},
    },
    "required": ["name", "tags"],
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"next": {"$ref": "#/$defs/node"}, "x": {"type": "number"}},
            "additionalProperties": False,
        }
    },
}


def test_what_a_schema_allows_is_valid() -> None:
    automaton = Automaton(SchemaGrammar(SCHEMA).grammar, VOCABULARY)
    texts = [made(automaton, seed) for seed in range(60)]
    whole = [json.loads(text) for text in texts if text is not None]
    assert len(whole) > 20
    for value in whole:
        assert set(value) <= set(SCHEMA["properties"]) and len(value["name"]) <= 18
        assert 1 <= len(value["tags"]) <= 3 and all(t in ("a", "bé", 3) for t in value["tags"])
        assert 0 <= value.get("age", 0) <= 150


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"name": "x", "tags": ["a"]}', True),
        ('{"name":"x","tags":["a","bé",3]}', True),
        ('{"name": "x", "age": 150, "tags": ["a"], "next": {"next": {"x": -1.5e3}}}', True),
        ('{\n  "name": "\\u00e9\\n",\n  "tags": [\n    "a"\n  ]\n}', True),
        ('{"name": "x", "tags": ["a"], "day": "2024-02-29", "any": [1, {"y": null}]}', True),
        ('{"name": "x", "age": 151, "tags": ["a"]}', False),
        ('{"name": "x"}', False),
        ('{"name": "x", "tags": []}', False),
        ('{"name": "x", "tags": ["a"], "more": 1}', False),
        ('{"name": "x", "tags": ["a"]} ', False),
        ('{"name": "0123456789", "tags": ["a"]}', False),
    ],
)
def test_a_schema_takes(text: str, expected: bool) -> None:
    assert accepts(Automaton(SchemaGrammar(SCHEMA).grammar, VOCABULARY), text) is expected


def test_masks_are_what_stepping_says() -> None:
    automaton = Automaton(SchemaGrammar(SCHEMA).grammar, VOCABULARY)
    state = automaton.start
    for byte in b'{"name": "hel':
        state = automaton.step(state, byte)
        mask = automaton.mask(state)
        for token, piece in enumerate(PIECES[:-1]):
            after = state
            for each in piece:
                after = automaton.step(after, each)
            assert bool(mask[token]) == (after != automaton.dead)


def test_gbnf() -> None:
    text = """root ::= greeting (" " name){1,2} "!"? # who
greeting ::= "Hallo" | "Grüß\\x20Gott"
name ::= [A-ZÄ-Ü] [^A-Z !]+"""
    automaton = Automaton(parse_gbnf(text), VOCABULARY)
    assert accepts(automaton, "Hallo Ämil") and accepts(automaton, "Grüß Gott Anna Ünal😀!")
    assert not accepts(automaton, "Hallo") and not accepts(automaton, "Hallo AB")
    for wrong in ('root ::= "x', "root ::= (", "x ::= y", 'root ::= "a"{9999}', "root ::= [a"):
        with pytest.raises(DataError):
            parse_gbnf(wrong)
    with pytest.raises(DataError, match="calls itself"):
        Automaton(parse_gbnf('root ::= root "x"'), VOCABULARY)


def test_what_a_schema_cannot_keep_is_refused() -> None:
    for schema in (
        {"type": "string", "pattern": "a+"},
        {"type": "number", "minimum": 0},
        {"type": "parrot"},
        {"$ref": "http://example.com"},
        {"$ref": "#/nowhere"},
        {"type": "object", "required": ["x"]},
        {"enum": []},
    ):
        with pytest.raises(DataError):
            SchemaGrammar(schema)


def test_ranges_of_letters_are_all_of_utf_8() -> None:
    pick = random.Random(0)
    for _ in range(50):
        low, high = sorted(pick.choice([0x7F, 0x7FF, 0xFFFF, 0x10FFFF]) for _ in range(2))
        low = pick.randrange(low + 1)
        sequences = code_points([(low, high)])
        for letter in (low, high, pick.randrange(0x110000), low - 1, high + 1):
            if not 0 <= letter <= 0x10FFFF or 0xD800 <= letter <= 0xDFFF:
                continue
            data = chr(letter).encode()
            found = any(
                len(s) == len(data)
                and all(x.mask >> b & 1 for x, b in zip(s, data, strict=True) if hasattr(x, "mask"))
                for s in sequences
            )
            assert found == (low <= letter <= high)
