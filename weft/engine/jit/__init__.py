"""TinyJit: functions over tensors are captured once and replayed without running their Python.

In: a function over tensors. Out: `TinyJit`, the same function, whose calls launch captured kernels.
Start reading in `tinyjit`, which decides at every call between a replay and a run:

    calls, arguments, guards           what a call depends on: its key
    bytecode, observe, scope           which code runs, and what it mentions
    kinds, places, walk                what that reaches besides the arguments
    capture, trace, note_state         one recorded run, comparable with another one
    templates, parameters              results and effects as data; numbers that change
    graph, launches, state, replay     a captured graph and its replay
    fast_path                          a call like the last one, recognised at a glance
    tensors, objects                   tensors and Python objects as all of these see them
    check, pickling                    undoing and comparing executions; functions as data

The package above Tensor that only `nn` and `apps` use. The names below are the public ones.
"""

from weft.engine.jit.tinyjit import (
    CapturedJit,
    GraphException,
    GraphRunner,
    JitError,
    TinyJit,
    graph_class,
    jit,
)

__all__ = [
    "CapturedJit",
    "GraphException",
    "GraphRunner",
    "JitError",
    "TinyJit",
    "graph_class",
    "jit",
]
