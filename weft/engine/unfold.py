"""Unfolding: graphs in which memory is what it was computed from, and the way back.

In: the root of a graph that somebody differentiates. Out: the same graph with the expressions of
`history` in the place of storages, and for values computed in there the graph with memory again.
Sits between `history`, which knows the past of each storage, and `gradients`.
Invariant: what is in memory is read from there, never computed again for a gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.engine.cell import Known
from weft.engine.history import Past, executed, past_of
from weft.engine.storage import shaped
from weft.errors import ArgumentError
from weft.gradient import is_differentiable
from weft.uop.node import UOp
from weft.uop.opset import Ops


def _is_remembered(node: UOp) -> bool:
    """Whether there is more to say about a node than its graph does."""
    if node.op is Ops.BUFFER:
        return past_of(node) is not None
    return node.op is Ops.AFTER and executed(node) is not None


def _is_asked_leaf(node: UOp) -> bool:
    if node.op is not Ops.BUFFER or node.held is None:
        return False
    cells = [reference() for reference in node.held.cells]
    return any([cell is not None and cell.is_asked for cell in cells])


class Unfolded:
    """A graph whose storages are replaced by what they were computed from.

    `now` says for each node of the graph, and of the expressions behind it, what it is in there.
    """

    def __init__(self, root: UOp) -> None:
        self.now: dict[UOp, UOp] = {}
        self._stored: dict[UOp, UOp] = {}
        self.cuts: list[tuple[UOp, Past]] = []
        self._has_lost = False
        self.root = root
        order = root.toposort(gate=is_differentiable)
        # where something is asked for, nobody asks what else there was
        self._only_asked = any([_is_asked_leaf(node) for node in order])
        self._asked: dict[Past, bool] = {}
        if not any([_is_remembered(node) for node in order]):
            self.now = {node: node for node in order}
            return
        self._walk(root)
        self.root = self.now[root]

    def _walk(self, root: UOp) -> None:
        now = self.now
        stack: list[tuple[UOp, tuple[UOp, ...] | None]] = [(root, None)]
        while stack:
            node, sources = stack.pop()
            if node in now:
                continue
            if sources is None:
                sources = self._below(node)
                missing = [source for source in sources if source not in now]
                if missing:
                    stack.append((node, sources))
                    stack.extend([(source, None) for source in reversed(missing)])
                    continue
            now[node] = self._made(node, sources)

    def _below(self, node: UOp) -> tuple[UOp, ...]:
        """What a node is computed from."""
        state = executed(node) if node.op is Ops.AFTER else None
        if state is not None:
            return (state,)
        storage = node
        while storage.op in (Ops.RESHAPE, Ops.SHRINK) and storage.src[0].op in (
            *(Ops.RESHAPE, Ops.SHRINK, Ops.BUFFER),
        ):
            storage = storage.src[0]
        if storage.op is Ops.BUFFER:
            held = storage.held
            past = None if held is None else held.past
            if past is not None and self._only_asked and not past.is_asked_now(self._asked):
                past = None
            if past is not None and past.expression is not None:
                shape = past.expression.shape
                is_fixed = all([type(size) is int for size in shape])
                if (node is storage and is_fixed) or node is shaped(storage, shape):
                    # what was written reads what was there before, also where no gradient passes
                    self._has_lost |= past.expression.op is Ops.AFTER
                    return (past.expression,)
            elif past is not None and node is storage and past.is_cut:
                self.cuts.append((storage, past))
            if node is storage and held is not None and held.is_lost:
                self._has_lost = True
        return node.src if is_differentiable(node) else ()

    def _made(self, node: UOp, sources: tuple[UOp, ...]) -> UOp:
        new = tuple([self.now[source] for source in sources])
        if sources is node.src:
            if new == sources:
                return node
            made = node.with_src(new)
            if node.op is Ops.AFTER:
                # a write that is pending stays one write
                self._stored[made] = node
            return made
        if not sources:
            return node
        if node.op is Ops.AFTER and executed(node) is sources[0]:
            return new[0]
        made = new[0]
        stored = shaped(node, made.shape) if node.op is Ops.BUFFER else node
        held = stored.base.held
        if not held.is_lost:
            self._stored[made] = stored
        if stored is node:
            return made
        # read otherwise than it is stored
        return made._mop(Ops.RESHAPE, node.shape)

    def folded(self, values: Sequence[UOp]) -> tuple[UOp, ...]:
        """Values that were computed in the unfolded graph, with memory where there is some."""
        if not self._stored and not self._has_lost:
            return tuple(values)
        found = UOp.sink(*values).substitute(self._stored)
        if self._has_lost:
            for node in found.toposort(gate=lambda node: type(node.held) is not Known):
                if node.op is Ops.BUFFER and node.held is not None and node.held.is_lost:
                    raise ArgumentError(
                        "a gradient needs the value that a Tensor had before it was written to; "
                        "call backward() before the write, or write to a clone()"
                    )
        return found.src
