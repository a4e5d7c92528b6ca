"""Fragments and copies in CUDA C, as functions around instructions of PTX.

In: WMMA, LOADs of matrices, FETCH, COMMIT and WAIT of a linear program. Out: the functions that it
needs, and their calls. Under `cuda.py`.
Invariant: a function does what one UOp says; buffers that begin anywhere are copied element by
element, asked at run time as for every wide access.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.dtype import DType
from weft.fragment import Fragment
from weft.uop.args import MatrixArg
from weft.uop.node import UOp
from weft.uop.opset import Ops

Type = Callable[[DType], str]

_INLINE = "static __device__ __forceinline__"
_ADDRESS = f"""{_INLINE} unsigned int shared_address(const void* p) {{
  return (unsigned int)__cvta_generic_to_shared(p);
}}"""
_FETCH = f"""template <int count, typename T>
{_INLINE} void fetch(T* to, const T* from, bool valid) {{
  const int size = count * (int)sizeof(T);
  if ((unsigned long long)from & (size - 1)) {{
    for (int k = 0; k < count; k++) to[k] = valid ? from[k] : T(0);
  }} else if (size == 16) {{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::
      "r"(shared_address(to)), "l"(from), "r"(valid ? 16 : 0) : "memory");
  }} else {{
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::
      "r"(shared_address(to)), "l"(from), "n"(size == 16 ? 8 : size), "r"(valid ? size : 0)
      : "memory");
  }}
}}"""
_WORDS = "const unsigned int* {0}_words = (const unsigned int*)&{0};"


def is_own(uop: UOp) -> bool:
    """Whether a UOp is one of these."""
    if uop.op is Ops.LOAD:
        return isinstance(uop.arg, MatrixArg)
    return uop.op in (Ops.WMMA, Ops.FETCH, Ops.COMMIT, Ops.WAIT)


def fragment_helpers(uops: Sequence[UOp], type_of: Type) -> list[str]:
    """The functions that a program calls."""
    found: dict[str, None] = {}
    for uop in uops:
        if uop.op is Ops.WMMA:
            found[_multiply(uop, type_of)] = None
        elif uop.op is Ops.LOAD and isinstance(uop.arg, MatrixArg):
            found[_ADDRESS] = None
            found[_load_matrices(uop.arg)] = None
        elif uop.op is Ops.FETCH:
            found[_ADDRESS] = None
            found[_FETCH] = None
    return list(found)


def own_statement(
    uop: UOp, name: str, operands: Sequence[tuple[str, str | None]], type_of: Type
) -> str:
    """The statement for a UOp whose value is called `name`; operands come with conditions."""
    texts = [text for text, _ in operands]
    if uop.op is Ops.WMMA:
        return f"{type_of(uop.dtype)} {name} = {_name(uop.arg)}({', '.join(texts)});"
    if uop.op is Ops.LOAD:
        kind = type_of(uop.dtype)
        return f"{kind} {name} = {_matrix_name(uop.arg)}<{kind}>({texts[0]});"
    if uop.op is Ops.FETCH:
        (to, only_if), (source, valid) = operands
        call = f"fetch<{uop.arg}>({to}, {source}, {valid or 'true'});"
        return call if only_if is None else f"if ({only_if}) {call}"
    if uop.op is Ops.COMMIT:
        return 'asm volatile("cp.async.commit_group;" ::: "memory");'
    return f'asm volatile("cp.async.wait_group %0;" :: "n"({uop.arg[0]}) : "memory");'


def _name(fragment: Fragment) -> str:
    return fragment.name.replace(".", "_")


def _multiply(uop: UOp, type_of: Type) -> str:
    fragment: Fragment = uop.arg
    a, b, c = [type_of(source.dtype) for source in uop.src]
    word = 4 // fragment.a_dtype.itemsize
    counts = [fragment.a.count // word, fragment.b.count // word // fragment.repeats]
    sums = fragment.c.count // fragment.repeats
    letter = "f" if fragment.c_dtype.kind == "float" else "r"
    groups, first = [], 0
    for count in (sums, *counts):
        groups.append("{" + ", ".join([f"%{first + i}" for i in range(count)]) + "}")
        first += count
    text = f"{fragment.name} {', '.join(groups)}, {groups[0]};"
    lines = [f"{_INLINE} {c} {_name(fragment)}({a} a, {b} b, {c} c) {{"]
    if not fragment.exact:
        lines += [_rounded(operand, count) for operand, count in (("a", a), ("b", b))]
    lines += [f"  {_WORDS.format('a')}", f"  {_WORDS.format('b')}"]
    for part in range(fragment.repeats):
        outputs = [f'"+{letter}"(c.lane[{part * sums + i}])' for i in range(sums)]
        inputs = [f'"r"(a_words[{i}])' for i in range(counts[0])]
        inputs += [f'"r"(b_words[{part * counts[1] + i}])' for i in range(counts[1])]
        lines.append(f'  asm("{text}" : {", ".join(outputs)} : {", ".join(inputs)});')
    return "\n".join([*lines, "  return c;", "}"])


def _rounded(operand: str, kind: str) -> str:
    """The instruction cuts off what it has no room for: it is rounded before."""
    return (
        f"  for (unsigned k = 0; k < sizeof({kind}) / 4; k++) {{ unsigned word; "
        f'asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"({operand}.lane[k])); '
        f"{operand}.lane[k] = __uint_as_float(word); }}"
    )


def _matrix_name(arg: MatrixArg) -> str:
    return f"load_matrices_{arg.count}{'_transposed' if arg.transposed else ''}"


def _load_matrices(arg: MatrixArg) -> str:
    turn = ".trans" if arg.transposed else ""
    places = ", ".join([f"%{i}" for i in range(arg.count)])
    outputs = ", ".join([f'"=r"(words[{i}])' for i in range(arg.count)])
    return f"""template <typename V, typename T>
{_INLINE} V {_matrix_name(arg)}(const T* p) {{
  V v;
  unsigned int* words = (unsigned int*)&v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x{arg.count}{turn}.shared.b16 "
    "{{{places}}}, [%{arg.count}];"
    : {outputs} : "r"(shared_address(p)) : "memory");
  return v;
}}"""
