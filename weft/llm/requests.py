"""What clients ask for: the bodies of requests, in the terms of OpenAI's interface.

In: JSON. Out: dataclasses, checked by pydantic (extra `llm`). Below `serve`. Invariant: a field
that would change the answer is obeyed or refused, never dropped in silence.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from weft.errors import WeftError
from weft.llm.sample import Sampling
from weft.llm.tokens import package

T = TypeVar("T")

MOST_CHOICES = 16
MOST_STOPS = 16
MOST_TOP = 20


class RequestError(WeftError):
    """A request that is not answered: a status, and OpenAI's error object."""

    def __init__(
        self,
        message: str,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        kind: str = "invalid_request_error",
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code, self.kind = status, param, code, kind

    def body(self) -> dict[str, Any]:
        """The object that clients read."""
        found = {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}
        return {"error": found}


@dataclass
class StreamOptions:
    """What else a stream says."""

    include_usage: bool = False


@dataclass
class Message:
    """One turn of a chat."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


@dataclass
class Drawing:
    """How tokens are drawn, and how many; what chats and completions share."""

    model: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    n: int | None = 1
    stop: str | list[str] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    ignore_eos: bool = False
    user: str | None = None

    def sampling(self, default: Sampling, choice: int = 0) -> Sampling:
        """Settings of one choice; those that are not given are the server's."""
        bias = {}
        for token, value in (self.logit_bias or {}).items():
            if not token.isdecimal():
                raise RequestError(f"logit_bias names the token {token!r}", param="logit_bias")
            bias[int(token)] = value

        def chosen(value: Any, other: Any) -> Any:
            return other if value is None else value

        return Sampling(
            chosen(self.temperature, default.temperature),
            chosen(self.top_k, default.top_k),
            chosen(self.top_p, default.top_p),
            chosen(self.min_p, default.min_p),
            chosen(self.repetition_penalty, default.repetition_penalty),
            self.presence_penalty,
            self.frequency_penalty,
            None if self.seed is None else self.seed + choice,
            bias,
        )

    @property
    def stops(self) -> list[str]:
        """Texts in front of which an answer ends."""
        found = [self.stop] if isinstance(self.stop, str) else list(self.stop or ())
        if len(found) > MOST_STOPS or not all(0 < len(text) <= 1024 for text in found):
            raise RequestError(
                f"stop takes at most {MOST_STOPS} texts of 1 to 1024 letters", param="stop"
            )
        return found

    @property
    def choices(self) -> int:
        """How many answers are wanted."""
        count = 1 if self.n is None else self.n
        if not 1 <= count <= MOST_CHOICES:
            raise RequestError(f"n is {count}; 1 to {MOST_CHOICES} is accepted", param="n")
        return count

    @property
    def longest(self) -> int | None:
        """Tokens of an answer at most."""
        for name in ("max_completion_tokens", "max_tokens"):
            value: int | None = getattr(self, name)
            if value is not None and value < 0:
                raise RequestError(f"{name} is {value}, which is less than nothing", param=name)
            if value is not None:
                return value
        return None


@dataclass
class ChatRequest(Drawing):
    """/v1/chat/completions."""

    messages: list[Message] = field(default_factory=list)
    logprobs: bool | None = False
    top_logprobs: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    grammar: str | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    functions: list[Any] | None = None
    function_call: Any = None
    modalities: list[str] | None = None
    audio: Any = None

    def check(self) -> None:
        """Refuses what no field of its own can."""
        if not self.messages:
            raise RequestError("messages is empty; a chat has at least one", param="messages")
        for name in ("functions", "function_call", "audio"):
            if getattr(self, name) is not None:
                other = "tools" if name != "audio" else "text"
                raise RequestError(f"{name} is not read here; {other} is", param=name)
        if self.modalities not in (None, ["text"]):
            raise RequestError("this model writes text only", param="modalities")
        if self.top_logprobs is not None and not self.logprobs:
            raise RequestError("top_logprobs needs logprobs to be true", param="top_logprobs")
        _check_top(self.top_logprobs, "top_logprobs")

    def texts(self) -> list[dict[str, Any]]:
        """The messages as templates take them: texts, and calls with objects as arguments."""
        return [_plain(message, i) for i, message in enumerate(self.messages)]


@dataclass
class CompletionRequest(Drawing):
    """/v1/completions."""

    prompt: str | list[str] | list[int] | list[list[int]] = ""
    echo: bool | None = False
    logprobs: int | None = None
    suffix: str | None = None
    best_of: int | None = None
    response_format: dict[str, Any] | None = None
    grammar: str | None = None

    def check(self) -> None:
        """Refuses what no field of its own can."""
        if self.suffix:
            raise RequestError("suffix is not read here: this model continues", param="suffix")
        if self.best_of is not None and self.best_of != self.choices:
            raise RequestError("best_of other than n is not read here", param="best_of")
        _check_top(self.logprobs, "logprobs")

    def prompts(self) -> list[str | list[int]]:
        """One or several, as text or as tokens."""
        given = self.prompt
        if isinstance(given, str):
            return [given]
        if given and isinstance(given[0], int):
            return [[token for token in given if isinstance(token, int)]]
        return [item for item in given if not isinstance(item, int)]


@dataclass
class EmbeddingRequest:
    """/v1/embeddings."""

    input: str | list[str] | list[int] | list[list[int]]
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    user: str | None = None


@dataclass
class TokenizeRequest:
    """/tokenize."""

    content: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    add_special: bool = False
    add_special_tokens: bool | None = None
    parse_special: bool = True
    model: str | None = None


@dataclass
class DetokenizeRequest:
    """/detokenize."""

    tokens: list[int]
    model: str | None = None


def _check_top(count: int | None, name: str) -> None:
    if count is not None and not 0 <= count <= MOST_TOP:
        raise RequestError(f"{name} is {count}; 0 to {MOST_TOP} is accepted", param=name)


def _plain(message: Message, place: int) -> dict[str, Any]:
    found: dict[str, Any] = {"role": message.role, "content": _text(message.content, place)}
    if message.role == "developer":
        found["role"] = "system"
    for name in ("name", "tool_call_id", "reasoning_content"):
        if getattr(message, name) is not None:
            found[name] = getattr(message, name)
    if message.tool_calls:
        found["tool_calls"] = [_call(call) for call in message.tool_calls]
    return found


def _text(content: str | list[dict[str, Any]] | None, place: int) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    parts = []
    for part in content:
        text = part.get("text") if part.get("type") in ("text", "input_text") else None
        if not isinstance(text, str):
            raise RequestError(
                f"messages[{place}] has a part of type {str(part.get('type'))[:40]!r}; this model "
                "reads text only",
                param=f"messages[{place}].content",
            )
        parts.append(text)
    return "".join(parts)


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    """A call whose arguments are an object: clients send them as JSON in a string."""
    function = call.get("function")
    if not isinstance(function, dict):
        return dict(call)
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return dict(call)
    return {**call, "function": {**function, "arguments": arguments}}


def parse(kind: type[T], body: Any) -> T:
    """A body of a kind; an error names the field that is wrong."""
    pydantic = package("pydantic")
    if not isinstance(body, dict):
        raise RequestError(f"the body is a JSON {type(body).__name__}; an object is wanted")
    try:
        found: T = _adapters(kind).validate_python(body)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or None
        raise RequestError(f"{place}: {first['msg']}", param=place) from None
    return found


def _made(kind: Any) -> Any:
    return package("pydantic").TypeAdapter(kind)


_adapters: Callable[[Any], Any] = functools.cache(_made)
