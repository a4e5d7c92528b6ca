"""All families of the table of lowerings, loaded.

In: nothing. Out: `FAMILIES`; the operators are in `table.onnx_ops` once this is imported.
Sits between the families and `run`.
"""

from __future__ import annotations

from weft.graphs.lowerings import (
    attention,
    casts,
    control,
    conv,
    elementwise,
    host,
    image,
    linalg,
    microsoft,
    ml,
    movement,
    norm,
    quantised,
    random,
    reduce,
    resize,
    rnn,
    signal,
    text,
    training,
)

FAMILIES = (
    attention,
    casts,
    control,
    conv,
    elementwise,
    host,
    image,
    linalg,
    microsoft,
    ml,
    movement,
    norm,
    quantised,
    random,
    reduce,
    resize,
    rnn,
    signal,
    text,
    training,
)
