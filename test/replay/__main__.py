"""`python -m test.replay record FILE` and `python -m test.replay diff BEFORE AFTER`

BEFORE and AFTER are files, commits, or `now` for the working tree:

    python -m test.replay diff HEAD now        # what did my change do to the kernels?
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from test.replay.compare import compare, load, report
from test.replay.recording import write


def main() -> int:
    """0 if the records are equal."""
    parser = argparse.ArgumentParser(
        prog="python -m test.replay",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--random", type=int, default=20, help="how many random programs as well")
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="record the kernels of this weft")
    recording.add_argument("file", type=Path)
    comparing = commands.add_parser("diff", help="compare two records, commits or `now`")
    comparing.add_argument("before")
    comparing.add_argument("after")
    comparing.add_argument("--lines", type=int, default=40, help="lines of each difference")
    args = parser.parse_args()
    if args.command == "record":
        print(f"{write(args.file, args.random)} kernels in {args.file}")
        return 0
    before, after = load(args.before, args.random), load(args.after, args.random)
    for line in report(before, after, args.lines):
        print(line)
    return 0 if compare(before, after).is_equal() else 1


if __name__ == "__main__":
    sys.exit(main())
