"""What follows an instruction's operands: offsets, cache policies, lanes, selections, by name.

In: modifiers as a map from name to value. Out: the fields that they set. Used by the encoder.
Invariant: a modifier that is not given is the field's default, and one that does not fit its field
is an error with the range that would.
"""

from __future__ import annotations

from collections.abc import Mapping

from weft.amd import names
from weft.amd.operands import flat_offset_bits
from weft.amd.shape import Shape
from weft.amd.table import Slot
from weft.amd.targets import CDNA, RDNA4, Target
from weft.errors import ArgumentError

_SHIFTS = {"row_shl": 0x100, "row_shr": 0x110, "row_ror": 0x120, "row_share": 0x150}
_SHIFTS |= {"row_newbcast": 0x150, "row_xmask": 0x160}
_WHOLE = {"wave_shl": 0x130, "wave_rol": 0x134, "wave_shr": 0x138, "wave_ror": 0x13C}
_MIRRORS = {"row_mirror": 0x140, "row_half_mirror": 0x141}
_HINTS = {"NT": 1, "HT": 2, "LU": 3, "WB": 3, "RT_WB": 3, "BYPASS": 3, "NT_RT": 4, "RT_NT": 5}
_HINTS |= {"NT_HT": 6, "NT_WB": 7}
_ATOMIC_HINTS = {"RETURN": 1, "NT": 2, "NT_RETURN": 3, "CASCADE_RT": 4, "CASCADE_NT": 6}
_SCOPES = ("SCOPE_CU", "SCOPE_SE", "SCOPE_DEV", "SCOPE_SYS")


def number_of(value: object, name: str) -> int:
    """A modifier's value as a whole number; a flag that is set is 1."""
    if isinstance(value, bool) or value is None:
        return int(bool(value))
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return names.number(value)
    raise ArgumentError(f"{name} is {value!r}; a whole number is expected")


def bit_list(value: object, name: str) -> list[int]:
    """`[0,1,0]` as a list of bits; nothing where it is not given."""
    if value is None:
        return []
    words = value.strip("[]").split(",") if isinstance(value, str) else value
    if not isinstance(words, (list, tuple)):
        raise ArgumentError(f"{name} is {value!r}; a list of bits is expected")
    bits = [number_of(word, name) for word in words]
    if any(bit not in (0, 1) for bit in bits):
        raise ArgumentError(f"{name} is {value}; its elements are 0 and 1")
    return bits


def _numbers(value: object, name: str, count: int, most: int) -> list[int]:
    words = value.strip("[]").split(",") if isinstance(value, str) else value
    if not isinstance(words, (list, tuple)) or len(words) != count:
        raise ArgumentError(f"{name} is {value!r}; {count} numbers are expected")
    found = [number_of(word, name) for word in words]
    if any(not 0 <= each <= most for each in found):
        raise ArgumentError(f"{name} is {found}; its elements are 0 to {most}")
    return found


def encode_modifier(
    shape: Shape,
    slot: Slot,
    modifiers: Mapping[str, object],
    fields: dict[str, int],
    gpu: Target,
) -> None:
    """Set the field of one optional slot."""
    method, _, arguments = slot.type.printer.partition(":")
    value: int
    if method in ("printOpSel", "printOpSelHi", "printNegLo", "printNegHi"):
        return
    if method == "printNamedBit":
        value = number_of(modifiers.get(arguments), arguments)
        if slot.name == "a16" and "a16" not in shape.row.layout.fields:
            if bool(value) != ("_a16_" in shape.row.name):
                raise ArgumentError("a16 is a form of its own")
            return
    elif method == "printNamedInt":
        name = arguments.partition(":")[0]
        value = number_of(modifiers.get(name), name)
    elif method == "printCPol":
        value = cache_policy(shape, slot, modifiers, gpu)
    elif method in ("printOffset", "printFlatOffset"):
        value = number_of(modifiers.get("offset"), "offset")
    elif method == "printSwizzle":
        given = modifiers.get("offset")
        value = names.parse_swizzle(given) if isinstance(given, str) else number_of(given, "offset")
    else:
        value = _named_modifier(method, modifiers, shape, gpu)
    _store(shape, slot, value, fields, gpu)


def _named_modifier(method: str, modifiers: Mapping[str, object], shape: Shape, gpu: Target) -> int:
    if method == "printOModSI":
        return _output_scale(modifiers)
    if method == "printDPPCtrl":
        return lanes(modifiers, gpu)
    if method == "printDPP8":
        if "dpp8" not in modifiers:
            raise ArgumentError("this form needs dpp8:[...]")
        order = _numbers(modifiers["dpp8"], "dpp8", 8, 7)
        return sum(lane << 3 * i for i, lane in enumerate(order))
    if method == "printDppFI":
        value = number_of(modifiers.get("fi"), "fi")
        is_eight = "dpp8" in shape.row.layout.fields and shape.row.layout.fields["fi"].width > 1
        return (0xEA if value else 0xE9) if is_eight else value
    if method == "printDppBoundCtrl":
        return number_of(modifiers.get("bound_ctrl"), "bound_ctrl")
    if method == "printFORMAT":
        given = modifiers.get("format")
        if given is None:
            return 1
        return (
            names.parse_format(given, gpu) if isinstance(given, str) else number_of(given, "format")
        )
    if method == "printDim":
        word = str(modifiers.get("dim", "1D")).removeprefix("SQ_RSRC_IMG_")
        if word not in names.DIMENSIONS:
            raise ArgumentError(f"dim is {word}; known are {', '.join(names.DIMENSIONS)}")
        return names.DIMENSIONS.index(word)
    if method == "printR128A16":
        return number_of(modifiers.get("a16" if gpu.family == CDNA else "r128"), "r128")
    if method in _SELECTIONS:
        name, words = _SELECTIONS[method]
        word = str(modifiers.get(name, words[-1] if name != "dst_unused" else "UNUSED_PRESERVE"))
        return words.index(word) if word in words else names.number(word)
    if method == "printBLGP":
        bits = bit_list(modifiers.get("neg"), "neg")
        if bits:
            return sum(bit << i for i, bit in enumerate(bits))
        return number_of(modifiers.get("blgp"), "blgp")
    name = {"printBitOp3": "bitop3", "printIndexKey16bit": "index_key"}[method]
    return number_of(modifiers.get(name), name)


_SELECTIONS = {
    "printSDWADstSel": ("dst_sel", names.SUB_DWORD),
    "printSDWASrc0Sel": ("src0_sel", names.SUB_DWORD),
    "printSDWASrc1Sel": ("src1_sel", names.SUB_DWORD),
    "printSDWADstUnused": ("dst_unused", names.UNUSED),
}


def _output_scale(modifiers: Mapping[str, object]) -> int:
    if "mul" in modifiers:
        factor = number_of(modifiers["mul"], "mul")
        if factor not in (1, 2, 4):
            raise ArgumentError(f"mul is {factor}; 2 and 4 are possible")
        return {1: 0, 2: 1, 4: 2}[factor]
    if "div" in modifiers:
        if number_of(modifiers["div"], "div") != 2:
            raise ArgumentError("div is possible by 2 only")
        return 3
    return 0


def lanes(modifiers: Mapping[str, object], gpu: Target) -> int:
    """The pattern of a DPP form."""
    if "quad_perm" in modifiers:
        order = _numbers(modifiers["quad_perm"], "quad_perm", 4, 3)
        return sum(lane << 2 * i for i, lane in enumerate(order))
    for name, base in _SHIFTS.items():
        if name in modifiers:
            if (name == "row_newbcast") != (gpu.family == CDNA) and base == 0x150:
                raise ArgumentError(f"{gpu} has no {name}")
            count = number_of(modifiers[name], name)
            if not (base >= 0x150) <= 16 or not (0 if base >= 0x150 else 1) <= count <= 15:
                raise ArgumentError(f"{name} is {count}; the most is 15")
            return base + count
    for name, base in _WHOLE.items():
        if name in modifiers:
            return base
    for name, base in _MIRRORS.items():
        if modifiers.get(name):
            return base
    if "row_bcast" in modifiers:
        count = number_of(modifiers["row_bcast"], "row_bcast")
        if count not in (15, 31):
            raise ArgumentError("row_bcast is 15 or 31")
        return 0x142 if count == 15 else 0x143
    raise ArgumentError("this form needs a pattern of lanes: quad_perm:[...], row_shr:1 ...")


def cache_policy(shape: Shape, slot: Slot, modifiers: Mapping[str, object], gpu: Target) -> int:
    """The bits of a cache policy; forms that fix one ask for its word."""
    value = 0
    if gpu.family == RDNA4:
        value = _policy_of_rdna4(modifiers)
    else:
        new = gpu.name in ("gfx942", "gfx950")
        is_scalar = shape.row.encoding == "smem"
        words = {1: "sc0" if new and not is_scalar else "glc", 2: "nt" if new else "slc"}
        words |= {4: "dlc"} if gpu.family != CDNA else {16: "sc1" if new else "scc"}
        for bit, word in words.items():
            value |= bit if modifiers.get(word) else 0
        for word in ("glc", "slc", "dlc", "sc0", "sc1", "nt", "scc"):
            if modifiers.get(word) and word not in words.values():
                raise ArgumentError(f"{gpu} spells cache policies {', '.join(words.values())}")
    kind = slot.type.name
    if kind.startswith("CPol_GLC") and not value & 1:
        raise ArgumentError("this form returns a value, which must be asked for")
    if kind.startswith("CPol_NonGLC") and value & 1:
        raise ArgumentError("this form returns no value")
    found = shape.row.layout.fields.get(slot.name)
    fixed = 1 if kind.startswith("CPol_GLC") and (found is None or not found.mask & 1) else 0
    return value & ~fixed


def _policy_of_rdna4(modifiers: Mapping[str, object]) -> int:
    value = 0
    hint = modifiers.get("th")
    if hint is not None:
        word = str(hint)
        for prefix, known in (
            ("TH_LOAD_", _HINTS),
            ("TH_STORE_", _HINTS),
            ("TH_ATOMIC_", _ATOMIC_HINTS),
        ):
            if word.startswith(prefix):
                rest = word.removeprefix(prefix)
                value |= known[rest] if rest in known else names.number(rest)
                break
        else:
            value |= names.number(word)
    scope = modifiers.get("scope")
    if scope is not None:
        if str(scope) not in _SCOPES:
            raise ArgumentError(f"scope is {scope}; known are {', '.join(_SCOPES)}")
        value |= _SCOPES.index(str(scope)) << 3
    value |= 0x20 if modifiers.get("nv") else 0
    return value | (0x800 if modifiers.get("scale_offset") else 0)


def _store(shape: Shape, slot: Slot, value: int, fields: dict[str, int], gpu: Target) -> None:
    found = shape.row.layout.fields.get(slot.name)
    if found is None:
        if value:
            raise ArgumentError(f"this form has no {slot.name}")
        return
    width = found.width
    if slot.type.name == "flat_offset":
        bits = flat_offset_bits(gpu)
        low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    elif slot.type.name.startswith(("SMEMOffset", "OptSMEM")):
        bits = 24 if gpu.family == RDNA4 else 21
        low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    else:
        low, high = 0, (1 << width) - 1
    if not low <= value <= high:
        raise ArgumentError(f"{slot.name} is {value}; {low} to {high} fit")
    if slot.name != "cpol" and value >= 0 and value & ~found.mask:
        raise ArgumentError(f"{slot.name} is {value:#x}; its field holds {found.mask:#x}")
    if slot.name == "cpol" and value & ~found.mask:
        raise ArgumentError("this form has not all of these cache policies")
    fields[slot.name] = value & (1 << width) - 1
