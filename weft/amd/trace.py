"""`python -m weft.amd.trace FILE`: what a recorded thread trace says, from the command line.

In: a JSON file (also .xz) of recorded runs: a list of {name, traces: [{se, blob}]}, with the
architecture before the slash of the name and each blob in base64. Out: for each trace its packets
by kind, its waves, and with `--waves` or `--packets` each of them.
Invariant: files are data: what is wrong with one is a `DataError`.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import json
import lzma
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.amd.sqtt import packets, waves
from weft.errors import DataError, WeftError


@dataclass(frozen=True)
class Recorded:
    """One stream of a run."""

    run: str
    arch: str
    engine: int
    data: bytes


def read_recorded(path: str | Path) -> Iterator[Recorded]:
    """The streams of a file of recorded runs."""
    try:
        raw = Path(path).read_bytes()
        text = lzma.decompress(raw) if str(path).endswith(".xz") else raw
        for run in json.loads(text):
            name = str(run["name"])
            for trace in run["traces"]:
                data = base64.b64decode(trace["blob"], validate=True)
                yield Recorded(name, name.split("/")[0], int(trace.get("se", 0)), data)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    except (lzma.LZMAError, ValueError, KeyError, TypeError, binascii.Error) as error:
        raise DataError(f"{path} is no file of recorded runs: {error}") from None


def describe(recorded: Recorded) -> str:
    """A stream in one line."""
    counts = Counter([packet.name for packet in packets(recorded.data, recorded.arch)])
    found = waves(recorded.data, recorded.arch)
    ended = [wave.end - wave.start for wave in found if wave.end is not None]
    middle = sorted(ended)[len(ended) // 2] if ended else 0
    kinds = ", ".join(f"{count} {name}" for name, count in counts.most_common(6))
    issued = sum([len(wave.issued) for wave in found])
    return (
        f"{recorded.run} engine {recorded.engine}: {sum(counts.values())} packets ({kinds}); "
        f"{len(found)} waves of {middle} cycles, {issued} instructions of them"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m weft.amd.trace", description=__doc__)
    parser.add_argument("file", help="recorded runs, as JSON or JSON.xz")
    parser.add_argument("--run", default="", help="only runs whose name contains this")
    parser.add_argument("--waves", action="store_true", help="each wave with its instructions")
    parser.add_argument("--packets", action="store_true", help="each packet")
    given = parser.parse_args(arguments)
    try:
        for recorded in read_recorded(given.file):
            if given.run not in recorded.run:
                continue
            print(describe(recorded))
            if given.packets:
                for packet in packets(recorded.data, recorded.arch):
                    print(f"  {packet.offset:>8} {packet.time:>10} {packet.name} {packet.bits:x}")
            if given.waves:
                for wave in waves(recorded.data, recorded.arch):
                    last = wave.end if wave.end is not None else "..."
                    issued = " ".join(f"{kind}@{time}" for time, kind, _ in wave.issued[:8])
                    print(f"  wave {wave.place} from {wave.start} to {last}: {issued}")
    except WeftError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
