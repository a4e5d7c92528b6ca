"""`weft viz [trace]`: shows a recorded trace in the browser.

What comes in: the path of a trace, or nothing for the newest one. What goes out: a page on this
machine, until Ctrl-C. Where it sits: with the commands, over the viewer.
The one invariant: the address is printed before the first request can come.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import webbrowser
from pathlib import Path

from weft.errors import ArgumentError, DataError
from weft.uop import trace as tracing
from weft.viz.recording import Recorder, last_trace
from weft.viz.server import HOST, Server
from weft.viz.trace_file import TraceReader

NAME = "viz"
HELP = "Show a trace, recorded with VIZ=1 or VIZ=-1, in the browser."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `weft viz`."""
    parser.add_argument("trace", nargs="?", help="the trace; the newest one if left out")
    parser.add_argument("--port", type=int, default=0, help="default: any that is free")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")


def run(args: argparse.Namespace) -> int:
    """Serve until interrupted."""
    for tracer in list(tracing.tracers):
        # VIZ=1 weft viz: the viewer itself is not the program to watch
        if isinstance(tracer, Recorder):
            tracer.discard()
    path = Path(args.trace) if args.trace else last_trace()
    if path is None:
        raise DataError("there is no trace yet; record one with `VIZ=1 python program.py`")
    if not 0 <= args.port <= 65535:
        raise ArgumentError(f"--port {args.port}: a port is a number from 0 to 65535")
    trace = TraceReader(path)
    try:
        server = Server(trace, args.port)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        raise ArgumentError(
            f"port {args.port} of {HOST} cannot be used ({error.strerror}); "
            "leave --port out for any that is free"
        ) from None
    with server, contextlib.suppress(KeyboardInterrupt):
        print(f"weft viz: {server.url}\n{path}, until Ctrl-C", flush=True)
        if args.open:
            webbrowser.open(server.url)
        server.serve_forever()
    return 0
