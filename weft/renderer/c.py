"""GNU C99, with the CPU's calling convention.

In: a linear program. Out: `void name(void** args, int64_t begin, int64_t end)`, as text.
Invariant: what C leaves undefined is not printed; `cstyle` and the decompositions see to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.dtype import DType, dtypes
from weft.renderer.base import program_variables
from weft.renderer.cstyle import CStyle, Template, strip
from weft.uop.node import UOp
from weft.uop.opset import Ops


def _call(name: str) -> Template:
    """A function of the compiler's own, with the suffix f for float."""

    def write(operands: tuple[str, ...], dtype: DType) -> str:
        suffix = "f" if dtype is dtypes.float32 else ""
        return f"__builtin_{name}{suffix}({', '.join(map(strip, operands))})"

    return write


class CRenderer(CStyle):
    """GNU C99, which GCC and Clang take. Compile with -lm; no other file is needed."""

    name = "c"
    vector_ops = frozenset({Ops.ADD, Ops.MUL, Ops.FDIV, Ops.AND, Ops.OR, Ops.XOR})
    infinity = "__builtin_inff()"
    not_a_number = '__builtin_nanf("")'

    def function_templates(self) -> dict[Ops, Template]:
        return {Ops.SQRT: _call("sqrt"), Ops.TRUNC: _call("trunc"), Ops.MULACC: _call("fma")}

    def head(self, name: str, uops: Sequence[UOp], params: Sequence[UOp]) -> list[str]:
        lines = ["#include <stdbool.h>", "#include <stdint.h>"]
        if any(uop.op is Ops.MUL and uop.dtype.kind == "float" for uop in uops):
            # a product rounds where it stands: a compiler must not fuse it with its sum
            lines.append("#pragma STDC FP_CONTRACT OFF")
        vectors = {uop.dtype for uop in uops if uop.dtype.count > 1}
        lines += self.vector_types(vectors)
        for source, target in self.reinterpreted(uops):
            before, after = self.type(source), self.type(target)
            function = f"static inline {after} {_bits_function(before, after)}({before} x)"
            body = f"{after} y; __builtin_memcpy(&y, &x, sizeof(y)); return y;"
            lines.append(f"{function} {{ {body} }}")
        lines.append(f"void {name}(void** args, int64_t begin, int64_t end) {{")
        lines.append("  (void)args; (void)begin; (void)end;")
        for param in params:
            kind = self.type(param.dtype)
            lines.append(f"  {kind}* data{param.arg.slot} = ({kind}*)args[{param.arg.slot}];")
        first = 1 + max((param.arg.slot for param in params), default=-1)
        for position, variable in enumerate(program_variables(uops)):
            kind = self.type(variable.dtype)
            value = f"((int64_t*)args)[{first + position}]"
            lines.append(f"  {kind} {variable.arg.name} = ({kind}){value};")
        return lines

    def vector_types(self, vectors: set[DType]) -> list[str]:
        """Typedefs. Their size is a power of two, so three lanes have room for four."""
        lines = {}
        for dtype in vectors:
            scalar = dtype.scalar()
            element = "uint8_t" if scalar.kind == "bool" else self.type(scalar)
            size = scalar.itemsize * (1 << (dtype.count - 1).bit_length())
            name = self.type(dtype)
            lines[name] = f"typedef {element} {name} __attribute__((vector_size({size})));"
        return [lines[name] for name in sorted(lines)]

    def reinterpreted(self, uops: Sequence[UOp]) -> list[tuple[DType, DType]]:
        """The pairs of types between which bits are reinterpreted, once each, in order."""
        pairs: dict[tuple[str, str], tuple[DType, DType]] = {}
        for uop in uops:
            if uop.op is Ops.BITCAST:
                source, target = uop.src[0].dtype.scalar(), uop.dtype.scalar()
                names = self.type(source), self.type(target)
                if names[0] != names[1]:
                    pairs.setdefault(names, (source, target))
        return list(pairs.values())

    def reinterpret(self, text: str, source: DType, target: DType) -> str:
        return f"{_bits_function(self.type(source), self.type(target))}({strip(text)})"

    def local_memory(self, memory: UOp, name: str) -> str:
        kind = self.type(memory.dtype)
        return f"{kind} {name}[{memory.arg.size}] __attribute__((aligned(64)));"

    def vector_load(self, name: str, dtype: DType, memory: UOp, base: str, idx: str) -> list[str]:
        kind, size = self.type(dtype), dtype.count * dtype.scalar().itemsize
        copy = f"__builtin_memcpy(&{name}, {base} + {idx}, {size});"
        return [f"{kind} {name} = {{0}};", copy]

    def vector_store(self, name: str, dtype: DType, memory: UOp, base: str, idx: str) -> list[str]:
        size = dtype.count * dtype.scalar().itemsize
        return [f"__builtin_memcpy({base} + {idx}, &{name}, {size});"]

    def float_literal(self, value: float, dtype: DType) -> str:
        text = super().float_literal(value, dtype)
        return (
            text.replace("inff", "inf").replace("nanf", "nan") if dtype is dtypes.float64 else text
        )


def _bits_function(before: str, after: str) -> str:
    return f"{before.removesuffix('_t')}_as_{after.removesuffix('_t')}"
