"""Attention over a sequence that is cut over devices: keys and values go around a ring.

In: query, key and value, each cut evenly along its sequence. Out: the attention of the query, cut
as it is. Sits below the neural methods, which use it where it fits.
Invariant: no device ever holds the keys or scores of more than two parts; each round's part comes
from a neighbour, while sums of exponents are kept relative to the greatest score so far.
"""

from __future__ import annotations

import math
from typing import Any

from weft.dtype import dtypes


def is_ring(query: Any, key: Any, value: Any) -> bool:
    """Whether all three are cut along their sequences, into as many equal parts."""
    if type(query.device) is not tuple or min(query.ndim, key.ndim, value.ndim) < 3:
        return False
    length, count = query.shape[-2], len(query.device)
    if not isinstance(length, int) or length % count or key.shape[-2] != length:
        return False
    for part in (query, key, value):
        layout = part.uop.layout
        if layout is None or layout.shape != part.shape or layout.axis != part.ndim - 2:
            return False
        if any([b != i * (length // count) for i, b in enumerate(layout.bounds)]):
            return False
    return query.shape[:-2] == key.shape[:-2] == value.shape[:-2]


def ring_attention(query: Any, key: Any, value: Any, is_causal: bool) -> Any:
    """softmax(query @ key.T / sqrt(d)) @ value, one part of the keys after another."""
    count, length = len(query.device), query.shape[-2]
    short = length // count
    axis = query.ndim - 2
    parts = [
        x.cast(dtypes.float32 if x.dtype.itemsize < 4 else x.dtype).reshape(
            *x.shape[:-2], count, short, x.shape[-1]
        )
        for x in (query / math.sqrt(query.shape[-1]), key, value)
    ]
    own, keys, values = parts
    places = type(query).arange(length)
    total = norm = most = None
    for turn in range(count):
        scores = own.matmul(keys.transpose(-2, -1))
        if is_causal:
            # in this round device i has the keys of device i - turn
            theirs = places.reshape(count, 1, short).roll(turn, 0)
            seen = theirs <= places.reshape(count, short, 1)
            scores = seen.where(scores, scores._constant(-math.inf))
        greatest = scores.max(-1, keepdim=True).detach()
        if most is not None:
            greatest = most.maximum(greatest)
        weights = (scores - greatest).exp()
        added, sums = weights.matmul(values), weights.sum(-1, keepdim=True)
        if most is None:
            total, norm = added, sums
        else:
            shrink = (most - greatest).exp()
            total, norm = total * shrink + added, norm * shrink + sums
        most = greatest.contiguous()
        if turn + 1 < count:
            keys = keys.roll(1, axis).contiguous()
            values = values.roll(1, axis).contiguous()
    assert total is not None and norm is not None
    return (total / norm).reshape(*query.shape[:-1], value.shape[-1]).cast(query.dtype)
