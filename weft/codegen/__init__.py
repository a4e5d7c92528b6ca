"""From one kernel to a linear program, one pass a file.

In: a SINK of STOREs over RANGEs, and a renderer with its target. Out: a `ProgramSpec`: the program
as a list and as text. Start reading in `pipeline`, whose two lists name every pass and why it
stands there:

    merge, separate, widen           loops with axes of their own; half types in float32
    opt/                             axes become vectors, registers, threads; memory is staged
    decompose/                       ops and types that the target lacks
    open_grid, share_*, bind_axes,
    add_barriers                     groups of threads, where a target has them
    expand (lanes, columns, shuffle) registers and lanes written out
    lower_index, hoist, place, loops machine integers, where a loop starts and what runs in it
    linearize, fuse_products         the list, in order of execution

`SPEC=2` verifies the kernel after every pass, `DEBUG=5` prints it.
"""
