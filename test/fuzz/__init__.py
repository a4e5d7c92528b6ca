"""Fuzzers: random programs, against NumPy and against the PYTHON device. `python -m test.fuzz
--help`.
"""
