"""Fields with names: hardware registers, messages, wait counts, formats and the like, both ways.

In: the value of a field, or the words that LLVM's assembly has for it. Out: the other of the two.
Used by the printer and the assembler. Invariant: for every value, `parse(show(value)) == value`
but for bits that LLVM itself leaves out of its text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from weft.amd.targets import CDNA, RDNA4, Target
from weft.errors import ArgumentError

_HARDWARE_COMMON = {1: "MODE", 2: "STATUS", 3: "TRAPSTS", 5: "GPR_ALLOC", 6: "LDS_ALLOC"}
_HARDWARE_COMMON |= {7: "IB_STS", 15: "SH_MEM_BASES"}
_HARDWARE_9 = _HARDWARE_COMMON | {4: "HW_ID", 16: "TBA_LO", 17: "TBA_HI", 18: "TMA_LO"}
_HARDWARE_9 |= {19: "TMA_HI"}
_HARDWARE_940 = _HARDWARE_9 | {20: "XCC_ID", 21: "SQ_PERF_SNAPSHOT_DATA"}
_HARDWARE_940 |= {22: "SQ_PERF_SNAPSHOT_DATA1", 23: "SQ_PERF_SNAPSHOT_PC_LO"}
_HARDWARE_940 |= {24: "SQ_PERF_SNAPSHOT_PC_HI"}
_HARDWARE_11 = _HARDWARE_COMMON | {18: "PERF_SNAPSHOT_PC_LO", 19: "PERF_SNAPSHOT_PC_HI"}
_HARDWARE_11 |= {20: "FLAT_SCR_LO", 21: "FLAT_SCR_HI", 23: "HW_ID1", 24: "HW_ID2"}
_HARDWARE_11 |= {27: "PERF_SNAPSHOT_DATA", 29: "SHADER_CYCLES"}
_HARDWARE_12 = {
    **{1: "WAVE_MODE", 2: "WAVE_STATUS", 4: "WAVE_STATE_PRIV", 5: "WAVE_GPR_ALLOC"},
    **{6: "WAVE_LDS_ALLOC", 7: "IB_STS", 10: "PERF_SNAPSHOT_DATA", 11: "PERF_SNAPSHOT_PC_LO"},
    **{12: "PERF_SNAPSHOT_PC_HI", 15: "PERF_SNAPSHOT_DATA1", 16: "PERF_SNAPSHOT_DATA2"},
    **{17: "WAVE_EXCP_FLAG_PRIV", 18: "WAVE_EXCP_FLAG_USER", 19: "WAVE_TRAP_CTRL"},
    **{20: "WAVE_SCRATCH_BASE_LO", 21: "WAVE_SCRATCH_BASE_HI", 23: "WAVE_HW_ID1"},
    **{24: "WAVE_HW_ID2", 26: "WAVE_SCHED_MODE", 29: "SHADER_CYCLES_LO"},
    **{30: "SHADER_CYCLES_HI", 31: "WAVE_DVGPR_ALLOC_LO", 32: "WAVE_DVGPR_ALLOC_HI"},
}

_MESSAGES_9 = {1: "INTERRUPT", 2: "GS", 3: "GS_DONE", 4: "SAVEWAVE", 5: "STALL_WAVE_GEN"}
_MESSAGES_9 |= {6: "HALT_WAVES", 7: "ORDERED_PS_DONE", 8: "EARLY_PRIM_DEALLOC"}
_MESSAGES_9 |= {9: "GS_ALLOC_REQ", 10: "GET_DOORBELL", 15: "SYSMSG"}
_MESSAGES_12 = {1: "INTERRUPT", 2: "HS_TESSFACTOR", 3: "DEALLOC_VGPRS", 9: "GS_ALLOC_REQ"}
_MESSAGES_12 |= {128: "RTN_GET_DOORBELL", 129: "RTN_GET_DDID", 130: "RTN_GET_TMA"}
_MESSAGES_12 |= {131: "RTN_GET_REALTIME", 132: "RTN_SAVE_WAVE", 133: "RTN_GET_TBA"}
_MESSAGES_12 |= {134: "RTN_GET_TBA_TO_PC"}
_MESSAGES_11 = _MESSAGES_12 | {5: "STALL_WAVE_GEN", 6: "HALT_WAVES"}
_MESSAGES_12 = _MESSAGES_12 | {135: "RTN_GET_SE_AID_ID"}
_GS_OPERATIONS = {0: "GS_OP_NOP", 1: "GS_OP_CUT", 2: "GS_OP_EMIT", 3: "GS_OP_EMIT_CUT"}
_SYSTEM_OPERATIONS = {
    1: "SYSMSG_OP_ECC_ERR_INTERRUPT",
    2: "SYSMSG_OP_REG_RD",
    4: "SYSMSG_OP_TTRACE_PC",
}

_NUMERIC = ("UNORM", "SNORM", "USCALED", "SSCALED", "UINT", "SINT", "FLOAT")
_ALL_BUT_FLOAT = _NUMERIC[:6]


def _unified_formats() -> tuple[str, ...]:
    """The names of BUF_FMT_* in order."""
    kinds: list[tuple[str, tuple[str, ...]]] = [
        ("8", _ALL_BUT_FLOAT),
        ("16", _NUMERIC),
        ("8_8", _ALL_BUT_FLOAT),
        ("32", _NUMERIC[4:]),
        ("16_16", _NUMERIC),
        ("10_11_11", ("FLOAT",)),
        ("11_11_10", ("FLOAT",)),
        ("10_10_10_2", ("UNORM", "SNORM", "UINT", "SINT")),
        ("2_10_10_10", _ALL_BUT_FLOAT),
        ("8_8_8_8", _ALL_BUT_FLOAT),
        ("32_32", _NUMERIC[4:]),
        ("16_16_16_16", _NUMERIC),
        ("32_32_32", _NUMERIC[4:]),
        ("32_32_32_32", _NUMERIC[4:]),
    ]
    return ("INVALID", *(f"{shape}_{kind}" for shape, names in kinds for kind in names))


UNIFIED_FORMATS = _unified_formats()
DATA_FORMATS = (
    *("INVALID", "8", "16", "8_8", "32", "16_16", "10_11_11", "11_11_10", "10_10_10_2"),
    *("2_10_10_10", "8_8_8_8", "32_32", "16_16_16_16", "32_32_32", "32_32_32_32", "RESERVED_15"),
)
NUMBER_FORMATS = (*_ALL_BUT_FLOAT, "RESERVED_6", "FLOAT")

DIMENSIONS = ("1D", "2D", "3D", "CUBE", "1D_ARRAY", "2D_ARRAY", "2D_MSAA", "2D_MSAA_ARRAY")

INSTRUCTION_IDS = (
    *("NO_DEP", "VALU_DEP_1", "VALU_DEP_2", "VALU_DEP_3", "VALU_DEP_4"),
    *("TRANS32_DEP_1", "TRANS32_DEP_2", "TRANS32_DEP_3", "FMA_ACCUM_CYCLE_1"),
    *("SALU_CYCLE_1", "SALU_CYCLE_2", "SALU_CYCLE_3"),
)
SKIPS = ("SAME", "NEXT", "SKIP_1", "SKIP_2", "SKIP_3", "SKIP_4")

# name, lowest bit, width; in the order in which LLVM prints them
DEPENDENCY_COUNTERS = (
    ("depctr_hold_cnt", 7, 1),
    ("depctr_sa_sdst", 0, 1),
    ("depctr_va_vdst", 12, 4),
    ("depctr_va_sdst", 9, 3),
    ("depctr_va_ssrc", 8, 1),
    ("depctr_va_vcc", 1, 1),
    ("depctr_vm_vsrc", 2, 3),
)

EXPORTS = {**{i: f"mrt{i}" for i in range(8)}, 8: "mrtz", **{12 + i: f"pos{i}" for i in range(5)}}
EXPORTS |= {20: "prim", 21: "dual_src_blend0", 22: "dual_src_blend1"}

SUB_DWORD = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")


def hardware_registers(gpu: Target) -> dict[int, str]:
    """Names of the registers of s_getreg and s_setreg."""
    if gpu.family == CDNA:
        return _HARDWARE_9 if gpu.name == "gfx90a" else _HARDWARE_940
    return _HARDWARE_12 if gpu.family == RDNA4 else _HARDWARE_11


def show_hardware_register(value: int, gpu: Target) -> str:
    """`hwreg(HW_REG_MODE, 5, 7)`"""
    number, offset, width = value & 63, value >> 6 & 31, (value >> 11 & 31) + 1
    name = hardware_registers(gpu).get(number)
    shown = f"HW_REG_{name}" if name else str(number)
    return f"hwreg({shown})" if (offset, width) == (0, 32) else f"hwreg({shown}, {offset}, {width})"


def parse_hardware_register(text: str, gpu: Target) -> int:
    """The other way; a plain number stands for itself."""
    parts = _call(text, "hwreg")
    if parts is None:
        return number(text)
    names = {f"HW_REG_{name}": code for code, name in hardware_registers(gpu).items()}
    code = names[parts[0]] if parts[0] in names else number(parts[0])
    offset, width = (number(parts[1]), number(parts[2])) if len(parts) == 3 else (0, 32)
    if not (0 <= code < 64 and 0 <= offset < 32 and 1 <= width <= 32):
        raise ArgumentError(
            f"{text}: a hardware register is 0..63, its offset 0..31, its width 1..32"
        )
    return code | offset << 6 | (width - 1) << 11


def show_message(value: int, gpu: Target) -> str:
    """`sendmsg(MSG_GS, GS_OP_CUT, 0)`"""
    if gpu.family != CDNA:
        name = (_MESSAGES_12 if gpu.family == RDNA4 else _MESSAGES_11).get(value & 255)
        if name:
            return f"sendmsg(MSG_{name})"
        return f"sendmsg({value}, 0, 0)" if value < 256 else str(value)
    kind, operation, stream = value & 15, value >> 4 & 7, value >> 8 & 3
    name = _MESSAGES_9.get(kind)
    if kind in (2, 3) and operation in _GS_OPERATIONS and (kind == 3 or operation):
        if operation or not stream:
            rest = f", {stream}" if operation else ""
            return f"sendmsg(MSG_{name}, {_GS_OPERATIONS[operation]}{rest})"
    elif kind == 15 and operation in _SYSTEM_OPERATIONS and not stream:
        return f"sendmsg(MSG_{name}, {_SYSTEM_OPERATIONS[operation]})"
    elif name and kind not in (2, 3, 15) and not operation and not stream:
        return f"sendmsg(MSG_{name})"
    if value == kind | operation << 4 | stream << 8:
        return f"sendmsg({kind}, {operation}, {stream})"
    return str(value)


def parse_message(text: str, gpu: Target) -> int:
    """The other way."""
    parts = _call(text, "sendmsg")
    if parts is None:
        return number(text)
    families = {CDNA: _MESSAGES_9, RDNA4: _MESSAGES_12}
    messages = families.get(gpu.family, _MESSAGES_11)
    codes = {f"MSG_{name}": code for code, name in messages.items()}
    operations = {name: code for code, name in (_GS_OPERATIONS | _SYSTEM_OPERATIONS).items()}
    kind = codes[parts[0]] if parts[0] in codes else number(parts[0])
    operation = 0
    if len(parts) > 1:
        operation = operations[parts[1]] if parts[1] in operations else number(parts[1])
    stream = number(parts[2]) if len(parts) > 2 else 0
    return kind | operation << 4 | stream << 8


def wait_counters(gpu: Target) -> dict[str, tuple[tuple[int, int, int], ...]]:
    """The counters of s_waitcnt: runs of (bit of the field, bit of the count, width)."""
    if gpu.family == CDNA:
        return {"vmcnt": ((0, 0, 4), (14, 4, 2)), "expcnt": ((4, 0, 3),), "lgkmcnt": ((8, 0, 4),)}
    return {"vmcnt": ((10, 0, 6),), "expcnt": ((0, 0, 3),), "lgkmcnt": ((4, 0, 6),)}


def show_wait(value: int, gpu: Target) -> str:
    """`vmcnt(0) lgkmcnt(1)`: counters at their highest wait for nothing and are left out."""
    shown = {}
    for name, runs in wait_counters(gpu).items():
        count = sum((value >> bit & (1 << width) - 1) << start for bit, start, width in runs)
        highest = (1 << sum(width for _, _, width in runs)) - 1
        shown[name] = (count, highest)
    every = all(count == highest for count, highest in shown.values())
    words = [f"{name}({count})" for name, (count, high) in shown.items() if every or count != high]
    return " ".join(words)


def parse_wait(text: str, gpu: Target) -> int:
    """The other way; `&` and `,` may stand between."""
    if not re.search(r"[a-z]+cnt", text):
        return number(text)
    value = 0
    counters = wait_counters(gpu)
    given: dict[str, int] = {}
    for word in re.findall(r"(\w+)\s*\(([^)]*)\)", text):
        name = word[0].removesuffix("_sat")
        if name not in counters:
            raise ArgumentError(f"{word[0]} is no counter of s_waitcnt; known are {list(counters)}")
        given[name] = number(word[1])
    for name, runs in counters.items():
        highest = (1 << sum(width for _, _, width in runs)) - 1
        count = given.get(name, highest)
        if not 0 <= count <= highest:
            raise ArgumentError(f"{name}({count}): the highest count is {highest}")
        for bit, start, width in runs:
            value |= (count >> start & (1 << width) - 1) << bit
    return value


def show_dependencies(value: int) -> str:
    """`depctr_va_vdst(14)`; a number where unknown bits are set."""
    known = sum(((1 << width) - 1) << bit for _, bit, width in DEPENDENCY_COUNTERS)
    if value & ~known:
        return hex(value)
    words = []
    for name, bit, width in DEPENDENCY_COUNTERS:
        count = value >> bit & (1 << width) - 1
        if count != (1 << width) - 1 or value == known:
            words.append(f"{name}({count})")
    return " ".join(words)


def parse_dependencies(text: str) -> int:
    """The other way."""
    if "depctr" not in text:
        return number(text)
    value = sum(((1 << width) - 1) << bit for _, bit, width in DEPENDENCY_COUNTERS)
    places = {name: (bit, width) for name, bit, width in DEPENDENCY_COUNTERS}
    for name, count in re.findall(r"(\w+)\(([^)]*)\)", text):
        if name not in places:
            raise ArgumentError(f"{name} is no counter of s_waitcnt_depctr")
        bit, width = places[name]
        value = value & ~(((1 << width) - 1) << bit) | number(count) << bit
    return value


def show_delay(value: int) -> str:
    """`instid0(VALU_DEP_1) | instskip(NEXT) | instid1(VALU_DEP_1)`"""
    words = []
    fields = (("instid0", 0, 4, INSTRUCTION_IDS), ("instskip", 4, 3, SKIPS))
    for name, bit, width, names in (*fields, ("instid1", 7, 4, INSTRUCTION_IDS)):
        code = value >> bit & (1 << width) - 1
        if code:
            bad = f"/* invalid {name.rstrip('01')} value */"
            words.append(f"{name}({names[code] if code < len(names) else bad})")
    return " | ".join(words) or "0"


def parse_delay(text: str) -> int:
    """The other way."""
    if "inst" not in text:
        return number(text)
    value = 0
    for name, word in re.findall(r"(\w+)\(([^)]*)\)", text):
        names = SKIPS if name == "instskip" else INSTRUCTION_IDS
        places = {"instid0": 0, "instskip": 4, "instid1": 7}
        if name not in places or word not in names:
            raise ArgumentError(f"{name}({word}) is nothing that s_delay_alu has")
        value |= names.index(word) << places[name]
    return value


def show_format(value: int, gpu: Target) -> str:
    """` format:[BUF_FMT_32_FLOAT]`; nothing for the default, the first after INVALID."""
    if gpu.family != CDNA:
        if value == 1:
            return ""
        known = value < len(UNIFIED_FORMATS)
        return " format:" + (f"[BUF_FMT_{UNIFIED_FORMATS[value]}]" if known else str(value))
    data, kind = value & 15, value >> 4 & 7
    if value == 1:
        return ""
    words = [f"BUF_DATA_FORMAT_{DATA_FORMATS[data]}"] if data != 1 else []
    words += [f"BUF_NUM_FORMAT_{NUMBER_FORMATS[kind]}"] if kind else []
    return f" format:[{','.join(words)}]"


def parse_format(text: str, gpu: Target) -> int:
    """The other way: what follows `format:`."""
    words = text.strip("[]").replace(" ", "").split(",")
    if gpu.family != CDNA:
        names = {f"BUF_FMT_{name}": code for code, name in enumerate(UNIFIED_FORMATS)}
        return names[words[0]] if words[0] in names else number(words[0])
    datas = {f"BUF_DATA_FORMAT_{name}": code for code, name in enumerate(DATA_FORMATS)}
    kinds = {f"BUF_NUM_FORMAT_{name}": code << 4 for code, name in enumerate(NUMBER_FORMATS)}
    if words[0] not in datas and words[0] not in kinds:
        return number(words[0])
    data = next((datas[word] for word in words if word in datas), 1)
    return data | next((kinds[word] for word in words if word in kinds), 0)


def show_export(value: int) -> str:
    """`mrt0`"""
    return EXPORTS.get(value, f"invalid_target_{value}")


def parse_export(text: str) -> int:
    """The other way."""
    codes = {name: code for code, name in EXPORTS.items()}
    if text not in codes:
        raise ArgumentError(f"{text} is no export target; known are {', '.join(codes)}")
    return codes[text]


def show_swizzle(value: int, gpu: Target) -> str:
    """` offset:swizzle(FFT,16)`"""
    if not value:
        return ""
    fft = gpu.family != CDNA or gpu.name in ("gfx90a", "gfx942", "gfx950")
    if fft and value >= 0xE000:
        return f" offset:swizzle(FFT,{value & 31})"
    if fft and value & 0xE000 == 0xC000:
        return f" offset:swizzle(ROTATE,{value >> 10 & 1},{value >> 5 & 31})"
    if value & 0xFF00 == 0x8000:
        lanes = ",".join(str(value >> 2 * i & 3) for i in range(4))
        return f" offset:swizzle(QUAD_PERM,{lanes})"
    if not value & 0x8000:
        return " offset:" + _show_permutation(value & 31, value >> 5 & 31, value >> 10 & 31)
    return f" offset:{value}"


def _show_permutation(ands: int, ors: int, xors: int) -> str:
    """The masks of a permutation among 32 lanes, by the name of the pattern."""
    if (ands, ors) == (31, 0) and xors and not xors & (xors - 1):
        return f"swizzle(SWAP,{xors})"
    if (ands, ors) == (31, 0) and xors and not xors & (xors + 1):
        return f"swizzle(REVERSE,{xors + 1})"
    group = 32 - ands
    if group > 1 and ors < group and not xors and not group & (group - 1):
        return f"swizzle(BROADCAST,{group},{ors})"
    letters = ""
    for bit in (16, 8, 4, 2, 1):
        p0, p1 = (0 & ands | ors) ^ xors, (bit & ands | ors) ^ xors
        pair = (bool(p0 & bit), bool(p1 & bit))
        letters += {(False, False): "0", (True, True): "1", (False, True): "p"}.get(pair, "i")
    return f'swizzle(BITMASK_PERM,"{letters}")'


def parse_swizzle(text: str) -> int:
    """The other way: what follows `offset:`."""
    parts = _call(text, "swizzle")
    if parts is None:
        return number(text)
    name, words = parts[0], parts[1:]
    if name == "BITMASK_PERM":
        ands = ors = xors = 0
        if not words or not re.fullmatch(r'"[01pi]{5}"', words[0]):
            raise ArgumentError(f"{text}: a mask is five of 0, 1, p and i in quotes")
        for letter, bit in zip(words[0].strip('"'), (16, 8, 4, 2, 1), strict=True):
            ors |= bit if letter == "1" else 0
            ands |= bit if letter in "pi" else 0
            xors |= bit if letter == "i" else 0
        return ands | ors << 5 | xors << 10
    values = [number(word) for word in words]
    makers: dict[str, Callable[[], int]] = {
        "FFT": lambda: 0xE000 | values[0],
        "ROTATE": lambda: 0xC000 | values[0] << 10 | values[1] << 5,
        "QUAD_PERM": lambda: 0x8000 | sum(lane << 2 * i for i, lane in enumerate(values)),
        "SWAP": lambda: 31 | values[0] << 10,
        "REVERSE": lambda: 31 | (values[0] - 1) << 10,
        "BROADCAST": lambda: (32 - values[0]) | values[1] << 5,
    }
    if name not in makers:
        raise ArgumentError(f"swizzle({name}): known are BITMASK_PERM, {', '.join(makers)}")
    counts = {"ROTATE": 2, "QUAD_PERM": 4, "BROADCAST": 2}
    if len(values) != counts.get(name, 1) or any(not 0 <= value <= 32 for value in values):
        raise ArgumentError(f"{text}: {name} takes {counts.get(name, 1)} numbers from 0 to 32")
    return makers[name]()


def number(text: str) -> int:
    """An integer as assembly writes it."""
    try:
        return int(text.strip(), 0)
    except ValueError:
        raise ArgumentError(f"{text.strip()!r} is no number and no name that fits here") from None


def _call(text: str, name: str) -> list[str] | None:
    """The arguments of `name(...)`, or None."""
    match = re.fullmatch(rf"\s*{name}\s*\((.*)\)\s*", text)
    return [part.strip() for part in match[1].split(",")] if match else None
