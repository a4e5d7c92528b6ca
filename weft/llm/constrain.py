"""What a request wants an answer to look like, as a constraint on its tokens.

In: `response_format`, `grammar` and `tool_choice` of a request. Out: a maker of constraints, one
for each answer. Between `schema` and the server's endpoints. Invariant: what was made of a schema
is kept and used again, a bounded number of them.
"""

from __future__ import annotations

import functools
import json
import weakref
from collections.abc import Callable
from typing import Any

from weft.errors import DataError
from weft.llm.grammar import Automaton, GrammarConstraint, Vocabulary
from weft.llm.requests import RequestError
from weft.llm.schema import SchemaGrammar, parse_gbnf
from weft.llm.tokens import SimpleTokenizer

Make = Callable[[], GrammarConstraint]

_vocabularies: weakref.WeakKeyDictionary[SimpleTokenizer, Vocabulary] = weakref.WeakKeyDictionary()


def constraint_of(tokenizer: SimpleTokenizer, asked: Any) -> Make | None:
    """What makes constraints for the answers to a request; None: all may be said."""
    form = getattr(asked, "response_format", None)
    text = getattr(asked, "grammar", None)
    call = _forced_call(asked)
    if sum(each is not None for each in (_schema_of(form), text, call)) > 1:
        raise RequestError("response_format, grammar and a tool_choice exclude each other")
    if call is not None:
        return made(tokenizer, call, None)
    if text is not None:
        return made(tokenizer, None, text)
    schema = _schema_of(form)
    return None if schema is None else made(tokenizer, schema, None)


def made(tokenizer: SimpleTokenizer, schema: Any, text: str | None) -> Make:
    """A maker of constraints by a JSON schema or a grammar."""
    key = json.dumps(schema) if text is None else text
    try:
        automaton = _automaton(_Known(tokenizer), key, text is None)
    except DataError as error:
        raise RequestError(
            str(error), param="response_format" if text is None else "grammar"
        ) from None
    return functools.partial(GrammarConstraint, automaton)


class _Known:
    """A tokenizer as a key: the same one is equal to itself."""

    def __init__(self, tokenizer: SimpleTokenizer) -> None:
        self.tokenizer = tokenizer

    def __hash__(self) -> int:
        return id(self.tokenizer)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Known) and other.tokenizer is self.tokenizer


@functools.lru_cache(32)
def _automaton(known: _Known, key: str, is_schema: bool) -> Automaton:
    tokenizer = known.tokenizer
    if tokenizer not in _vocabularies:
        _vocabularies[tokenizer] = Vocabulary(
            tokenizer.pieces, tokenizer.special.values(), tokenizer.eos
        )
    grammar = SchemaGrammar(json.loads(key)).grammar if is_schema else parse_gbnf(key)
    return Automaton(grammar, _vocabularies[tokenizer])


def _schema_of(form: dict[str, Any] | None) -> Any:
    """The schema of a response_format, or None for text."""
    if form is None or form.get("type") == "text":
        return None
    if form.get("type") == "json_object":
        return form.get("schema") or {"type": "object"}
    if form.get("type") == "json_schema":
        inner = form.get("json_schema")
        schema = inner.get("schema") if isinstance(inner, dict) else None
        if not isinstance(schema, dict):
            raise RequestError("json_schema has no schema", param="response_format")
        return schema
    raise RequestError(
        f"response_format is of type {str(form.get('type'))[:40]!r}; read are text, json_object "
        "and json_schema",
        param="response_format",
    )


def _forced_call(asked: Any) -> Any:
    """The schema of a call that must be made, or None."""
    choice = getattr(asked, "tool_choice", None)
    if choice in (None, "auto", "none"):
        return None
    tools = {}
    for tool in asked.tools or ():
        function = tool.get("function", {})
        tools[function.get("name")] = function.get("parameters") or {"type": "object"}
    wanted = list(tools)
    if isinstance(choice, dict):
        wanted = [choice.get("function", {}).get("name")]
    elif choice != "required":
        raise RequestError(
            f"tool_choice is {choice!r}; read are none, auto, required and a function",
            param="tool_choice",
        )
    if not wanted or any(name not in tools for name in wanted):
        raise RequestError(
            f"tool_choice wants {wanted}; tools are {list(tools)}", param="tool_choice"
        )
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": name}, "arguments": tools[name]},
            "required": ["name", "arguments"],
        }
        for name in wanted
    ]
    return calls[0] if len(calls) == 1 else {"anyOf": calls}
