"""Writes thread traces: events of waves to the packets that `sqtt.py` reads.

In: beginnings and ends of waves and the instructions that they issue, in the order of their times.
Out: the bytes of one SIMD's stream, of CDNA, RDNA 3 or RDNA 4. Beside the decoder, whose layouts it
uses; the emulator writes its traces with it.
Invariant: a time that does not fit into its packet's field is passed by packets of time before it,
so that every packet has the cycle that it was given.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.amd.sqtt import CDNA_NUMBERS, FIELDS, LAYOUTS, family_of
from weft.errors import ArgumentError

# what a stream begins with: the version of the layout, which decoders ask for
_HEADER = {"rdna3": 0x68900191, "rdna4": 0x913100868700211}
_LONGEST_TIMESTAMP = (1 << 36) - 1


@dataclass(frozen=True)
class Place:
    """Where a wave runs: array, unit, SIMD, slot."""

    sa: int
    wgp: int
    simd: int
    slot: int


class StreamWriter:
    """The stream of one SIMD; times never go back."""

    def __init__(self, arch: str) -> None:
        self.family = family_of(arch)
        self.time = 0
        self.packets = 0
        self._bits = 0
        self._bit_count = 0
        self._done = bytearray()
        if self.family in _HEADER:
            self._append(_HEADER[self.family], 64)

    def start(self, time: int, place: Place) -> None:
        """A wave begins."""
        self._put("wave start", time, vars(place))

    def end(self, time: int, place: Place) -> None:
        """A wave is done."""
        self._put("wave end", time, vars(place))

    def issue(self, time: int, place: Place, kind: str, operation: int = 0) -> None:
        """A wave issues an instruction: `kind` is that of the packet."""
        if self.family == "cdna":
            parts = {"slot": place.slot, "simd": place.simd, "operation": operation}
            self._put("instruction", time, parts)
        elif kind == "instruction":
            self._put(kind, time, {"slot": place.slot, "operation": operation})
        else:
            self._put(kind, time, {"slot": place.slot})

    def data(self) -> bytes:
        """All packets; a last byte that is half full ends in a packet of nothing."""
        if self._bit_count % 8:
            self._append(0, 8 - self._bit_count % 8)
        self._flush()
        return bytes(self._done)

    def _put(self, name: str, time: int, parts: dict[str, int]) -> None:
        if time < self.time:
            raise ArgumentError(f"a packet at {time}, after one at {self.time}")
        if self.family == "cdna":
            number, size = CDNA_NUMBERS[name]
            bits, first, width = number, 4, 1
        else:
            _, pattern, _, size, first, last = LAYOUTS[self.family][name]
            bits, width = pattern, last - first
        self._pass(time - self.time, (1 << width) - 1)
        bits |= (time - self.time) << first
        self.time = time
        for part, value in parts.items():
            at, count = FIELDS[self.family][name][part]
            if value >> count:
                raise ArgumentError(f"{part} {value} of a {name} does not fit into {count} bits")
            bits |= value << at
        self._append(bits, size)

    def _pass(self, delta: int, fits: int) -> None:
        """Packets of time until what is left fits."""
        while delta > fits:
            if self.family == "cdna":
                step = min(delta, 255)
                self._append(CDNA_NUMBERS["misc"][0] | step << 4, 16)
            elif delta <= 15 + fits:
                step = min(delta, 15)
                self._append(LAYOUTS[self.family]["time"][1] | step << 4, 8)
            else:
                step = min(delta, _LONGEST_TIMESTAMP)
                _, pattern, _, size, *_ = LAYOUTS[self.family]["timestamp"]
                self._append(pattern | step << 12, size)
            delta -= step
            self.time += step

    def _append(self, bits: int, size: int) -> None:
        self.packets += 1
        self._bits |= bits << self._bit_count
        self._bit_count += size
        if self._bit_count >= 4096:
            self._flush()

    def _flush(self) -> None:
        whole = self._bit_count // 8
        self._done += (self._bits & (1 << 8 * whole) - 1).to_bytes(whole, "little")
        self._bits >>= 8 * whole
        self._bit_count -= 8 * whole
