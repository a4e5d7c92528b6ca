"""Optimisations of a kernel: the actions, and the heuristic that picks them."""

from weft.codegen.opt.opt import Opt, OptOps

__all__ = ["Opt", "OptOps"]
