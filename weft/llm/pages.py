"""The pages of the cache: which are free, whose they are, and what they hold for later.

In: tokens of texts. Out: numbers of pages. Below `batch`. Invariant: a page that two texts share is
full and is not written again; page 0 is never given out, as what pads a step is written there.

A page that is full stays findable by its tokens and all tokens in front of them, also when its text
has ended: the next text that begins alike reads it instead of computing it (Kwon et al., "Efficient
Memory Management for Large Language Model Serving with PagedAttention", 2023).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from weft.llm.model import PAGE

# what is in front of the first page of a text
_NOTHING = 0


class Pages:
    """Gives out pages and takes them back."""

    def __init__(self, count: int) -> None:
        """`count` includes page 0."""
        self.count = count - 1
        self._free = list(range(count - 1, 0, -1))
        self._users = [0] * count
        # what a full page holds: the chain of pages in front of it, and its tokens
        self._keys: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._found: dict[tuple[int, tuple[int, ...]], int] = {}
        # a number for each chain of full pages; none is used twice
        self._chains: dict[int, int] = {}
        self._chain = _NOTHING
        # full pages that nobody uses, those that were given back first in front
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def free(self) -> int:
        """How many can be taken."""
        return len(self._free) + len(self._idle)

    def take(self) -> int | None:
        """A page for one text, or None where all are in use."""
        if self._free:
            page = self._free.pop()
        elif self._idle:
            page, _ = self._idle.popitem(last=False)
            self._forget(page)
        else:
            return None
        self._users[page] = 1
        return page

    def give_back(self, pages: Sequence[int]) -> None:
        """A text does not use its pages any more."""
        # the last first: a page without those in front of it is found by nobody
        for page in reversed(pages):
            self._users[page] -= 1
            if self._users[page]:
                continue
            if page in self._keys:
                self._idle[page] = None
            else:
                self._free.append(page)

    def remember(self, pages: Sequence[int], tokens: Sequence[int]) -> None:
        """The last of a text's `pages` was filled; `tokens` are those of all of them."""
        page = pages[-1]
        front = self._chains.get(pages[-2], -1) if len(pages) > 1 else _NOTHING
        key = (front, tuple(tokens[(len(pages) - 1) * PAGE : len(pages) * PAGE]))
        if front < 0 or key in self._found or page in self._keys:
            return
        self._chain += 1
        self._keys[page], self._found[key], self._chains[page] = key, page, self._chain

    def known(self, tokens: Sequence[int]) -> list[int]:
        """The pages that hold the beginning of a text; they are its own from now on."""
        pages: list[int] = []
        front = _NOTHING
        for begin in range(0, len(tokens) - PAGE + 1, PAGE):
            page = self._found.get((front, tuple(tokens[begin : begin + PAGE])))
            if page is None:
                break
            pages.append(page)
            front = self._chains[page]
        for page in pages:
            self._idle.pop(page, None)
            self._users[page] += 1
        return pages

    def forget_idle(self) -> None:
        """Pages that no text uses hold nothing any more."""
        while self._idle:
            page, _ = self._idle.popitem()
            self._forget(page)
            self._free.append(page)

    def _forget(self, page: int) -> None:
        del self._found[self._keys.pop(page)]
        del self._chains[page]
