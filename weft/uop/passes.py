"""Passes: the named steps that pipelines are lists of.

In: nothing. Out: `Pass` (a step from graph to graph, with why it is there) and `watching`, which
lets somebody see every step. Sits above the verifier; schedule and codegen are lists of these.
Invariant: under SPEC=2 the graph is verified after every step; when nobody watches, nothing here
runs but the step itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from weft.knobs import DEBUG, SPEC
from weft.uop.node import UOp
from weft.uop.prove import verify_pass
from weft.uop.spec import Spec
from weft.uop.text import nodes_text


class Stage(Protocol):
    """What a watcher keeps of one step."""

    after: UOp | None


# given name, why and the graph before a step; entered around it
Watcher = Callable[[str, str, UOp], contextlib.AbstractContextManager[Any]]
watchers: list[Watcher] = []


@contextlib.contextmanager
def watching(watcher: Watcher) -> Generator[None, None, None]:
    """Within the block `watcher` sees every step of every thread."""
    watchers.append(watcher)
    try:
        yield
    finally:
        watchers.remove(watcher)


@dataclass(frozen=True)
class Pass:
    """A named step from graph to graph, and why it is there."""

    name: str
    run: Callable[[UOp, Any], UOp]  # of the graph, and what the pipeline knows of its target
    why: str
    spec: Spec | None = None  # what the result has to be, under SPEC=2
    prove: bool = True  # that its accesses are inside their memory, too

    def __call__(self, graph: UOp, context: Any) -> UOp:
        """The graph after the step; watched, verified and printed if somebody asks for it."""
        with contextlib.ExitStack() as stack:
            stages = [stack.enter_context(w(self.name, self.why, graph)) for w in watchers]
            result = self.run(graph, context)
            for stage in stages:
                stage.after = result
        if DEBUG >= 5 and result is not graph:
            kernel = getattr(graph.arg, "name", "schedule")
            print(f"*** {kernel}: after {self.name}\n{nodes_text(list(result.toposort()))}")
        if SPEC >= 2 and self.spec is not None:
            again = partial(self.run, graph, context)
            verify_pass(result, self.spec, self.name, again, self.prove)
        return result
