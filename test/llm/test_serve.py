"""The server as clients meet it: answers, streams, errors, limits, clients that leave."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from test.llm.made import chat_file
from test.optional import need
from weft.llm.cli import Chat
from weft.llm.generate import Sampling
from weft.llm.load import load
from weft.llm.serve import LLMServer, ServerOptions
from weft.llm.speaker import Speaker

LIMIT = 60.0


class Client:
    """Talks to one server."""

    def __init__(self, server: LLMServer) -> None:
        self.batcher = server.engine.batcher
        self.port = server.listen()

    def send(
        self, path: str, body: Any = None, headers: dict[str, str] | None = None, raw: bytes = b""
    ) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
        data = raw or (None if body is None else json.dumps(body).encode())
        method = "GET" if data is None else "POST"
        connection.request(method, path, data, headers or {})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, text

    def get(self, path: str, body: Any = None) -> Any:
        status, text = self.send(path, body)
        assert status == 200, text
        return json.loads(text)

    def error(self, path: str, body: Any = None, **options: Any) -> tuple[int, Any]:
        status, text = self.send(path, body, **options)
        return status, json.loads(text)["error"]

    def events(self, path: str, body: Any) -> list[Any]:
        status, text = self.send(path, {**body, "stream": True})
        assert status == 200, text
        lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
        assert lines[-1] == "[DONE]"
        return [json.loads(line) for line in lines[:-1]]


def serving(path: Path, **options: Any) -> Iterator[Client]:
    need("uvicorn"), need("starlette"), need("pydantic"), need("jinja2")
    speaker = Speaker(load(path, texts=2))
    server = LLMServer(speaker, ServerOptions(port=0, sampling=Sampling(), **options))
    client = Client(server)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield client
    server.stop()
    thread.join(LIMIT)
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chat_file(tmp_path_factory.mktemp("model") / "tiny.gguf", max_position_embeddings=256)


@pytest.fixture(scope="module")
def client(file: Path) -> Iterator[Client]:
    yield from serving(file, largest_body=100_000)


HELLO = [{"role": "user", "content": "Hello"}]
CHAT = "/v1/chat/completions"


def test_an_answer_is_that_of_the_command_line(client: Client, file: Path) -> None:
    found = client.get(CHAT, {"messages": HELLO, "max_tokens": 12})
    expected = "".join(Chat(load(file)).answer("Hello", Sampling(), 12))
    choice = found["choices"][0]
    assert choice["message"]["content"] == expected
    assert choice["finish_reason"] == "length"
    usage = found["usage"]
    assert usage["completion_tokens"] == 12 and usage["prompt_tokens"] > 5
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
    again = client.get(CHAT, {"messages": parts, "max_completion_tokens": 12, "model": "tiny"})
    assert again["choices"][0]["message"]["content"] == expected


def test_a_stream_says_what_a_whole_answer_says(client: Client) -> None:
    for more in (
        {},
        {"temperature": 0.9, "seed": 5, "n": 2},
        {"logprobs": True, "top_logprobs": 2},
    ):
        body = {"messages": HELLO, "max_tokens": 10, **more}
        whole = client.get(CHAT, body)
        events = client.events(CHAT, {**body, "stream_options": {"include_usage": True}})
        for i, choice in enumerate(whole["choices"]):
            mine = [
                e["choices"][0] for e in events if e["choices"] and e["choices"][0]["index"] == i
            ]
            assert mine[0]["delta"] == {"role": "assistant", "content": ""}
            text = "".join(c["delta"].get("content", "") for c in mine)
            assert text == choice["message"]["content"]
            assert mine[-1]["finish_reason"] == choice["finish_reason"]
            odds = [o for c in mine for o in (c["logprobs"] or {"content": []})["content"]]
            assert odds == (choice["logprobs"] or {"content": []})["content"]
        assert events[-1]["choices"] == [] and all(e["usage"] is None for e in events[:-1])
        last = events[-1]["usage"]
        assert last["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert len(odds) == 10 and len(odds[0]["top_logprobs"]) == 2
    assert odds[0]["top_logprobs"][0]["logprob"] == odds[0]["logprob"] < 0


def test_stop_words_end_an_answer(client: Client) -> None:
    body = {"prompt": "The quick", "max_tokens": 40}
    whole = client.get("/v1/completions", body)["choices"][0]
    word = whole["text"][10:13]
    cut = client.get("/v1/completions", {**body, "stop": [word, "never"]})["choices"][0]
    assert cut["text"] == whole["text"][: whole["text"].index(word)]
    assert (whole["finish_reason"], cut["finish_reason"]) == ("length", "stop")
    text = "".join(
        e["choices"][0]["text"] for e in client.events("/v1/completions", {**body, "stop": word})
    )
    assert text == cut["text"]


def test_a_prompt_is_scored(client: Client) -> None:
    """What lm-evaluation-harness asks for: echo with log probabilities, and no new tokens."""
    tokens = client.get("/tokenize", {"content": "The quick brown fox"})["tokens"]
    body = {"prompt": tokens, "echo": True, "logprobs": 3, "max_tokens": 0}
    choice = client.get("/v1/completions", body)["choices"][0]
    odds = choice["logprobs"]
    assert choice["text"] == "The quick brown fox" == "".join(odds["tokens"])
    assert odds["token_logprobs"][0] is None and all(o < 0 for o in odds["token_logprobs"][1:])
    assert len(odds["token_logprobs"]) == len(tokens)
    # the same as when it says so itself
    following = client.get("/v1/completions", {"prompt": tokens, "logprobs": 0, "max_tokens": 3})
    first = following["choices"][0]["logprobs"]
    more = client.get("/tokenize", {"content": first["tokens"][0]})["tokens"]
    if len(more) == 1:
        scored = client.get("/v1/completions", {**body, "prompt": [*tokens, *more]})
        last = scored["choices"][0]["logprobs"]["token_logprobs"][-1]
        assert last == pytest.approx(first["token_logprobs"][0], rel=1e-4)


def test_an_answer_keeps_to_a_schema(client: Client) -> None:
    schema = {
        "type": "object",
        "properties": {
            "kind": {"enum": ["cat", "dog"]},
            "age": {"type": "integer", "minimum": 0, "maximum": 30},
        },
        "required": ["kind", "age"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "pet", "schema": schema}}
    body = {"messages": HELLO, "response_format": form, "temperature": 1.0}
    for seed in range(4):
        found = client.get(CHAT, {**body, "seed": seed})["choices"][0]
        value = json.loads(found["message"]["content"])
        assert value["kind"] in ("cat", "dog") and 0 <= value["age"] <= 30
        assert found["finish_reason"] == "stop"
    text = client.get(CHAT, {"messages": HELLO, "grammar": 'root ::= "ja" | "nein"'})
    assert text["choices"][0]["message"]["content"] in ("ja", "nein")
    tools = [{"type": "function", "function": {"name": "feed", "parameters": schema}}]
    asked = {"messages": HELLO, "tools": tools, "tool_choice": "required", "temperature": 1.0}
    choice = client.get(CHAT, asked)["choices"][0]
    call = choice["message"]["tool_calls"][0]["function"]
    assert choice["finish_reason"] == "tool_calls" and call["name"] == "feed"
    assert json.loads(call["arguments"])["kind"] in ("cat", "dog")
    events = client.events(CHAT, asked)
    calls = [c for e in events for c in e["choices"][0]["delta"].get("tool_calls", [])]
    assert [call["index"] for call in calls] == [0]
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_embeddings_and_tokens(client: Client) -> None:
    found = client.get("/v1/embeddings", {"input": ["Hello", "Hello", "another text"]})
    first, second, third = (item["embedding"] for item in found["data"])
    assert first == pytest.approx(second, abs=1e-5) and first != third
    assert sum(x * x for x in third) == pytest.approx(1) and len(third) == 64
    text = "Grüße 😀 <|im_end|>"
    tokens = client.get("/tokenize", {"content": text})["tokens"]
    assert client.get("/detokenize", {"tokens": tokens})["content"] == text
    plain = client.get("/tokenize", {"content": text, "parse_special": False})["tokens"]
    assert len(plain) > len(tokens)


def test_what_is_looked_at(client: Client) -> None:
    assert client.get("/health") == {"status": "ok"}
    assert client.get("/v1/models")["data"][0]["id"] == "tiny"
    assert client.get("/v1/models/tiny")["context_length"] == 256
    status, page = client.send("/")
    assert status == 200 and "<title>weft chat</title>" in page
    status, text = client.send("/metrics")
    assert status == 200 and "weft_llm_answer_tokens_total" in text
    assert client.get("/api/tags")["models"][0]["name"] == "tiny"


@pytest.mark.parametrize(
    ("body", "status", "param", "message"),
    [
        ({}, 400, "messages", "messages is empty"),
        ({"messages": "x"}, 400, "messages", "valid list"),
        ({"messages": [{"role": "dog", "content": "x"}]}, 400, "messages.0.role", "'system'"),
        ({"messages": HELLO, "temperature": -1}, 400, None, "temperature is -1.0; 0.0 to 100.0"),
        ({"messages": HELLO, "temperature": "hot"}, 400, "temperature", "number"),
        ({"messages": HELLO, "n": 0}, 400, "n", "1 to 16"),
        ({"messages": HELLO, "model": "gpt-9"}, 404, "model", "'tiny' is"),
        ({"messages": HELLO, "functions": []}, 400, "functions", "tools is"),
        ({"messages": HELLO, "top_logprobs": 3}, 400, "top_logprobs", "logprobs to be true"),
        ({"messages": HELLO, "response_format": {"type": "xml"}}, 400, "response_format", "xml"),
        ({"messages": HELLO, "grammar": 'root ::= "'}, 400, "grammar", "line 1 of the grammar"),
        ({"messages": [{"role": "user", "content": "x" * 4000}]}, 400, "messages", "256 tokens"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            400,
            "messages[0].content",
            "reads text only",
        ),
        ([1, 2], 400, None, "an object is wanted"),
    ],
)
def test_a_mistake_is_an_error_object(
    client: Client, body: Any, status: int, param: str | None, message: str
) -> None:
    found, error = client.error(CHAT, body)
    assert (found, error["param"]) == (status, param) and message in error["message"]
    assert error["type"] == "invalid_request_error"


def test_what_is_no_request_at_all(client: Client) -> None:
    status, error = client.error(CHAT, raw=b'{"messages": [')
    assert status == 400 and "no JSON" in error["message"]
    status, error = client.error(CHAT, raw=b"[" * 50_000)
    assert status == 400
    status, error = client.error(CHAT, raw=b'"' + b"x" * 200_000 + b'"')
    assert status == 413 and "100000 are read" in error["message"]
    assert client.error("/v1/nothing")[0] == 404
    assert client.error(CHAT)[0] == 405
    body = {"messages": [{"role": "user", "content": "x" * 4000}]}
    assert client.error(CHAT, body)[1]["code"] == "context_length_exceeded"


def test_other_hosts_and_pages_are_refused(client: Client) -> None:
    status, error = client.error("/v1/models", headers={"Host": "evil.example"})
    assert status == 403 and "not this machine" in error["message"]
    headers = {"Origin": "https://evil.example"}
    assert client.error(CHAT, {"messages": HELLO}, headers=headers)[0] == 403
    assert client.send("/v1/models", headers={"Origin": "http://localhost:3000"})[0] == 200


def test_a_client_that_leaves_is_not_waited_for(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = client.batcher.step

    def slow() -> bool:
        time.sleep(0.02)
        return step()

    monkeypatch.setattr(client.batcher, "step", slow)
    for stream in (True, False):
        before = _metric(client, "texts_cancelled_total")
        body = json.dumps({"messages": HELLO, "stream": stream, "ignore_eos": True}).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", client.port), timeout=LIMIT) as connection:
            connection.sendall(head.encode() + body)
            end = time.monotonic() + LIMIT
            while not _metric(client, "texts_running"):
                assert time.monotonic() < end
        while _metric(client, "texts_cancelled_total") == before:
            assert time.monotonic() < end
            time.sleep(0.02)
    while _metric(client, "texts_running") or _metric(client, "texts_waiting"):
        assert time.monotonic() < end
        time.sleep(0.02)
    assert _metric(client, "cache_pages_free") == _metric(client, "cache_pages")


def _metric(client: Client, name: str) -> float:
    _, text = client.send("/metrics")
    lines = [line for line in text.splitlines() if line.startswith(f"weft_llm_{name} ")]
    return float(lines[0].split()[1])


def test_several_clients_get_what_one_gets(client: Client) -> None:
    bodies = [{"prompt": f"The {i}", "max_tokens": 8 + i} for i in range(12)]
    alone = [client.get("/v1/completions", body)["choices"][0]["text"] for body in bodies]
    found: dict[int, str] = {}

    def ask(i: int) -> None:
        found[i] = "".join(
            e["choices"][0]["text"] for e in client.events("/v1/completions", bodies[i])
        )

    threads = [threading.Thread(target=ask, args=(i,), daemon=True) for i in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert [found[i] for i in range(len(bodies))] == alone


def test_a_key_and_a_full_queue(file: Path) -> None:
    for client in serving(file, api_key="secret", most_waiting=2):
        status, error = client.error(CHAT, {"messages": HELLO})
        assert status == 401 and error["code"] == "invalid_api_key"
        key = {"Authorization": "Bearer secret"}
        assert client.send(CHAT, {"messages": HELLO, "max_tokens": 2}, key)[0] == 200
        status, error = client.error(CHAT, {"messages": HELLO, "n": 3}, headers=key)
        assert status == 429 and error["code"] == "rate_limit_exceeded"
        assert client.send("/health")[0] == 200


def test_clients_of_ollama(client: Client) -> None:
    body = {"model": "tiny", "messages": HELLO, "options": {"num_predict": 6}, "stream": False}
    whole = client.get("/api/chat", body)
    assert whole["done"] and whole["done_reason"] == "length" and whole["eval_count"] == 6
    _, text = client.send("/api/chat", {**body, "stream": True})
    lines = [json.loads(line) for line in text.splitlines()]
    assert "".join(line["message"]["content"] for line in lines) == whole["message"]["content"]
    found = client.get("/api/generate", {**body, "prompt": "Hello"})
    assert found["response"] == whole["message"]["content"]
    assert len(client.get("/api/embed", {"input": ["a", "b"]})["embeddings"]) == 2
    status, error = client.error("/api/chat", {**body, "options": {"mirostat": 1}})
    assert status == 400 and error["param"] == "options.mirostat"
