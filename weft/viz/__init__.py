"""The viewer: what a program became at every step, recorded, saved and shown in a browser.

In: events of a running program (`VIZ=1`, `PROFILE=1`). Out: a trace file, and a page that shows it.

    attach, recording, events        who listens where, and what is noted
    graphs, node_table, listing      graphs and programs, as rows and as text
    trace_file, profile_file, shelf  files, written while the program runs
    server, page/                    the local page; profiling: the profile alone

Nobody imports it: the package starts it by name. Invariant: what is not recorded costs nothing.
"""
