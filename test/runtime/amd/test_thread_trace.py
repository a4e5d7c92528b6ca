"""Thread traces of the emulator: what our decoder reads is what ran, counted in other ways too."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft import Device, Tensor
from weft.amd.sqtt import follow, packets, waves
from weft.amd.sqtt_write import Place, StreamWriter
from weft.amd.trace import main
from weft.errors import ArgumentError
from weft.runtime.amd.debugger import Debugger
from weft.runtime.amd.emulated import Launched

ARCHES = ("gfx1100", "gfx1201", "gfx950")
# A reader of its own: low bits of a packet -> bits of it, bits of time at. Only the packets that
# are in these streams, and nothing of the decoder's tables.
RDNA_WALK = {
    0b0000: (4, 4, (0, 0)), 0b1000: (4, 8, (4, 4)), 0b011: (3, 12, (3, 3)),
    0b1101: (4, 12, (4, 3)), 0b01100: (5, 32, (5, 2)), 0b10101: (5, 20, (5, 3)),
    0b0010001: (7, 64, (0, 0)),
}  # fmt: skip


def walk(data: bytes, arch: str) -> tuple[int, int, Counter[str]]:
    """Packets, the last time, and packets by the bits that they begin with."""
    bits = int.from_bytes(data, "little")
    at = time = count = 0
    seen: Counter[str] = Counter()
    while at < 8 * len(data):
        word = bits >> at & (1 << 64) - 1
        if arch == "gfx950":
            kind = word & 15
            size = {0: 16, 3: 32, 6: 16, 10: 16}[kind]
            time += word >> 4 & (255 if kind == 0 else 1)
            seen[{0: "time", 3: "start", 6: "end", 10: "issue"}[kind]] += 1
        elif word & 7 == 0b010:
            size, first = 20, 4 if arch == "gfx1100" else 3
            time += word >> first & 7
            seen["issue"] += 1
        elif word & 127 == 1:
            size = 48 if arch == "gfx1100" else 64
            time += (word & (1 << size) - 1) >> 12
            seen["time"] += 1
        else:
            pattern = next(
                p for p, (width, *_) in RDNA_WALK.items() if word & (1 << width) - 1 == p
            )
            _, size, (first, length) = RDNA_WALK[pattern]
            time += word >> first & (1 << length) - 1
            names = {0b011: "issue", 0b1101: "issue", 0b01100: "start", 0b10101: "end"}
            seen[names.get(pattern, "other")] += 1
        at += size
        count += 1
    return count, time, seen


def traced(arch: str, make: Any) -> list[Launched]:
    """The launches that realizing a value takes, with their traces."""
    device: Any = Device[f"AMD:{arch}"]
    seen: list[Launched] = []
    agent = device.agent
    agent.traces_threads = agent.counts_conflicts = True
    agent.watchers.append(seen.append)
    try:
        make(device.name)
    finally:
        agent.watchers.clear()
        agent.traces_threads = agent.counts_conflicts = False
    return seen


def product(device: str) -> None:
    x = np.arange(32 * 32, dtype=np.float32).reshape(32, 32) % 7
    found = (Tensor(x, device=device) @ Tensor(x, device=device)).relu().sum(1)
    np.testing.assert_allclose(found.numpy(), (x @ x).sum(1))


@pytest.mark.parametrize("arch", ARCHES)
def test_what_is_decoded_is_what_ran(arch: str) -> None:
    for launched in traced(arch, product):
        trace, counters = launched.trace, launched.counters
        assert trace is not None and len(trace.runs) == counters.waves
        ran = Counter(tuple(trace.lines[n].offset for n in run.lines) for run in trace.runs)
        decoded: Counter[tuple[int, ...]] = Counter()
        listing = trace.listing()
        for data in trace.streams:
            for wave in waves(data, arch):
                offsets = follow(listing, trace.entry, wave.issued, arch)
                assert len(offsets) == len(wave.issued)
                assert wave.end is not None and wave.end > wave.start
                last = offsets[-1] + next(size for o, size, *_ in listing if o == offsets[-1])
                decoded[(*offsets, last)] += 1  # the end has a packet of its own
        assert decoded == ran
        assert sum(len(run.lines) for run in trace.runs) == counters.instructions


@pytest.mark.parametrize("arch", ARCHES)
def test_packets_and_times_agree_with_another_reader(arch: str) -> None:
    for launched in traced(arch, product):
        trace = launched.trace
        assert trace is not None
        total: Counter[str] = Counter()
        for data in trace.streams:
            found = list(packets(data, arch))
            count, time, seen = walk(data, arch)
            assert count == len(found) and time == (found[-1].time if found else 0)
            total += seen
        assert total["start"] == total["end"] == launched.counters.waves
        assert total["issue"] == launched.counters.instructions - launched.counters.waves


def test_the_debugger_steps_through_the_same_instructions() -> None:
    x = Tensor([1.0, 2.0, 3.0], device="AMD:gfx1100").realize()
    made: list[Tensor] = []
    launched = traced("gfx1100", lambda _: made.append((x * 2).realize()))[-1]
    assert launched.trace is not None
    launched.launch.program.is_traced = False
    steps = [step.line.offset for step in Debugger(launched.launch).trace()]
    ran = [launched.trace.lines[n].offset for run in launched.trace.runs for n in run.lines]
    assert steps == ran


def test_waits_and_barriers_take_time() -> None:
    """A load's answer comes 400 cycles later, and the wait for it issues no earlier."""
    launched = traced("gfx1100", lambda d: (Tensor([1.0, 2.0], device=d) + 1).tolist())[-1]
    assert launched.trace is not None
    shown = launched.trace.shown()
    texts = [shown["lines"][n] for n in shown["at"]]
    load = next(i for i, text in enumerate(texts) if text.startswith("global_load"))
    wait = next(i for i, text in enumerate(texts) if "vmcnt(0)" in text and i > load)
    assert shown["times"][wait] - shown["times"][load] == 400


def test_a_trace_ends_with_the_last_whole_group() -> None:
    agent: Any = Device["AMD:gfx1100"].agent  # type: ignore[attr-defined]
    before, agent.most_traced = agent.most_traced, 60
    try:
        seen = traced("gfx1100", lambda d: (Tensor.arange(4096, device=d) * 3).tolist())
    finally:
        agent.most_traced = before
    trace = seen[-1].trace
    assert trace is not None
    assert len(trace.runs) < seen[-1].counters.waves
    assert sum(len(run.lines) for run in trace.runs) <= 60


def test_the_writer_refuses_what_does_not_fit() -> None:
    writer = StreamWriter("gfx1100")
    writer.start(10, Place(0, 0, 0, 0))
    with pytest.raises(ArgumentError, match="at 5, after one at 10"):
        writer.end(5, Place(0, 0, 0, 0))
    with pytest.raises(ArgumentError, match="does not fit into 5 bits"):
        writer.end(11, Place(0, 0, 0, 32))


@pytest.mark.parametrize("arch", ARCHES)
def test_any_times_come_back(arch: str) -> None:
    rng = np.random.default_rng(3)
    writer = StreamWriter(arch)
    place = Place(0, 1, 2, 3)
    times = np.cumsum(rng.choice([0, 1, 2, 6, 7, 8, 15, 22, 23, 255, 4000, 1 << 17], 300)).tolist()
    writer.start(0, place)
    for time in times:
        writer.issue(time, place, "instruction", 1)
    writer.end(times[-1], place)
    (wave,) = waves(writer.data(), arch)
    assert [time for time, *_ in wave.issued] == times and wave.end == times[-1]
    assert wave.place == (0, 1, 2, 3)


def test_the_command_reads_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launched = traced("gfx1201", lambda d: (Tensor([1.0, 2.0], device=d) + 1).tolist())[-1]
    assert launched.trace is not None
    run = {**launched.trace.recorded(), "counts": launched.counters.as_dict()}
    path = tmp_path / "run.json"
    path.write_text(json.dumps([run]))
    assert main([str(path), "--list"]) == 0
    assert capsys.readouterr().out.startswith("gfx1201/")
    assert main([str(path), "--waves", "--instructions", "--counters"]) == 0
    text = capsys.readouterr().out
    assert "s_load_b" in text and "global_store_b" in text and "bytes_written" in text
    assert main([str(path), "--wave", "0"]) == 0
    assert "s_load_b" in capsys.readouterr().out
