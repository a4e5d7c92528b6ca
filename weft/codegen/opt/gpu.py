"""GPU heuristic: how a kernel is spread over groups of threads.

In: a kernel AST and a target with groups of threads. Out: the kernel with LOCAL axes.
"""

from __future__ import annotations

from weft.uop.node import UOp
from weft.uop.opset import Ops


def runs_in_any_order(ast: UOp) -> bool:
    """Whether iterations of output loops do not see each other's stores.

    A load of a buffer that the kernel writes must be of the very element that is stored, and the
    place of a store must not come from memory, where two of them may be the same.
    """
    places: dict[UOp, UOp] = {}
    for store in ast.src:
        memory, index = store.src[0].src[:2]
        if store.arg is not None or any([u.op is Ops.LOAD for u in store.src[0].toposort()]):
            return False
        if places.setdefault(memory, index) is not index:
            places[memory] = memory  # several places: no load is of the very element
    for node in ast.toposort():
        if node.op is Ops.LOAD and node.src[0].op is Ops.INDEX:
            memory, index = node.src[0].src[:2]
            if places.get(memory, index) is not index:
                return False
    return True
