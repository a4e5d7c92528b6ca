"""Tokens one after another: prompts in few fixed steps, then a token a step.

In: a `Transformer` and tokens. Out: tokens and, if asked for, their log probabilities. Above
`model`. Invariant: steps have one of a few sizes and their positions are variables, so after each
size was seen nothing is compiled or scheduled, for prompts of any length.

What the caches hold of the last call is not computed again where a new prompt begins the same way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.engine.jit import TinyJit
from weft.errors import ArgumentError
from weft.llm.model import MOST_PADDING, Transformer
from weft.tensor import Tensor
from weft.uop.node import UOp

Array = np.ndarray[Any, Any]

# tokens of a step of the prompt, the largest first; the last of a prompt is padded to MOST_PADDING
STEPS = (256, MOST_PADDING)


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn. A temperature of 0 takes the most likely one."""

    temperature: float = 0.0
    top_k: int = 0  # of so many of the most likely; 0: of all
    top_p: float = 1.0  # of the most likely whose odds add up to this
    min_p: float = 0.0  # of those with at least this share of the best one's odds
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, low, high in (
            ("temperature", 0.0, 100.0),
            ("top_k", 0, 1 << 30),
            ("top_p", 0.0, 1.0),
            ("min_p", 0.0, 1.0),
            ("repetition_penalty", 0.01, 100.0),
            ("presence_penalty", -100.0, 100.0),
            ("frequency_penalty", -100.0, 100.0),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ArgumentError(f"{name} is {value}; {low} to {high} is accepted")


class Sampler:
    """Draws tokens; the same seed draws the same ones."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self._random = np.random.default_rng(sampling.seed)

    def draw(self, logits: Array, so_far: Sequence[int]) -> int:
        """The next token after `so_far`."""
        settings = self.sampling
        logits = self._penalised(logits.astype(np.float64), so_far)
        if settings.temperature == 0:
            return int(np.argmax(logits))
        odds = _softmax(logits / settings.temperature)
        # stable, so that equal odds are in the order of tokens
        order = np.argsort(-odds, kind="stable")
        sorted_odds = odds[order]
        count = len(order) if not settings.top_k else min(settings.top_k, len(order))
        if settings.top_p < 1:
            count = min(count, 1 + int(np.searchsorted(np.cumsum(sorted_odds), settings.top_p)))
        if settings.min_p > 0:
            count = min(count, int((sorted_odds >= settings.min_p * sorted_odds[0]).sum()))
        kept = sorted_odds[: max(count, 1)]
        place = np.searchsorted(np.cumsum(kept), self._random.random() * kept.sum(), side="right")
        return int(order[min(int(place), len(kept) - 1)])

    def _penalised(self, logits: Array, so_far: Sequence[int]) -> Array:
        settings = self.sampling
        plain = settings.repetition_penalty == 1 and not (
            settings.presence_penalty or settings.frequency_penalty
        )
        if plain or not so_far:
            return logits
        tokens, counts = np.unique(np.asarray(so_far), return_counts=True)
        found = logits[tokens]
        penalty = settings.repetition_penalty
        found = np.where(found > 0, found / penalty, found * penalty)
        found = found - settings.presence_penalty - settings.frequency_penalty * counts
        logits[tokens] = found
        return logits


def _softmax(logits: Array) -> Array:
    odds = np.exp(logits - np.max(logits))
    return odds / odds.sum()


def log_probabilities(logits: Array) -> Array:
    """The logarithms of the odds."""
    wide = logits.astype(np.float64)
    top = np.max(wide)
    return wide - (top + math.log(np.exp(wide - top).sum()))


class Generator:
    """A model with what its caches hold."""

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self.held: list[int] = []  # tokens whose keys and values are in the caches
        longest = model.max_context
        self._start = UOp.variable("start", 0, longest - 1)
        self._last = UOp.variable("last", 0, MOST_PADDING - 1)
        self._step = TinyJit(lambda tokens, start, last: model(tokens, start, last).realize())

    def _run(self, tokens: Sequence[int], size: int) -> Tensor:
        """One step behind what is held, padded to a size."""
        padded = np.zeros((1, size), np.int32)
        padded[0, : len(tokens)] = tokens
        last = self._last.bind(len(tokens) - 1) if size == MOST_PADDING else len(tokens) - 1
        logits: Tensor = self._step(
            Tensor(padded).realize(), self._start.bind(len(self.held)), last
        )
        self.held += tokens
        return logits

    def logits(self, tokens: Sequence[int]) -> Array:
        """The logits of what follows the tokens, of which the caches may hold a part already."""
        longest = self.model.max_context
        if not 1 <= len(tokens) <= longest:
            raise ArgumentError(
                f"a text of {len(tokens)} tokens: this context takes 1 to {longest}"
            )
        # the last one is always computed, for its logits
        same = 0
        for held, wanted in zip(self.held, tokens[:-1], strict=False):
            if held != wanted:
                break
            same += 1
        self.held = self.held[:same]
        rest = list(tokens[same:])
        if len(rest) == 1:
            return self._run(rest, 1).numpy()
        largest, padded = STEPS
        while len(rest) > largest:
            self._run(rest[:largest], largest)
            rest = rest[largest:]
        while len(rest) > padded:
            self._run(rest[:padded], padded)
            rest = rest[padded:]
        return self._run(rest, padded).numpy()

    def generate(
        self,
        prompt: Sequence[int],
        ends: frozenset[int] = frozenset(),
        sampling: Sampling | None = None,
    ) -> Iterator[tuple[int, Array]]:
        """Tokens that follow a prompt, each with the logits it was drawn from, up to an end.

        Stops in front of an end token, or when the context is full.
        """
        tokens = list(prompt)
        sampler = Sampler(sampling or Sampling())
        while len(tokens) <= self.model.max_context:
            logits = self.logits(tokens)
            token = sampler.draw(logits, tokens)
            if token in ends:
                return
            tokens.append(token)
            yield token, logits

    def warm_up(self) -> None:
        """Runs every size of step until it is replayed."""
        for size in (*STEPS, 1):
            for _ in range(3):
                if size <= self.model.max_context:
                    self.held = []
                    self._run([0] * size, size)
        # what was held is overwritten
        self.held = []
