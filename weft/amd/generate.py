"""Writes `tables/`: what every instruction of a family is, out of LLVM's TableGen records.

    python -m weft.amd.generate [SOURCES] [--tblgen PROGRAM] [--check]

In: LLVM's AMDGPU `.td` files (`sources/*.tar.xz` beside this file) and `llvm-tblgen` of the same
release, which resolves them to records. Out: one text file for each family with the encodings,
operands and assembly templates of its targets. `table` reads them; nobody edits them: the header
holds hashes of the sources, of the generator and of the body. Invariant: the same sources give the
same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from weft.amd.records import Record, read
from weft.amd.targets import CDNA, FAMILIES, RDNA3, RDNA4, TARGETS
from weft.errors import DataError

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "sources" / "llvm-22.1.8-amdgpu-td.tar.xz"
TABLES = HERE / "tables"
TBLGEN = "llvm-tblgen-22"

# What a decoder tries first, per family: the special before the general.
NAMESPACES = {
    RDNA3: ("GFX11", "GFX11_FAKE16", "AMDGPU"),
    RDNA4: ("GFX12", "GFX12_FAKE16", "AMDGPU"),
    CDNA: ("GFX950", "GFX940", "GFX90A", "GFX9", "GFX8", "GFX9_DL"),
}
WAVES = {RDNA3: (32, 64), RDNA4: (32, 64), CDNA: (64,)}
WANTED = (
    "Instruction",
    "Predicate",
    "SubtargetFeature",
    "Processor",
    "Operand",
    "RegisterOperand",
    "RegisterClassLike",
    "AsmOperandClass",
    "MnemonicAlias",
    "InstAlias",
    "HwMode",
)
# TableGen's bits that say which encoding a record has; the first that is set counts.
ENCODINGS = (
    *("SOP1", "SOP2", "SOPC", "SOPK", "SOPP", "VINTERP", "VOP3P", "VOP3", "VOP1", "VOP2", "VOPC"),
    *("MUBUF", "MTBUF", "SMRD", "VIMAGE", "VSAMPLE", "MIMG", "EXP", "FLAT", "DS", "LDSDIR"),
)
# Bits that a row keeps, under the names that weft uses.
FLAGS = {
    "mayLoad": "load",
    "mayStore": "store",
    "isBranch": "branch",
    "isTerminator": "terminator",
    "isBarrier": "barrier",
    "isReturn": "return",
    "isIndirectBranch": "indirect",
    "isCompare": "compare",
    "isConvergent": "convergent",
    "isCommutable": "commutable",
    "isAsmParserOnly": "parser_only",
    "hasSideEffects": "effects",
    "IsSingle": "single",
    "DPP": "dpp",
    "SDWA": "sdwa",
    "TRANS": "transcendental",
    "VM_CNT": "vm_count",
    "EXP_CNT": "exp_count",
    "LGKM_CNT": "lgkm_count",
    "Gather4": "gather4",
    "VOP3_OPSEL": "op_sel",
    "FPClamp": "fp_clamp",
    "IntClamp": "int_clamp",
    "ClampLo": "clamp_lo",
    "ClampHi": "clamp_hi",
    "IsPacked": "packed",
    "D16Buf": "d16",
    "FlatGlobal": "global",
    "FlatScratch": "scratch",
    "ReadsModeReg": "mode",
    "FPDPRounding": "double_rounding",
    "FPAtomic": "fp_atomic",
    "IsMAI": "mai",
    "IsDOT": "dot",
    "IsWMMA": "wmma",
    "IsSWMMAC": "swmmac",
    "IsAtomicNoRet": "atomic",
    "IsAtomicRet": "atomic_return",
    "IsNeverUniform": "never_uniform",
}
# In records of gfx8 that gfx9 shares, tblgen leaves the question whether it is gfx9's unanswered.
_UNRESOLVED = re.compile(r"!if\(!and\(IsGFX9SpecificEncoding, [01]\), \{.*?\}, \?\)\{\d+\}")


def records(sources: Path, tblgen: str) -> Iterable[Record]:
    """The records of the `.td` files in an archive, as llvm-tblgen resolves them."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sources) as archive:
            archive.extractall(folder, filter="data")
        target = Path("lib", "Target", "AMDGPU")
        command = [tblgen, "--print-records", "-I", "include", "-I", str(target)]
        command.append(str(target / "AMDGPU.td"))
        try:
            process = subprocess.Popen(
                command, cwd=folder, stdout=subprocess.PIPE, text=True, encoding="utf-8"
            )
        except FileNotFoundError as error:
            raise DataError(
                f"{tblgen} is not installed: Debian's llvm-22 brings llvm-tblgen-22"
            ) from error
        assert process.stdout is not None
        with process.stdout:
            yield from (_trimmed(record) for record in read(process.stdout, WANTED))
        if process.wait():
            raise DataError(f"{tblgen} ended with {process.returncode} on {sources.name}")


def flag_bits(sources: Path) -> dict[str, int]:
    """The bits of TSFlags by name: records copy those of their pseudo, and not the names."""
    with tarfile.open(sources) as archive:
        member = archive.extractfile("lib/Target/AMDGPU/SIInstrFormats.td")
        assert member is not None
        text = member.read().decode()
    return {name: int(bit) for bit, name in re.findall(r"let TSFlags\{(\d+)\} = (\w+);", text)}


def _trimmed(record: Record) -> Record:
    """The record without the fields that are read by nobody: 21,000 records stay small."""
    if "Instruction" in record.classes and not _is_real(record):
        record.fields = {}
    return record


def _is_real(record: Record) -> bool:
    """Whether it has an encoding of its own."""
    return not (record.flag("isPseudo") or record.flag("isCodeGenOnly")) and bool(
        record.text("DecoderNamespace")
    )


@dataclass
class Intern:
    """Numbers equal lines once."""

    lines: dict[str, int] = field(default_factory=dict)

    def __call__(self, line: str) -> int:
        return self.lines.setdefault(line, len(self.lines))


class Features:
    """Which records a target has: predicates over the features of its processor."""

    def __init__(self, kinds: dict[str, dict[str, Record]]):
        self.predicates = kinds["Predicate"]
        self.features = kinds["SubtargetFeature"]
        self.processors = {each.text("Name"): each for each in kinds["Processor"].values()}

    def of(self, target: str, wave: int) -> frozenset[str]:
        """The features of a processor with all that they imply, in waves of `wave` lanes."""
        found: set[str] = {f"FeatureWavefrontSize{wave}"}
        waiting = list(self.processors[target].items("Features"))
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += self.features[name].items("Implies")
        return frozenset(found - {f"FeatureWavefrontSize{96 - wave}"})

    def hold(self, predicates: Sequence[str], features: frozenset[str]) -> bool:
        """Whether the assembler's part of all of `predicates` holds."""
        for name in predicates:
            record = self.predicates[name]
            condition = record.fields["AssemblerCondDag"]
            if record.flag("AssemblerMatcherPredicate") and condition != "?":
                tokens = re.findall(r"[()]|\w+", condition)
                if not _evaluate(tokens, features):
                    return False
        return True


def _evaluate(tokens: list[str], features: frozenset[str]) -> bool:
    """`(all_of FeatureA, (not FeatureB))` over a set of features."""
    token = tokens.pop(0)
    if token != "(":
        return token in features
    operator = tokens.pop(0)
    values = []
    while tokens[0] != ")":
        values.append(_evaluate(tokens, features))
    tokens.pop(0)
    if operator == "not":
        return not values[0]
    return all(values) if operator == "all_of" else any(values)


class Family:
    """Collects the table of one family."""

    def __init__(self, name: str, kinds: dict[str, dict[str, Record]], bits: dict[str, int]):
        self.name = name
        self.kinds = kinds
        self.flag_bits = bits
        self.features = Features(kinds)
        self.modes = [(each, wave) for each in FAMILIES[name] for wave in WAVES[name]]
        self.sets = [self.features.of(each, wave) for each, wave in self.modes]
        self.types, self.layouts, self.signatures = Intern(), Intern(), Intern()
        self.traits, self.templates, self.rows = Intern(), Intern(), Intern()
        self.hardware_mode = self._hardware_mode()

    def _hardware_mode(self) -> str:
        """The name of the HwMode that decides between register classes."""
        # Their predicates are C++: aligned pairs are what gfx90a and its successors ask for.
        if self.name == CDNA:
            return "AVAlign2LoadStoreMode"
        return "DefaultMode"

    def mask(self, predicates: Sequence[str]) -> int:
        """A bit for each (target, wave) that has what asks for `predicates`."""
        bits = (self.features.hold(predicates, features) for features in self.sets)
        return sum(bit << i for i, bit in enumerate(bits))

    def add(self, record: Record) -> None:
        """A row for an instruction that this family has."""
        namespace = record.text("DecoderNamespace")
        if namespace not in NAMESPACES[self.name]:
            return
        mask = self.mask(record.items("Predicates"))
        if not mask:
            return
        assembly = record.text("AsmString")
        start = re.match(r"\w+", assembly)
        if start is None:
            return
        value, layout = self.layout(record)
        self.rows(
            "\t".join(
                (
                    record.name,
                    start[0],
                    f"{value:x}",
                    f"{mask:x}",
                    str(NAMESPACES[self.name].index(namespace)),
                    str(layout),
                    str(self.signature(record)),
                    str(self.traits(self.trait(record))),
                    str(self.templates(assembly[start.end() :])),
                )
            )
        )

    def layout(self, record: Record) -> tuple[int, int]:
        """The fixed bits, and the number of the layout: size, mask, runs of bits by field."""
        size = int(record.fields["Size"])
        value = mask = 0
        runs: dict[str, list[list[int]]] = {}
        if record.fields.get("IsGFX9SpecificEncoding") == "0":
            record.fields["Inst"] = _UNRESOLVED.sub("?", record.fields["Inst"])
        for place, bit in enumerate(record.bits("Inst")[: size * 8]):
            if bit in ("0", "1"):
                mask |= 1 << place
                value |= int(bit) << place
            elif bit not in ("?", "SOffsetEn"):
                spelled = re.fullmatch(r"(\w+)(?:\{(\d+)\})?", bit)
                if spelled is None:
                    raise DataError(f"{record.name}: cannot read the bit {bit!r}")
                name, number = spelled[1], int(spelled[2] or 0)
                known = runs.setdefault(name, [])
                if known and (known[-1][0] + known[-1][2], known[-1][1] + known[-1][2]) == (
                    place,
                    number,
                ):
                    known[-1][2] += 1
                else:
                    known.append([place, number, 1])
        fields = (
            f"{name}={','.join('.'.join(map(str, run)) for run in runs[name])}" for name in runs
        )
        return value, self.layouts(f"{size}\t{mask:x}\t{' '.join(sorted(fields))}")

    def signature(self, record: Record) -> int:
        """The number of the operand list: `results;sources`, each `name:type`."""
        both = (record.operands("OutOperandList"), record.operands("InOperandList"))
        return self.signatures(
            ";".join(
                " ".join(f"{name}:{self.types(self.type(kind))}" for name, kind in operands)
                for operands in both
            )
        )

    def type(self, name: str) -> str:
        """A line for an operand's type: name, register class, width, files, what LLVM calls it."""
        operand = self.kinds["Operand"].get(name) or self.kinds["RegisterOperand"].get(name)
        if operand is None:
            return "\t".join((name, *self.register_class(name), "", "", "", ""))
        method = re.search(r"print(Named\w+)\(.*?, O, (.*?)\); }$", operand.text("PrintMethod"))
        printer = operand.text("PrintMethod")
        if method:
            printer = f"print{method[1]}:" + method[2].replace('"', "").replace(", ", ":")
        known = operand.fields.get("RegClass", "")
        classes = self.register_class(known) if known else ("", "0", "", "1")
        shown = name
        if name.startswith("anonymous_"):
            match = self.kinds["AsmOperandClass"].get(operand.fields.get("ParserMatchClass", ""))
            shown = f"{known or (match.text('Name') if match else '')}/{printer}"
        methods = (operand.text("DecoderMethod"), printer, operand.text("EncoderMethod"))
        kind = operand.text("OperandType").removeprefix("OPERAND_")
        return "\t".join((shown, *classes, kind, *methods))

    def register_class(self, name: str) -> tuple[str, str, str, str]:
        """Class, width in bits, register files and alignment, with HwModes resolved."""
        record = self.kinds["RegisterClassLike"][name]
        if "RegClassByHwMode" in record.classes:
            modes = record.items("Modes")
            objects = record.items("Objects")
            place = modes.index(self.hardware_mode) if self.hardware_mode in modes else 0
            name = objects[place]
            record = self.kinds["RegisterClassLike"][name]
        pairs = (("HasVGPR", "v"), ("HasAGPR", "a"), ("HasSGPR", "s"))
        files = "".join(letter for bit, letter in pairs if record.flag(bit))
        if name.startswith("VS_") and "s" not in files:
            # the records of the 16-bit classes leave out the scalars that are among their members
            files += "s"
        alignment = "2" if "Align2" in name else record.fields.get("RegTupleAlignUnits", "1")
        size = record.fields.get("Size", "0")
        if size == "0":
            named = re.search(r"_(\d+)(?:_|$)", name)
            size = named[1] if named else "0"
        return name, size, files, alignment

    def trait(self, record: Record) -> str:
        """Encoding, flags, implicit registers and ties of a row."""
        bits = record.bits("TSFlags")
        marked = {name for name, bit in self.flag_bits.items() if bits[bit] == "1"}
        marked |= {name for name in (*ENCODINGS, *FLAGS) if record.flag(name)}
        encoding = next((each.lower() for each in ENCODINGS if each in marked), "")
        if "VOPD_Base" in record.classes:
            encoding = "vopd"
        if not encoding:
            # DPP and SDWA forms carry the bit of what they extend in their classes' names only
            bases = ("VOP1", "VOP2", "VOPC")
            named = (base for base in bases for each in record.classes if each.startswith(base))
            encoding = next(named, "").lower()
        flags = sorted(FLAGS[name] for name in FLAGS if name in marked)
        uses, defs = sorted(record.items("Uses")), sorted(record.items("Defs"))
        return "\t".join(
            (
                {"smrd": "smem"}.get(encoding, encoding),
                " ".join(flags),
                " ".join(uses),
                " ".join(defs),
                re.sub(r"\s*=\s*", "=", record.text("Constraints")),
                record.text("AsmVariantName"),
            )
        )

    def aliases(self) -> list[str]:
        """Other spellings of mnemonics that the family's assembler takes."""
        lines = set()
        for record in self.kinds["MnemonicAlias"].values():
            if self.mask(record.items("Predicates")):
                names = (record.text("FromMnemonic"), record.text("ToMnemonic"))
                lines.add("\t".join((*names, record.text("AsmVariantName"))))
        return sorted(lines)

    def body(self) -> str:
        """The table as text: sections of lines, fields apart by tabs."""
        sections = {
            "modes": [f"{name}\t{wave}" for name, wave in self.modes],
            "types": self.types.lines,
            "layouts": self.layouts.lines,
            "signatures": self.signatures.lines,
            "traits": self.traits.lines,
            "templates": self.templates.lines,
            "aliases": self.aliases(),
            "rows": self.rows.lines,
        }
        return "".join(
            f"[{name}]\n" + "".join(f"{line}\n" for line in lines)
            for name, lines in sections.items()
        )


def digest(data: bytes) -> str:
    """A hash as the headers show it."""
    return hashlib.sha256(data).hexdigest()


def generator_digest() -> str:
    """The hash of the files that decide what is written."""
    names = ("generate.py", "records.py", "targets.py")
    return digest(b"".join((HERE / name).read_bytes() for name in names))


def header(family: str, body: str, sources: Path) -> str:
    """Where the body comes from, with what proves that nobody edited it."""
    return (
        f"# weft AMD instruction table: {family} ({', '.join(FAMILIES[family])})\n"
        "# Generated by `python -m weft.amd.generate`; do not edit.\n"
        "# Derived from LLVM's AMDGPU TableGen files, which are under the Apache License v2.0\n"
        "# with LLVM Exceptions (sources/LICENSE.TXT); SPDX: Apache-2.0 WITH LLVM-exception\n"
        f"# sources {digest(sources.read_bytes())}\n"
        f"# generator {generator_digest()}\n"
        f"# body {digest(body.encode())}\n"
    )


def tables(found: Iterable[Record], sources: Path) -> dict[str, str]:
    """The text of every family's file."""
    kinds: dict[str, dict[str, Record]] = {name: {} for name in WANTED}
    for record in found:
        for name in WANTED:
            if name in record.classes and (name != "Instruction" or record.fields):
                kinds[name][record.name] = record
                break
    texts = {}
    bits = flag_bits(sources)
    for name in FAMILIES:
        family = Family(name, kinds, bits)
        for record in kinds["Instruction"].values():
            family.add(record)
        body = family.body()
        texts[name] = header(name, body, sources) + body
    return texts


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the tables, or with `--check` say whether they are what would be written."""
    parser = argparse.ArgumentParser(prog="python -m weft.amd.generate")
    parser.add_argument("sources", nargs="?", type=Path, default=SOURCES)
    parser.add_argument("--tblgen", default=TBLGEN)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    stale = 0
    for name, text in tables(records(options.sources, options.tblgen), options.sources).items():
        path = TABLES / f"{name}.txt"
        if options.check:
            stale += path.read_text("utf-8") != text
            continue
        path.write_text(text, "utf-8")
        print(f"{path}: {len(text) >> 10} KiB, {len(TARGETS)} targets in all")
    if stale:
        print(f"{stale} tables are not what the generator writes", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
