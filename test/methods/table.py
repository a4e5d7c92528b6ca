"""The method table: one row, or more, for every public method of Tensor.

In: the rows of all families. Out: `TABLE` and `CHECKS`, for the tests beside it.
Sits above the `rows_*` files.
Invariant: `test_complete.py` fails when a public method has no row here.
"""

from __future__ import annotations

from test.methods import (
    rows_binary,
    rows_conv,
    rows_creation,
    rows_indexing,
    rows_movement,
    rows_neural,
    rows_reduce,
    rows_unary,
    rows_values,
)
from test.methods.row import Check, Row

TABLE: tuple[Row, ...] = (
    *rows_unary.ROWS,
    *rows_binary.ROWS,
    *rows_reduce.ROWS,
    *rows_movement.ROWS,
    *rows_indexing.ROWS,
    *rows_neural.ROWS,
    *rows_conv.ROWS,
    *rows_values.ROWS,
)
CHECKS: tuple[Check, ...] = (*rows_creation.CHECKS, *rows_values.CHECKS)
