"""Chats as text: the template of the model's file, in a sandbox.

In: messages with roles. Out: the text that a model continues. Beside `tokens`.
Invariant: a template is a stranger's program. It reaches no attribute that leads out of its data,
takes a bounded number of steps, and makes no text beyond a limit.
"""

from __future__ import annotations

import datetime
import functools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.errors import DataError
from weft.llm.tokens import package

Message = Mapping[str, Any]

# of a template in jinja; the largest ones seen are 30 KB, take 20,000 steps and copy the chat once
LONGEST_TEMPLATE = 1 << 18
MOST_STEPS = 2_000_000
LONGEST_TEXT = 1 << 24


class FallbackTemplate:
    """Where a file has none: ChatML, which most models have seen."""

    name = "chatml"

    def render(self, messages: Sequence[Message], prompt: bool = True, **_: Any) -> str:
        """The messages, and the beginning of an answer.

        >>> FallbackTemplate().render([{"role": "user", "content": "Hi"}])
        '<|im_start|>user\\nHi<|im_end|>\\n<|im_start|>assistant\\n'
        """
        text = "".join(
            f"<|im_start|>{m['role']}\n{text_of(m['content'])}<|im_end|>\n" for m in messages
        )
        return text + ("<|im_start|>assistant\n" if prompt else "")


def text_of(content: Any) -> str:
    """The text of a message, which may come in parts."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    parts = [part.get("text", "") for part in content if part.get("type") == "text"]
    return "".join(parts)


class ChatTemplate:
    """A template that came with a model."""

    name = "of the model"

    def __init__(self, source: str, names: Mapping[str, str]) -> None:
        if len(source) > LONGEST_TEMPLATE:
            raise DataError(f"the chat template has {len(source)} letters; it is no template")
        self._names = dict(names)
        self._render = _compiled(source)

    def render(self, messages: Sequence[Message], prompt: bool = True, **values: Any) -> str:
        """The messages as the model has seen chats."""
        plain = json.loads(json.dumps(list(messages)))
        given = {"messages": plain, "add_generation_prompt": prompt, "tools": None, **self._names}
        return self._render({**given, **values})


def _compiled(source: str) -> Callable[[dict[str, Any]], str]:
    jinja2 = package("jinja2")
    environment = _environment(jinja2)
    try:
        template = environment.from_string(source)
    except (jinja2.TemplateError, RecursionError, MemoryError) as error:
        raise DataError(f"the chat template of the model is wrong: {error}") from None

    def render(values: dict[str, Any]) -> str:
        try:
            with _limited_steps():
                text: str = template.render(values)
        except DataError:
            raise
        except Exception as error:
            # whatever a stranger's template does wrong is a fault of the file
            kind = type(error).__name__
            raise DataError(f"the chat template of the model failed: {kind}: {error}") from None
        if len(text) > LONGEST_TEXT:
            raise DataError(f"the chat template made a text of {len(text)} letters")
        return text

    return render


@functools.cache
def _environment(jinja2: Any) -> Any:
    """The sandbox: no code, no attributes of Python's inside, no text out of nothing."""
    sandbox = package("jinja2.sandbox")

    class Sandbox(sandbox.ImmutableSandboxedEnvironment):  # type: ignore[name-defined]
        intercepted_binops = frozenset(["*", "**", "%"])

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            if operator == "%" and isinstance(left, (str, bytes)):
                raise DataError("the chat template of the model formats with %, which is not read")
            if operator != "%" and not _is_small(left, right, operator):
                raise DataError("the chat template of the model makes too large a value")
            return super().call_binop(context, operator, left, right)

        def is_safe_attribute(self, target: Any, name: str, value: Any) -> bool:
            if name in _GROWING and isinstance(target, (str, bytes)):
                return False
            safe: bool = super().is_safe_attribute(target, name, value)
            return safe

    def fail(message: str) -> None:
        raise DataError(f"the chat template says: {message}")

    def to_json(value: Any, indent: int | None = None, **_: Any) -> str:
        return json.dumps(value, ensure_ascii=False, indent=min(indent, 8) if indent else None)

    environment = Sandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    for name in ("center", "indent", "wordwrap", "format", "pprint", "xmlattr", "urlize"):
        environment.filters.pop(name, None)
    environment.filters["tojson"] = to_json
    environment.filters["indent"] = _indented
    environment.globals.pop("lipsum", None)
    environment.globals["raise_exception"] = fail
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(
        str(form)[:64]
    )
    return environment


# methods of text whose result may be of any length
_GROWING = frozenset(["ljust", "rjust", "center", "zfill", "format", "format_map", "expandtabs"])


def _indented(text: Any, width: int = 4, first: bool = False) -> str:
    """Jinja's filter, of at most 16 places."""
    margin = " " * max(0, min(int(width), 16))
    lines = str(text).split("\n")
    joined = ("\n" + margin).join(lines)
    return margin + joined if first else joined


def _is_small(left: Any, right: Any, operator: str) -> bool:
    """Whether a product of numbers, or of a sequence and a number, is of a usual size."""
    if operator == "**":
        return abs(left) < 1 << 16 and abs(right) < 64
    for sequence, number in ((left, right), (right, left)):
        if isinstance(sequence, (str, bytes, list, tuple)):
            return isinstance(number, int) and len(sequence) * max(number, 1) < 1 << 16
    return abs(left) < 1 << 53 and abs(right) < 1 << 53


class _limited_steps:
    """Counts the lines that run; a template that does not end is ended."""

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        self._left = MOST_STEPS
        sys.settrace(self._trace)

    def __exit__(self, *_: Any) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: Any, event: str, argument: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise DataError(f"the chat template of the model takes more than {MOST_STEPS} steps")
        return self._trace


def template_of(
    values: Mapping[str, Any], tokens: Sequence[str] = ()
) -> ChatTemplate | FallbackTemplate:
    """The template of a GGUF file's values."""
    source = values.get("tokenizer.chat_template")
    if not isinstance(source, str):
        return FallbackTemplate()
    names = {}
    for name in ("bos", "eos"):
        token = values.get(f"tokenizer.ggml.{name}_token_id")
        is_token = type(token) is int and 0 <= token < len(tokens)
        names[f"{name}_token"] = tokens[token] if is_token and isinstance(token, int) else ""
    return ChatTemplate(source, names)
