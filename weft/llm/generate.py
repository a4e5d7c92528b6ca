"""One text after another: what follows a prompt, token by token.

In: a `Transformer` and tokens. Out: tokens and the logits they were drawn from. Above `batch`,
which does the work. Invariant: what the cache holds of earlier texts is not computed again where a
prompt begins the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from weft.llm.batch import BATCHES, PIECES, Batcher, Constraint, Guesser, Text
from weft.llm.model import Transformer
from weft.llm.sample import Sampler, Sampling, log_probabilities

__all__ = ["Generator", "Sampler", "Sampling", "log_probabilities"]

Array = np.ndarray[Any, Any]


class Generator:
    """A model that continues one text at a time."""

    def __init__(self, model: Transformer, guesser: Guesser | None = None) -> None:
        self.model = model
        self.batcher = Batcher(model)
        self.batcher.guesser = guesser

    def logits(self, tokens: Sequence[int]) -> Array:
        """The logits of what follows the tokens."""
        found: list[Array] = []

        def receive(token: int, logits: Array) -> bool:
            found.append(logits)
            return True

        text = self.batcher.add(Text(list(tokens), receive))
        while text.reason is None:
            self.batcher.step()
        return found[0]

    def generate(
        self,
        prompt: Sequence[int],
        ends: frozenset[int] = frozenset(),
        sampling: Sampling | None = None,
        longest: int | None = None,
        constraint: Constraint | None = None,
    ) -> Iterator[tuple[int, Array]]:
        """Tokens that follow a prompt, each with the logits it was drawn from, up to an end.

        Stops in front of an end token, after `longest` tokens, or when the context is full.
        """
        found: list[tuple[int, Array]] = []

        def receive(token: int, logits: Array) -> bool:
            found.append((token, logits))
            return False

        most = None if longest is None else len(prompt) + longest
        text = Text(list(prompt), receive, sampling or Sampling(), ends, most, constraint)
        self.batcher.add(text)
        try:
            while text.reason is None:
                self.batcher.step()
                yield from found
                found.clear()
        finally:
            # also where nobody asks for more
            self.batcher.cancel(text)
        if text.error is not None:
            raise text.error

    def warm_up(self) -> None:
        """Runs every size of step until it is replayed."""
        sizes = [(1, size, "next") for size in (*PIECES, BATCHES[0])]
        self.batcher.warm_up(sizes)
