"""Optimisations of a kernel: the actions, and the heuristic that picks them.

In: a kernel and the target it is for. Out: the kernel with its axes split and typed, and the
actions that did it. `opt` names the actions, `actions` applies one or refuses it, `heuristic`
picks them with no flags (`gpu` where threads come in groups); what it asks stands in files of one
topic each (`outline`, `survey`, `strides`, `tile` and others). `beam` and `moves` search by
measuring. Invariant: an action changes when things are computed, never what.
"""

from weft.codegen.opt.opt import Opt, OptError, OptOps

# tinygrad's name of what an action that is refused raises
KernelOptError = OptError

__all__ = ["KernelOptError", "Opt", "OptError", "OptOps"]
