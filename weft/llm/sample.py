"""How the next token is drawn from the logits.

In: logits and the tokens so far. Out: a token, log probabilities. Below `batch`. Invariant: a
sampler's draws depend on its seed, its logits and its tokens only, so a text is continued alike
alone and beside others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.errors import ArgumentError

Array = np.ndarray[Any, Any]


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
    bias: Mapping[int, float] = field(default_factory=dict)  # added to the logits of tokens

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
        for token, value in self.bias.items():
            if token < 0 or not -100 <= value <= 100:
                raise ArgumentError(f"a bias of {value} for token {token}; -100 to 100 is accepted")


class Sampler:
    """Draws tokens; the same seed draws the same ones."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self._random = np.random.default_rng(
            None if sampling.seed is None else sampling.seed % (1 << 64)
        )

    def draw(self, logits: Array, so_far: Sequence[int], allowed: Array | None = None) -> int:
        """The next token after `so_far`; if `allowed` (vocabulary,) is given, one of those."""
        settings = self.sampling
        logits = self._penalised(logits, so_far)
        if allowed is not None:
            # a model may have more places for tokens than tokens
            count = min(len(allowed), len(logits))
            kept = np.full(len(logits), -np.inf)
            kept[:count] = np.where(allowed[:count], logits[:count], -np.inf)
            logits = kept
        if settings.temperature == 0:
            return int(np.argmax(logits))
        tokens, odds = self._candidates(logits.astype(np.float64) / settings.temperature)
        found = np.searchsorted(np.cumsum(odds), self._random.random() * odds.sum(), side="right")
        place = min(int(found), len(odds) - 1)
        return place if tokens is None else int(tokens[place])

    def _candidates(self, scores: Array) -> tuple[Array | None, Array]:
        """Tokens that may be drawn, the most likely first, and their odds; None: all, in order.

        Each limit is taken of what the one before it left.
        """
        settings = self.sampling
        odds = _softmax(scores)
        if not settings.top_k and settings.top_p >= 1 and not settings.min_p:
            return None, odds
        count = min(settings.top_k, len(odds)) if settings.top_k else len(odds)
        tokens = _most_likely(odds, count, settings.top_p)
        odds = odds[tokens]
        if settings.top_k:
            odds = odds / odds.sum()
        count = len(odds)
        if settings.top_p < 1:
            count = min(count, 1 + int(np.searchsorted(np.cumsum(odds), settings.top_p)))
        if settings.min_p > 0:
            count = min(count, int((odds >= settings.min_p * odds[0]).sum()))
        return tokens[: max(count, 1)], odds[: max(count, 1)]

    def _penalised(self, logits: Array, so_far: Sequence[int]) -> Array:
        settings = self.sampling
        plain = settings.repetition_penalty == 1 and not (
            settings.presence_penalty or settings.frequency_penalty
        )
        if not settings.bias and (plain or not so_far):
            return logits
        logits = logits.astype(np.float64)
        for token, value in settings.bias.items():
            if token < len(logits):
                logits[token] += value
        if plain or not so_far:
            return logits
        tokens, counts = np.unique(np.asarray(so_far), return_counts=True)
        found = logits[tokens]
        penalty = settings.repetition_penalty
        found = np.where(found > 0, found / penalty, found * penalty)
        found = found - settings.presence_penalty - settings.frequency_penalty * counts
        logits[tokens] = found
        return logits


# so many of the most likely are sorted first; few texts need more
_FIRST = 512


def _most_likely(odds: Array, count: int, share: float) -> Array:
    """The `count` most likely tokens, or fewer that have the share of the odds; sorted, equal ones
    in the order of tokens."""
    wanted = _FIRST if count > _FIRST and share < 1 else count
    while wanted < count:
        found = _sorted_top(odds, wanted)
        if odds[found].sum() >= share:
            return found
        wanted *= 8
    return _sorted_top(odds, count)


def _sorted_top(odds: Array, count: int) -> Array:
    if count >= len(odds):
        return np.argsort(-odds, kind="stable")
    # the least of them may be as likely as others, of which the first are taken
    least = np.partition(odds, len(odds) - count)[len(odds) - count]
    above = np.flatnonzero(odds > least)
    equal = np.flatnonzero(odds == least)[: count - len(above)]
    tokens = np.sort(np.concatenate([above, equal]))
    order: Array = tokens[np.argsort(-odds[tokens], kind="stable")]
    return order


def _softmax(logits: Array) -> Array:
    odds = np.exp(logits - np.max(logits))
    return odds / odds.sum()


def log_probabilities(logits: Array) -> Array:
    """The logarithms of the odds, along the last axis."""
    wide = logits.astype(np.float64)
    top = np.max(wide, axis=-1, keepdims=True)
    return wide - (top + np.log(np.exp(wide - top).sum(axis=-1, keepdims=True)))


def best_of(log_odds: Array, count: int) -> list[tuple[int, float]]:
    """The most likely tokens with their log probabilities.

    >>> best_of(np.array([-3.0, -1.0, -9.0]), 2)
    [(1, -1.0), (0, -3.0)]
    """
    return [(int(token), float(log_odds[token])) for token in _sorted_top(log_odds, count)]
