"""From a tensor graph to ordered kernels and the memory they use, one pass a file.

In: the values that are wanted, as one graph of UOps. Out: kernels in order, each a SINK of STOREs
over RANGEs, and their arguments. Start reading in `pipeline`, which runs the passes:

    prepare, hazards, split_axes     the graph made plain; values that must be kept are marked
    survey, decide                   what each value costs, and whether it is inlined or stored
    index, draft, build              movement as index arithmetic; the kernels' expressions
    chains, stage_rows, stage_panels chains of kernels that become one (attention, Winograd)
    merge, limit, order              kernels that share a launch, have too many buffers, and when
    parameters, place                kernels without the names of their memory; who owns a view

A sibling of `codegen`: neither imports the other. Cost is linear in the graph.
"""
