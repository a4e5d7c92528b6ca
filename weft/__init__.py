"""weft: a tensor compiler with a neural-net library on top.

In: nothing. Out: the public names, which users import from here. Sits above every other room but
the applications. Invariant: importing it loads neither llvmlite nor numpy.
"""

__version__ = "0.1.0"
