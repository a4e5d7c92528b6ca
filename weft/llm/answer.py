"""An answer as clients see it: text in pieces, up to stop words, with log probabilities.

In: tokens and logits of one text. Out: `Piece`s. Below `engine`. Invariant: a piece never ends
inside of a letter, and holds nothing of what may turn out to be a stop word or a mark.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.llm.sample import best_of, log_probabilities
from weft.llm.tokens import SimpleTokenizer

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class TokenOdds:
    """A token that was drawn, and the log probabilities of it and of the best ones."""

    token: int
    log_odds: float
    best: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Piece:
    """What an answer went on by."""

    text: str = ""
    odds: tuple[TokenOdds, ...] = ()


def odds_of(token: int, logits: Array, top: int) -> TokenOdds:
    """Of one token."""
    found = log_probabilities(logits)
    return TokenOdds(token, float(found[token]), tuple(best_of(found, top)) if top else ())


class StopWords:
    """Ends a text in front of the first stop word; holds back what may begin one."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = tuple(words)
        self._held = ""

    def feed(self, text: str) -> tuple[str, bool]:
        """What can be said, and whether a stop word was met.

        >>> words = StopWords(["END"])
        >>> words.feed("the E"), words.feed("NGINE E"), words.feed("ND of it")
        (('the ', False), ('ENGINE ', False), ('', True))
        """
        self._held += text
        places = [place for word in self._words if (place := self._held.find(word)) >= 0]
        if places:
            said, self._held = self._held[: min(places)], ""
            return said, True
        keep = held_back(self._held, self._words)
        said, self._held = self._held[: len(self._held) - keep], self._held[-keep:] if keep else ""
        return said, False

    def finish(self) -> str:
        """What was held back."""
        held, self._held = self._held, ""
        return held


def held_back(text: str, words: Sequence[str]) -> int:
    """How many letters at the end of a text may be the beginning of a word.

    >>> held_back("abcEN", ["END", "XY"])
    2
    """
    for count in range(min(len(text), max(map(len, words), default=1) - 1), 0, -1):
        if any(word.startswith(text[-count:]) for word in words):
            return count
    return 0


class Answer:
    """Turns the tokens of one text into pieces and hands them on."""

    def __init__(
        self,
        tokenizer: SimpleTokenizer,
        hand_on: Callable[[Piece], None],
        stops: Sequence[str] = (),
        top: int | None = None,
    ) -> None:
        """`top` best log probabilities go with each token; None: no log probabilities."""
        self._stream = tokenizer.stream()
        self._stops = StopWords(stops)
        self._hand_on = hand_on
        self._top = top
        self._odds: list[TokenOdds] = []
        self.count = 0
        self.was_stopped = False

    def receive(self, token: int, logits: Array) -> bool:
        """The next token; true: a stop word was met."""
        self.count += 1
        if self._top is not None:
            self._odds.append(odds_of(token, logits, self._top))
        text, self.was_stopped = self._stops.feed(self._stream.feed(token))
        if text or self._odds:
            self._hand_on(Piece(text, tuple(self._odds)))
            self._odds.clear()
        return self.was_stopped

    def finish(self) -> None:
        """The text has ended."""
        if self.was_stopped:
            return
        text, stopped = self._stops.feed(self._stream.finish())
        text += "" if stopped else self._stops.finish()
        if text:
            self._hand_on(Piece(text))


# ------------------------------------------------------------ parts of an answer
@dataclass
class Said:
    """Parts that an answer went on by: text, thoughts, calls of tools."""

    content: str = ""
    reasoning: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)


# what models write around thoughts and calls
THOUGHT = ("<think>", "</think>")
_CALLS = {"<tool_call>": "</tool_call>", "[TOOL_CALLS]": "", "<|python_tag|>": ""}


class Parts:
    """Splits an answer into thoughts, text and calls, as it comes.

    Calls are JSON, between marks or, where nothing else was said, without any.
    """

    def __init__(self, has_tools: bool, begins_in_thought: bool = False) -> None:
        self._has_tools = has_tools
        self._mode = "thought" if begins_in_thought else "text"
        self._strips = begins_in_thought or has_tools
        self._held = ""
        self._end = ""  # of the call that is open
        self._any_text = False
        self._count = 0

    def feed(self, text: str) -> Said:
        """More of the answer."""
        self._held += text
        said = Said()
        while self._advance(said):
            pass
        return said

    def _advance(self, said: Said) -> bool:
        if self._mode == "thought":
            return self._until(THOUGHT[1], said, "reasoning")
        if self._mode == "call":
            place = self._held.find(self._end) if self._end else -1
            if place < 0:
                return False
            self._add_calls(self._held[:place], said)
            self._held, self._mode = self._held[place + len(self._end) :], "text"
            self._strips = True
            return True
        return self._say_text(said)

    def _until(self, mark: str, said: Said, name: str) -> bool:
        place = self._held.find(mark)
        keep = 0 if place >= 0 else held_back(self._held, [mark])
        end = place if place >= 0 else len(self._held) - keep
        setattr(said, name, getattr(said, name) + self._held[:end])
        self._held = self._held[end:]
        if place < 0:
            return False
        self._held, self._mode, self._strips = self._held[len(mark) :], "text", True
        return bool(self._held)

    def _say_text(self, said: Said) -> bool:
        marks = [THOUGHT[0]] if not self._any_text else []
        marks += _CALLS if self._has_tools else []
        if self._has_tools and not self._any_text and self._held.lstrip()[:1] in ("{", "["):
            if not self._held.lstrip().startswith("[TOOL_CALLS]"):
                # perhaps a call without marks; the end will tell
                return False
        found = [(place, mark) for mark in marks if (place := self._held.find(mark)) >= 0]
        if not found:
            keep = held_back(self._held, marks)
            self._say(self._held[: len(self._held) - keep], said)
            self._held = self._held[len(self._held) - keep :]
            return False
        place, mark = min(found)
        self._say(self._held[:place], said)
        self._held = self._held[place + len(mark) :]
        self._mode = "thought" if mark == THOUGHT[0] else "call"
        self._end = _CALLS.get(mark, "")
        return True

    def _say(self, text: str, said: Said) -> None:
        # blanks between the parts belong to none
        text = text.lstrip() if self._strips else text
        if text:
            said.content += text
            self._any_text, self._strips = True, False

    def finish(self) -> Said:
        """What was held back."""
        said = Said()
        if self._mode == "thought":
            said.reasoning, self._held = self._held, ""
        elif self._mode == "call" or (
            self._has_tools and not self._any_text and self._held.lstrip()[:1] in ("{", "[")
        ):
            self._add_calls(self._held, said)
        else:
            self._say(self._held, said)
        self._held = ""
        return said

    def _add_calls(self, text: str, said: Said) -> None:
        """The calls that a text holds; what is none stays text."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        calls = found if isinstance(found, list) else [found]
        if not calls or not all(isinstance(c, dict) and _name(c) for c in calls):
            said.content += text
            return
        for call in calls:
            arguments = call.get("arguments", call.get("parameters", {}))
            if not isinstance(arguments, str):
                arguments = json.dumps(arguments, ensure_ascii=False)
            said.calls.append(
                {
                    "index": self._count,
                    "id": f"call_{uuid.uuid4().hex[:24]}",
                    "type": "function",
                    "function": {"name": _name(call), "arguments": arguments},
                }
            )
            self._count += 1


def _name(call: dict[str, Any]) -> str:
    name = call.get("name")
    return name if isinstance(name, str) and ("arguments" in call or "parameters" in call) else ""
