"""What one lane of a vector instruction computes.

In: the tables of its parts. Out: `VECTOR`, rows by mnemonic, for all architectures: an instruction
that was renamed stands there under each of its names.
Invariant: rows say what a lane computes and nothing else; masks, halves, modifiers and where
results go are the business of those who use them.
"""

from __future__ import annotations

from weft.amd.semantics.conversions import CONVERSIONS
from weft.amd.semantics.floats import FLOATS
from weft.amd.semantics.integers import INTEGERS
from weft.amd.semantics.rows import Table

VECTOR = Table({**INTEGERS, **FLOATS, **CONVERSIONS})
