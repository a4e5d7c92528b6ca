"""Grammars over bytes, and which tokens of a vocabulary may come next.

In: rules. Out: masks over tokens. Below `schema`. Invariant: a text that is made of allowed tokens
is the beginning of a sentence of the grammar, and an end is allowed only where it is a whole one.

A state is a set of stacks, each the places that are still to come (a nondeterministic pushdown
automaton, as in llama.cpp's and XGrammar's papers and notes); states are numbered, and their steps
and masks are remembered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.errors import DataError

Array = np.ndarray[Any, Any]

MOST_RULES = 20_000
MOST_DEPTH = 512
MOST_STACKS = 4096
MOST_STATES = 50_000


@dataclass(frozen=True)
class Bytes:
    """One byte of a set, which is a number with a bit for each."""

    mask: int


@dataclass(frozen=True)
class Rule:
    """Whatever a rule says."""

    number: int


Symbol = Bytes | Rule
Stack = tuple[Any, ...]  # () or (place, stack)


def byte_range(low: int, high: int) -> Bytes:
    """The bytes from one to another."""
    return Bytes((1 << (high + 1)) - (1 << low))


def literal(text: str | bytes) -> tuple[Symbol, ...]:
    """A text, byte for byte."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return tuple(Bytes(1 << byte) for byte in data)


def code_points(ranges: Iterable[tuple[int, int]]) -> list[tuple[Symbol, ...]]:
    """Letters of some ranges as sequences of bytes in UTF-8.

    >>> [len(sequence) for sequence in code_points([(0x20, 0x10FFFF)])]
    [1, 2, 3, 3, 3, 3, 4, 4, 4]
    """
    found: list[tuple[Symbol, ...]] = []
    for low, high in ranges:
        # lengths change at these places, and halves of UTF-16 are no letters
        for first, last in (
            (0, 0x7F),
            (0x80, 0x7FF),
            (0x800, 0xD7FF),
            (0xE000, 0xFFFF),
            (0x10000, 0x10FFFF),
        ):
            a, b = max(low, first), min(high, last)
            if a <= b:
                found += _sequences(chr(a).encode(), chr(b).encode())
    return found


def _sequences(low: bytes, high: bytes) -> list[tuple[Symbol, ...]]:
    """Sequences of one length between two, as products of ranges."""
    if len(low) == 1:
        return [(byte_range(low[0], high[0]),)]
    rest = len(low) - 1
    if low[0] == high[0]:
        inner = _sequences(low[1:], high[1:])
        return [(byte_range(low[0], low[0]), *sequence) for sequence in inner]
    found: list[tuple[Symbol, ...]] = []
    first, last = low[0], high[0]
    if low[1:] != b"\x80" * rest:
        found += [(byte_range(first, first), *s) for s in _sequences(low[1:], b"\xbf" * rest)]
        first += 1
    after: list[tuple[Symbol, ...]] = []
    if high[1:] != b"\xbf" * rest:
        after = [(byte_range(last, last), *s) for s in _sequences(b"\x80" * rest, high[1:])]
        last -= 1
    if first <= last:
        found.append((byte_range(first, last), *[byte_range(0x80, 0xBF)] * rest))
    return found + after


class Grammar:
    """Rules, each a list of alternatives, each a sequence of symbols. Rule 0 is the sentence."""

    def __init__(self) -> None:
        self.rules: list[list[tuple[Symbol, ...]] | None] = [None]

    def new(self, alternatives: Sequence[Sequence[Symbol]] | None = None) -> Rule:
        """A rule; without alternatives it is to be defined later."""
        if len(self.rules) >= MOST_RULES:
            raise DataError(f"a grammar of more than {MOST_RULES} rules")
        self.rules.append(None)
        rule = Rule(len(self.rules) - 1)
        if alternatives is not None:
            self.define(rule, alternatives)
        return rule

    def define(self, rule: Rule, alternatives: Sequence[Sequence[Symbol]]) -> None:
        """What a rule says."""
        self.rules[rule.number] = [tuple(alternative) for alternative in alternatives]

    def repeated(self, item: Sequence[Symbol], least: int, most: int | None) -> Rule:
        """`item` so many times."""
        if least > 1000 or (most is not None and (most > 1000 or most < least)):
            raise DataError(f"{least} to {most} repetitions; at most 1000 are counted")
        if most is None:
            rest = self.new()
            self.define(rest, [(*item, rest), ()])
        else:
            rest = self.new([()])
            for _ in range(most - least):
                rest = self.new([(*item, rest), ()])
        for _ in range(least):
            rest = self.new([(*item, rest)])
        return rest


@dataclass(frozen=True)
class _Place:
    """A symbol of a sequence, and the place behind it; 0 is the end of a sequence."""

    mask: int
    rule: int
    behind: int


class Automaton:
    """A grammar made ready for bytes and tokens."""

    def __init__(self, grammar: Grammar, vocabulary: Vocabulary) -> None:
        self._places = [_Place(0, -1, 0)]
        self._starts: list[list[int]] = []
        for rule in grammar.rules:
            if rule is None:
                raise DataError("the grammar uses a rule that it does not define")
            self._starts.append([self._place_of(sequence) for sequence in rule])
        self._numbers: dict[frozenset[Stack], int] = {}
        self._states: list[frozenset[Stack]] = []
        self._steps: list[dict[int, int]] = []
        self._masks: dict[int, Array] = {}
        self.vocabulary = vocabulary
        # what cannot go on at all
        self.dead = self._number(frozenset())
        self.start = self._number(frozenset(self._open([(start, ()) for start in self._starts[0]])))

    def _place_of(self, sequence: Sequence[Symbol]) -> int:
        behind = 0
        for symbol in reversed(sequence):
            is_bytes = isinstance(symbol, Bytes)
            place = _Place(
                symbol.mask if isinstance(symbol, Bytes) else 0,
                -1 if is_bytes or not isinstance(symbol, Rule) else symbol.number,
                behind,
            )
            self._places.append(place)
            behind = len(self._places) - 1
        return behind

    def _open(self, stacks: list[Stack]) -> set[Stack]:
        """Stacks whose first place is a byte, or which have ended."""
        found: set[Stack] = set()
        seen: set[Stack] = set()
        while stacks:
            stack = stacks.pop()
            while stack and not stack[0]:
                stack = stack[1]
            if stack in seen:
                continue
            seen.add(stack)
            if len(seen) > MOST_STACKS or _depth(stack) > MOST_DEPTH:
                raise DataError("the grammar is too ambiguous, or calls itself at its beginning")
            if not stack or self._places[stack[0]].rule < 0:
                found.add(stack)
                continue
            place = self._places[stack[0]]
            # nothing is kept of a sequence whose last symbol this is, so lists do not grow
            behind = (place.behind, stack[1]) if place.behind else stack[1]
            stacks += [(start, behind) for start in self._starts[place.rule]]
        return found

    def _number(self, state: frozenset[Stack]) -> int:
        number = self._numbers.get(state)
        if number is None:
            if len(self._states) >= MOST_STATES:
                self._forget()
            number = self._numbers[state] = len(self._states)
            self._states.append(state)
            self._steps.append({})
        return number

    def _forget(self) -> None:
        raise DataError(f"a text that takes more than {MOST_STATES} states of its grammar")

    def step(self, state: int, byte: int) -> int:
        """The state behind a byte."""
        steps = self._steps[state]
        found = steps.get(byte)
        if found is None:
            after: list[Stack] = []
            for stack in self._states[state]:
                if stack and self._places[stack[0]].mask >> byte & 1:
                    after.append((self._places[stack[0]].behind, stack[1]))
            found = steps[byte] = self._number(frozenset(self._open(after)))
        return found

    def may_end(self, state: int) -> bool:
        """Whether the text is a whole sentence."""
        return () in self._states[state]

    def must_end(self, state: int) -> bool:
        """Whether nothing can follow."""
        return self._states[state] == frozenset([()])

    def mask(self, state: int) -> Array:
        """Whether each token may come next."""
        found = self._masks.get(state)
        if found is None:
            found = self._masks[state] = self._masked(state)
        return found

    def _masked(self, state: int) -> Array:
        vocabulary, dead = self.vocabulary, self.dead
        allowed = np.zeros(vocabulary.count, np.bool_)
        # the states behind the bytes of the token before, which the next one begins like
        states = [state]
        steps = self._steps
        dies_at = 1 << 30
        for token, data, common in vocabulary.ordered:
            if common > dies_at:
                continue
            del states[common + 1 :]
            current = states[-1]
            dies_at = 1 << 30
            for place in range(common, len(data)):
                byte = data[place]
                after = steps[current].get(byte)
                current = self.step(current, byte) if after is None else after
                if current == dead:
                    dies_at = place
                    break
                states.append(current)
            else:
                allowed[token] = True
        return allowed


def _depth(stack: Stack) -> int:
    depth = 0
    while stack:
        depth, stack = depth + 1, stack[1]
    return depth


class Vocabulary:
    """The bytes of tokens in order, each with what it has in common with the one before."""

    def __init__(
        self, pieces: Sequence[bytes], special: Iterable[int], ends: Iterable[int]
    ) -> None:
        self.count = len(pieces)
        self.pieces = pieces
        self.ends = sorted(ends)
        left_out = {*special, *ends}
        plain = sorted((p, i) for i, p in enumerate(pieces) if p and i not in left_out)
        self.ordered: list[tuple[int, bytes, int]] = []
        before = b""
        for piece, token in plain:
            self.ordered.append((token, piece, _common(before, piece)))
            before = piece


def _common(a: bytes, b: bytes) -> int:
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count


class GrammarConstraint:
    """What one text may go on with."""

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self._state = automaton.start

    def allowed(self) -> Array:
        """Tokens that may come next, an end where the text is whole."""
        automaton = self._automaton
        vocabulary = automaton.vocabulary
        mask = automaton.mask(self._state)
        if automaton.may_end(self._state):
            mask = mask.copy()
            mask[vocabulary.ends] = True
        if not mask.any():
            raise DataError("no token of this model goes on as the grammar wants")
        return mask

    def advance(self, token: int) -> bool:
        """The text went on; true: it is whole, and nothing can follow."""
        automaton = self._automaton
        for byte in automaton.vocabulary.pieces[token]:
            self._state = automaton.step(self._state, byte)
        return automaton.must_end(self._state)
