"""Several texts continued together: steps of few sizes over pages of one cache.

In: a `Transformer` and `Text`s, which come and go. Out: each text's tokens, one after another.
Above `model`, `pages` and `sample`. Invariant: steps have one of a few sizes, and where texts stand
is data, so after each size was seen nothing is compiled or scheduled, for any mixture of texts.

A step either reads a piece of one prompt or adds a token to several texts; the two take turns, so a
long prompt does not stop the others, and texts take turns where there are more than a step holds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from weft.engine.jit import TinyJit
from weft.errors import ArgumentError
from weft.llm.model import PAGE, Places, Transformer
from weft.llm.pages import Pages
from weft.llm.sample import Sampler, Sampling
from weft.tensor import Tensor
from weft.uop.node import UOp

Array = np.ndarray[Any, Any]

# tokens of a piece of a prompt, the largest first: the large size where it would be half full
PIECES = (256, 32)
# texts that a step adds a token to
BATCHES = (1, 2, 4, 8)
# tokens of a step that checks a guess
GUESSED = 8


class Constraint(Protocol):
    """What a text may go on with."""

    def allowed(self) -> Array | None:
        """Whether each token may come next: (vocabulary,); None: all may."""

    def advance(self, token: int) -> bool:
        """The text went on with this token; true: it is whole, and nothing can follow."""


class Guesser(Protocol):
    """Guesses how a text goes on; what it guesses wrong costs time and changes nothing."""

    def guess(self, tokens: Sequence[int], count: int) -> list[int]:
        """At most `count` tokens that may follow."""


@dataclass(eq=False)
class Text:
    """A text, and what is to become of it."""

    tokens: list[int]  # the prompt, and what was added
    # called with each token and the logits that it was drawn from; true: no more is wanted
    receive: Callable[[int, Array], bool]
    sampling: Sampling = field(default_factory=Sampling)
    ends: frozenset[int] = frozenset()  # tokens behind which nothing comes; they are not added
    longest: int | None = None  # tokens at most, the prompt included
    constraint: Constraint | None = None
    # what is asked of the prompt: only what follows it, or "logits" or "hidden" of all its tokens
    asked: str = "next"
    receive_prompt: Callable[[Array], None] | None = None  # called with each piece's
    reason: str | None = None  # why it ended: "stop", "length", "cancelled" or "error"
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.prompt = len(self.tokens)
        self.held = 0  # tokens whose keys and values are in the cache
        self.reused = 0  # tokens of the prompt that the cache held
        self.pages: list[int] = []
        self.slot = 0  # of its state, where the model carries one
        self.sampler = Sampler(self.sampling)
        self.when_ended: Callable[[Text], None] | None = None  # whose texts these are
        self.listener: Callable[[], None] | None = None  # who waits for this one

    @property
    def rest(self) -> int:
        """Tokens that are to be read; the last one is always one of them."""
        return len(self.tokens) - self.held


class Batcher:
    """Continues texts with one model."""

    def __init__(self, model: Transformer, most: int = 256) -> None:
        """Of all texts at most `most` have pages; the others wait."""
        self.model = model
        self.pages = Pages(model.pages)
        self.waiting: deque[Text] = deque()
        self.running: deque[Text] = deque()  # the one whose turn it is comes first
        self.guesser: Guesser | None = None
        self.guesses = self.guessed = 0  # tokens that were guessed, and those that were right
        self.steps = 0
        # slots of states that are free; slot 0 belongs to no text
        self._slots = list(range(model.slots - 1, 0, -1))
        self._most = min(most, len(self._slots)) if model.slots else most
        self._is_prompts_turn = True
        self._count = UOp.variable("pages", 1, model.pages_of_text)
        self._jits: dict[tuple[int, int, str], Any] = {}

    def add(self, text: Text) -> Text:
        """Continue this text too."""
        longest = self.model.max_context
        if not 1 <= len(text.tokens) <= longest:
            raise ArgumentError(
                f"a text of {len(text.tokens)} tokens: this context takes 1 to {longest}"
            )
        self.waiting.append(text)
        return text

    def cancel(self, text: Text) -> None:
        """Nobody waits for this text any more."""
        self.end(text, "cancelled")

    def __len__(self) -> int:
        return len(self.waiting) + len(self.running)

    # -------------------------------------------------------- whose turn it is
    def step(self) -> bool:
        """One step for some of the texts; whether there was one to take."""
        self._admit()
        reading = [text for text in self.running if text.rest > 1 or text.asked != "next"]
        adding = [text for text in self.running if text.rest == 1 and text.asked == "next"]
        if reading and (self._is_prompts_turn or not adding):
            self._is_prompts_turn = False
            self._read_piece(reading[0])
        elif adding:
            self._is_prompts_turn = True
            self._add_tokens(adding[: BATCHES[-1]])
        else:
            return False
        self.steps += 1
        return True

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self._most:
            text = self.waiting[0]
            # the last token is always read, for its logits
            # what a state has come to behind a page is not kept, so texts with one begin anew
            is_known = text.asked == "next" and not self.model.slots
            known = self.pages.known(text.tokens[:-1]) if is_known else []
            needed = -(-len(text.tokens) // PAGE) - len(known)
            # room to go on, too; but where nothing runs, all pages are there
            if self.running and self.pages.free < needed + 1 + len(self.running):
                self.pages.give_back(known)
                return
            self.waiting.popleft()
            text.slot = self._slots.pop() if self._slots else 0
            text.pages = known
            text.held = text.reused = len(known) * PAGE
            self.running.append(text)

    def _has_room(self, text: Text, count: int) -> bool:
        """Takes pages for so many more tokens; others give theirs up if they must."""
        while len(text.pages) * PAGE < text.held + count:
            page = self.pages.take()
            if page is not None:
                text.pages.append(page)
                continue
            # where least is lost; it is read again later
            others = [other for other in self.running if other is not text]
            if not others:
                return False
            self._put_off(min(others, key=lambda other: other.held))
        return True

    def _put_off(self, text: Text) -> None:
        """Its pages are given up; it is read again later."""
        self.running.remove(text)
        self._give_back(text)
        text.held = 0
        self.waiting.appendleft(text)

    def _give_back(self, text: Text) -> None:
        self.pages.give_back(text.pages)
        text.pages = []
        if text.slot:
            self._slots.append(text.slot)
            text.slot = 0

    def end(self, text: Text, reason: str) -> None:
        """A text gets no more tokens."""
        if text.reason is not None:
            return
        text.reason = reason
        self._give_back(text)
        for texts in (self.running, self.waiting):
            if text in texts:
                texts.remove(text)
        if text.when_ended is not None:
            text.when_ended(text)

    # -------------------------------------------------------- what a step does
    def _read_piece(self, text: Text) -> None:
        large, small = PIECES
        size = large if text.rest > large // 2 and text.asked == "next" else small
        count = min(text.rest, size)
        if not self._has_room(text, count):
            return
        is_last = count == text.rest
        found = self._run([text], [count], size, text.asked)
        if text.receive_prompt is not None:
            text.receive_prompt(found[0, :count])
        # it is another's turn
        self.running.remove(text)
        self.running.append(text)
        if not is_last:
            return
        if text.asked == "hidden":
            self.end(text, "stop")
            return
        logits = found[0, count - 1] if text.asked == "logits" else found[0]
        text.asked = "next"
        self._receive(text, logits)

    def _add_tokens(self, texts: list[Text]) -> None:
        guess = self._guess(texts[0]) if len(texts) == 1 else []
        if guess:
            self._check_guess(texts[0], guess)
            return
        for text in texts:
            # one may have been put off for another
            if text in self.running:
                self._has_room(text, 1)
        texts = [text for text in texts if text in self.running]
        size = next(size for size in BATCHES if size >= len(texts))
        found = self._run(texts, [1] * len(texts), 1, "next", size)
        for text, logits in zip(texts, found, strict=False):
            self.running.remove(text)
            self.running.append(text)
            self._receive(text, logits)

    def _receive(self, text: Text, logits: Array) -> bool:
        """The next token of a text; whether there may be more."""
        longest = min(text.longest or self.model.max_context + 1, self.model.max_context + 1)
        if len(text.tokens) >= longest:
            self.end(text, "length")
            return False
        try:
            allowed = None if text.constraint is None else text.constraint.allowed()
            token = text.sampler.draw(logits, text.tokens, allowed)
            if token in text.ends:
                self.end(text, "stop")
                return False
            text.tokens.append(token)
            is_whole = text.constraint is not None and text.constraint.advance(token)
            if text.receive(token, logits) or is_whole:
                self.end(text, "stop")
                return False
        except Exception as error:
            # whatever became of this text, the others go on
            text.error = error
            self.end(text, "error")
            return False
        if len(text.tokens) >= longest:
            self.end(text, "length")
            return False
        return True

    # -------------------------------------------------------- guesses
    def _guess(self, text: Text) -> list[int]:
        # a state cannot be taken back
        if self.guesser is None or self.model.slots:
            return []
        longest = min(text.longest or self.model.max_context, self.model.max_context)
        # one more token comes with the last that is right
        room = min(GUESSED, longest - len(text.tokens)) - 1
        return self.guesser.guess(text.tokens, room)[:room] if room > 0 else []

    def _check_guess(self, text: Text, guess: list[int]) -> None:
        """One step reads a guess; of it stays what would have been drawn without it."""
        count = 1 + len(guess)
        if not self._has_room(text, count):
            return
        begin = len(text.tokens)
        text.tokens += guess
        found = self._run([text], [count], GUESSED, "logits")[0]
        # what is in the cache behind the last right one is written anew
        del text.tokens[begin:]
        text.held = begin
        self.guesses += len(guess)
        for i, logits in enumerate(found[:count]):
            if not self._receive(text, logits):
                return
            if i == len(guess) or text.tokens[-1] != guess[i]:
                return
            self.guessed += 1
            text.held += 1
            self._remember(text, text.held - 1)

    # -------------------------------------------------------- the device
    def _run(
        self, texts: list[Text], counts: list[int], size: int, kind: str, batch: int = 1
    ) -> Array:
        """Reads the next `counts` tokens of texts, in a step of a size."""
        width = self.model.pages_of_text
        data = np.zeros((batch, 3 * size + 2 + width), np.int32)
        tokens, positions, rows = (data[:, i * size : (i + 1) * size] for i in range(3))
        most = 1
        for i, (text, count) in enumerate(zip(texts, counts, strict=True)):
            begin, pages = text.held, np.asarray(text.pages, np.int32)
            places = np.arange(begin, begin + count)
            tokens[i, :count] = text.tokens[begin : begin + count]
            positions[i, :count] = places
            rows[i, :count] = pages[places // PAGE] * PAGE + places % PAGE
            data[i, 3 * size : 3 * size + 2] = count - 1, text.slot
            data[i, 3 * size + 2 : 3 * size + 2 + len(pages)] = pages
            most = max(most, -(-(begin + count) // PAGE))
        found = self._jit(batch, size, kind)(Tensor(data).realize(), self._count.bind(most))
        for text, count in zip(texts, counts, strict=True):
            text.held += count
            if kind != "hidden":
                self._remember(text, text.held - count)
        result: Array = found.numpy()
        return result

    def _remember(self, text: Text, before: int) -> None:
        for full in range(before // PAGE + 1, text.held // PAGE + 1):
            self.pages.remember(text.pages[:full], text.tokens)

    def _jit(self, batch: int, size: int, kind: str) -> Any:
        key = (batch, size, kind)
        if key not in self._jits:
            self._jits[key] = TinyJit(_step(self.model, size, kind))
        return self._jits[key]

    def warm_up(self, kinds: Sequence[tuple[int, int, str]] | None = None) -> None:
        """Runs sizes of steps until they are replayed."""
        if kinds is None:
            kinds = [(1, size, "next") for size in (*PIECES, 1)]
            kinds += [(batch, 1, "next") for batch in BATCHES[1:]]
        for batch, size, kind in kinds:
            if size > self.model.max_context and size != PIECES[-1]:
                continue
            # a number that was seen to change is a variable from then on
            for count in (1, 2, 3, 1):
                count = min(count, self.model.pages_of_text)
                data = np.zeros((batch, 3 * size + 2 + self.model.pages_of_text), np.int32)
                self._jit(batch, size, kind)(Tensor(data).realize(), self._count.bind(count))


def _step(model: Transformer, size: int, kind: str) -> Callable[[Tensor, UOp], Tensor]:
    """What a step computes: logits of what follows (batch, vocabulary), or of every token."""

    def step(data: Tensor, pages: UOp) -> Tensor:
        tokens, positions, rows = (data[:, i * size : (i + 1) * size] for i in range(3))
        last, table = data[:, 3 * size : 3 * size + 1], data[:, 3 * size + 2 :]
        slots = data[:, 3 * size + 1] if model.slots else None
        x = model.hidden(tokens, Places(positions, rows, table, pages, slots))
        if kind == "hidden":
            return model.output_norm(x).realize()
        if kind == "next":
            # of the others nothing is asked
            is_last = Tensor.arange(size).reshape(1, size, 1) == last.unsqueeze(-1)
            x = x if size == 1 else is_last.where(x, 0).sum(1, keepdim=True)
            return model.logits(x).squeeze(1).realize()
        return model.logits(x).realize()

    return step


class NgramGuesser:
    """Guesses that a text goes on as it did where its last tokens stood before.

    Saxena, "Prompt Lookup Decoding" (2023): for answers that repeat their prompt.
    """

    def __init__(self, longest: int = 3, shortest: int = 2) -> None:
        self._lengths = range(longest, shortest - 1, -1)
        self._seen: dict[tuple[int, ...], int] = {}
        self._of: list[int] = []

    def guess(self, tokens: Sequence[int], count: int) -> list[int]:
        """What stood behind the last place that looked the same.

        >>> NgramGuesser().guess([5, 6, 7, 8, 9, 5, 6, 7], 2)
        [8, 9]
        """
        same = len(self._of)
        if tokens[:same] != self._of or same > len(tokens):
            self._seen, self._of, same = {}, [], 0
        # each place is known but the last, which would find itself
        for end in range(max(same, 1), len(tokens)):
            for length in self._lengths:
                if length <= end:
                    self._seen[tuple(tokens[end - length : end])] = end
        self._of = list(tokens)
        for length in self._lengths:
            place = self._seen.get(tuple(tokens[-length:]))
            if place is not None and len(tokens) >= length:
                return list(tokens[place : place + count])
        return []


class ModelGuesser:
    """Guesses what a smaller model would say (Leviathan et al., "Fast Inference from Transformers
    via Speculative Decoding", 2023). It must have the same vocabulary."""

    def __init__(self, model: Transformer) -> None:
        self._batcher = Batcher(model)

    def guess(self, tokens: Sequence[int], count: int) -> list[int]:
        """The most likely tokens."""
        count = min(count, self._batcher.model.max_context - len(tokens))
        if count < 1:
            return []
        text = Text(list(tokens), lambda token, logits: False, longest=len(tokens) + count)
        self._batcher.add(text)
        while text.reason is None:
            self._batcher.step()
        return text.tokens[len(tokens) :]
