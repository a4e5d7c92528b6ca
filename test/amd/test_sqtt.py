"""Recorded thread traces: every stream decodes to its end, and what it says fits together."""

from __future__ import annotations

import functools
import random
from pathlib import Path

import pytest

from weft.amd.sqtt import packets, waves
from weft.amd.trace import Recorded, main, read_recorded
from weft.errors import DataError, WeftError

SAMPLES = Path(__file__).parent / "data" / "sqtt-samples.json.xz"
# counted with a scanner of its own, which knew lengths of packets only
PACKETS = {"gfx950": 103504, "gfx1200": 70819, "gfx1100": 124768}
WAVES = {"gfx950": 2052, "gfx1200": 2070, "gfx1100": 2062}


@functools.cache
def recorded() -> tuple[Recorded, ...]:
    return tuple(read_recorded(SAMPLES))


def test_all_streams_decode() -> None:
    assert len(recorded()) == 300
    counts = dict.fromkeys(PACKETS, 0)
    for stream in recorded():
        counts[stream.arch] += len(list(packets(stream.data, stream.arch)))
    assert counts == PACKETS


def test_every_wave_begins_and_ends() -> None:
    counts = dict.fromkeys(WAVES, 0)
    for stream in recorded():
        for wave in waves(stream.data, stream.arch):
            counts[stream.arch] += 1
            assert wave.end is not None and wave.end >= wave.start
            times = [time for time, _, _ in wave.issued]
            assert times == sorted(times) and all(wave.start <= t <= wave.end for t in times)
    assert counts == WAVES


def test_clocks_run_forwards() -> None:
    for stream in recorded():
        if stream.arch == "gfx950":
            continue
        found = [p for p in packets(stream.data, stream.arch) if p.realtime is not None]
        real = [p.realtime for p in found]
        assert real == sorted(real, key=lambda value: value or 0), stream.run
        assert [p.time for p in found] == sorted(p.time for p in found)


def test_instructions_are_those_of_waves() -> None:
    """A product of matrices issues instructions on the engines that trace them."""
    stream = next(s for s in recorded() if "gfx1200/profile_gemm" in s.run and s.engine == 0)
    kinds = {kind for wave in waves(stream.data, stream.arch) for _, kind, _ in wave.issued}
    assert kinds == {"instruction", "valu", "immediate"}


def test_damaged_streams_are_errors_or_other_packets() -> None:
    chance = random.Random(4)
    for _ in range(300):
        stream = chance.choice(recorded())
        data = bytearray(stream.data)
        for _ in range(4):
            data[chance.randrange(len(data))] = chance.getrandbits(8)
        try:
            waves(bytes(data[: chance.randrange(len(data))]), stream.arch)
        except DataError as error:
            assert "at bit" in str(error)


def test_the_command_explores(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([str(SAMPLES), "--run", "gfx1100/profile_plus_run_0", "--waves"]) == 0
    text = capsys.readouterr().out
    assert "gfx1100/profile_plus_run_0 engine 0:" in text and "wave (" in text
    wrong = tmp_path / "wrong.json"
    wrong.write_text("[{}]")
    assert main([str(wrong)]) == 1
    assert "no file of recorded runs" in capsys.readouterr().err
    with pytest.raises(WeftError, match="gfx803"):
        list(packets(b"", "gfx803"))
