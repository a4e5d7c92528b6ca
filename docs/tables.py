"""Writes docs/ops.md and docs/knobs.md from the code; a test fails when they are stale."""

from __future__ import annotations

from pathlib import Path

from weft.knobs import KNOBS
from weft.uop.opset import _ROWS, GroupOp, OpRow

HERE = Path(__file__).parent


def ops_page() -> str:
    """One line per row of the op table."""
    lines = [
        "# The ops",
        "",
        "Generated from `weft/uop/opset.py`. Every stage of the compiler uses these and no others.",
        "",
        "The cost is in vector instructions of one element, where a machine has none for the op.",
        "",
        "| op | sources | meaning | at the edges | takes | cost |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *[_op_line(row) for row in _ROWS], ""])


def _op_line(row: OpRow) -> str:
    if isinstance(row.arity, int):
        sources = str(row.arity)
    else:
        least, most = row.arity
        sources = f"{least} or more" if most is None else f"{least} to {most}"
    meaning = row.meaning.replace("|", "\\|")
    cost = f"{row.cost:g}" if row.op in GroupOp.Elementwise else ""
    return f"| `{row.op.name}` | {sources} | {meaning} | {row.total} | {row.on} | {cost} |"


def knobs_page() -> str:
    """One line per knob."""
    lines = [
        "# The knobs",
        "",
        "Generated from `weft/knobs.py`. Each is an environment variable and a `Context`.",
        "",
        "| name | default | what it does |",
        "|---|---|---|",
    ]
    known = sorted(KNOBS.items())
    used = [f"| `{name}` | `{k.default!r}` | {k.help} |" for name, k in known if not k.unused]
    unused = [f"| `{name}` | {k.help} |" for name, k in known if k.unused]
    more = [
        "",
        "tinygrad's knobs that are accepted, in a `Context` and in the environment, and have no",
        "effect. `TC` is `USE_TC`, `VALIDATE_WITH_CPU` is `VALIDATE`.",
        "",
        "| name | what weft does |",
        "|---|---|",
    ]
    return "\n".join([*lines, *used, *more, *unused, ""])


PAGES = {"ops.md": ops_page, "knobs.md": knobs_page}


def main() -> None:
    """Write the pages."""
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
