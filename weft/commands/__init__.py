"""The `weft` command: one file per subcommand, each with `NAME`, `HELP`, `add_arguments`, `run`.

In: a command line. Out: text, and an exit status. `main` finds the others: `doctor` (what is on
this machine), `cache` (what is kept on disk), `profile` and `viz` (what was recorded); `ceilings`
measures what the machine can do. Users of the public names; nothing imports them.
"""
