"""WGSL, the shading language of WebGPU.

In: a linear program. Out: a module with one compute function. One of the languages on top of
`groups.py`, though its statements look like Rust's.
Invariant: what WGSL lacks is refused by name (float64) or computed in 32 bits (integers of 8 and 16
bits, bools in memory; those of 64 bits are pairs of words before they come here): values in
registers are always in the range of their dtype, and buffers hold them packed into words, so the
host sees the same bytes as on every device. Several threads may write parts of one word, which is
why such a word is written by two atomics.

Buffers are bindings 0, 1 ... of group 0 by slot; the variables of the kernel, if any, are the next
binding, an array of i32, see `WGSLRenderer.layout`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft.dtype import DType, dtypes
from weft.errors import CompileError
from weft.machine import Target
from weft.renderer.base import program_params, program_variables
from weft.renderer.cstyle import INFIX, Template, strip
from weft.renderer.groups import GroupStyle, Layout, call, group_sizes, is_written, word_of
from weft.uop.node import UOp
from weft.uop.opset import Ops

WEBGPU = Target(
    name="webgpu",
    cores=16,
    vector_bytes=16,
    vector_registers=32,
    has_fma=True,
    has_local=True,
    max_buffers=8,  # these are the limits that every device has
    index_dtype=dtypes.int32,
    group_threads=256,
    group_limits=(256, 256, 64),
    grid_limits=(65535, 65535, 65535),
    shared_bytes=16 << 10,
    warp_size=32,
)
_UNSIGNED = "u32"


class WGSLRenderer(GroupStyle):
    """WGSL without extensions."""

    name = "wgsl"
    suffix = "wgsl"
    has_longs = False
    type_names = {
        dtypes.bool: "bool",
        dtypes.int8: "i32",
        dtypes.uint8: "u32",
        dtypes.int16: "i32",
        dtypes.uint16: "u32",
        dtypes.int32: "i32",
        dtypes.uint32: "u32",
        dtypes.float32: "f32",
    }
    vector_ops = frozenset({Ops.ADD, Ops.MUL, Ops.FDIV, Ops.AND, Ops.OR, Ops.XOR})
    vector_kinds = ("float",)
    infinity = "infinity()"
    not_a_number = "not_a_number()"
    group_index = "i32(group.{axis})"
    thread_index = "i32(thread.{axis})"
    lane_counts = (2, 3, 4)

    def __init__(
        self,
        target: Target | None = None,
        has_starts: bool = False,
        written: frozenset[UOp] = frozenset(),
    ) -> None:
        super().__init__(target or WEBGPU)
        # Whether buffers may be parts of one memory: each then has a constant of the pipeline,
        # `start0`, `start1` ..., the element of its binding to start at, and is bound for writing,
        # for one memory is not bound both ways.
        self.has_starts = has_starts
        self.written = written  # buffers that the module stores to

    def render(self, name: str, uops: Sequence[UOp]) -> str:
        # one module is printed by a renderer of its own, which knows what it stores to
        written = frozenset([u.src[0].src[0] for u in uops if u.op is Ops.STORE])
        printer = WGSLRenderer(self.target, self.has_starts, written)
        return super(WGSLRenderer, printer).render(name, uops)

    def function_templates(self) -> dict[Ops, Template]:
        # a compiler of WGSL may rearrange floats, so polynomials that count on rounding are no use
        names = {Ops.TRUNC: "trunc", Ops.MULACC: "fma"}
        names |= {op: name for op, (name, _) in _TOTAL.items()}
        return {**{op: call(name) for op, name in names.items()}, Ops.MAX: _largest}

    def extra_buffers(self, uops: Sequence[UOp]) -> int:
        return 1 if program_variables(uops) else 0

    def layout(self, uops: Sequence[UOp]) -> Layout:
        """("written", slot), ("read", slot), or ("shared", slot) where it is read and yet bound for
        writing, and ("item", bytes of an element) of each binding; then for each word of the
        variables' binding ("word", 2 * number of the variable by name, plus 1 for its high half).
        """
        other = "shared" if self.has_starts else "read"
        found: list[tuple[str, int]] = []
        for param in program_params(uops):
            found.append(("written" if is_written(uops, param) else other, param.arg.slot))
            found.append(("item", param.dtype.itemsize))
        parts = [word_of(variable.arg.name) for variable in program_variables(uops)]
        numbers = {name: n for n, name in enumerate(sorted({name for name, _ in parts}))}
        return (*found, *[("word", 2 * numbers[name] + half) for name, half in parts])

    # ------------------------------------------------------------ the module
    def head(self, name: str, uops: Sequence[UOp], params: Sequence[UOp]) -> list[str]:
        lines = []
        for param in params:
            written = param in self.written
            access = "read_write" if written or self.has_starts else "read"
            element = self.type(param.dtype)
            if _is_packed(param):
                element = "atomic<u32>" if written else "u32"
            slot = param.arg.slot
            where = f"@group(0) @binding({slot}) var<storage, {access}>"
            lines.append(f"{where} data{slot}: array<{element}>;")
            if self.has_starts:
                lines.append(f"override start{slot}: i32 = 0;")
        variables = program_variables(uops)
        if variables:
            place = 1 + max((param.arg.slot for param in params), default=-1)
            lines.append(f"@group(0) @binding({place}) var<storage, read> variables: array<i32>;")
        for memory in [u for u in uops if u.op is Ops.LOCAL and u.arg.memory == "shared"]:
            kind = f"array<{self.type(memory.dtype)}, {memory.arg.size}>"
            lines.append(f"var<workgroup> buf{memory.arg.number}: {kind};")
        lines += _special_floats(uops)
        lines += [text for op, (_, text) in _TOTAL.items() if any([u.op is op for u in uops])]
        size = ", ".join(map(str, group_sizes(uops)))
        indices = "@builtin(workgroup_id) group: vec3<u32>"
        indices += ", @builtin(local_invocation_id) thread: vec3<u32>"
        lines += [f"@compute @workgroup_size({size})", f"fn {name}({indices}) {{"]
        for place, variable in enumerate(variables):
            word = f"variables[{place}]"
            if self.type(variable.dtype) == _UNSIGNED:
                word = f"bitcast<u32>({word})"
            lines.append(f"  let {variable.arg.name} = {word};")
        return lines

    def local_memory(self, memory: UOp, name: str) -> str | None:
        if memory.arg.memory == "shared":
            return None
        return f"var {name}: array<{self.type(memory.dtype)}, {memory.arg.size}>;"

    def barrier(self) -> str:
        return "workgroupBarrier();"

    # ------------------------------------------------------------ statements
    def declare(self, dtype: DType, name: str, value: str, changes: bool = False) -> str:
        return f"{'var' if changes else 'let'} {name}: {self.type(dtype)} = {value};"

    def loop(self, dtype: DType, name: str, start: str, stop: str) -> str:
        kind = self.type(dtype)
        return f"for (var {name}: {kind} = {start}; {name} < {stop}; {name}++) {{"

    def only_if(self, condition: str, statement: str) -> str:
        return f"if ({condition}) {{ {statement} }}"

    # ------------------------------------------------------------ types and constants
    def type(self, dtype: DType) -> str:
        if dtype.count == 1:
            return super().type(dtype)
        return f"vec{self.checked_lanes(dtype)}<{super().type(dtype.scalar())}>"

    def literal(self, value: float, dtype: DType) -> str:
        text = super().literal(value, dtype)
        if dtype.kind in ("float", "bool") and dtype in self.type_names:
            return text
        if self.type(dtype) == _UNSIGNED:
            return text if text.endswith("u") else f"{text}u"
        # a negative literal is the operator minus, which binds less than a method would expect
        return f"i32({int(value)})" if value < 0 else text

    def vector(self, dtype: DType, lanes: Sequence[str]) -> str:
        return f"{self.type(dtype)}({', '.join(lanes)})"

    # ------------------------------------------------------------ expressions
    def select(self, condition: str, yes: str, no: str) -> str:
        # both are computed; a read outside of memory is harmless in WGSL
        return f"select({strip(no)}, {strip(yes)}, {strip(condition)})"

    def own_form(self, uop: UOp, operands: tuple[str, ...]) -> str | None:
        op, dtype, source = uop.op, uop.dtype.scalar(), uop.src[0].dtype.scalar()
        x, y = operands[0], operands[-1]
        if source.kind == "bool" and op is Ops.CMPLT:
            return f"(!{x} & {y})"
        if source.kind == "bool" and op is Ops.XOR:
            return f"({x} != {y})"
        if op in (Ops.CMPNE, Ops.CMPEQ) and uop.src[0] is uop.src[1] and source.kind == "float":
            # whether it is a number; compilers may take for granted that all are
            compared = ">" if op is Ops.CMPNE else "<="
            return f"((bitcast<u32>({strip(x)}) & 0x7fffffffu) {compared} 0x7f800000u)"
        if dtype.kind not in ("int", "uint") or (op is not Ops.NEG and op not in INFIX):
            return None
        # integers wrap, as they should
        if op is Ops.NEG:
            text = f"({'0u ' if dtype.kind == 'uint' else ''}- {x})"
        elif op in (Ops.SHL, Ops.SHR):
            text = f"({x} {INFIX[op]} u32({strip(y)}))"
        elif op is Ops.MOD and uop.src[0].vmin < 0:
            # not all compilers of WGSL know that the result has the sign of x
            text = f"({x} - {x} / {y} * {y})"
        else:
            text = f"({x} {INFIX[op]} {y})"
        return self.narrowed(text, dtype) if op in _LEAVES_RANGE else text

    def narrowed(self, text: str, dtype: DType) -> str:
        """A 32-bit integer cut to the range of a narrower one."""
        if dtype.bitsize >= 32:
            return text
        if dtype.kind == "int":
            return f"extractBits({strip(text)}, 0u, {dtype.bitsize}u)"
        return f"({text} & {_mask(dtype)})"

    def convert(self, text: str, source: DType, target: DType) -> str:
        if target.kind == "bool":
            zero = {"f32": "0.0f", "u32": "0u", "i32": "0"}[self.type(source)]
            return f"({text} != {zero})"
        whole = f"{self.type(target)}({strip(text)})"
        is_integer = source.kind in ("int", "uint") and target.kind in ("int", "uint")
        return self.narrowed(whole, target) if is_integer else whole

    def reinterpret(self, text: str, source: DType, target: DType) -> str:
        whole = f"bitcast<{self.type(target)}>({strip(text)})"
        return self.narrowed(whole, target)

    # ------------------------------------------------------------ memory
    def started(self, memory: UOp, idx: str) -> str:
        """An index from where the buffer starts in what is bound: `x & 1` binds less than `+`."""
        if not self.has_starts or memory.op is not Ops.PARAM:
            return idx
        return f"start{memory.arg.slot} + {idx if idx.isalnum() else f'({idx})'}"

    def element(self, memory: UOp, name: str, idx: str) -> str:
        dtype, idx = memory.dtype, self.started(memory, idx)
        if not _is_packed(memory):
            return f"{name}[{idx}]"
        count, width = 4 // dtype.itemsize, 8 * dtype.itemsize
        word = f"{name}[u32({idx}) / {count}u]"
        if memory in self.written:
            word = f"atomicLoad(&{word})"
        if dtype.kind == "int":
            word = f"bitcast<i32>({word})"
        bits = f"extractBits({word}, u32({idx}) % {count}u * {width}u, {width}u)"
        return f"({bits} != 0u)" if dtype.kind == "bool" else bits

    def set_element(self, memory: UOp, name: str, idx: str, value: str) -> str:
        dtype, idx = memory.dtype, self.started(memory, idx)
        if not _is_packed(memory):
            return f"{name}[{idx}] = {value};"
        count, mask = 4 // dtype.itemsize, _mask(dtype)
        bits = f"u32({value})" if dtype.kind == "bool" else f"({value})"
        if dtype.kind == "int":
            bits = f"(bitcast<u32>({value}) & {mask})"
        word = f"&{name}[at / {count}u]"
        shift = f"at % {count}u * {8 * dtype.itemsize}u"
        clear = f"atomicAnd({word}, ~({mask} << ({shift})));"
        return f"{{ let at = u32({idx}); {clear} atomicOr({word}, {bits} << ({shift})); }}"


# results of these may need more bits than their operands
_LEAVES_RANGE = frozenset({Ops.ADD, Ops.MUL, Ops.NEG, Ops.SHL})


def _mask(dtype: DType) -> str:
    return f"{(1 << 8 * dtype.itemsize) - 1}u"


def _is_packed(memory: UOp) -> bool:
    """Whether several elements of a buffer share a word."""
    return memory.op is Ops.PARAM and memory.dtype.itemsize < 4


# WGSL leaves open what its functions give outside of their domains and for what is not finite:
# these look at the bits before they call them.
_TOTAL: dict[Ops, tuple[str, str]] = {
    Ops.MAX: (
        "largest",
        """fn largest(x: f32, y: f32) -> f32 {
  let first = bitcast<u32>(x);
  let second = bitcast<u32>(y);
  if ((first & 0x7fffffffu) > 0x7f800000u) { return x; }
  if ((second & 0x7fffffffu) > 0x7f800000u) { return y; }
  if (x == y) { return bitcast<f32>(first & second); }
  return select(x, y, x < y);
}""",
    ),
    Ops.SQRT: (
        "square_root",
        """fn square_root(x: f32) -> f32 {
  let bits = bitcast<u32>(x);
  if (bits >= 0x7f800000u && bits != 0x80000000u) { return special(x, bits < 0x80000000u); }
  return sqrt(x);
}
fn special(x: f32, keeps: bool) -> f32 {
  var none = 0x7fc00000u;
  return select(bitcast<f32>(none), x, keeps);
}""",
    ),
    Ops.EXP2: (
        "power_of_two",
        """fn power_of_two(x: f32) -> f32 {
  let bits = bitcast<u32>(x) & 0x7fffffffu;
  if (bits > 0x7f800000u) { return x; }
  var most = 0x7f800000u;
  if (x >= 128.0f) { return bitcast<f32>(most); }
  if (x < -150.0f) { return 0.0f; }
  return exp2(x);
}""",
    ),
    Ops.LOG2: (
        "logarithm",
        """fn logarithm(x: f32) -> f32 {
  let bits = bitcast<u32>(x);
  var least = 0xff800000u;
  var none = 0x7fc00000u;
  if ((bits & 0x7fffffffu) == 0u) { return bitcast<f32>(least); }
  if (bits > 0x7f800000u) { return bitcast<f32>(none); }
  if (bits == 0x7f800000u) { return x; }
  if (bits < 0x800000u) { return log2(x * 8388608.0f) - 23.0f; }
  return log2(x);
}""",
    ),
    Ops.SIN: (
        "sine",
        """fn sine(x: f32) -> f32 {
  let bits = bitcast<u32>(x) & 0x7fffffffu;
  var none = 0x7fc00000u;
  if (bits >= 0x7f800000u) { return bitcast<f32>(none); }
  return sin(x);
}""",
    ),
    Ops.POW: (
        "raised",
        """fn raised(x: f32, y: f32) -> f32 {
  let bits = bitcast<u32>(x);
  let size = bits & 0x7fffffffu;
  let power = bitcast<u32>(y) & 0x7fffffffu;
  var none = 0x7fc00000u;
  var most = 0x7f800000u;
  if (power == 0u || bits == 0x3f800000u) { return 1.0f; }
  if (size > 0x7f800000u || power > 0x7f800000u) { return bitcast<f32>(none); }
  let whole = power >= 0x4b800000u || (power >= 0x3f800000u && trunc(y) == y);
  let odd = whole && power < 0x4b800000u && (i32(abs(y)) & 1) == 1;
  let minus = odd && bits >= 0x80000000u;
  let sign = select(0u, 0x80000000u, minus);
  let grows = (size > 0x3f800000u) == (bitcast<u32>(y) < 0x80000000u);
  if (size == 0u || size == 0x7f800000u || (power == 0x7f800000u && size != 0x3f800000u)) {
    return bitcast<f32>(select(0u, most, grows) | sign);
  }
  if (power == 0x7f800000u || size == 0x3f800000u && whole) { return select(1.0f, -1.0f, minus); }
  if (bits >= 0x80000000u && !whole) { return bitcast<f32>(none); }
  return bitcast<f32>(bitcast<u32>(pow(bitcast<f32>(size), y)) | sign);
}""",
    ),
}


def _largest(operands: tuple[str, ...], dtype: DType) -> str:
    """MAX: NaN wins, and 0 over -0."""
    x, y = map(strip, operands)
    if dtype.kind == "bool":
        return f"({operands[0]} | {operands[1]})"
    if dtype.kind == "float" and dtype is not dtypes.float32:
        raise CompileError(f"MAX of {dtype} reached WGSL, where it is bits; compute it in float32")
    return f"{'largest' if dtype.kind == 'float' else 'max'}({x}, {y})"


def _special_floats(uops: Sequence[UOp]) -> list[str]:
    """Functions for what has no literal; through a variable, for a constant must be finite."""
    values = [u.arg for u in uops if u.op is Ops.CONST and u.dtype is dtypes.float32]
    lines = []
    for name, bits, is_used in (
        ("infinity", "0x7f800000u", any([math.isinf(value) for value in values])),
        ("not_a_number", "0x7fc00000u", any([math.isnan(value) for value in values])),
    ):
        if is_used:
            body = f"var bits = {bits}; return bitcast<f32>(bits);"
            lines.append(f"fn {name}() -> f32 {{ {body} }}")
    return lines
