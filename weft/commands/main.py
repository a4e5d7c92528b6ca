"""The `weft` command (also `python -m weft`).

What comes in: the command line. What goes out: an exit code. Where it sits: over everything, with
the applications; nobody imports it. The one invariant: a mistake of the user is one line on
standard error and exit code 2, never a traceback.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from weft import __version__
from weft.commands import cache, chat, doctor, export, plan, profile, run, viz
from weft.errors import WeftError

# as `weft --help` shows them; each holds NAME, HELP, add_arguments(parser), run(args)
COMMANDS: tuple[Any, ...] = (cache, chat, doctor, export, plan, profile, run, viz)


def build_parser() -> argparse.ArgumentParser:
    """The command line of all subcommands."""
    parser = argparse.ArgumentParser(prog="weft", description="Tools around the weft compiler.")
    parser.add_argument("--version", action="version", version=f"weft {__version__}")
    subcommands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        one = subcommands.add_parser(command.NAME, help=command.HELP, description=command.HELP)
        command.add_arguments(one)
        one.set_defaults(run=command.run)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand; the exit code."""
    args = build_parser().parse_args(arguments)
    try:
        code: int = args.run(args)
        return code
    except WeftError as error:
        print(f"weft {args.command}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
