"""graph_rewrite: a PatternMatcher applied to a whole graph until nothing matches any more.

What comes in: a graph, rules, a context for the rules. What goes out: the rewritten graph, or with
`graph_rewrite_map` what each node of the graph became.
Where it sits: above the matcher; every pass of the scheduler and of codegen is a call of it.
The one invariant: nothing recurses, and each version of a node is processed once, however many
nodes use it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from weft.errors import ArgumentError, RewriteError
from weft.knobs import TRACK_MATCH_STATS
from weft.uop import trace
from weft.uop.matcher import PatternMatcher, Rule
from weft.uop.node import UOp
from weft.uop.reproduce import save_graph

Gate: TypeAlias = Callable[[UOp], bool]
Rewriter: TypeAlias = Callable[[UOp, Any], Any]

# One node replaced this often in a row, or this many replacements waiting for each other: rules
# that make ever larger or ever other nodes. Honest rule sets stay far below.
REPLACEMENT_LIMIT = 1000
NESTING_LIMIT = 100_000


def graph_rewrite(
    sink: UOp,
    pm: PatternMatcher,
    ctx: Any = None,
    bottom_up: bool = False,
    name: str | None = None,
    bpm: PatternMatcher | None = None,
    gate: Gate | None = None,
    walk: bool = False,
    enter_calls: bool = True,
) -> UOp:
    """The graph after every rule of `pm` came to rest.

    Sources come first: a node is offered to the rules when its sources are final, and what replaces
    it is processed in turn, new sources included. With `bottom_up` a node is offered before its
    sources are looked at, and once more if they changed. `bpm` holds rules for the way to the
    sources (as with `bottom_up`) beside those of `pm` for the way back. `gate` says, as in
    `toposort`, whose sources to enter; a node that is not entered is offered to the rules itself.
    With `walk` each node is offered once, and what replaces it is left as it is. (`enter_calls` is
    tinygrad's: functions are part of the graph here.)
    """
    if walk:
        return _walk_once(sink, pm, ctx, bottom_up, gate)
    return _Rewrite(pm, ctx, bottom_up, name, bpm, gate).run(sink)[sink]


def _walk_once(root: UOp, pm: PatternMatcher, ctx: Any, bottom_up: bool, gate: Gate | None) -> UOp:
    """Each node replaced at most once: before its sources (`bottom_up`) or after them."""
    done: dict[UOp, UOp] = {}

    def enters(node: UOp) -> bool:
        if bottom_up and (replaced := pm.rewrite(node, ctx)) is not None:
            done[node] = replaced
            return False
        return gate is None or gate(node)

    for node in root.toposort(enters):
        if node in done:
            continue
        if not node.src and bottom_up:
            # a leaf is not entered, so nobody has offered it yet
            replaced = pm.rewrite(node, ctx)
            done[node] = node if replaced is None else replaced
            continue
        final = tuple([done.get(s, s) for s in node.src])
        new = node if final == node.src else node.with_src(final)
        result = None if bottom_up else pm.rewrite(new, ctx)
        done[node] = new if result is None else result
    return done[root]


def graph_rewrite_map(
    sink: UOp,
    pm: PatternMatcher,
    ctx: Any = None,
    bottom_up: bool = False,
    name: str | None = None,
    bpm: PatternMatcher | None = None,
    gate: Gate | None = None,
) -> dict[UOp, UOp]:
    """What `graph_rewrite` makes of each node of the graph; nodes that stay are left out."""
    results = _Rewrite(pm, ctx, bottom_up, name, bpm, gate).run(sink)
    return {
        node: results[node] for node in sink.toposort(gate) if results.get(node, node) is not node
    }


# Marks on the stack above a node: its sources are done; what replaces it is done.
_REBUILD: Any = "rebuild"
_SETTLE: Any = "settle"


def _with_final_sources(node: UOp, done: dict[UOp, UOp]) -> UOp:
    for source in node.src:
        if done[source] is not source:
            return node.with_src(tuple([done[s] for s in node.src]))
    return node


class _Rewrite:
    """One run: what nodes became (`done`), and what they became that is not final (`becomes`)."""

    def __init__(
        self,
        pm: PatternMatcher,
        ctx: Any,
        bottom_up: bool,
        name: str | None,
        bpm: PatternMatcher | None,
        gate: Gate | None,
    ) -> None:
        if bottom_up and bpm is not None:
            raise ArgumentError("graph_rewrite takes bottom_up=True or bpm=, not both")
        self.after: PatternMatcher | None = None if bottom_up else pm
        self.before: PatternMatcher | None = pm if bottom_up else bpm
        self.ctx = ctx
        self.name = name or "rewrite"
        self.gate = gate
        self.done: dict[UOp, UOp] = {}
        self.becomes: dict[UOp, UOp] = {}
        # how many replacements in a row led to a node
        self.steps: dict[UOp, int] = {}
        self.nesting = 0

    def run(self, root: UOp) -> dict[UOp, UOp]:
        """`done`, with `root` and all it needed in it."""
        watchers = list(trace.tracers)
        for watcher in watchers:
            watcher.start(self.name, root)
        watched = bool(watchers) or TRACK_MATCH_STATS.value > 0
        before, after = [
            None if pm is None else self._watched(pm, watchers) if watched else pm.rewrite
            for pm in (self.before, self.after)
        ]
        try:
            self._walk(root, before, after)
        except Exception as error:
            self._save_reproducer(root, error)
            raise
        for watcher in watchers:
            watcher.finish(self.name, self.done[root])
        return self.done

    def _watched(self, pm: PatternMatcher, watchers: list[trace.Tracer]) -> Rewriter:
        def seen(before: UOp, after: UOp, rule: Rule) -> None:
            for watcher in watchers:
                watcher.step(self.name, before, after, rule)

        return lambda uop, ctx: pm.rewrite_watched(uop, ctx, seen)

    def _walk(self, root: UOp, before: Rewriter | None, after: Rewriter | None) -> None:
        done, becomes, ctx, gate = self.done, self.becomes, self.ctx, self.gate
        # ops that some rule begins with; None: any. Most nodes of a graph interest no rule.
        ops = None if self.after is None else self.after.ops
        # what lies above a node on the stack says what happens to it when it comes up
        stack: list[Any] = [root]
        while stack:
            node = stack.pop()
            if node is _SETTLE:
                self._settle(stack.pop())
                self.nesting -= 1
                continue
            if node is not _REBUILD:
                if node in done:
                    continue
                if node in becomes:
                    self._settle(node)
                    continue
                result = None if before is None else before(node, ctx)
                if result is not None and result is not node:
                    self._replace(node, node, result)
                    stack += (node, _SETTLE, result)
                    continue
                if node.src and (gate is None or gate(node)):
                    stack.append(node)
                    stack.append(_REBUILD)
                    for s in reversed(node.src):
                        if s not in done:
                            stack.append(s)
                    continue
                new = node
            else:
                node = stack.pop()
                new = _with_final_sources(node, done)
                if new is not node and before is not None:
                    # new sources may be what a rule was waiting for: the node starts over
                    becomes[node] = new
                    self.nesting += 1
                    stack += (node, _SETTLE, new)
                    continue
                if new is not node and new in done:
                    done[node] = done[new]
                    continue
            is_wanted = after is not None and (ops is None or new.op in ops)
            result = after(new, ctx) if is_wanted else None  # type: ignore[misc]
            if result is None or result is new:
                done[node] = done[new] = new
            else:
                self._replace(node, new, result)
                stack += (node, _SETTLE, result)

    def _replace(self, node: UOp, new: UOp, result: Any) -> None:
        """`new`, which is `node` with final sources, was replaced; `node` waits for the result."""
        if not isinstance(result, UOp):
            raise RewriteError(
                f"{self._rule_for(new)} returned {result!r}, which is no UOp, for {new!r}"
            )
        if result.origin is None and result.src:
            result.origin = new.origin
        steps = self.steps.get(node, 0) + 1
        self.steps[result] = max(steps, self.steps.get(result, 0))
        self.becomes[node] = self.becomes[new] = result
        self.nesting += 1
        if steps > REPLACEMENT_LIMIT or self.nesting > NESTING_LIMIT:
            raise self._endless(node)

    def _settle(self, node: UOp) -> None:
        """What replaces the node is final; if it is not, it waits for this very node."""
        result = self.done.get(self.becomes[node])
        if result is None:
            raise self._endless(node)
        self.done[node] = result

    # ------------------------------------------------------------ errors
    def _save_reproducer(self, root: UOp, error: Exception) -> None:
        """Keep the graph that this rewrite failed on, and say where; a rewrite inside it did."""
        if any("the graph is saved in" in note for note in getattr(error, "__notes__", ())):
            return
        notes = "\n".join(getattr(error, "__notes__", ()))
        path = save_graph(root, f"rewrite {self.name!r}\n{type(error).__name__}: {error}\n{notes}")
        if path is not None:
            error.add_note(f"the graph is saved in {path}; weft.uop.reproduce.load_graph reads it")

    def _rule_for(self, node: UOp) -> Rule | None:
        """The rule that replaces a node: found again by trying, as this is about to be an error."""
        for pm in (self.before, self.after):
            for rule in pm.candidates(node) if pm is not None else ():
                try:
                    if rule.compiled()(node, self.ctx) is not None:
                        return rule
                except Exception:
                    return rule
        return None

    def _endless(self, node: UOp) -> RewriteError:
        """Names the rules that keep replacing: those of the last replacements that still wait."""
        chain: list[UOp] = [node]
        seen = {node}
        while (following := self.becomes.get(chain[-1])) is not None and following not in seen:
            chain.append(following)
            seen.add(following)
        waiting = [n for n in reversed(self.becomes) if n not in self.done]
        rules: dict[Rule, UOp] = {}
        for member in [*chain, *waiting[:50]]:
            rule = self._rule_for(member) if member in self.becomes else None
            if rule is not None:
                rules.setdefault(rule, member)
        listed = "\n".join(
            f"  {rule}, for example on {example.text()[:100]}" for rule, example in rules.items()
        )
        return RewriteError(
            f"the rewrite {self.name!r} does not come to rest: these rules undo each other or feed "
            f"themselves\n{listed}"
        )
