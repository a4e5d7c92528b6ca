"""The `weft` command: one file per subcommand, each with `NAME`, `HELP`, `add_arguments`, `run`."""
