"""The local server of the viewer.

What comes in: a trace and requests of a browser on this machine. What goes out: the page's own
files, and parts of the trace as JSON.
Where it sits: above the trace file and the graphs; the `weft viz` command runs it.
The one invariant: it answers only on the loopback address, only under the random token of its URL,
and only with what it loaded at its start: no request names a file.
"""

from __future__ import annotations

import hmac
import json
import secrets
import sys
import threading
from collections import OrderedDict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from weft.errors import DataError, WeftError
from weft.viz.graphs import UnitGraphs
from weft.viz.trace_file import TraceReader

HOST = "127.0.0.1"
CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
# Nothing from elsewhere, no inline scripts or styles, and nobody may frame or embed the page.
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; "
        "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
KEPT_UNITS = 12


def page_files() -> dict[str, tuple[str, bytes]]:
    """The page's own files by the path under which they are served."""
    folder = Path(__file__).resolve().parent / "page"
    found = {}
    for path in sorted(folder.rglob("*")):
        kind = CONTENT_TYPES.get(path.suffix)
        if kind is not None and path.is_file():
            found[path.relative_to(folder).as_posix()] = (kind, path.read_bytes())
    found[""] = found["index.html"]
    return found


class Answers:
    """What the page may ask about a trace."""

    def __init__(self, trace: TraceReader) -> None:
        self.trace = trace
        self._lock = threading.Lock()
        self._units: OrderedDict[int, UnitGraphs] = OrderedDict()

    def answer(self, path: str) -> bytes:
        """The JSON for a path such as `graph/3/0/-1/0/after`; DataError where there is none."""
        what, *rest = path.split("/")
        if what in ("index", "timeline") and not rest:
            return self.trace.raw(f"{what}.json")
        if what == "graph" and len(rest) == 5 and rest[4] in ("before", "after"):
            numbers = [_number(part) for part in rest[:4]]
            return self._graph(numbers[0], numbers[1], numbers[2], numbers[3], rest[4])
        if what == "unit" and len(rest) == 1:
            with self._lock:
                return _json(self._unit(_number(rest[0])).summary())
        if what == "code" and len(rest) == 1:
            return self.trace.raw(f"code/{_number(rest[0])}.json")
        if what == "threads" and len(rest) == 1:
            return self.trace.raw(f"threads/{_number(rest[0])}.json")
        raise DataError(f"the viewer answers no question {path!r}")

    def _unit(self, number: int) -> UnitGraphs:
        found = self._units.get(number)
        if found is None:
            found = UnitGraphs(self.trace.read(f"unit/{number}.json"), f"unit {number}")
            self._units[number] = found
            while len(self._units) > KEPT_UNITS:
                self._units.popitem(last=False)
        self._units.move_to_end(number)
        return found

    def _graph(self, unit: int, stage: int, rewrite: int, step: int, side: str) -> bytes:
        with self._lock:
            graphs = self._unit(unit)
            pair = graphs.pair(stage, rewrite, step)
            mine, other = pair if side == "before" else pair[::-1]
            if rewrite < 0:
                return _json(graphs.graph(mine, graphs.pass_marks(stage, side)))
            result = graphs.graph(mine, graphs.marks(mine, other))
            result["step"] = graphs.step_texts(stage, rewrite, step)
        return _json(result)


def _number(text: str) -> int:
    if not text.lstrip("-").isdecimal() or len(text) > 9:
        raise DataError(f"{text!r} is no number")
    return int(text)


def _json(data: Any) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()


class Server(ThreadingHTTPServer):
    """Serves one trace until `shutdown`."""

    daemon_threads = True

    def __init__(self, trace: TraceReader, port: int = 0) -> None:
        self.token = secrets.token_urlsafe(24)
        self.files = page_files()
        self.answers = Answers(trace)
        super().__init__((HOST, port), Handler)

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that hangs up is no news; all else is."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version = "weft"
    sys_version = ""

    def do_GET(self) -> None:
        """Files and answers."""
        # a page elsewhere that resolves its own name to this address still sends its own name
        names = (f"{HOST}:{self.server.server_port}", f"localhost:{self.server.server_port}")
        if self.headers.get("Host", "") not in names:
            self._refuse(HTTPStatus.FORBIDDEN)
            return
        path = self.path.partition("?")[0].removeprefix("/")
        token, slash, rest = path.partition("/")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()) or not slash:
            self._refuse(HTTPStatus.NOT_FOUND)
            return
        if rest.startswith("api/"):
            self._answer(rest.removeprefix("api/"))
            return
        found = self.server.files.get(rest)
        if found is None:
            self._refuse(HTTPStatus.NOT_FOUND)
        else:
            self._send(HTTPStatus.OK, *found)

    do_HEAD = do_GET

    def _answer(self, question: str) -> None:
        try:
            data = self.server.answers.answer(question)
        except WeftError as error:
            text = _json({"error": str(error)})
            self._send(HTTPStatus.NOT_FOUND, "application/json", text)
            return
        self._send(HTTPStatus.OK, "application/json", data)

    def _refuse(self, status: HTTPStatus) -> None:
        self._send(status, "text/plain; charset=utf-8", f"{status.phrase}\n".encode())

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in SECURITY_HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: the token is part of every path, and the page asks often."""
