"""How many registers an image instruction takes: it depends on its mask, dimension and modifiers.

In: the mnemonic and the fields of an image instruction. Out: registers of data and of addresses.
Beside `decode`. Invariant: the table's rows give one of several widths; these are the real ones.
"""

from __future__ import annotations

from collections.abc import Mapping

_COORDINATES = (1, 2, 3, 3, 2, 3, 3, 4)
_GRADIENTS = (2, 4, 6, 4, 2, 4, 4, 4)


def data_registers(mnemonic: str, fields: Mapping[str, int]) -> int:
    """Registers that are loaded or stored."""
    lanes = 4 if "gather4" in mnemonic else max(1, fields.get("dmask", 1).bit_count())
    if "msaa_load" in mnemonic:
        lanes = 4
    if fields.get("d16"):
        lanes = (lanes + 1) // 2
    return lanes + (1 if fields.get("tfe") else 0)


def address_registers(mnemonic: str, fields: Mapping[str, int]) -> int:
    """Registers that hold the coordinates, offsets, gradients and levels of detail."""
    words = mnemonic.removeprefix("image_").split("_")
    options = words[1:]
    if words[0] not in ("sample", "gather4", "gather4h"):
        options = [word for word in options if word in ("mip", "resinfo", "lod")]
    dimension = fields.get("dim", 0) & 7
    coordinates = 0 if "resinfo" in options else _COORDINATES[dimension]
    coordinates += any(word in ("l", "cl", "mip", "resinfo") for word in options)
    if fields.get("a16"):
        coordinates = (coordinates + 1) // 2
    extra = sum(word in ("c", "b", "o") for word in options)
    gradients = _GRADIENTS[dimension] if "d" in options or "cd" in options else 0
    if "g16" in options and gradients:
        gradients = (gradients // 2 + 1) // 2 * 2
    return max(1, extra + coordinates + gradients)
