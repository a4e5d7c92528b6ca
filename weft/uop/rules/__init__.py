"""Simplification rules, one topic a file.

In: nodes. Out: plainer nodes of the same value. `fold` holds what is true of every dtype,
`algebra`, `divmod` and `compare` the arithmetic of indices (which `polynomial` thinks in),
`validity` conditions around loads, `movement` the tensor graph's views. `simplify` applies and
remembers; `shaped` has the builders they share. Invariant: a rule holds for every value of the
dtypes it matches: ints wrap, floats have nan and two zeros.
"""
