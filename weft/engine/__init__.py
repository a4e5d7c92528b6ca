"""What drives the compiler: values become schedules, programs, launches, and are kept.

In: tensors whose values are wanted. Out: memory that holds them. Start reading in `realize`:

    cell, live, storage, operands    what a Tensor is made of: an identity, memory, views
    host, host_calls, dlpack         data from Python, NumPy and other libraries, and back
    history, gradients, known        what values were computed from, for who differentiates later
    schedule, prepared, conditions   a graph in canonical form, its schedule looked up or made
    programs, kept, kept_schedules   kernels compiled once, also for the next process
    memory, spare                    who shares memory with whom
    realize, record, check, report   launches; who watches them; what DEBUG says
    search*                          BEAM: candidates measured in a process of their own
    jit/                             functions captured once and replayed

Invariant: nothing here decides what a kernel computes; it decides when, where and how often.
"""
