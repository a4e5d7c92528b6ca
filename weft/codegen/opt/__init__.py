"""Optimisations of a kernel: the actions, and the heuristic that picks them."""

from weft.codegen.opt.opt import Opt, OptError, OptOps

# tinygrad's name of what an action that is refused raises
KernelOptError = OptError

__all__ = ["KernelOptError", "Opt", "OptError", "OptOps"]
