"""The graphs of a unit: before and after each pass, and at each step of each rewrite.

What comes in: the data of one unit of a trace. What goes out: graphs as columns for the page, with
a mark on each node: what is new, what will be gone, what only has new sources.
Where it sits: between the trace file and the server; it knows rows, no UOps.
The one invariant: the state at a step is the rewrite's first graph with the steps up to there put
in, so a trace need not keep a graph per step. Nothing recurses.
"""

from __future__ import annotations

from typing import Any

from weft.errors import DataError

# a row: op, dtype, arg, shape, tag, origin, then its sources
HEAD = 6
NOTHING = -1

KEPT, REBUILT, CHANGED = 0, 1, 2

_SYMBOLS = {
    "ADD": "+",
    "MUL": "*",
    "FDIV": "/",
    "IDIV": "//",
    "MOD": "%",
    "CMPLT": "<",
    "CMPNE": "!=",
    "CMPEQ": "==",
    "AND": "&",
    "OR": "|",
    "XOR": "^",
    "SHL": "<<",
    "SHR": ">>",
}
_TEXT_NODES = 40
_TEXT_LENGTH = 160

Row = tuple[int, ...]


class UnitGraphs:
    """One unit, checked and ready to be asked."""

    def __init__(self, data: Any, name: str) -> None:
        self.name = name
        try:
            self.strings: list[str] = _checked(data["strings"], str)
            self.origins: list[list[Any]] = data["origins"]
            self.rows: list[Row] = [tuple(row) for row in data["nodes"]]
            self.passes: list[dict[str, Any]] = data["passes"]
            self._check()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"{name} of the trace is damaged: {error}") from None
        self.numbers = {row: number for number, row in enumerate(self.rows)}

    def _check(self) -> None:
        """Numbers in range, sources before their users: what the walks below rely on."""
        texts, lines = len(self.strings), len(self.origins)
        for number, row in enumerate(self.rows):
            if len(row) < HEAD or not all(type(part) is int for part in row):
                raise ValueError(f"node {number} is {row!r}")
            in_range = 0 <= row[0] < texts and all(NOTHING <= t < texts for t in row[1:5])
            if not in_range or not NOTHING <= row[5] < lines:
                raise ValueError(f"node {number} refers to text that is not there")
            if not all(0 <= source < number for source in row[HEAD:]):
                raise ValueError(f"node {number} has a source that does not come before it")
        count = len(self.rows)
        for stage in self.passes:
            roots = [stage["before"], stage["after"]]
            for rewrite in stage["rewrites"]:
                steps = _checked(rewrite["steps"], int)
                if len(steps) % 3:
                    raise ValueError("a step is three numbers")
                roots += [rewrite["root"], rewrite["result"], *steps[0::3], *steps[1::3]]
            if not all(type(root) is int and NOTHING <= root < count for root in roots):
                raise ValueError(f"pass {stage['name']!r} refers to a node that is not there")

    # ------------------------------------------------------------ what there is
    def summary(self) -> list[dict[str, Any]]:
        """The passes, with how many nodes they had and made, and the steps' rules."""
        return [
            {
                "name": str(stage["name"]),
                "why": str(stage.get("why", "")),
                "seconds": float(stage.get("seconds", 0.0)),
                "silent": int(stage.get("silent", 0)),
                "before": len(self.below(stage["before"])),
                "after": len(self.below(stage["after"])),
                "same": stage["before"] == stage["after"],
                "rewrites": [
                    {"name": str(r["name"]), "rules": r["steps"][2::3]} for r in stage["rewrites"]
                ],
            }
            for stage in self.passes
        ]

    def below(self, root: int) -> list[int]:
        """The nodes of a graph, sources first; of no graph none."""
        if root == NOTHING:
            return []
        seen = {root}
        pending = [root]
        while pending:
            for source in self.rows[pending.pop()][HEAD:]:
                if source not in seen:
                    seen.add(source)
                    pending.append(source)
        return sorted(seen)

    # ------------------------------------------------------------ states
    def pair(self, stage: int, rewrite: int, step: int) -> tuple[int, int]:
        """The roots before and after a pass (rewrite < 0) or one step of a rewrite."""
        found = self._pass(stage)
        if rewrite < 0:
            return found["before"], found["after"]
        run = self._rewrite(stage, rewrite)
        if not 0 <= step < len(run["steps"]) // 3:
            raise DataError(f"{self.name} has no step {step} there")
        return self.state(run, step), self.state(run, step + 1)

    def _pass(self, stage: int) -> dict[str, Any]:
        if not 0 <= stage < len(self.passes):
            raise DataError(f"{self.name} has no pass {stage}")
        return self.passes[stage]

    def _rewrite(self, stage: int, rewrite: int) -> dict[str, Any]:
        rewrites = self._pass(stage)["rewrites"]
        if not 0 <= rewrite < len(rewrites):
            raise DataError(f"{self.name} has no rewrite {rewrite} in pass {stage}")
        found: dict[str, Any] = rewrites[rewrite]
        return found

    def state(self, rewrite: dict[str, Any], count: int) -> int:
        """The rewrite's graph after its first `count` steps."""
        return self._became(rewrite, count)[rewrite["root"]]

    def _became(self, rewrite: dict[str, Any], count: int) -> dict[int, int]:
        """What the nodes of the rewrite's first graph, and those put in since, are by then."""
        flat = rewrite["steps"][: 3 * count]
        replaced: dict[int, int] = dict(zip(flat[0::3], flat[1::3], strict=True))
        done: dict[int, int] = {}
        open_nodes: set[int] = set()
        stack: list[int] = [rewrite["root"]]
        while stack:
            node = stack[-1]
            if node in done:
                stack.pop()
                continue
            row = self.rows[node]
            waiting = [s for s in row[HEAD:] if s not in done and s not in open_nodes]
            open_nodes.add(node)
            if waiting:
                stack.extend(waiting)
                continue
            sources = [done.get(source, source) for source in row[HEAD:]]
            current = self._intern((*row[:HEAD], *sources))
            following = replaced.get(current, current)
            is_new = following not in done and following not in open_nodes
            if following != current and is_new:
                stack.append(following)
                continue
            done[node] = done.get(following, following)
            open_nodes.discard(node)
            stack.pop()
        return done

    def _intern(self, row: Row) -> int:
        if row not in self.numbers:
            self.numbers[row] = len(self.rows)
            self.rows.append(row)
        return self.numbers[row]

    # ------------------------------------------------------------ what changed
    def marks(self, mine: int, other: int) -> dict[int, int]:
        """For each node of `mine`: is it in `other`, there with other sources, or not there?"""
        nodes = self.below(mine)
        if NOTHING in (mine, other):
            return dict.fromkeys(nodes, KEPT)
        known = set(self.below(other))
        result = {node: KEPT if node in known else CHANGED for node in nodes}
        pending = [(mine, other)]
        seen = {mine}
        while pending:
            left, right = pending.pop()
            if left == right:
                continue
            first, second = self.rows[left], self.rows[right]
            if first[0] != second[0]:
                continue
            # what was written where, and with which tag, is no difference
            is_alike = first[:4] == second[:4] and len(first) == len(second)
            if is_alike and result[left] == CHANGED:
                result[left] = REBUILT
            for pair in zip(first[HEAD:], second[HEAD:], strict=False):
                if pair[0] not in seen:
                    seen.add(pair[0])
                    pending.append(pair)
        return result

    def pass_marks(self, stage: int, side: str) -> dict[int, int]:
        """As `marks`, of a pass: where it is one rewrite, its steps say what is new and what went.

        Comparing two graphs from their roots loses the way where a root's neighbour changed.
        """
        found = self._pass(stage)
        before, after, rewrites = found["before"], found["after"], found["rewrites"]
        is_one = len(rewrites) == 1 and rewrites[0]["root"] == before
        if not is_one or rewrites[0]["result"] != after:
            return self.marks(before, after) if side == "before" else self.marks(after, before)
        first, last = set(self.below(before)), set(self.below(after))
        became = self._became(rewrites[0], len(rewrites[0]["steps"]) // 3)
        if side == "before":
            alike = {
                node
                for node, now in became.items()
                if now != node and now in last and self.rows[node][:4] == self.rows[now][:4]
            }
            kept = last
        else:
            fresh = self._fresh(rewrites[0], first)
            alike = last - {became.get(node, node) for node in fresh}
            kept = first
        return {
            node: KEPT if node in kept else REBUILT if node in alike else CHANGED
            for node in (first if side == "before" else last)
        }

    def _fresh(self, rewrite: dict[str, Any], first: set[int]) -> list[int]:
        """The nodes that the steps brought in, with all that came below them."""
        seen = set(first)
        fresh: list[int] = []

        def enter(root: int, found: list[int]) -> None:
            pending = [root]
            while pending:
                node = pending.pop()
                if node not in seen:
                    seen.add(node)
                    found.append(node)
                    pending.extend(self.rows[node][HEAD:])

        steps = rewrite["steps"]
        for before, after in zip(steps[0::3], steps[1::3], strict=True):
            # what a rule was offered is old, though it may have new sources
            enter(before, [])
            enter(after, fresh)
        return fresh

    def graph(self, root: int, marks: dict[int, int]) -> dict[str, Any]:
        """The graph below a root in columns; sources are positions in these columns."""
        order = self.below(root)
        place = {node: position for position, node in enumerate(order)}
        used = sorted({text for node in order for text in self.rows[node][:5] if text >= 0})
        texts = {text: position for position, text in enumerate(used)}
        texts[NOTHING] = NOTHING
        rows = [self.rows[node] for node in order]
        return {
            "strings": [self.strings[text] for text in used],
            "origins": self.origins,
            "id": order,
            "op": [texts[row[0]] for row in rows],
            "dtype": [texts[row[1]] for row in rows],
            "arg": [texts[row[2]] for row in rows],
            "shape": [texts[row[3]] for row in rows],
            "tag": [texts[row[4]] for row in rows],
            "origin": [row[5] for row in rows],
            "mark": [marks[node] for node in order],
            "src": [[place[source] for source in row[HEAD:]] for row in rows],
        }

    def step_texts(self, stage: int, rewrite: int, step: int) -> tuple[str, str, int]:
        """What was replaced and by what, as expressions, and the rule."""
        steps = self._rewrite(stage, rewrite)["steps"]
        before, after, rule = steps[3 * step : 3 * step + 3]
        return self.expression(before), self.expression(after), rule

    def expression(self, root: int) -> str:
        """A node and the nearest below it in infix; what is too far away is an ellipsis."""
        near: dict[int, None] = {root: None}
        level = [root]
        while level and len(near) < _TEXT_NODES:
            level = [s for node in level for s in self.rows[node][HEAD:] if s not in near]
            level = list(dict.fromkeys(level))[: _TEXT_NODES - len(near)]
            near.update(dict.fromkeys(level))
        texts: dict[int, str] = {}
        for node in sorted(near):
            parts = [texts.get(source, "…") for source in self.rows[node][HEAD:]]
            text = self._piece(self.rows[node], parts)
            texts[node] = text if len(text) <= _TEXT_LENGTH else "…"
        text, op = texts[root], self.strings[self.rows[root][0]]
        if text == "…":
            return f"{op}(…)"
        return text[1:-1] if text.startswith("(") and (op in _SYMBOLS or op == "WHERE") else text

    def _piece(self, row: Row, parts: list[str]) -> str:
        op = self.strings[row[0]]
        arg = self.strings[row[2]] if row[2] >= 0 else ""
        if op in _SYMBOLS and len(parts) == 2:
            return f"({parts[0]} {_SYMBOLS[op]} {parts[1]})"
        if op == "CONST":
            return arg
        if op in ("RANGE", "VARIABLE"):
            return arg.split(" ")[0]
        if op == "PARAM":
            return "p" + arg.removeprefix("slot ").split(" ")[0]
        if op == "WHERE" and len(parts) == 3:
            return f"({parts[1]} if {parts[0]} else {parts[2]})"
        if op == "INDEX" and len(parts) >= 2:
            valid = f" if {parts[2]}" if len(parts) > 2 else ""
            return f"{parts[0]}[{parts[1]}{valid}]"
        if op == "LOAD" and parts:
            return parts[0]
        if op == "CAST" and row[1] >= 0:
            return f"{self.strings[row[1]]}({parts[0] if parts else ''})"
        extra = f"; {arg}" if arg else ""
        return f"{op}({', '.join(parts)}{extra})"


def _checked(values: Any, kind: type) -> list[Any]:
    if not isinstance(values, list) or not all(type(value) is kind for value in values):
        raise ValueError(f"expected a list of {kind.__name__}")
    return values
