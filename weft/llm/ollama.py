"""Ollama's endpoints, as far as its clients need them: chat, generate, embed, show.

In: the body of a request. Out: an object, or a stream with one a line. Beside `openai`, which does
the work. Invariant: options that are not known are refused by name.
"""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.llm import openai
from weft.llm.constrain import constraint_of
from weft.llm.engine import Stream
from weft.llm.openai import Choice, Reply
from weft.llm.requests import ChatRequest, Message, RequestError, parse


@dataclass
class OllamaRequest:
    """/api/chat and /api/generate."""

    model: str | None = None
    messages: list[dict[str, Any]] = field(default_factory=list)
    prompt: str | None = None
    system: str | None = None
    raw: bool = False
    stream: bool = True
    format: str | dict[str, Any] | None = None
    options: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    images: list[Any] | None = None
    keep_alive: Any = None
    think: Any = None


# their name of an option -> ours
_OPTIONS = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "seed": "seed",
    "stop": "stop",
    "num_predict": "max_tokens",
    "repeat_penalty": "repetition_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
}
# how their server uses the machine: nothing that an answer depends on
_IGNORED = {"num_ctx", "num_thread", "num_gpu", "num_batch", "num_keep", "use_mmap", "main_gpu"}


def description(handler: Any) -> dict[str, Any]:
    """The one model."""
    loaded = handler.speaker.loaded
    size = loaded.path.stat().st_size if loaded.path.is_file() else 0
    when = datetime.datetime.fromtimestamp(handler.began, datetime.UTC).isoformat()
    details = {"format": "gguf" if loaded.values else "safetensors"}
    details["family"] = loaded.config.architecture
    name = handler.speaker.name
    return {"name": name, "model": name, "modified_at": when, "size": size, "details": details}


async def show(handler: Any, body: Any) -> Reply:
    """/api/show"""
    handler.check_model(body.get("model") if isinstance(body, dict) else None)
    config = handler.speaker.loaded.config
    info = {
        "general.architecture": config.architecture,
        f"{config.architecture}.context_length": config.max_context,
    }
    capabilities = ["completion", "tools"]
    return Reply({**description(handler), "model_info": info, "capabilities": capabilities})


def _request(asked: OllamaRequest, messages: Sequence[dict[str, Any]]) -> ChatRequest:
    """The same in OpenAI's terms."""
    values: dict[str, Any] = {"messages": list(messages), "tools": asked.tools}
    for name, value in (asked.options or {}).items():
        if name in _OPTIONS:
            values[_OPTIONS[name]] = value
        elif name not in _IGNORED:
            raise RequestError(f"the option {name!r} is not read here", param=f"options.{name}")
    if values.get("max_tokens") is not None and values["max_tokens"] < 0:
        # until the end of the context
        values["max_tokens"] = None
    if asked.format == "json":
        values["response_format"] = {"type": "json_object"}
    elif isinstance(asked.format, dict):
        schema = {"name": "format", "schema": asked.format}
        values["response_format"] = {"type": "json_schema", "json_schema": schema}
    if asked.images:
        raise RequestError("this model reads text only", param="images")
    return parse(ChatRequest, values)


async def chat(handler: Any, body: Any) -> Reply:
    """/api/chat"""
    asked = parse(OllamaRequest, body)
    handler.check_model(asked.model)
    request = _request(asked, asked.messages)
    request.check()
    values: dict[str, Any] = {"tools": asked.tools} if asked.tools else {}
    if isinstance(asked.think, bool):
        values["enable_thinking"] = asked.think
    prompt, text = await handler.prepared(lambda: handler.speaker.chat(request.texts(), **values))
    parts = (bool(asked.tools), text.rstrip().endswith("<think>"))
    return await _answered(handler, asked, request, prompt, parts, "message")


async def generate(handler: Any, body: Any) -> Reply:
    """/api/generate"""
    asked = parse(OllamaRequest, body)
    handler.check_model(asked.model)
    request = _request(asked, [])
    if not asked.prompt:
        # what their client does to load a model
        return Reply(_line(handler, "response", "", done=True, reason="load"))
    if asked.raw:
        prompt = await handler.prepared(lambda: handler.tokenizer.prompt(asked.prompt))
    else:
        request.messages = [Message("system", asked.system)] if asked.system else []
        request.messages.append(Message("user", asked.prompt))
        prompt, _ = await handler.prepared(lambda: handler.speaker.chat(request.texts()))
    return await _answered(handler, asked, request, prompt, (False, False), "response")


async def _answered(
    handler: Any,
    asked: OllamaRequest,
    request: ChatRequest,
    prompt: list[int],
    parts: tuple[bool, bool],
    name: str,
) -> Reply:
    handler.check_length(prompt, "prompt")
    constraint = await handler.prepared(lambda: constraint_of(handler.tokenizer, request))
    stream = handler.router.open()
    began = time.perf_counter_ns()
    choices = openai.begin(handler, stream, request, [prompt], None, parts, constraint)
    lines = _lines(handler, stream, choices[0], prompt, name, began)
    if asked.stream:
        return Reply(stream=lines, source=stream, kind="application/x-ndjson")
    found: list[dict[str, Any]] = [json.loads(line) async for line in lines]
    last = found[-1]
    if "error" in last:
        raise RequestError(last["error"], 500, kind="server_error")
    if name == "response":
        return Reply({**last, "response": "".join(line["response"] for line in found)})
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    for line in found:
        for key, value in line["message"].items():
            if key != "role":
                message[key] = message[key] + value if key in message else value
    return Reply({**last, "message": message})


def _line(handler: Any, name: str, said: Any, done: bool = False, reason: str = "") -> Any:
    when = datetime.datetime.now(datetime.UTC).isoformat()
    found = {"model": handler.speaker.name, "created_at": when, name: said, "done": done}
    return {**found, "done_reason": reason} if done else found


async def _lines(
    handler: Any, stream: Stream, choice: Choice, prompt: list[int], name: str, began: int
) -> AsyncIterator[bytes]:
    def encoded(value: Any) -> bytes:
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace") + b"\n"

    async with stream:
        async for _, item in stream.items():
            said = choice.parts.finish() if item is None else choice.parts.feed(item.text)
            choice.calls += len(said.calls)
            value: Any = said.content
            if name == "message":
                value = {"role": "assistant", "content": said.content}
                if said.reasoning:
                    value["thinking"] = said.reasoning
                if said.calls:
                    value["tool_calls"] = [_call(call) for call in said.calls]
            if said.content or said.reasoning or said.calls:
                yield encoded(_line(handler, name, value))
    try:
        openai.check_ended(choice)
    except RequestError as error:
        yield encoded({"error": str(error)})
        return
    nothing: Any = {"role": "assistant", "content": ""} if name == "message" else ""
    reason = "length" if choice.reason == "length" else "stop"
    took = time.perf_counter_ns() - began
    counts = {
        "total_duration": took,
        "prompt_eval_count": len(prompt),
        "eval_count": choice.answer.count,
        "eval_duration": took,
    }
    yield encoded({**_line(handler, name, nothing, True, reason), **counts})


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    try:
        arguments = json.loads(function["arguments"])
    except (ValueError, RecursionError):
        arguments = function["arguments"]
    return {"function": {"name": function["name"], "arguments": arguments}}


@dataclass
class OllamaEmbedRequest:
    """/api/embed."""

    input: str | list[str]
    model: str | None = None
    truncate: bool = True
    options: dict[str, Any] | None = None
    keep_alive: Any = None


async def embed(handler: Any, body: Any) -> Reply:
    """/api/embed"""
    asked = parse(OllamaEmbedRequest, body)
    handler.check_model(asked.model)
    texts = [asked.input] if isinstance(asked.input, str) else asked.input
    prompts = [await handler.prepared(lambda t=t: handler.tokenizer.prompt(t)) for t in texts]
    vectors = await openai.embeddings(handler, prompts, "input")
    return Reply({"model": handler.speaker.name, "embeddings": [v.tolist() for v in vectors]})
