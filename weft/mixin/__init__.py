"""The methods of Tensor, one family a file; the first of them serve UOps too.

In: a value that has `alu`, `_mop`, `_reduce` and the like. Out: values. Families only use methods:
of their own, and of those above them in this order.

    arith, unary, trigonometry, dtype, movement, padding, reduce, rearrange    UOp and Tensor
    creation, indexing, stats, scan, sort, linalg, conv, winograd, resize      Tensor
    activation, neural, loss, rand, decompose, digest                          Tensor
    values, storage                  reading values out, writing to tensors
    check, fitting, once, cached     how arguments are checked; graphs that are built once
    compat                           what programs for tinygrad call, one line each

Invariant: a method of a half type computes in float32 and rounds once, at its end.
"""
