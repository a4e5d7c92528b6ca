"""Fragments and copies in CUDA C, as functions around instructions of PTX.

In: WMMA, SETTLE, SHUFFLE, LOADs of matrices and tiles, FETCH, COMMIT and WAIT of a linear program.
Out: the functions that it needs, and their calls. Under `cuda.py`.
Invariant: a function does what one UOp says; buffers that begin anywhere are copied element by
element, asked at run time as for every wide access.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.dtype import DType
from weft.fragment import SWIZZLED_BYTES, SWIZZLED_ROWS, Fragment
from weft.uop.args import MatrixArg, TileArg
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
# what threads wrote is seen by products that read it by themselves
SEEN_BY_PRODUCTS = 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");'
# bytes that stay together among swizzled rows, which is the unit of addresses of tiles too
_UNIT = 16
_SWIZZLED = f"""template <int size>
{_INLINE} int swizzled(int number) {{
  int at = number * size;
  return (at ^ ((at / {SWIZZLED_ROWS}) & {SWIZZLED_BYTES - _UNIT})) / size;
}}"""
_DESCRIBE = f"""{_INLINE} unsigned long long describe(const void* p, unsigned int far) {{
  return (unsigned long long)((shared_address(p) & 0x3FFFF) / {_UNIT})
    | (unsigned long long)(far / {_UNIT}) << 16
    | {SWIZZLED_BYTES * SWIZZLED_ROWS // _UNIT}ull << 32 | 1ull << 62;
}}"""
_WORDS = "const unsigned int* {0}_words = (const unsigned int*)&{0};"


def is_own(uop: UOp) -> bool:
    """Whether a UOp is one of these."""
    if uop.op is Ops.LOAD:
        return isinstance(uop.arg, (MatrixArg, TileArg))
    return uop.op in (Ops.WMMA, Ops.SHUFFLE, Ops.FETCH, Ops.COMMIT, Ops.WAIT, Ops.SETTLE)


def products_go_on(uops: Sequence[UOp]) -> bool:
    """Whether products of a program read shared memory by themselves."""
    return any([uop.op is Ops.WMMA and uop.arg.in_shared for uop in uops])


def fragment_helpers(uops: Sequence[UOp], type_of: Type) -> list[str]:
    """The functions that a program calls."""
    found: dict[str, None] = {}
    if products_go_on(uops):
        found = dict.fromkeys([_SWIZZLED, _ADDRESS, _DESCRIBE])
    for uop in uops:
        if uop.op is Ops.WMMA and uop.arg.in_shared:
            found[_multiply_tiles(uop, type_of)] = None
        elif uop.op is Ops.SETTLE and uop.src:
            for source in uop.src:
                found[_settle(source.dtype, type_of)] = None
        elif uop.op is Ops.WMMA:
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
    if uop.op is Ops.WMMA and uop.arg.in_shared:
        a, b, c = texts
        return f"{type_of(uop.dtype)} {name} = {c}; {_tile_name(uop)}({name}, {a}, {b});"
    if uop.op is Ops.SETTLE:
        wait = f'asm volatile("wgmma.wait_group.sync.aligned {uop.arg[0]};" ::: "memory");'
        return " ".join([wait, *[f"settle({text});" for text in texts]])
    if uop.op is Ops.LOAD and isinstance(uop.arg, TileArg):
        far = uop.arg.far * uop.dtype.itemsize or _UNIT
        return f"unsigned long long {name} = describe({texts[0]}, {far});"
    if uop.op is Ops.WMMA:
        return f"{type_of(uop.dtype)} {name} = {_name(uop.arg)}({', '.join(texts)});"
    if uop.op is Ops.SHUFFLE:
        return f"{type_of(uop.dtype)} {name} = __shfl_xor_sync(0xffffffffu, {texts[0]}, {uop.arg});"
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


def is_turned(tile: TileArg) -> bool:
    """Whether neighbours are along the side of an operand."""
    return tile.term != 1


def _tile_name(product: UOp) -> str:
    turns = [int(is_turned(load.arg)) for load in product.src[:2]]
    return f"{_name(product.arg)}_{turns[0]}{turns[1]}"


def _multiply_tiles(uop: UOp, type_of: Type) -> str:
    """Instructions along the terms, all in one."""
    fragment: Fragment = uop.arg
    c, count = type_of(uop.dtype), fragment.c.count
    letter = "f" if fragment.c_dtype.kind == "float" else "r"
    sums = "{" + ", ".join([f"%{i}" for i in range(count)]) + "}"
    scales = ", 1, 1" if letter == "f" else ""
    if fragment.takes_turned:
        scales += "".join([f", {int(is_turned(load.arg))}" for load in uop.src[:2]])
    text, inputs = ['"wgmma.fence.sync.aligned;"'], []
    for part in range(fragment.repeats):
        places = [f"%{count + 2 * part + side}" for side in (0, 1)]
        text.append(f'"{fragment.name} {sums}, {places[0]}, {places[1]}, 1{scales};"')
        for name, load in zip("ab", uop.src[:2], strict=True):
            step = fragment.k // fragment.repeats * load.arg.term * load.dtype.itemsize // _UNIT
            inputs.append(f'"l"({name} + {part * step})')
    text.append('"wgmma.commit_group.sync.aligned;"')
    outputs = ", ".join([f'"+{letter}"(c.lane[{i}])' for i in range(count)])
    head = f"{_INLINE} void {_tile_name(uop)}({c}& c, unsigned long long a, unsigned long long b)"
    body = f'asm volatile({" ".join(text)} : {outputs} : {", ".join(inputs)} : "memory");'
    return f"{head} {{ {body} }}"


def _settle(dtype: DType, type_of: Type) -> str:
    """What is waited for changes there, so that nobody reads it before."""
    letter = "f" if dtype.kind == "float" else "r"
    outputs = ", ".join([f'"+{letter}"(c.lane[{i}])' for i in range(dtype.count)])
    body = f'asm volatile("" : {outputs} :: "memory");'
    return f"{_INLINE} void settle({type_of(dtype)}& c) {{ {body} }}"


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
