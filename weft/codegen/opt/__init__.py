"""Optimisations of a kernel: actions on its axes, planners that propose, one cost that decides.

A kernel is a few nests of loops. `survey` says what each loop does; planners (`tile`, `streams`,
`transpose`, `interleave`, and `gpu` for groups of threads) propose actions; `cost` compares what
they propose on the machine at hand; `heuristic` applies the cheapest, and `share` divides the loops
among the cores. The actions themselves are in `actions`, `stage`, `sweep`, `keep`: each is legal or
refused, so a poor choice costs time and never a wrong result. `beam` and `moves` search further.
"""

from weft.codegen.opt.opt import Opt, OptError, OptOps

# tinygrad's name of what an action that is refused raises
KernelOptError = OptError

__all__ = ["KernelOptError", "Opt", "OptError", "OptOps"]
