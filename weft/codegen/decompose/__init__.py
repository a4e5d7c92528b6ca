"""Ops and types that a target lacks, in terms of those that it has.

In: a kernel, and what its renderer prints. Out: the kernel in the renderer's ops. `decompose` is
the pass; the other files hold one topic each: `transcendental` and `trigonometry` (polynomials
with a stated error), `arithmetic`, `totality` (what machines leave undefined), `narrow` (half
types and smaller), `terms` (their building blocks). Invariant: the op table's meaning, for every
input.
"""
