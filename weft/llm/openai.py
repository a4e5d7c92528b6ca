"""OpenAI's endpoints: chats, completions, embeddings, tokens.

In: the body of a request. Out: a `Reply`: an object, or a stream of events. Below `serve`, whose
`Handler` they are given. Invariant: a stream and a whole answer say the same.
"""

from __future__ import annotations

import base64
import functools
import json
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.errors import WeftError
from weft.llm.answer import THOUGHT, Answer, Parts, Piece, Said, TokenOdds, odds_of
from weft.llm.batch import Text
from weft.llm.constrain import constraint_of
from weft.llm.engine import Stream
from weft.llm.requests import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    Drawing,
    EmbeddingRequest,
    RequestError,
    TokenizeRequest,
    parse,
)

Array = np.ndarray[Any, Any]


@dataclass
class Reply:
    """What a client gets."""

    body: Any = None
    stream: AsyncIterator[bytes] | None = None
    source: Stream | None = None  # where the stream comes from
    kind: str = "text/event-stream"


@dataclass
class Choice:
    """One answer while it comes."""

    text: Text
    answer: Answer
    parts: Parts
    pieces: list[Piece] = field(default_factory=list)
    calls: int = 0

    @property
    def reason(self) -> str:
        """Why it ended, in OpenAI's words."""
        found = self.text.reason
        if found == "stop" and self.calls:
            return "tool_calls"
        return "length" if found == "length" else "stop"


def begin(
    handler: Any,
    stream: Stream,
    asked: Drawing,
    prompts: Sequence[Sequence[int]],
    top: int | None = None,
    parts: tuple[bool, bool] = (False, False),
    constraint: Any = None,
    scores: list[list[TokenOdds | None]] | None = None,
) -> list[Choice]:
    """Texts for each choice of each prompt; `scores` takes the log odds of the prompts' tokens."""
    choices: list[Choice] = []
    for number, prompt in enumerate(prompts):
        for index in range(asked.choices):
            place = len(choices)
            answer = Answer(
                handler.tokenizer, functools.partial(stream.put, place), asked.stops, top
            )
            longest = asked.longest
            text = Text(
                list(prompt),
                answer.receive,
                asked.sampling(handler.options.sampling, index),
                frozenset() if asked.ignore_eos else handler.tokenizer.eos,
                None if longest is None else len(prompt) + longest,
                None if constraint is None else constraint(),
            )
            text.listener = answer.finish
            if scores is not None:
                text.asked = "logits"
                text.receive_prompt = _scorer(prompt, scores[number], top or 0)
            choices.append(Choice(text, answer, Parts(*parts)))
    handler.submit(stream, [choice.text for choice in choices])
    return choices


def _scorer(prompt: Sequence[int], scores: list[TokenOdds | None], top: int) -> Any:
    scores[:] = [None]

    def receive(logits: Array) -> None:
        for row in logits:
            if len(scores) < len(prompt):
                scores.append(odds_of(prompt[len(scores)], row, top))

    return receive


def check_ended(choice: Choice) -> None:
    """Raises what became of a text, if that is an error."""
    error = choice.text.error
    if isinstance(error, WeftError):
        raise RequestError(str(error)) from None
    if error is not None:
        raise RequestError(
            f"{type(error).__name__} in the server", 500, kind="server_error"
        ) from None
    if choice.text.reason == "cancelled":
        raise RequestError("the server is being stopped", 503, kind="server_error")


def usage(choices: Sequence[Choice], prompts: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Tokens of prompts and answers."""
    read = sum(len(prompt) for prompt in prompts)
    written = sum(choice.answer.count for choice in choices)
    each = max(len(choices) // max(len(prompts), 1), 1)
    cached = sum(choice.text.reused for choice in choices[::each])
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def event(value: Any) -> bytes:
    """One event of a stream."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return b"data: " + text.encode("utf-8", "replace") + b"\n\n"


def _stamp(handler: Any, prefix: str, kind: str) -> dict[str, Any]:
    return {
        "id": f"{prefix}-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": handler.speaker.name,
        "system_fingerprint": "weft",
    }


# ------------------------------------------------------------ chats
async def chat(handler: Any, body: Any) -> Reply:
    """/v1/chat/completions"""
    asked = parse(ChatRequest, body)
    asked.check()
    handler.check_model(asked.model)
    tools = None if asked.tool_choice == "none" else asked.tools
    values = dict(asked.chat_template_kwargs or {})
    if asked.reasoning_effort is not None:
        values.setdefault("reasoning_effort", asked.reasoning_effort)
    if tools:
        values["tools"] = tools
    prompt, text = await handler.prepared(lambda: handler.speaker.chat(asked.texts(), **values))
    handler.check_length(prompt, "messages")
    constraint = await handler.prepared(lambda: constraint_of(handler.tokenizer, asked))
    top = (asked.top_logprobs or 0) if asked.logprobs else None
    stamp = _stamp(handler, "chatcmpl", "chat.completion")
    stream = handler.router.open()
    begins_in_thought = text.rstrip().endswith(THOUGHT[0])
    parts = (bool(tools), begins_in_thought)
    if asked.choices and asked.stream:
        choices = begin(handler, stream, asked, [prompt], top, parts, constraint)
        events = _chat_events(handler, stream, asked, stamp, choices, prompt)
        return Reply(stream=events, source=stream)
    async with stream:
        choices = begin(handler, stream, asked, [prompt], top, parts, constraint)
        async for number, item in stream.items():
            if item is not None:
                choices[number].pieces.append(item)
    found = [_message(handler, choice, i, top) for i, choice in enumerate(choices)]
    return Reply({**stamp, "choices": found, "usage": usage(choices, [prompt])})


def _message(handler: Any, choice: Choice, index: int, top: int | None) -> dict[str, Any]:
    check_ended(choice)
    said = choice.parts.feed("".join(piece.text for piece in choice.pieces))
    rest = choice.parts.finish()
    calls = said.calls + rest.calls
    choice.calls = len(calls)
    content = said.content + rest.content
    message: dict[str, Any] = {
        "role": "assistant",
        "content": content if content or not calls else None,
        "refusal": None,
    }
    reasoning = said.reasoning + rest.reasoning
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [{k: v for k, v in c.items() if k != "index"} for c in calls]
    odds = [one for piece in choice.pieces for one in piece.odds]
    return {
        "index": index,
        "message": message,
        "logprobs": None if top is None else _chat_odds(handler, odds),
        "finish_reason": choice.reason,
    }


def _chat_odds(handler: Any, odds: Sequence[TokenOdds]) -> dict[str, Any]:
    def one(token: int, log_odds: float) -> dict[str, Any]:
        data = handler.tokenizer.pieces[token]
        return {
            "token": data.decode("utf-8", "replace"),
            "logprob": max(log_odds, -9999.0),
            "bytes": list(data),
        }

    content = [
        {**one(o.token, o.log_odds), "top_logprobs": [one(*best) for best in o.best]} for o in odds
    ]
    return {"content": content, "refusal": None}


async def _chat_events(
    handler: Any,
    stream: Stream,
    asked: ChatRequest,
    stamp: dict[str, Any],
    choices: list[Choice],
    prompt: Sequence[int],
) -> AsyncIterator[bytes]:
    with_usage = asked.stream_options is not None and asked.stream_options.include_usage
    stamp = {**stamp, "object": "chat.completion.chunk"}

    def chunk(index: int, delta: dict[str, Any], odds: Any = None, reason: Any = None) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": odds, "finish_reason": reason}
        more = {"usage": None} if with_usage else {}
        return event({**stamp, "choices": [choice], **more})

    def deltas(said: Said) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        if said.reasoning:
            found.append({"reasoning_content": said.reasoning})
        if said.content:
            found.append({"content": said.content})
        return found + [{"tool_calls": [call]} for call in said.calls]

    async with stream:
        for index in range(len(choices)):
            yield chunk(index, {"role": "assistant", "content": ""})
        async for number, item in stream.items():
            choice = choices[number]
            said = choice.parts.finish() if item is None else choice.parts.feed(item.text)
            choice.calls += len(said.calls)
            odds = _chat_odds(handler, item.odds) if item is not None and item.odds else None
            found = deltas(said)
            if odds is not None and not found:
                found = [{"content": ""}]
            for delta in found:
                yield chunk(number, delta, odds)
                odds = None
            if item is not None:
                continue
            try:
                check_ended(choice)
            except RequestError as error:
                yield event(error.body())
                return
            yield chunk(number, {}, reason=choice.reason)
        if with_usage:
            yield event({**stamp, "choices": [], "usage": usage(choices, [prompt])})
        yield b"data: [DONE]\n\n"


# ------------------------------------------------------------ completions
async def complete(handler: Any, body: Any) -> Reply:
    """/v1/completions"""
    asked = parse(CompletionRequest, body)
    asked.check()
    handler.check_model(asked.model)
    prompts = [
        await handler.prepared(lambda given=given: _tokens(handler, given))
        for given in asked.prompts()
    ]
    if not 1 <= len(prompts) <= 64:
        raise RequestError(f"{len(prompts)} prompts; 1 to 64 are accepted", param="prompt")
    for prompt in prompts:
        handler.check_length(prompt, "prompt")
    constraint = await handler.prepared(lambda: constraint_of(handler.tokenizer, asked))
    stamp = _stamp(handler, "cmpl", "text_completion")
    stream = handler.router.open()
    scores: list[list[TokenOdds | None]] | None = None
    if asked.echo and asked.logprobs is not None:
        scores = [[] for _ in prompts]
    if asked.stream:
        choices = begin(
            handler, stream, asked, prompts, asked.logprobs, (False, False), constraint, scores
        )
        events = _text_events(handler, stream, asked, stamp, choices, prompts)
        return Reply(stream=events, source=stream)
    async with stream:
        choices = begin(
            handler, stream, asked, prompts, asked.logprobs, (False, False), constraint, scores
        )
        async for number, item in stream.items():
            if item is not None:
                choices[number].pieces.append(item)
    found = []
    for i, choice in enumerate(choices):
        check_ended(choice)
        number = i // asked.choices
        text = "".join(piece.text for piece in choice.pieces)
        odds: list[TokenOdds | None] = [one for piece in choice.pieces for one in piece.odds]
        if asked.echo:
            text = handler.tokenizer.decode(prompts[number]) + text
            odds = (scores[number] if scores is not None else []) + odds
        found.append(_text_choice(handler, i, text, asked, odds, choice, prompts[number]))
    return Reply({**stamp, "choices": found, "usage": usage(choices, prompts)})


def _tokens(handler: Any, given: str | list[int]) -> list[int]:
    found: list[int] = handler.tokenizer.prompt(given) if isinstance(given, str) else given
    return found


def _text_choice(
    handler: Any,
    index: int,
    text: str,
    asked: CompletionRequest,
    odds: Sequence[TokenOdds | None],
    choice: Choice | None = None,
    prompt: Sequence[int] = (),
) -> dict[str, Any]:
    found = None
    if asked.logprobs is not None:
        tokens = list(prompt[:1]) if odds and odds[0] is None else []
        tokens += [one.token for one in odds if one is not None]
        names = [handler.tokenizer.pieces[t].decode("utf-8", "replace") for t in tokens]
        offsets = [0, *np.cumsum([len(name) for name in names]).tolist()][:-1]
        found = {
            "tokens": names,
            "token_logprobs": [None if o is None else max(o.log_odds, -9999.0) for o in odds],
            "top_logprobs": [
                None
                if o is None
                else {
                    handler.tokenizer.pieces[t].decode("utf-8", "replace"): max(v, -9999.0)
                    for t, v in o.best
                }
                for o in odds
            ],
            "text_offset": offsets,
        }
    reason = None if choice is None else choice.reason
    return {"index": index, "text": text, "logprobs": found, "finish_reason": reason}


async def _text_events(
    handler: Any,
    stream: Stream,
    asked: CompletionRequest,
    stamp: dict[str, Any],
    choices: list[Choice],
    prompts: Sequence[Sequence[int]],
) -> AsyncIterator[bytes]:
    with_usage = asked.stream_options is not None and asked.stream_options.include_usage
    more = {"usage": None} if with_usage else {}
    async with stream:
        if asked.echo:
            for i in range(len(choices)):
                text = handler.tokenizer.decode(prompts[i // asked.choices])
                yield event(
                    {**stamp, "choices": [_text_choice(handler, i, text, asked, ())], **more}
                )
        async for number, item in stream.items():
            choice = choices[number]
            if item is None:
                try:
                    check_ended(choice)
                except RequestError as error:
                    yield event(error.body())
                    return
                found = _text_choice(handler, number, "", asked, (), choice)
            else:
                found = _text_choice(handler, number, item.text, asked, item.odds)
            yield event({**stamp, "choices": [found], **more})
        if with_usage:
            yield event({**stamp, "choices": [], "usage": usage(choices, prompts)})
        yield b"data: [DONE]\n\n"


# ------------------------------------------------------------ embeddings, tokens
async def embed(handler: Any, body: Any) -> Reply:
    """/v1/embeddings: the mean of what the last layer says of the tokens, of length 1."""
    asked = parse(EmbeddingRequest, body)
    handler.check_model(asked.model)
    if asked.dimensions is not None:
        raise RequestError("dimensions cannot be chosen for this model", param="dimensions")
    given = CompletionRequest(prompt=asked.input).prompts()
    prompts = [await handler.prepared(lambda g=g: _tokens(handler, g)) for g in given]
    vectors = await embeddings(handler, prompts, "input")
    data = []
    for i, vector in enumerate(vectors):
        value: Any = vector.tolist()
        if asked.encoding_format == "base64":
            value = base64.b64encode(vector.astype("<f4").tobytes()).decode()
        data.append({"object": "embedding", "index": i, "embedding": value})
    count = sum(len(prompt) for prompt in prompts)
    used = {"prompt_tokens": count, "total_tokens": count}
    name = handler.speaker.name
    return Reply({"object": "list", "data": data, "model": name, "usage": used})


async def embeddings(handler: Any, prompts: Sequence[list[int]], param: str) -> list[Array]:
    """One vector for each prompt."""
    if not 1 <= len(prompts) <= 256:
        raise RequestError(f"{len(prompts)} texts; 1 to 256 are accepted", param=param)
    sums: list[Array] = [np.zeros(1) for _ in prompts]
    texts = []
    for number, prompt in enumerate(prompts):
        handler.check_length(prompt, param)

        def add(hidden: Array, number: int = number) -> None:
            sums[number] = sums[number] + hidden.astype(np.float64).sum(0)

        text = Text(list(prompt), lambda token, logits: True, asked="hidden", receive_prompt=add)
        texts.append(text)
    async with handler.router.open() as stream:
        handler.submit(stream, texts)
        async for number, _ in stream.items():
            check_ended(Choice(texts[number], None, None))  # type: ignore[arg-type]
    return [total / max(float(np.linalg.norm(total)), 1e-12) for total in sums]


async def tokenize(handler: Any, body: Any) -> Reply:
    """/tokenize: of a text, or of a chat as its template writes it."""
    asked = parse(TokenizeRequest, body)
    handler.check_model(asked.model)
    if asked.messages is not None:
        chat = ChatRequest(messages=asked.messages)
        tokens, _ = await handler.prepared(lambda: handler.speaker.chat(chat.texts()))
    else:
        text = asked.content if asked.content is not None else asked.prompt
        if text is None:
            raise RequestError("content is missing: the text to cut", param="content")
        with_bos = (
            asked.add_special if asked.add_special_tokens is None else asked.add_special_tokens
        )
        tokenizer = handler.tokenizer
        cut = tokenizer.prompt if with_bos else tokenizer.encode
        tokens = await handler.prepared(
            lambda: cut(text) if asked.parse_special else tokenizer.encode(text, special=False)
        )
    most = handler.engine.batcher.model.max_context
    return Reply({"tokens": tokens, "count": len(tokens), "max_model_len": most})


async def detokenize(handler: Any, body: Any) -> Reply:
    """/detokenize"""
    asked = parse(DetokenizeRequest, body)
    handler.check_model(asked.model)
    size = len(handler.tokenizer.pieces)
    if not all(0 <= token < size for token in asked.tokens):
        raise RequestError(f"tokens are 0 to {size - 1}", param="tokens")
    text = b"".join(handler.tokenizer.pieces[t] for t in asked.tokens).decode("utf-8", "replace")
    return Reply({"content": text, "prompt": text})
