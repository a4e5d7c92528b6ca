"""The instructions of CDNA (gfx90a, gfx942, gfx950) as Python calls: `from weft.amd.cdna import *`.

In: calls such as `v_add_f32(v[0], v[1], 2.0)`. Out: lines that `assemble`, `text` and `kernel`
take. Made of `dsl` and the family's table. Invariant: a name is here if a target has it.
"""

from __future__ import annotations

from weft.amd.dsl import Mnemonic, namespace
from weft.amd.targets import CDNA

_names, _mnemonic, __all__ = namespace(CDNA)  # noqa: PLE0605
globals().update(_names)


def __getattr__(name: str) -> Mnemonic:
    return _mnemonic(name)


def __dir__() -> list[str]:
    return list(__all__)
