"""The C writer: a plan as one file of C11 and its header.

In: a plan, kernels lowered for it. Out: text, and weights for a file beside it where asked for.
Sits above `plan`; `export.c` calls it.
Invariant: no allocation but one (the context with its states and arena); every pointer and size of
a caller is checked before the first kernel runs; nothing is shared between contexts but constants.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from weft.codegen.pipeline import lower
from weft.export.c_frame import (
    checked_text,
    frame_text,
    header_text,
    signature,
)
from weft.export.c_main import main_text
from weft.export.c_pool import pool_text
from weft.export.c_text import array_lines, c_type, size_text
from weft.export.names import Names, source_line
from weft.export.plan import (
    CONSTANT,
    SCRATCH,
    STATE,
    Copy,
    Draw,
    Kernel,
    Launch,
    Plan,
    verify,
)
from weft.machine import Target
from weft.renderer.base import ProgramSpec, program_variables
from weft.renderer.friendly_c import FriendlyC, PlainC

# names that kernels use for what they compute, and words of the headers
_RESERVED = re.compile(
    r"(val|alu|ridx|acc|buf|mask|vec|lidx|gidx)\d+|[A-Z0-9_]+|.*_t|[fiub]\d+x\d+"
)
_LIBRARY = frozenset("memcpy memset sqrtf truncf sqrt trunc fma fmaf malloc free i j".split())
# where a constant begins in a file of weights
WEIGHT_ALIGNMENT = 64
WEIGHT_HEADER = 64


@dataclass(frozen=True)
class COptions:
    """How the file is written. `threads`: at most so many share a kernel."""

    target: Target
    has_weights_file: bool = False
    threads: int = 1
    has_main: bool = True
    march: str | None = None


@dataclass(frozen=True)
class CFiles:
    """What was written."""

    source: str
    header: str
    weights: bytes | None


def write_c(plan: Plan, options: COptions, stem: str) -> CFiles:
    """The texts of a plan; `stem` is the name of the files."""
    verify(plan)
    weights = weight_file(plan) if options.has_weights_file else None
    return _Writer(plan, options, stem).files(weights)


def weight_offsets(plan: Plan) -> dict[int, int]:
    """Where each constant stands in a file of weights."""
    found, at = {}, WEIGHT_HEADER
    for number, memory in enumerate(plan.memories):
        if memory.kind == CONSTANT:
            found[number] = at
            at += -(-memory.nbytes // WEIGHT_ALIGNMENT) * WEIGHT_ALIGNMENT
    return found


def weight_file(plan: Plan) -> bytes:
    """All constants, behind a head that says whose they are."""
    data = bytearray(b"weft" + (1).to_bytes(4, "little") + bytes.fromhex(plan.digest)[:32])
    for number, offset in weight_offsets(plan).items():
        data.extend(bytes(offset - len(data)))
        data.extend(plan.memories[number].contents or b"")
    data.extend(bytes(-len(data) % WEIGHT_ALIGNMENT))
    return bytes(data)


class _Writer:
    """The files while they are written."""

    def __init__(self, plan: Plan, options: COptions, stem: str) -> None:
        self.plan = plan
        self.options = options
        self.stem = stem
        self.vectors = FriendlyC(options.target)
        scalar = replace(options.target, name="c", vector_bytes=0, has_fma=False)
        self.plain = PlainC(scalar)
        self.names = self._memory_names()
        self.specs: list[ProgramSpec] = []
        self.plain_specs: list[ProgramSpec] = []

    def files(self, weights: bytes | None) -> CFiles:
        plan, options = self.plan, self.options
        vector_text = [self._kernel(number, self.vectors, self.specs) for number in self._numbers]
        plain_text = [
            self._kernel(number, self.plain, self.plain_specs) for number in self._numbers
        ]
        has_pool = self._has_pool
        parts = [
            self._opening(),
            "\n".join(self._constants()),
            pool_text(options.threads) if has_pool else "",
            "#if defined(__GNUC__) && !defined(WEFT_PLAIN)\n"
            "/* ---------------------------------------------------------------- kernels */",
            "\n".join(_used(self.vectors.shared_lines(), vector_text)),
            "\n\n".join(vector_text),
            self._parts(self.vectors, self.specs),
            "#else\n/* ---------------------------------- the same kernels in plain loops */",
            "\n".join(_used(self.plain.shared_lines(), plain_text)),
            "\n\n".join(plain_text),
            self._parts(self.plain, self.plain_specs),
            "#endif",
            frame_text(plan, weights, has_pool, options.threads),
            "\n".join(self._run()),
            checked_text(plan),
            main_text(plan, weights is not None) if options.has_main else "",
        ]
        source = "\n\n".join([part for part in parts if part.strip()]) + "\n"
        header = header_text(plan, weights, self.stem, options.threads if has_pool else 1)
        return CFiles(source, header, weights)

    @property
    def _numbers(self) -> range:
        return range(len(self.plan.kernels))

    @property
    def _has_pool(self) -> bool:
        specs = (*self.specs, *self.plain_specs)
        return self.options.threads > 1 and any(spec.threads_n > 1 for spec in specs)

    def _opening(self) -> str:
        plan, options = self.plan, self.options
        build = f"cc -O2 -std=c11 {self.stem}.c -lm"
        if options.march is not None:
            build = build.replace("-std=c11", f"-std=c11 -march={options.march}")
        if self._has_pool:
            build += " -pthread"
        defines = "#define _POSIX_C_SOURCE 200809L\n" if self._has_pool else ""
        pool = "#include <pthread.h>\n" if self._has_pool else ""
        lines = [
            f"/* {self.stem}.c: {plan.name}, written by weft.",
            "",
            f"   Build:  {build}",
            "   As part of another program add -DWEFT_NO_MAIN, and include its header.",
            f"   It has {len(plan.kernels)} kernels, {plan.weight_bytes} bytes of weights, "
            f"{plan.state_bytes} bytes of state",
            f"   and {plan.arena_bytes} bytes of scratch. */",
        ]
        includes = "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n"
        includes += "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
        contraction = (
            "/* a product rounds where it stands: compilers must not fuse it with its sum */\n"
            "#if defined(__clang__)\n#pragma STDC FP_CONTRACT OFF\n"
            "#elif defined(__GNUC__) && !defined(__STRICT_ANSI__)\n"
            '#pragma GCC optimize("fp-contract=off")\n#endif'
        )
        wide = ""
        if options.target.has_fma:
            wide = "#if defined(__FMA__) && !defined(WEFT_PLAIN)\n#include <immintrin.h>\n#endif\n"
        return (
            "\n".join(lines)
            + f'\n\n{defines}#include "{self.stem}.h"\n\n{includes}{pool}{wide}\n{contraction}'
        )

    # ------------------------------------------------------------ names
    def _memory_names(self) -> list[str]:
        """What each memory is called inside of `run`."""
        plan = self.plan
        public = {v.memory: v.name for v in (*plan.inputs, *plan.outputs)}
        taken = Names([*public.values(), *[s.name for s in plan.sizes], "self", "arena", "states"])
        found = []
        for number, memory in enumerate(plan.memories):
            if number in public:
                found.append(public[number])
            elif memory.kind == CONSTANT:
                found.append(taken.take(f"w_{memory.name}"))
            else:
                found.append(taken.take(_safe(memory.name)))
        return found

    def _parameters(self, kernel: Kernel, number: int) -> dict[int, str]:
        """Names of a kernel's buffers: those of its memories if it runs once, else what they are
        to it."""
        launches = [s for s in self.plan.steps if isinstance(s, Launch) and s.kernel == number]
        taken = Names([*kernel.variables, "begin", "end"])
        found: dict[int, str] = {}
        for parameter in kernel.parameters:
            memories = {launch.arguments[parameter.slot][0] for launch in launches}
            name = "out" if parameter.is_written else "x"
            if len(memories) == 1:
                memory = self.plan.memories[memories.pop()]
                if memory.kind != SCRATCH:
                    name = memory.name
            found[parameter.slot] = taken.take(_safe(name))
        return found

    # ------------------------------------------------------------ kernels
    def _kernel(self, number: int, renderer: FriendlyC, specs: list[ProgramSpec]) -> str:
        kernel = self.plan.kernels[number]
        renderer.parameters = self._parameters(kernel, number)
        lines = [f"/* {line} */" for line in _origin_lines(kernel)]
        spec = lower(kernel.sink, renderer)
        specs.append(spec)
        text = renderer.render(kernel.name, spec.uops)
        return "\n".join([*lines, text.rstrip()])

    def _is_shared(self, number: int) -> bool:
        """Whether threads share a kernel, with vectors or without."""
        return self.specs[number].threads_n > 1 or self.plain_specs[number].threads_n > 1

    def _parts(self, renderer: FriendlyC, specs: list[ProgramSpec]) -> str:
        """What threads call of each kernel that they share."""
        numbers = [number for number in self._numbers if self._is_shared(number)]
        parts = [self._part(self.plan.kernels[n], specs[n], renderer) for n in numbers]
        return "\n".join([line for part in parts for line in part])

    def _part(self, kernel: Kernel, spec: ProgramSpec, renderer: FriendlyC) -> list[str]:
        """The kernel over a part of its outermost axis."""
        variables = program_variables(spec.uops)
        fields = []
        for parameter in kernel.parameters:
            const = "" if parameter.is_written else "const "
            fields.append((f"{const}{c_type(parameter.dtype)} *", f"x{parameter.slot}"))
        fields += [(f"{renderer.type(v.dtype)} ", f"v{i}") for i, v in enumerate(variables)]
        given = [f"c->{name}" for _, name in fields]
        is_shared = spec.threads_n > 1
        unused = "" if is_shared else " (void)begin; (void)end;"
        given += ["begin", "end"] if is_shared else []
        members = " ".join(f"{kind}{name};" for kind, name in fields) or "int none;"
        taken = f"const struct {kernel.name}_call *c = (const struct {kernel.name}_call *)call;"
        return [
            f"struct {kernel.name}_call {{ {members} }};",
            f"enum {{ {kernel.name}_parts = {spec.threads_n} }};",
            f"static void {kernel.name}_part(const void *call, int64_t begin, int64_t end) {{",
            f"  {taken}{unused}",
            f"  {kernel.name}({', '.join(given)});",
            "}",
        ]

    def _constants(self) -> list[str]:
        """Weights, unless they are in a file, and what states begin with."""
        arrays = []
        for number, memory in enumerate(self.plan.memories):
            if memory.kind == CONSTANT and not self.options.has_weights_file:
                arrays.append((self.names[number], memory))
            elif memory.kind == STATE and any(memory.contents or b""):
                arrays.append((f"start_of_{memory.name}", memory))
        if not arrays:
            return []
        lines = ["/* ---------------------------------------------------------------- weights */"]
        for name, memory in arrays:
            assert memory.contents is not None
            lines.append(f"static const {c_type(memory.dtype)} {name}[{memory.size}] = {{")
            lines += [f"  {line}" for line in array_lines(memory.contents, memory.dtype)]
            lines.append("};")
        return lines

    # ------------------------------------------------------------ the function
    def _run(self) -> list[str]:
        plan = self.plan
        name, upper = plan.name, plan.name.upper()
        lines = [f"{signature(plan)} {{"]
        given = [value.name for value in (*plan.inputs, *plan.outputs)]
        nothing = " || ".join(f"{pointer} == NULL" for pointer in ("self", *given))
        lines.append(f"  if ({nothing}) return {upper}_ERROR_NULL;")
        lines += [f"  {line}" for line in self._checks()]
        lines += self._locals()
        if plan.events:
            draws = sum(kind == "draw" for kind, _ in plan.events)
            lines.append(f"  uint32_t keys[{max(1, 2 * draws)}];")
            lines.append(f"  {name}_draw(self, keys);")
        for step in plan.steps:
            lines.append(f"  {self._step(step)}")
        lines += [f"  return {upper}_OK;", "}"]
        return lines

    def _checks(self) -> list[str]:
        plan, upper = self.plan, self.plan.name.upper()
        lines = [
            f"if ({s.name} < {s.low} || {s.name} > {s.high}) return {upper}_ERROR_SIZE;"
            for s in plan.sizes
        ]
        for claim in plan.claims:
            start, stop, size = (size_text(p) for p in (claim.start, claim.stop, claim.size))
            wrong = f"{start} < 0 || {stop} < {start} || {size} < {stop}"
            lines.append(f"if ({wrong}) return {upper}_ERROR_SIZE;")
        values = [*plan.inputs, *plan.outputs]
        for value in values:
            width = plan.memories[value.memory].dtype.itemsize
            if width > 1:
                wrong = f"(uintptr_t){value.name} % {width}"
                lines.append(f"if ({wrong}) return {upper}_ERROR_ALIGNMENT;")
        for position, output in enumerate(plan.outputs):
            for other in (*plan.inputs, *plan.outputs[position + 1 :]):
                spans = ", ".join(
                    f"{v.name}, {plan.memories[v.memory].nbytes}" for v in (output, other)
                )
                lines.append(f"if ({plan.name}_overlap({spans})) return {upper}_ERROR_OVERLAP;")
        return lines

    def _locals(self) -> list[str]:
        plan = self.plan
        lines = []
        offsets = weight_offsets(plan)
        bases = {STATE: "self->states", SCRATCH: "self->arena"}
        for number, memory in enumerate(plan.memories):
            kind = c_type(memory.dtype)
            if memory.kind in bases:
                place = f"({kind} *)(void *)({bases[memory.kind]} + {memory.offset})"
                lines.append(f"  {kind} *{self.names[number]} = {place};")
            elif memory.kind == CONSTANT and self.options.has_weights_file:
                place = f"(const {kind} *)(const void *)(self->weights + {offsets[number]})"
                lines.append(f"  const {kind} *{self.names[number]} = {place};")
        return lines

    def _step(self, step: Launch | Copy) -> str:
        if isinstance(step, Copy):
            nbytes = self.plan.memories[step.source].nbytes
            return f"memcpy({self.names[step.target]}, {self.names[step.source]}, {nbytes});"
        kernel = self.plan.kernels[step.kernel]
        given = []
        for parameter in kernel.parameters:
            number, first = step.arguments[parameter.slot]
            given.append(self.names[number] + (f" + {first}" if first else ""))
        given += [_value_text(value) for value in step.values]
        if not self._is_shared(step.kernel):
            return f"{kernel.name}({', '.join(given)});"
        inside = ", ".join(given) or "0"
        call = f"struct {kernel.name}_call call = {{{inside}}};"
        run = f"pool_run(&self->pool, {kernel.name}_part, &call, {kernel.name}_parts);"
        return f"{{ {call} {run} }}"


def _value_text(value: str | Draw | int) -> str:
    if isinstance(value, Draw):
        return f"keys[{2 * value.number + value.word}]"
    return str(value)


_WORD = re.compile(r"[A-Za-z_]\w*")


def _used(lines: list[str], texts: list[str]) -> list[str]:
    """The shared lines that something uses: a kernel, or a line that is used."""
    words = {word for text in texts for word in _WORD.findall(text)}
    kept: set[str] = set()
    while True:
        new = [line for line in lines if line not in kept and _defined(line) in words]
        if not new:
            return [line for line in lines if line in kept]
        kept.update(new)
        words.update(word for line in new for word in _WORD.findall(line))


def _defined(line: str) -> str:
    """What a shared line defines: a type or a function."""
    text = line.partition("\n")[2] if line.startswith("#if") else line
    if text.startswith("typedef"):
        return _WORD.findall(text.partition("__attribute__")[0])[-1]
    return _WORD.findall(text.partition("(")[0])[-1]


def _safe(name: str) -> str:
    """A name that nothing in a kernel or a header has."""
    return f"{name}_" if _RESERVED.fullmatch(name) or name in _LIBRARY else name


def _origin_lines(kernel: Kernel) -> list[str]:
    lines = []
    for file, line in kernel.lines[:4]:
        text = source_line(file, line).replace("*/", "* /").replace("/*", "/ *")
        lines.append(f"{Path(file).name}:{line}  {text}".rstrip())
    if len(kernel.lines) > 4:
        lines.append(f"and {len(kernel.lines) - 4} more lines")
    return lines
