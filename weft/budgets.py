"""Budgets: how long the code of one kernel may get, whatever machine it is for.

In: nothing. Out: limits that schedule and codegen share. Sits beside the description of the
machine, which holds everything that belongs to a processor.
Invariant: these bound the time that compiling takes, or the size of what is written out; none of
them changes a result. LLVM's time grows with the square of a block's size (`python -m
bench.compile` shows the time per kernel), so a longer one must save more than it costs.
"""

from __future__ import annotations

# ops of one kernel that the schedule puts together
KERNEL_OPS = 1000
# buffers that it puts together, if the machine takes as many
KERNEL_BUFFERS = 64
# instructions of one block after copies, lanes and unrolled terms: beyond it LLVM's time is noticed
BLOCK_OPS = 1600
# terms of a sum that are all unrolled: a window of 3x3, a row of a small matrix
UNROLLED_TERMS = 16
# terms that one float accumulator takes in before they are added to a second level: errors pile up
SUM_TERMS = 1024
# values that one axis chooses between, each written out beside the others: the bits of a byte,
# the pieces of a small CAT
CHOICES = 8
# rows and lanes of a square that registers transpose: a larger one is only longer
SQUARE = 16
# outputs of one program that are loop nests of their own
NESTS = 48
# columns of a panel in fast memory: one vector of the widest machine, several of others
PANEL = 16
