"""PatternMatcher: rules (pattern, function) in order, found by what a node and its sources are.

What comes in: a node. What goes out: what the first rule that wants it gives, or None.
Where it sits: on the hottest path of the compiler. A node's signature (op, dtype, its sources'
ops) is looked up once and gives only the rules that could match; each of them is compiled to a
Python function at that moment.
The one invariant: the index may let through too much, never too little, and keeps the rules' order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import permutations
from typing import Any, TypeAlias

from weft.dtype import DType
from weft.errors import ArgumentError, RewriteError, WeftError
from weft.uop import trace
from weft.uop.compile_pattern import Compiled, Parameters, compile_rule
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.pack_function import pack_function, unpack_function
from weft.uop.pattern import UPat

# Only so many sources are part of the signature; the others are looked at by the compiled rule.
_SIGNED_SOURCES = 3


class Rule:
    """A pattern and what to do where it matches."""

    __slots__ = ("_compiled", "function", "parameters", "pattern")

    def __init__(self, pattern: UPat, function: Callable[..., Any]) -> None:
        if not isinstance(pattern, UPat) or not callable(function):
            raise ArgumentError(f"a rule is (UPat, function), found ({pattern!r}, {function!r})")
        self.pattern = pattern
        self.function = function
        self.parameters = Parameters(function)
        self._compiled: Compiled | None = None
        self.parameters.check(pattern, self)

    @property
    def name(self) -> str:
        """The function's name."""
        return getattr(self.function, "__qualname__", None) or type(self.function).__name__

    @property
    def location(self) -> tuple[str, int]:
        """Where the pattern was written."""
        return self.pattern.location

    def __str__(self) -> str:
        return f"rule {self.name} ({trace.short_location(self.location)})"

    def compiled(self) -> Compiled:
        """The rule as a function of (node, ctx)."""
        if self._compiled is None:
            self._compiled = compile_rule(self.pattern, self.function, self.parameters)
            self._compiled.rule = self  # type: ignore[attr-defined]
        return self._compiled


def _could_match(pattern: UPat, op: Ops, dtype: DType, count: int, ops: Sequence[Ops]) -> bool:
    """Whether a node of `count` sources, the first of which have these ops, may match."""
    if pattern.alternatives:
        return any(_could_match(option, op, dtype, count, ops) for option in pattern.alternatives)
    if pattern.op is not None and op not in pattern.op:
        return False
    if pattern.dtype is not None and not {dtype, dtype.scalar()} & pattern.dtype:
        return False
    if pattern.src is None:
        return True
    if pattern.is_repeat:
        return all(_could_be(pattern.src[0], found) for found in ops)
    if count != len(pattern.src) and not (pattern.allow_any_len and count > len(pattern.src)):
        return False
    if pattern.is_unordered and count > len(ops):
        return True
    orders = permutations(pattern.src) if pattern.is_unordered else (pattern.src,)
    # strict=False: either side may be longer, for allow_any_len and for the signature's limit
    return any(
        all(_could_be(want, found) for want, found in zip(order, ops, strict=False))
        for order in orders
    )


def _could_be(pattern: UPat, op: Ops) -> bool:
    if pattern.alternatives:
        return any(_could_be(option, op) for option in pattern.alternatives)
    return pattern.op is None or op in pattern.op


Pair: TypeAlias = tuple[UPat, Callable[..., Any]]


class PatternMatcher:
    """Rules, tried in order: `PatternMatcher([(pattern, function), ...])`, as a module constant.

    The function takes the pattern's names as parameters, and `ctx` if it likes, and returns what
    the node becomes, or None to leave it to the next way to match or the next rule. The node itself
    is no change: the next rule is asked.
    """

    __slots__ = ("_by_op", "_index", "ops", "rules")

    def __init__(self, rules: Iterable[Pair | Rule], compiled: bool = True) -> None:
        # `compiled` is tinygrad's: rules are compiled when they are first needed, in any case
        self.rules: tuple[Rule, ...] = tuple(
            rule if isinstance(rule, Rule) else Rule(*rule) for rule in rules
        )
        # ops that no rule is about are answered without a signature; None: some rule takes any op
        self.ops: frozenset[Ops] | None = _root_ops(self.rules)
        self._by_op: dict[Ops, list[Rule]] = {}
        self._index: dict[Any, tuple[Compiled, ...]] = {}

    @property
    def patterns(self) -> list[Pair]:
        """The rules as they were given."""
        return [(rule.pattern, rule.function) for rule in self.rules]

    def __add__(self, other: PatternMatcher) -> PatternMatcher:
        """The rules of both, this one's first."""
        if not isinstance(other, PatternMatcher):
            return NotImplemented
        return PatternMatcher((*self.rules, *other.rules))

    def __len__(self) -> int:
        return len(self.rules)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpack, ([(rule.pattern, pack_function(rule.function)) for rule in self.rules],)

    # ------------------------------------------------------------ matching
    def rewrite(self, uop: UOp, ctx: Any = None) -> Any:
        """What the first rule that changes the node gives, or None."""
        op = uop.op
        ops = self.ops
        if ops is not None and op not in ops:
            return None
        src = uop.src
        count = len(src)
        signature: Any
        if count == 2:
            signature = (op, uop.dtype, src[0].op, src[1].op)
        elif count == 1:
            signature = (op, uop.dtype, src[0].op)
        elif count == 0:
            signature = (op, uop.dtype)
        else:
            signature = (op, uop.dtype, src[0].op, src[1].op, src[2].op, count)
        found = self._index.get(signature)
        if found is None:
            found = self._add_signature(uop, signature)
        for match in found:
            try:
                result = match(uop, ctx)
            except Exception as error:
                _explain(error, match, uop)
                raise
            if result is not None and result is not uop:
                return result
        return None

    def rewrite_watched(
        self, uop: UOp, ctx: Any, seen: Callable[[UOp, Any, Rule], None] | None
    ) -> Any:
        """`rewrite` that counts attempts and times, and tells `seen` which rule made what."""
        for rule in self.candidates(uop):
            match = rule.compiled()
            stats = trace.stats_of(rule)
            start = time.perf_counter_ns()
            try:
                result = match(uop, ctx)
            except Exception as error:
                _explain(error, match, uop)
                raise
            stats.count(result is not None and result is not uop, time.perf_counter_ns() - start)
            if result is not None and result is not uop:
                if seen is not None:
                    seen(uop, result, rule)
                return result
        return None

    def candidates(self, uop: UOp) -> list[Rule]:
        """The rules that this node's signature lets through."""
        rules = self._by_op.get(uop.op)
        if rules is None:
            rules = [rule for rule in self.rules if _could_be(rule.pattern, uop.op)]
            self._by_op[uop.op] = rules
        ops = [s.op for s in uop.src[:_SIGNED_SOURCES]]
        count = len(uop.src)
        return [r for r in rules if _could_match(r.pattern, uop.op, uop.dtype, count, ops)]

    def _add_signature(self, uop: UOp, signature: Any) -> tuple[Compiled, ...]:
        found = tuple([rule.compiled() for rule in self.candidates(uop)])
        self._index[signature] = found
        return found


def _unpack(rules: Iterable[tuple[UPat, Any]]) -> PatternMatcher:
    return PatternMatcher([(pattern, unpack_function(packed)) for pattern, packed in rules])


def _root_ops(rules: Iterable[Rule]) -> frozenset[Ops] | None:
    found: set[Ops] = set()
    pending = [rule.pattern for rule in rules]
    while pending:
        pattern = pending.pop()
        if pattern.alternatives:
            pending.extend(pattern.alternatives)
        elif pattern.op is None:
            return None
        else:
            found |= pattern.op
    return frozenset(found)


def _explain(error: Exception, match: Any, uop: UOp) -> None:
    """Name rule and node: in a note of weft's own errors, others become the cause of a new one."""
    where = f"in {match.rule}, applied to {uop.op}: {uop!r}"
    if not isinstance(error, WeftError):
        raise RewriteError(f"{type(error).__name__}: {error}, {where}") from error
    error.add_note(where)
