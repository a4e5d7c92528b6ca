"""`weft chat --model FILE`: the program of `python -m weft.llm`.

What comes in: a model and prompts. What goes out: answers. Where it sits: with the commands, over
the language models. The one invariant: its command line is that of `weft.llm.cli`.
"""

from __future__ import annotations

import argparse

from weft.llm import cli

NAME = "chat"
HELP = "Talk to a language model out of a file."

add_arguments = cli.add_arguments


def run(args: argparse.Namespace) -> int:
    """Answer until the input ends."""
    return cli.answer_all(args)
