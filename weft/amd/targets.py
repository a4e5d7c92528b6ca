"""The GPUs that weft knows the machine code of: name, family, wave width, number in ELF headers.

In: a name such as "gfx1100". Out: a `Target`. The first file of the package. Invariant: the
families are those of `tables/`, one file each; a row there says which of its targets have it.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.errors import ArgumentError

RDNA3 = "rdna3"
RDNA4 = "rdna4"
CDNA = "cdna"


@dataclass(frozen=True)
class Target:
    """One GPU: `machine` is EF_AMDGPU_MACH of its code objects, `wave` its usual lanes a wave."""

    name: str
    family: str
    wave: int
    machine: int

    @property
    def version(self) -> tuple[int, int, int]:
        """Major, minor and stepping: gfx90a is (9, 0, 10)."""
        digits = self.name.removeprefix("gfx")
        return int(digits[:-2]), int(digits[-2], 16), int(digits[-1], 16)

    def __str__(self) -> str:
        return self.name


TARGETS = {
    each.name: each
    for each in (
        Target("gfx1100", RDNA3, 32, 0x41),
        Target("gfx1151", RDNA3, 32, 0x4A),
        Target("gfx1200", RDNA4, 32, 0x48),
        Target("gfx1201", RDNA4, 32, 0x4E),
        Target("gfx90a", CDNA, 64, 0x3F),
        Target("gfx942", CDNA, 64, 0x4C),
        Target("gfx950", CDNA, 64, 0x4F),
    )
}
FAMILIES = {
    family: tuple(each.name for each in TARGETS.values() if each.family == family)
    for family in (RDNA3, RDNA4, CDNA)
}


def target(name: str | Target) -> Target:
    """The target of that name; `gfx942:sramecc+:xnack-` is gfx942."""
    if isinstance(name, Target):
        return name
    found = TARGETS.get(str(name).partition(":")[0].rpartition("--")[2])
    if found is None:
        raise ArgumentError(f"unknown AMD target {name!r}; known are {', '.join(TARGETS)}")
    return found
