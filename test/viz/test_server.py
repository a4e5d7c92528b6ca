"""The server: this machine only, the token's holder only, its own files only."""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from test.children import Child
from weft import Tensor
from weft.commands.main import main
from weft.viz import server as server_module
from weft.viz.recording import recording
from weft.viz.server import CONTENT_TYPES, HOST, SECURITY_HEADERS, Server, page_files
from weft.viz.trace_file import TraceReader

PAGE = Path(server_module.__file__).parent / "page"
ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def trace_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "served.weft"
    with recording(path):
        (Tensor.arange(10) * 2 + 0).sum().realize()
    return path


@pytest.fixture(scope="module")
def server(trace_path: Path) -> Iterator[Server]:
    with Server(TraceReader(trace_path)) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join(300)


def ask(
    server: Server, path: str, method: str = "GET", host: str | None = None
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(HOST, server.server_port, timeout=30)
    headers = {} if host is None else {"Host": host}
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, {k.lower(): v for k, v in response.getheaders()}, body


def test_the_page_and_its_files_have_strict_headers(server: Server) -> None:
    for name, (kind, data) in page_files().items():
        status, headers, body = ask(server, f"/{server.token}/{name}")
        assert status == 200 and body == data
        assert headers["content-type"] == kind
        for header, value in SECURITY_HEADERS.items():
            assert headers[header.lower()] == value


def test_answers_are_json(server: Server) -> None:
    for question in ("index", "timeline", "unit/1", "graph/1/0/-1/0/after", "code/2"):
        status, headers, body = ask(server, f"/{server.token}/api/{question}")
        assert status == 200, question
        assert headers["content-type"] == "application/json"
        json.loads(body)


@pytest.mark.parametrize(
    "question",
    [
        "",
        "unit/99",
        "unit/x",
        "unit/1/2",
        "code/../index",
        "graph/1/0/-1/0/sideways",
        "graph/1/0/9/0/after",
        "graph/1/99/-1/0/after",
        "graph/1/0/-1/0",
        "index.json",
        "unit/99999999999999999999",
    ],
)
def test_wrong_questions_are_answered_with_what_is_wrong(server: Server, question: str) -> None:
    status, headers, body = ask(server, f"/{server.token}/api/{question}")
    assert status == 404 and headers["content-type"] == "application/json"
    assert json.loads(body)["error"]


def test_without_the_token_there_is_nothing(server: Server) -> None:
    other = "A" * len(server.token)
    for path in ("/", "/index.html", "/api/index", f"/{other}/", f"/{server.token}", "/%00/"):
        status, headers, body = ask(server, path)
        assert status == 404 and body == b"Not Found\n"
        assert headers["content-type"].startswith("text/plain")
        assert server.token.encode() not in body


def test_no_request_reaches_other_files(server: Server) -> None:
    for path in (
        "../server.py",
        "..%2fserver.py",
        "%2e%2e/server.py",
        "/etc/passwd",
        "vendor/../../server.py",
        "vendor",
        "style.css/",
        "STYLE.CSS",
        "main.js%00.css",
    ):
        assert ask(server, f"/{server.token}/{path}")[0] == 404


@pytest.mark.parametrize("host", ["example.org", "127.0.0.1", "127.0.0.1:1", ""])
def test_other_names_for_this_host_are_refused(server: Server, host: str) -> None:
    """A page elsewhere may point its own name at this address."""
    assert ask(server, f"/{server.token}/", host=host)[0] == 403
    named = f"localhost:{server.server_port}"
    assert ask(server, f"/{server.token}/", host=named)[0] == 200


def test_only_reading(server: Server) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        assert ask(server, f"/{server.token}/", method)[0] == 501
    status, headers, body = ask(server, f"/{server.token}/style.css", "HEAD")
    assert status == 200 and body == b"" and int(headers["content-length"]) > 1000


def test_it_listens_on_the_loopback_address_only(server: Server) -> None:
    assert server.server_address[0] == HOST == "127.0.0.1"
    try:
        outside = socket.gethostbyname(socket.gethostname())
    except OSError:
        pytest.skip("this machine does not know its own name")
    if outside.startswith("127."):
        pytest.skip("this machine has no other address")
    with pytest.raises(OSError):
        socket.create_connection((outside, server.server_port), timeout=5).close()


def test_tokens_differ(trace_path: Path) -> None:
    tokens = set()
    for _ in range(3):
        with Server(TraceReader(trace_path)) as one:
            tokens.add(one.token)
    assert len(tokens) == 3 and all(len(token) >= 32 for token in tokens)


# ------------------------------------------------------------ the page's own files
OWN = [path for path in PAGE.glob("*") if path.suffix in CONTENT_TYPES]


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_the_page_loads_nothing_from_elsewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|//cdn|@import|url\(", text)


@pytest.mark.parametrize("path", [p for p in OWN if p.suffix == ".js"], ids=lambda path: path.name)
def test_what_a_trace_says_is_text_and_never_markup(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\b|Function\("
    )
    assert not re.search(forbidden, text)
    assert not re.search(r"setAttribute\(\s*[\"']on", text)


def test_the_vendored_library_comes_with_its_licence() -> None:
    licence = (PAGE / "vendor" / "dagre.LICENSE.txt").read_text()
    assert "Permission is hereby granted" in licence
    library = (PAGE / "vendor" / "dagre.min.js").read_bytes()
    assert b"sourceMappingURL" not in library
    version = (PAGE / "vendor" / "dagre.VERSION.txt").read_text()
    assert hashlib.sha256(library).hexdigest() in version


# ------------------------------------------------------------ the command
def test_the_command_prints_the_address_and_ends_with_an_interrupt(trace_path: Path) -> None:
    command = [sys.executable, "-m", "weft", "viz", str(trace_path)]
    with Child(command, cwd=ROOT, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        first = running.stdout.readline()
        assert re.fullmatch(r"weft viz: http://127\.0\.0\.1:\d+/[\w-]{32,}/\n", first)
        running.interrupt()
        assert running.wait(60) == 0


def test_mistakes_at_the_command_line(
    tmp_path: Path, trace_path: Path, capsys: pytest.CaptureFixture[str], server: Server
) -> None:
    assert main(["viz", str(tmp_path / "absent.weft")]) == 2
    assert "there is no trace" in capsys.readouterr().err
    assert main(["viz", str(trace_path), "--port", "70000"]) == 2
    assert "0 to 65535" in capsys.readouterr().err
    assert main(["viz", str(trace_path), "--port", str(server.server_port)]) == 2
    assert "leave --port out" in capsys.readouterr().err


def test_without_any_trace_it_says_how_to_record_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("weft.viz.recording.trace_folder", lambda: tmp_path / "none")
    assert main(["viz"]) == 2
    assert "VIZ=1 python program.py" in capsys.readouterr().err
