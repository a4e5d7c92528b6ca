"""The server: OpenAI's interface over HTTP, and a page to chat on.

In: a `Speaker` and requests. Out: JSON, or streams of events. Above `engine`. Invariant: a client's
mistake is a status of 4xx with OpenAI's error object; unless a host is named only this machine is
listened to, and only requests that mean this machine are answered.

Starlette and uvicorn (extra `llm`) speak HTTP; pydantic checks what is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from weft.errors import ArgumentError, WeftError
from weft.llm import ollama, openai
from weft.llm.batch import Batcher, Guesser, Text
from weft.llm.engine import BusyError, Engine, Stream, StreamRouter
from weft.llm.requests import RequestError
from weft.llm.sample import Sampling
from weft.llm.speaker import Speaker
from weft.llm.tokens import package

__all__ = ["Handler", "LLMServer", "ServerOptions", "StreamRouter"]

_PAGE = Path(__file__).parent / "page" / "chat.html"


@dataclass(frozen=True)
class ServerOptions:
    """Where a server listens, whom it answers, and its limits."""

    host: str = "127.0.0.1"
    port: int = 8080
    api_key: str | None = None
    sampling: Sampling = field(default_factory=lambda: Sampling(temperature=1.0))
    most_waiting: int = 512  # texts that wait or run
    largest_body: int = 8 << 20  # bytes
    slowest_body: float = 30.0  # seconds until a body must be there

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        return _is_loopback(self.host)


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    return False


class Handler:
    """Answers requests; one method for each path."""

    def __init__(self, speaker: Speaker, engine: Engine, options: ServerOptions) -> None:
        self.speaker = speaker
        self.engine = engine
        self.options = options
        self.router = StreamRouter(engine)
        self.began = time.time()
        # templates and tokens take time, and their packages are asked one thing at a time
        self._preparing = ThreadPoolExecutor(1, "weft-llm-prompts")

    @property
    def tokenizer(self) -> Any:
        return self.speaker.tokenizer

    def routes(self) -> list[Any]:
        """Paths, methods and who answers."""
        route = package("starlette.routing").Route
        asked = {
            "/v1/chat/completions": openai.chat,
            "/v1/completions": openai.complete,
            "/v1/embeddings": openai.embed,
            "/tokenize": openai.tokenize,
            "/detokenize": openai.detokenize,
            "/api/chat": ollama.chat,
            "/api/generate": ollama.generate,
            "/api/embed": ollama.embed,
            "/api/show": ollama.show,
        }
        looked_at = {
            "/": self.page,
            "/health": self.health,
            "/metrics": self.metrics,
            "/v1/models": self.models,
            "/v1/models/{name:path}": self.models,
            "/api/version": self.ollama_version,
            "/api/tags": self.ollama_tags,
        }
        return [
            *(route(path, self._asked(answer), methods=["POST"]) for path, answer in asked.items()),
            *(route(path, answer, methods=["GET"]) for path, answer in looked_at.items()),
        ]

    # -------------------------------------------------------- what is looked at
    async def page(self, request: Any) -> Any:
        """The page to chat on."""
        responses = package("starlette.responses")
        headers = {
            "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
            "script-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; "
            "form-action 'none'; frame-ancestors 'none'",
            "Cache-Control": "no-cache",
        }
        return responses.HTMLResponse(_PAGE.read_text("utf-8"), headers=headers)

    async def health(self, request: Any) -> Any:
        """That it runs."""
        return json_response({"status": "ok"})

    async def models(self, request: Any) -> Any:
        """The one model."""
        config = self.speaker.loaded.config
        found = {
            "id": self.speaker.name,
            "object": "model",
            "created": int(self.began),
            "owned_by": "weft",
            "context_length": config.max_context,
        }
        name = request.path_params.get("name")
        if name is None:
            return json_response({"object": "list", "data": [found]})
        self.check_model(name)
        return json_response(found)

    async def ollama_version(self, request: Any) -> Any:
        """A version that Ollama's clients accept."""
        return json_response({"version": "0.12.0"})

    async def ollama_tags(self, request: Any) -> Any:
        """The one model, for Ollama's clients."""
        return json_response({"models": [ollama.description(self)]})

    async def metrics(self, request: Any) -> Any:
        """Counters in Prometheus' text form."""
        counters, batcher = self.engine.counters, self.engine.batcher
        values = {
            "requests_total": counters.requests,
            "requests_refused_total": counters.refused,
            "texts_cancelled_total": counters.cancelled,
            "texts_failed_total": counters.failed,
            "prompt_tokens_total": counters.prompt_tokens,
            "prompt_tokens_cached_total": counters.cached_tokens,
            "answer_tokens_total": counters.answer_tokens,
            "tokens_guessed_total": batcher.guesses,
            "tokens_guessed_right_total": batcher.guessed,
            "steps_total": batcher.steps,
            "busy_seconds_total": round(counters.busy_seconds, 6),
            "texts_running": len(batcher.running),
            "texts_waiting": len(batcher.waiting),
            "cache_pages": batcher.pages.count,
            "cache_pages_free": batcher.pages.free,
            "uptime_seconds": round(time.time() - self.began, 3),
        }
        lines = []
        for name, value in values.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# TYPE weft_llm_{name} {kind}", f"weft_llm_{name} {value}"]
        responses = package("starlette.responses")
        return responses.PlainTextResponse(
            "\n".join(lines) + "\n", media_type="text/plain; version=0.0.4"
        )

    # -------------------------------------------------------- what is asked
    def _asked(self, answer: Callable[[Handler, Any], Awaitable[Reply]]) -> Callable[..., Any]:
        async def endpoint(request: Any) -> Any:
            body = await self._body(request)
            work = asyncio.ensure_future(self._reply(answer, body))
            gone = asyncio.ensure_future(_until_gone(request))
            try:
                await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    return await work
            finally:
                # where the client has left, its texts are cancelled with the work
                for task in (work, gone):
                    task.cancel()
                await asyncio.gather(work, gone, return_exceptions=True)
            return package("starlette.responses").Response(status_code=499)

        return endpoint

    async def _reply(self, answer: Callable[[Handler, Any], Awaitable[Reply]], body: Any) -> Any:
        reply = await answer(self, body)
        if reply.stream is None:
            return json_response(reply.body)
        responses = package("starlette.responses")
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        response = responses.StreamingResponse(reply.stream, media_type=reply.kind, headers=headers)
        return _Sending(response, reply.source)

    async def _body(self, request: Any) -> Any:
        """A body as JSON, within the limits."""
        most = self.options.largest_body
        size = request.headers.get("content-length", "0")
        try:
            if int(size) > most:
                raise RequestError(f"a body of {size} bytes; {most} are read", 413)
            async with asyncio.timeout(self.options.slowest_body):
                data = bytearray()
                async for part in request.stream():
                    data += part
                    if len(data) > most:
                        raise RequestError(f"a body beyond {most} bytes, which are read", 413)
        except TimeoutError:
            raise RequestError("the body did not come in time", 408) from None
        except package("starlette.requests").ClientDisconnect:
            raise RequestError("the client has left", 499) from None
        except ValueError:
            raise RequestError(f"a Content-Length of {size[:40]!r}") from None
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise RequestError(f"the body is no JSON: {error}") from None

    async def prepared(self, work: Callable[[], Any]) -> Any:
        """What a function gives that takes time, beside the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._preparing, work)

    def check_model(self, name: str | None) -> None:
        """Refuses the name of another model."""
        mine = self.speaker.name
        if name not in (None, "", "default", mine, f"{mine}:latest"):
            raise RequestError(
                f"the model {name[:80]!r} is not here; {mine!r} is",
                404,
                "model",
                "model_not_found",
            )

    def check_length(self, tokens: Sequence[int], param: str) -> None:
        """Refuses a prompt that leaves no room for an answer."""
        most = self.engine.batcher.model.max_context
        if len(tokens) >= most:
            raise RequestError(
                f"This model's maximum context length is {most} tokens. However, your prompt has "
                f"{len(tokens)} tokens. Please reduce its length.",
                400,
                param,
                "context_length_exceeded",
            )
        if not tokens:
            raise RequestError("the prompt has no tokens", param=param)
        size = self.speaker.loaded.model.token_embd.weight.shape[0]
        if not all(0 <= token < size for token in tokens):
            raise RequestError(f"tokens are 0 to {size - 1}", param=param)

    def submit(self, stream: Stream, texts: list[Text]) -> None:
        """Begin texts whose items go into a stream."""
        for number, text in enumerate(texts):
            text.listener = _ended(stream, number, text.listener)
        try:
            stream.submit(texts)
        except BusyError as error:
            raise RequestError(
                str(error), 429, None, "rate_limit_exceeded", "server_busy"
            ) from None

    def close(self) -> None:
        """No more is prepared."""
        self._preparing.shutdown(wait=False, cancel_futures=True)


class _Sending:
    """A response whose texts are cancelled when it has ended, also if it never began."""

    def __init__(self, response: Any, source: Stream | None) -> None:
        self._response = response
        self._source = source

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await self._response(scope, receive, send)
        finally:
            if self._source is not None:
                self._source.cancel()


def _ended(stream: Stream, number: int, before: Callable[[], None] | None) -> Callable[[], None]:
    def listener() -> None:
        if before is not None:
            before()
        stream.put(number, None)

    return listener


Reply = openai.Reply


async def _until_gone(request: Any) -> None:
    """Returns when the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def json_response(body: Any, status: int = 200) -> Any:
    """JSON with all letters as they are."""
    responses = package("starlette.responses")
    data = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    # half of a letter that takes two words of UTF-16 cannot be written
    encoded = data.encode("utf-8", "replace")
    return responses.Response(encoded, status, media_type="application/json")


class Guard:
    """In front of all: who may ask, and what a browser may send from another page.

    A page of a stranger can make a browser talk to this machine, under a name of its own that
    leads here (DNS rebinding) or as another origin; neither is answered.
    """

    def __init__(self, app: Any, options: ServerOptions) -> None:
        self._app = app
        self._options = options

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}
        origin = headers.get("origin")
        error = self._refused(scope, headers, origin)
        if error is not None:
            await json_response(error.body(), error.status)(scope, receive, send)
            return
        allowed = [] if origin is None else [(b"access-control-allow-origin", origin.encode())]
        if origin is not None and scope["method"] == "OPTIONS":
            allowed += [
                (b"access-control-allow-headers", b"authorization, content-type"),
                (b"access-control-allow-methods", b"GET, POST"),
            ]
            await send({"type": "http.response.start", "status": 204, "headers": allowed})
            await send({"type": "http.response.body", "body": b""})
            return

        async def send_allowed(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *allowed]}
            await send(message)

        await self._app(scope, receive, send_allowed)

    def _refused(
        self, scope: Any, headers: dict[str, str], origin: str | None
    ) -> RequestError | None:
        options = self._options
        name = urlsplit(f"//{headers.get('host', '')}").hostname or ""
        if options.is_local and not _is_loopback(name):
            return RequestError(f"the host {name[:80]!r} is not this machine", 403, "Host")
        if origin is not None:
            theirs = urlsplit(origin).hostname or ""
            if theirs != name and not (options.is_local and _is_loopback(theirs)):
                return RequestError(f"pages of {origin[:80]!r} are not answered", 403, "Origin")
        if options.api_key is None or scope["method"] == "OPTIONS":
            return None
        if scope["path"] in ("/", "/health"):
            return None
        given = headers.get("authorization", "").removeprefix("Bearer ").strip()
        if hmac.compare_digest(given.encode(), options.api_key.encode()):
            return None
        return RequestError("the API key is missing or wrong", 401, None, "invalid_api_key")


class LLMServer:
    """A model behind a port."""

    def __init__(
        self,
        speaker: Speaker,
        options: ServerOptions | None = None,
        guesser: Guesser | None = None,
    ) -> None:
        self.options = options or ServerOptions()
        batcher = Batcher(speaker.loaded.model)
        batcher.guesser = guesser
        self.engine = Engine(batcher, self.options.most_waiting)
        self.handler = Handler(speaker, self.engine, self.options)
        self._server: Any = None
        self._sockets: list[socket.socket] = []

    def app(self) -> Any:
        """The application, for any ASGI server."""
        applications = package("starlette.applications")
        exceptions = package("starlette.exceptions")

        async def refused(request: Any, error: Any) -> Any:
            if isinstance(error, RequestError):
                return json_response(error.body(), error.status)
            if isinstance(error, exceptions.HTTPException):
                found = RequestError(
                    f"{request.method} {request.url.path}: {error.detail}", error.status_code
                )
                return json_response(found.body(), found.status)
            if isinstance(error, WeftError):
                return json_response(RequestError(str(error)).body(), 400)
            broken = RequestError(f"{type(error).__name__} in the server", 500, kind="server_error")
            return json_response(broken.body(), 500)

        @contextlib.asynccontextmanager
        async def lifespan(app: Any) -> AsyncIterator[None]:
            self.engine.start()
            yield
            await asyncio.get_running_loop().run_in_executor(None, self.engine.stop)
            self.handler.close()

        kinds = (WeftError, exceptions.HTTPException, Exception)
        inner = applications.Starlette(
            routes=self.handler.routes(),
            exception_handlers=dict.fromkeys(kinds, refused),
            lifespan=lifespan,
        )
        return Guard(inner, self.options)

    def listen(self) -> int:
        """Opens the port and says which it is; a port of 0 takes any that is free."""
        try:
            found = socket.create_server(
                (self.options.host, self.options.port),
                family=socket.AF_INET6 if ":" in self.options.host else socket.AF_INET,
                reuse_port=False,
                backlog=1024,
            )
        except OSError as error:
            raise ArgumentError(
                f"port {self.options.port} of {self.options.host} cannot be listened to: "
                f"{error.strerror or error}"
            ) from None
        self._sockets = [found]
        port: int = found.getsockname()[1]
        return port

    def run(self) -> None:
        """Answers until it is stopped, by Ctrl-C or `stop`."""
        uvicorn = package("uvicorn")
        if not self._sockets:
            self.listen()
        config = uvicorn.Config(
            self.app(),
            log_level="warning",
            access_log=False,
            lifespan="on",
            timeout_keep_alive=75,
            timeout_graceful_shutdown=5,
            h11_max_incomplete_event_size=1 << 16,
            server_header=False,
            ws="none",
        )
        self._server = uvicorn.Server(config)
        self._server.run(sockets=self._sockets)

    def stop(self) -> None:
        """Ends `run`, from any thread."""
        if self._server is not None:
            self._server.should_exit = True
