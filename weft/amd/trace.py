"""`python -m weft.amd.trace FILE`: what a recorded thread trace says, from the command line.

In: a JSON file (also .xz) of recorded runs: a list of {name, traces: [{se, blob}]}, with the
architecture before the slash of the name and each blob in base64; or a trace of `VIZ`, which holds
such runs. Out: for each stream its packets by kind and its waves, and what else is asked for.
Invariant: files are data: what is wrong with one is a `DataError`.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import json
import lzma
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.amd.sqtt import Wave, follow, packets, waves
from weft.errors import DataError, WeftError

Listing = list[tuple[int, int, str, int]]


@dataclass(frozen=True)
class Recorded:
    """One stream of a run; what was run and counted where the file says it."""

    run: str
    arch: str
    engine: int
    data: bytes
    entry: int = 0
    lines: Listing = field(default_factory=list)
    counts: dict[str, Any] = field(default_factory=dict)


def read_recorded(path: str | Path) -> Iterator[Recorded]:
    """The streams of a file of recorded runs."""
    try:
        for run in _runs(Path(path)):
            name = str(run["name"])
            kernel = run.get("kernel", {})
            lines = [(int(o), int(n), str(t), int(to)) for o, n, t, to in kernel.get("lines", ())]
            for trace in run["traces"]:
                data = base64.b64decode(trace["blob"], validate=True)
                yield Recorded(
                    name, name.split("/")[0], int(trace.get("se", 0)), data,
                    int(kernel.get("entry", 0)), lines, dict(run.get("counts", {})),
                )  # fmt: skip
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    except (
        lzma.LZMAError, zipfile.BadZipFile, zlib.error, ValueError, KeyError, TypeError,
        AttributeError, binascii.Error,
    ) as error:  # fmt: skip
        raise DataError(f"{path} is no file of recorded runs: {error}") from None


def _runs(path: Path) -> Iterator[dict[str, Any]]:
    raw = path.read_bytes()
    if raw[:2] != b"PK":
        yield from json.loads(lzma.decompress(raw) if path.suffix == ".xz" else raw)
        return
    with zipfile.ZipFile(path) as parts:
        names = [name for name in parts.namelist() if name.startswith("streams/")]
        for name in sorted(names, key=lambda name: (len(name), name)):
            yield json.loads(parts.read(name))


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


def _texts(recorded: Recorded, wave: Wave) -> list[str]:
    """What a wave issued: the instructions where the code is there, else kinds of packets."""
    if not recorded.lines:
        return [f"{kind} {operation:#x}" for _, kind, operation in wave.issued]
    texts = {offset: text for offset, _, text, _ in recorded.lines}
    offsets = follow(recorded.lines, recorded.entry, wave.issued, recorded.arch)
    return [f"{offset:#06x}  {texts[offset]}" for offset in offsets]


def _wave_line(number: int, recorded: Recorded, wave: Wave) -> str:
    last = wave.end if wave.end is not None else "..."
    issued = " ".join(f"{kind}@{time}" for time, kind, _ in wave.issued[:8])
    return f"  {number:>4}: wave {wave.place} from {wave.start} to {last}: {issued}"


def _instructions(recorded: Recorded) -> Iterator[str]:
    """Each instruction: how often it was issued, and the cycles until the wave's next one."""
    counts: Counter[str] = Counter()
    cycles: Counter[str] = Counter()
    for wave in waves(recorded.data, recorded.arch):
        times = [time for time, *_ in wave.issued]
        end = wave.end if wave.end is not None else (times[-1] if times else 0)
        pairs = zip(_texts(recorded, wave), times, [*times[1:], end], strict=False)
        for text, time, following in pairs:
            counts[text] += 1
            cycles[text] += following - time
    yield f"  {'issued':>8} {'cycles':>10}"
    for text in sorted(counts) if recorded.lines else counts:
        yield f"  {counts[text]:>8} {cycles[text]:>10}  {text}"


def _counters(counts: dict[str, Any]) -> Iterator[str]:
    if not counts:
        yield "  no counters are in this file"
    for name, value in counts.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {number}" for key, number in value.items())
        yield f"  {name:<18} {value}"


def _shown(recorded: Recorded, given: argparse.Namespace) -> Iterator[str]:
    """What the options ask for, of one stream."""
    yield describe(recorded)
    if given.packets:
        for packet in packets(recorded.data, recorded.arch):
            yield f"  {packet.offset:>8} {packet.time:>10} {packet.name} {packet.bits:x}"
    found = waves(recorded.data, recorded.arch) if given.waves or given.wave is not None else []
    if given.waves:
        for number, wave in enumerate(found):
            yield _wave_line(number, recorded, wave)
    if given.wave is not None and given.wave < len(found):
        wave = found[given.wave]
        yield _wave_line(given.wave, recorded, wave)
        for (time, *_), text in zip(wave.issued, _texts(recorded, wave), strict=False):
            yield f"    {time:>8}  {text}"
    if given.instructions:
        yield from _instructions(recorded)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m weft.amd.trace", description=__doc__)
    parser.add_argument("file", help="recorded runs: JSON, JSON.xz, or a trace of VIZ")
    parser.add_argument("--run", default="", help="only runs whose name contains this")
    parser.add_argument("--engine", type=int, help="only the stream of this engine or SIMD")
    parser.add_argument("--list", action="store_true", help="only the names of the runs")
    parser.add_argument("--waves", action="store_true", help="each wave with its first packets")
    parser.add_argument("--wave", type=int, help="the instructions of one wave, with their times")
    parser.add_argument("--instructions", action="store_true", help="counts and cycles of each")
    parser.add_argument("--counters", action="store_true", help="what the run was counted to do")
    parser.add_argument("--packets", action="store_true", help="each packet")
    given = parser.parse_args(arguments)
    listed: set[str] = set()
    previous: Any = None
    try:
        for recorded in read_recorded(given.file):
            if given.run not in recorded.run:
                continue
            if given.engine is not None and recorded.engine != given.engine:
                continue
            is_first = recorded.lines is not previous or not recorded.lines
            previous = recorded.lines
            if given.list:
                if recorded.run not in listed:
                    print(recorded.run)
                listed.add(recorded.run)
                continue
            if given.counters and is_first:
                print(f"{recorded.run}:")
                print("\n".join(_counters(recorded.counts)))
            for line in _shown(recorded, given):
                print(line)
    except WeftError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
