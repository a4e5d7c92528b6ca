"""A graph of PyTorch as a plan: programs of weft, and between them what PyTorch runs.

In: an FX graph, as AOTAutograd gives it. Out: `Plan`, called with the flat inputs of the graph,
which gives its flat outputs. Sits on `program` and `segments`; `backend` makes one for each graph.
Invariant: a graph runs, whatever is in it. What weft cannot say PyTorch runs, node by node, and the
report counts it. Free sizes are Variables where the graph allows, or else each set of values has a
program of its own; which of both it is, is counted as well.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from weft.errors import UnsupportedError, WeftError
from weft.knobs import DEBUG
from weft.torch import counts
from weft.torch.lower import Refused, name_of, value_of
from weft.torch.program import Program
from weft.torch.segments import cut, is_mutation
from weft.torch.sizes import Numbers, Sizes, bound_for, expression_of, variable, variable_name

# programs that a plan keeps for sets of sizes; the oldest goes first
_MOST_PROGRAMS = 64
# calls with the same free sizes from which on they have a program of their own beside the one for
# all sizes, how many such programs there are at most, and how many sets of sizes are counted
_OFTEN, _MOST_OFTEN, _MOST_SEEN = 8, 4, 1024
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_NOTHING = Numbers({})
# a program, or a node that PyTorch runs
Step = Program | Node


@dataclass(frozen=True)
class _Symbolic:
    """Steps for all values of sizes within bounds."""

    steps: list[Step]
    bounds: dict[Any, tuple[int, int]]

    def holds(self, now: Numbers) -> bool:
        """Whether they are for these sizes."""
        return all(low <= now.values[symbol] <= high for symbol, (low, high) in self.bounds.items())


class Plan:
    """A compiled graph."""

    def __init__(self, graph: GraphModule) -> None:
        self.nodes = [node for node in graph.graph.nodes if node.op == "call_function"]
        self.inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
        constants = [node for node in graph.graph.nodes if node.op == "get_attr"]
        (output,) = [node for node in graph.graph.nodes if node.op == "output"]
        self.slots: dict[Node, int] = {}
        for node in (*self.inputs, *constants, *self.nodes):
            self.slots[node] = len(self.slots)
        # of the slots after those of the inputs: constants of the graph, then nothing yet
        self._rest = [_attribute(graph, str(node.target)) for node in constants]
        for node, held in zip(constants, self._rest, strict=True):
            node.meta.setdefault("val", held)
        self._rest += [None] * len(self.nodes)
        self._device = _device(self.inputs, self.nodes)
        self._symbols = _symbols(self.inputs)
        self._left: dict[Node, str] = {}
        self._results = self._describe(output.args[0])
        self._is_plain = all(kind == "slot" for kind, _ in self._results)
        self._slots_out = [value for kind, value in self._results if kind == "slot"]
        taken = {
            value if kind == "slot" else value[0]
            for kind, value in self._results
            if kind in ("slot", "view")
        }
        self._wanted = {node for node in self.nodes if self.slots[node] in taken}
        self._programs: dict[tuple[int, ...], list[Step]] = {}
        self._symbolic: dict[tuple[int, ...], _Symbolic] = {}
        self._seen: dict[tuple[int, ...], int] = {}  # calls with each set of sizes
        # sizes that are Variables of programs; the others tell programs apart
        self._free = frozenset([symbol for symbol, _, _ in self._symbols])

    # ------------------------------------------------------------ calling
    def __call__(self, args: list[Any]) -> list[Any]:
        """The outputs of the graph. The list of arguments is emptied: memory goes back early."""
        now = self._numbers(args) if self._symbols else _NOTHING
        steps = self._steps(now)
        slots = [*args, *self._rest]
        args.clear()
        for step in steps:
            if isinstance(step, Program):
                step.run(slots, now)
            else:
                self._run(step, slots, now)
        if self._is_plain:
            return [slots[slot] for slot in self._slots_out]
        return [self._result(kind, value, slots, now) for kind, value in self._results]

    def _numbers(self, args: Sequence[Any]) -> Numbers:
        """The values of the free sizes in a call."""
        return Numbers(
            {
                symbol: int(args[number] if axis is None else args[number].shape[axis])
                for symbol, number, axis in self._symbols
            }
        )

    def _result(self, kind: str, value: Any, slots: list[Any], now: Numbers) -> Any:
        if kind == "slot":
            return slots[value]
        if kind == "view":
            slot, meta, offset = value
            base = slots[slot]
            return base.as_strided(
                now.shape(meta.shape),
                now.shape(meta.stride()),
                base.storage_offset() + now.evaluated(offset),
            )
        return now.evaluated(value) if kind == "size" else value

    def _run(self, node: Node, slots: list[Any], now: Numbers) -> None:
        """A node by PyTorch itself."""

        def taken(value: Any) -> Any:
            if isinstance(value, Node):
                meta = value_of(value)
                return now(meta) if isinstance(meta, _SYMBOLIC) else slots[self.slots[value]]
            if isinstance(value, (list, tuple)):
                return type(value)([taken(part) for part in value])
            return now(value)

        kwargs = {name: taken(value) for name, value in node.kwargs.items()}
        assert callable(node.target)
        slots[self.slots[node]] = node.target(*taken(node.args), **kwargs)

    # ------------------------------------------------------------ results
    def _describe(self, outputs: Any) -> list[tuple[str, Any]]:
        """How each output comes about: ("slot", its number), ("view", of what is in a slot),
        ("size", an expression), ("number", itself)."""
        owners = self._owners(outputs)
        found: list[tuple[str, Any]] = []
        for node in outputs:
            meta = value_of(node) if isinstance(node, Node) else node
            if not isinstance(node, Node):
                found.append(("number", node))
            elif isinstance(meta, _SYMBOLIC):
                found.append(("size", meta.node.expr))
            elif node in owners:
                owner = owners[node]
                first = expression_of(value_of(owner).storage_offset())
                offset = expression_of(meta.storage_offset()) - first
                found.append(("view", (self.slots[owner], meta, offset)))
            else:
                found.append(("slot", self.slots[node]))
        return found

    def _owners(self, outputs: Any) -> dict[Node, Node]:
        """Outputs that are views of other values, as they are in PyTorch: of inputs, and of values
        of which all comes out in this way."""
        written = {node.args[0] for node in self.nodes if is_mutation(node)}
        first: dict[Any, Node] = {}
        for node in (*self.inputs, *self.nodes):
            meta = value_of(node)
            if isinstance(meta, torch.Tensor):
                first.setdefault(meta.untyped_storage()._cdata, node)
        views: dict[Node, list[Node]] = {}
        for node in dict.fromkeys([n for n in outputs if isinstance(n, Node)]):
            meta = value_of(node)
            if node.op == "call_function" and isinstance(meta, torch.Tensor):
                owner = first[meta.untyped_storage()._cdata]
                if value_of(owner).dtype == meta.dtype and owner not in written:
                    views.setdefault(owner, []).append(node)
        found: dict[Node, Node] = {}
        for owner, nodes in views.items():
            others = [node for node in nodes if node is not owner]
            if owner.op == "placeholder" or _is_covered(owner, nodes):
                found.update(dict.fromkeys(others, owner))
        return found

    # ------------------------------------------------------------ compiling
    def prepare(self) -> None:
        """Compile what can be compiled before sizes are known: all of a graph without free ones."""
        if not self._symbols:
            self._steps(_NOTHING)

    def _steps(self, now: Numbers) -> list[Step]:
        """The steps for these sizes, compiled if they are the first of their kind."""
        found = self._programs.get(now.key)
        if found is not None:
            return found
        while self._free:
            key = tuple([v for symbol, v in now.values.items() if symbol not in self._free])
            symbolic = self._symbolic.get(key)
            if symbolic is not None and symbolic.holds(now):
                if not self._is_often(now):
                    return symbolic.steps
                break
            try:
                return self._compile_symbolic(key, now)
            except WeftError as error:
                self._restrict(error)
        steps = self._compile(now, now)
        counts.report().specialised += bool(self._symbols)
        self._keep(self._programs, now.key, steps)
        return steps

    def _is_often(self, now: Numbers) -> bool:
        """Whether these sizes came so often that a program of their own, whose loops have known
        lengths, is worth compiling."""
        if len(self._programs) >= _MOST_OFTEN:
            return False
        if len(self._seen) >= _MOST_SEEN:
            self._seen.clear()
        count = self._seen[now.key] = self._seen.get(now.key, 0) + 1
        return count >= _OFTEN

    def _restrict(self, error: WeftError) -> None:
        """Fewer free sizes: those of first axes, mostly of batches, and then none."""
        batches = {symbol for symbol, _, axis in self._symbols if axis == 0} | {
            expression_of(value_of(node).shape[0])
            for node in self.inputs
            if isinstance(value_of(node), torch.Tensor) and value_of(node).ndim
        }
        fewer = self._free & batches
        kept = fewer if fewer != self._free else frozenset()
        if DEBUG >= 1:
            left = ", ".join(str(symbol) for symbol in self._free - kept)
            print(f"torch: a program for each value of the sizes {left}, for {error}")
        self._free = kept

    def _compile_symbolic(self, key: tuple[int, ...], now: Numbers) -> list[Step]:
        """One program for all values of the free sizes, up to bounds."""
        before = self._symbolic.get(key)
        bounds: dict[Any, tuple[int, int]] = {}
        values: dict[Any, Any] = dict(now.values)
        for symbol, number, axis in self._symbols:
            if symbol not in self._free:
                continue
            value = now.values[symbol]
            if value < 1:
                raise UnsupportedError(f"the size {symbol} is {value}")
            meta = value_of(self.inputs[number])
            least, most = _range(meta if axis is None else meta.shape[axis])
            so_far = before.bounds[symbol][1] if before is not None else 0
            low, high = max(1, min(least, value)), max(so_far, bound_for(value, most))
            bounds[symbol] = (low, high)
            values[symbol] = variable(variable_name(symbol), low, high, value)
        steps = self._compile(Sizes(values), now, is_strict=True)
        counts.report().symbolic += 1
        self._keep(self._symbolic, key, _Symbolic(steps, bounds))
        return steps

    @staticmethod
    def _keep(programs: dict[Any, Any], key: Any, made: Any) -> None:
        if len(programs) >= _MOST_PROGRAMS:
            programs.pop(next(iter(programs)))
        programs[key] = made

    def _compile(self, sizes: Sizes, now: Numbers, is_strict: bool = False) -> list[Step]:
        """The steps; what weft refuses goes to PyTorch, unless it has to be all or nothing."""
        started = time.perf_counter()
        left = dict(self._left)
        while True:
            segments = cut(self.nodes, left, self._wanted)
            steps: list[Step] = []
            try:
                for segment in segments:
                    if segment.outputs or segment.writes:
                        steps.append(Program(segment, self.slots, sizes, now, self._device))
                    steps += segment.theirs
                break
            except Refused as refused:
                if is_strict:
                    raise
                blamed = segment.nodes if refused.node is None else [refused.node]
                left.update(dict.fromkeys(blamed, refused.reason))
        for node, reason in left.items():
            if node not in self._left:
                counts.left(name_of(node.target), reason)
        self._left = left
        known = counts.report()
        programs = [step for step in steps if isinstance(step, Program)]
        known.programs += len(programs)
        known.kernels += sum(program.kernels for program in programs)
        known.operators += len(self.nodes) - len(left)
        known.seconds += time.perf_counter() - started
        return steps


def _attribute(graph: GraphModule, path: str) -> Any:
    found: Any = graph
    for name in path.split("."):
        found = getattr(found, name)
    return found


def _is_covered(owner: Node, views: Sequence[Node]) -> bool:
    """Whether the values of a node come out as a whole, one part in each of several views."""
    if owner in views:
        return True
    numbers = [_hint(value_of(node).numel()) for node in views]
    return value_of(owner).storage_offset() == 0 and sum(numbers) >= _hint(value_of(owner).numel())


def _hint(size: Any) -> int:
    return size.node.hint if isinstance(size, torch.SymInt) else int(size)


def _symbols(inputs: Sequence[Node]) -> list[tuple[Any, int, int | None]]:
    """Each free size: its symbol, the input it is found in, and the axis there."""
    found: dict[Any, tuple[int, int | None]] = {}
    for number, node in enumerate(inputs):
        meta = value_of(node)
        if isinstance(meta, torch.SymInt) and meta.node.expr.is_Symbol:
            found.setdefault(meta.node.expr, (number, None))
    for number, node in enumerate(inputs):
        meta = value_of(node)
        for axis, size in enumerate(meta.shape if isinstance(meta, torch.Tensor) else ()):
            expression = expression_of(size)
            if not isinstance(expression, int) and expression.is_Symbol:
                found.setdefault(expression, (number, axis))
    return [(symbol, *place) for symbol, place in found.items()]


def _range(size: Any) -> tuple[int, int | None]:
    """What PyTorch knows about a size: the least and the greatest value that it may have."""
    known = size.node.shape_env.var_to_range.get(size.node.expr)
    if known is None:
        return 1, None
    is_number = getattr(known.upper, "is_Integer", False)
    most = int(known.upper) if is_number and known.upper < 1 << 31 else None
    return max(1, int(known.lower)), most


def _device(inputs: Sequence[Node], nodes: Sequence[Node]) -> torch.device:
    """Where a graph computes: beside its first value that is not the host's, if there is one."""
    found = torch.device("cpu")
    for node in (*inputs, *nodes):
        meta = value_of(node)
        if isinstance(meta, torch.Tensor) and meta.device.type != "cpu":
            return meta.device
    return found
