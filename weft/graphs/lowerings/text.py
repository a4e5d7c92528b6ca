"""Strings: operators on arrays of them, on the host.

In: arrays of Python strings. Out: arrays. A family of the table of lowerings.
Invariant: a pattern out of a file cannot make matching take exponential time: patterns with
repeats inside of repeats are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy

from weft.graphs.table import Host, lowers, refuse
from weft.tensor import Tensor


@lowers("StringConcat", since=20)
def string_concat(a: Host, b: Host) -> Host:
    left, right = numpy.broadcast_arrays(a, b)
    found = numpy.empty(left.shape, dtype=object)
    for place in numpy.ndindex(left.shape):
        found[place] = str(left[place]) + str(right[place])
    return found


@lowers("StringSplit", since=20)
def string_split(
    x: Host, *, delimiter: str | None = None, maxsplit: int | None = None
) -> tuple[Host, Host]:
    most = -1 if maxsplit is None else maxsplit
    parts = [str(text).split(delimiter or None, most) if text else [] for text in x.reshape(-1)]
    longest = max((len(part) for part in parts), default=0)
    found = numpy.empty((len(parts), longest), dtype=object)
    for row, part in enumerate(parts):
        found[row] = part + [""] * (longest - len(part))
    counts = numpy.array([len(part) for part in parts], dtype=numpy.int64)
    return found.reshape((*x.shape, longest)), counts.reshape(x.shape)


def _has_nested_repeats(pattern: str) -> bool:
    """Whether a repeat without an end holds another one: `(a+)+`."""
    parsed = re._parser.parse(pattern)  # type: ignore[attr-defined]
    pending: list[tuple[Any, bool]] = [(parsed, False)]
    while pending:
        node, inside = pending.pop()
        if isinstance(node, re._parser.SubPattern):  # type: ignore[attr-defined]
            pending.extend((one, inside) for one in node.data)
        elif isinstance(node, (tuple, list)):
            name = str(node[0]) if node and not isinstance(node[0], (tuple, list)) else ""
            repeats = name in ("MAX_REPEAT", "MIN_REPEAT") and node[1][1] > 64
            if repeats and inside:
                return True
            pending.extend((one, inside or repeats) for one in node)
    return False


@lowers("RegexFullMatch", since=20)
def regex_full_match(x: Host, *, pattern: str) -> Host:
    try:
        if len(pattern) > 1000 or _has_nested_repeats(pattern):
            raise refuse(f"the pattern {pattern!r:.80} is too long, or repeats repeats")
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise refuse(f"the pattern {pattern!r:.80}: {error}") from error
    found = numpy.zeros(x.shape, dtype=bool)
    for place in numpy.ndindex(x.shape):
        found[place] = compiled.fullmatch(str(x[place])) is not None
    return found


@lowers("StringNormalizer", since=10)
def string_normalizer(
    x: Host,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str = "",
    stopwords: list[str] | None = None,
) -> Host:
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
        raise refuse(f"shape (n) or (1, n) is wanted, found {x.shape}")
    changes: dict[str, Callable[[str], str]]
    changes = {"UPPER": str.upper, "LOWER": str.lower, "NONE": str}
    change = changes.get(case_change_action)
    if change is None:
        raise refuse(f"case_change_action is UPPER, LOWER or NONE, found {case_change_action!r}")
    stops = set(stopwords or [])
    folded = stops if is_case_sensitive else {word.lower() for word in stops}
    words = [str(word) for word in x.reshape(-1)]
    kept = [w for w in words if (w if is_case_sensitive else w.lower()) not in folded]
    found = numpy.empty(max(1, len(kept)), dtype=object)
    found[:] = [change(word) for word in kept] or [""]
    return found.reshape((1, -1)) if x.ndim == 2 else found


@lowers("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(
    x: Host,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: list[int],
    ngram_indexes: list[int],
    pool_int64s: list[int] | None = None,
    pool_strings: list[str] | None = None,
    weights: list[float] | None = None,
) -> Tensor | Host:
    """How often each n-gram of the pool occurs, with up to `max_skip_count` words left out."""
    if mode not in ("TF", "IDF", "TFIDF"):
        raise refuse(f"mode is TF, IDF or TFIDF, found {mode!r}")
    pool: list[Any] = list(pool_strings if pool_strings is not None else pool_int64s or [])
    grams: dict[tuple[Any, ...], int] = {}
    number = 0
    for length, start in enumerate(ngram_counts, 1):
        end = ngram_counts[length] if length < len(ngram_counts) else len(pool)
        for place in range(start, end - length + 1, length):
            grams[tuple(pool[place : place + length])] = number
            number += 1
    if number != len(ngram_indexes):
        raise refuse(f"{number} n-grams and {len(ngram_indexes)} indexes")
    rows = x.reshape((1, -1)) if x.ndim < 2 else x
    columns = max(ngram_indexes, default=-1) + 1
    counts = numpy.zeros((rows.shape[0], columns), dtype=numpy.float32)
    for row, words in enumerate(rows.tolist()):
        for length in range(min_gram_length, max_gram_length + 1):
            # of single words there is nothing to leave out
            for skip in range(1 if length == 1 else max_skip_count + 1):
                reach = (length - 1) * (skip + 1)
                for start in range(len(words) - reach):
                    gram = tuple(words[start : start + reach + 1 : skip + 1])
                    if gram in grams:
                        counts[row, ngram_indexes[grams[gram]]] += 1
    factors = numpy.ones(columns, dtype=numpy.float32)
    if weights is not None:
        for index, weight in zip(ngram_indexes, weights, strict=True):
            factors[index] = weight
    if mode == "IDF":
        counts = (counts > 0).astype(numpy.float32) * factors
    elif mode == "TFIDF":
        counts = counts * factors
    return counts.reshape(-1) if x.ndim < 2 else counts
