"""The frame of exported C: its header, its context, errors, random keys, threads, `main`.

In: a plan. Out: text that does not depend on what the kernels compute.
Sits under `write_c`.
Invariant: what a caller may get wrong is an error code; a context is one block of memory.
"""

from __future__ import annotations

import numpy as np

from weft.export.c_text import c_type, size_text
from weft.export.plan import STATE, Plan, Value
from weft.helpers import prod
from weft.uop.node import UOp

ERRORS = (
    ("OK", "no error"),
    ("ERROR_NULL", "a pointer is NULL"),
    ("ERROR_SIZE", "a size is outside of its bounds"),
    ("ERROR_ALIGNMENT", "an array does not begin at a multiple of its element's size"),
    ("ERROR_OVERLAP", "an output overlaps an input or another output"),
    ("ERROR_MEMORY", "there is not enough memory"),
    ("ERROR_WEIGHTS", "the weights are not those of this model"),
    ("ERROR_BYTES", "an array is too small, or their number is wrong"),
)
_SEED_KEY = 0x14B81119


def parameters(plan: Plan) -> list[str]:
    """What `run` takes, as C declares it."""
    taken = [f"{plan.name} *self"]
    for value in plan.inputs:
        taken.append(f"const {c_type(plan.memories[value.memory].dtype)} *{value.name}")
    taken += [f"int64_t {size.name}" for size in plan.sizes]
    for value in plan.outputs:
        taken.append(f"{c_type(plan.memories[value.memory].dtype)} *{value.name}")
    return taken


def signature(plan: Plan) -> str:
    """`int name_run(name *self, const float *x, int64_t n, float *output)`"""
    return f"int {plan.name}_run({', '.join(parameters(plan))})"


def _shape(value: Value) -> str:
    return "".join(f"[{size.render() if isinstance(size, UOp) else size}]" for size in value.shape)


def bytes_text(plan: Plan, value: Value) -> str:
    """How many bytes of an array a call touches."""
    width = plan.memories[value.memory].dtype.itemsize
    fixed = width * prod([size for size in value.shape if isinstance(size, int)])
    sizes = [size_text(size) for size in value.shape if isinstance(size, UOp)]
    return " * ".join([str(fixed), *[f"(size_t){size}" for size in sizes]])


# ------------------------------------------------------------ the header
def header_text(plan: Plan, weights: bytes | None, stem: str, threads: int) -> str:
    """NAME.h"""
    name, upper = plan.name, plan.name.upper()
    guard = f"WEFT_{upper}_H"
    lines = [
        f"/* {stem}.h: {name}, written by weft. A context is one block of memory; different",
        "   contexts may be used by different threads at the same time. */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#include <stddef.h>",
        "#include <stdint.h>",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        f"typedef struct {name} {name};",
        "",
        "enum {",
    ]
    for number, (code, text) in enumerate(ERRORS):
        lines.append(f"  {upper}_{code} = {number}, /* {text} */")
    lines += ["};", ""]
    for value in (*plan.inputs, *plan.outputs):
        memory = plan.memories[value.memory]
        lines.append(f"#define {upper}_{value.name.upper()}_COUNT {memory.size} /* elements */")
    lines += ["", "/* The bytes of a context. */", f"size_t {name}_bytes(void);", ""]
    lines += _create_declarations(plan, weights, stem, threads)
    lines += ["", *_run_comment(plan), f"{signature(plan)};", ""]
    lines += [
        "/* The same over arrays in the order above, with the bytes that each has room for. */",
        f"{_checked_signature(name)};",
        "",
    ]
    if plan.events:
        lines += [
            "/* Random numbers begin anew: those of weft after Tensor.manual_seed(seed). */",
            f"void {name}_seed({name} *self, int64_t seed);",
            "",
        ]
    lines += [
        "/* What a code means. */",
        f"const char *{name}_error(int code);",
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def _create_declarations(plan: Plan, weights: bytes | None, stem: str, threads: int) -> list[str]:
    name = plan.name
    given = "" if weights is None else "const void *weights, size_t weight_bytes, "
    lines = [
        f"/* A new context{_thread_words(threads)}; free it with {name}_destroy. */",
    ]
    if weights is None:
        lines.append(f"int {name}_create({name} **made);")
    else:
        lines[0] = (
            f"/* A new context over the contents of {stem}.bin, which stay the caller's and begin "
            "at a\n   multiple of 64 bytes, or over that file; free it with "
            f"{name}_destroy. */"
        )
        lines.append(f"int {name}_create({given}{name} **made);")
        lines.append(f"int {name}_load(const char *path, {name} **made);")
    lines += [
        f"/* A context in memory of the caller's, of {name}_bytes() bytes; it needs no free. */"
        if threads == 1
        else f"/* A context in memory of the caller's, of {name}_bytes() bytes; destroy it too. */",
        f"int {name}_create_in(void *memory, size_t bytes, {given}{name} **made);",
        f"void {name}_destroy({name} *self);",
        "/* The state as it was in the beginning. */",
        f"int {name}_reset({name} *self);",
    ]
    return lines


def _thread_words(threads: int) -> str:
    return f" with {threads - 1} threads beside the caller's" if threads > 1 else ""


def _run_comment(plan: Plan) -> list[str]:
    lines = ["/* One call. All arrays are whole and row by row:"]
    for value in (*plan.inputs, *plan.outputs):
        arrow = "->" if value in plan.outputs else "  "
        kind = plan.memories[value.memory].dtype
        lines.append(
            f"     {arrow} {value.name}{_shape(value)}  {str(kind).removeprefix('dtypes.')}"
        )
    for size in plan.sizes:
        lines.append(f"        {size.name} from {size.low} to {size.high}")
    states = [memory.name for memory in plan.of_kind(STATE)]
    if states:
        lines.append(f"   It keeps: {', '.join(states)}.")
    lines[-1] += " */"
    return lines


# ------------------------------------------------------------ the context
def frame_text(plan: Plan, weights: bytes | None, has_pool: bool, threads: int) -> str:
    """Everything between the kernels and `run`."""
    name, upper = plan.name, plan.name.upper()
    struct = [
        "/* ---------------------------------------------------------------- the context */",
        f"struct {name} {{",
        "  unsigned char *states, *arena;",
        "  void *block; /* to be freed, or NULL */",
    ]
    if weights is not None:
        struct.append("  const unsigned char *weights;")
    if plan.events:
        struct.append("  uint64_t seed_key, counter;")
    if has_pool:
        struct.append("  struct pool pool;")
    struct += ["};", ""]
    total = f"sizeof({name}) + 64 + {plan.state_bytes} + {plan.arena_bytes} + 64"
    parts = [
        "\n".join(struct),
        f"size_t {name}_bytes(void) {{ return {total}; }}",
        _errors(name, upper),
        _random(plan) if plan.events else "",
        _reset(plan, upper),
        _create(plan, weights, has_pool),
        _overlap(name),
        _divide() if plan.claims or _has_symbolic(plan) else "",
    ]
    return "\n\n".join([part for part in parts if part])


def _has_symbolic(plan: Plan) -> bool:
    values = (*plan.inputs, *plan.outputs)
    return any(isinstance(size, UOp) for value in values for size in value.shape)


def _errors(name: str, upper: str) -> str:
    cases = "\n".join(f'    case {upper}_{code}: return "{text}";' for code, text in ERRORS)
    head = f"const char *{name}_error(int code) {{\n  switch (code) {{\n{cases}\n"
    return f'{head}    default: return "an unknown error";\n  }}\n}}'


def _overlap(name: str) -> str:
    return (
        f"static int {name}_overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes) "
        "{\n  uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;\n"
        "  return x < y + b_bytes && y < x + a_bytes;\n}"
    )


def _divide() -> str:
    return (
        "/* towards minus infinity; 0 where the divisor is */\n"
        "static inline int64_t size_divide(int64_t x, int64_t y) {\n"
        "  if (y == 0) return 0;\n"
        "  return x / y - ((x % y != 0) & ((x < 0) != (y < 0)));\n}"
    )


def _random(plan: Plan) -> str:
    name = plan.name
    lines = [
        "/* Threefry-2x32 of 20 rounds: Salmon et al., Parallel random numbers (2011). */",
        "static uint64_t threefry(uint64_t counter, uint64_t key) {",
        "  static const unsigned turns[8] = {13, 15, 26, 6, 17, 29, 16, 24};",
        "  uint32_t k[3] = {(uint32_t)key, (uint32_t)(key >> 32), 0};",
        "  uint32_t a = (uint32_t)counter + k[0], b = (uint32_t)(counter >> 32) + k[1];",
        "  k[2] = 0x1BD11BDAu ^ k[0] ^ k[1];",
        "  for (unsigned group = 0; group < 5; group++) {",
        "    for (unsigned i = 0; i < 4; i++) {",
        "      unsigned turn = turns[group % 2 * 4 + i];",
        "      a += b;",
        "      b = (b << turn | b >> (32 - turn)) ^ a;",
        "    }",
        "    a += k[(group + 1) % 3];",
        "    b += k[(group + 2) % 3] + group + 1;",
        "  }",
        "  return (uint64_t)b << 32 | a;",
        "}",
        "",
        "static uint64_t seed_key(int64_t seed) {",
        "  uint64_t bits = (uint64_t)seed;",
        "  uint64_t high = seed >= -0xFFFFFFFFll && seed <= 0xFFFFFFFFll ? 0 : bits >> 32;",
        f"  return (({hex(_SEED_KEY)}u ^ high) & 0xFFFFFFFFu) | bits << 32;",
        "}",
        "",
        f"void {name}_seed({name} *self, int64_t seed) {{",
        "  if (self == NULL) return;",
        "  self->seed_key = seed_key(seed);",
        "  self->counter = 0;",
        "}",
        "",
        f"static void {name}_draw({name} *self, uint32_t *keys) {{",
    ]
    number = 0
    for kind, value in plan.events:
        if kind == "seed":
            lines.append(f"  {name}_seed(self, {_seed_literal(value)});")
            continue
        lines.append("  { uint64_t key = threefry(self->counter, self->seed_key);")
        lines.append(f"    keys[{2 * number}] = (uint32_t)key;")
        lines.append(f"    keys[{2 * number + 1}] = (uint32_t)(key >> 32);")
        lines.append(f"    self->counter += {value}u; }}")
        number += 1
    if number == 0:
        lines.append("  (void)keys;")
    return "\n".join([*lines, "}"])


def _seed_literal(seed: int) -> str:
    return f"{signed_seed(seed)}ll"


def signed_seed(seed: int) -> int:
    """A seed in 64 bits, as two's complement; no literal of C is the least of them."""
    low = seed & ((1 << 64) - 1)
    found = low - (1 << 64) if low >> 63 else low
    return max(found, -(1 << 63) + 1)


def _reset(plan: Plan, upper: str) -> str:
    lines = [
        f"int {plan.name}_reset({plan.name} *self) {{",
        f"  if (self == NULL) return {upper}_ERROR_NULL;",
    ]
    for memory in plan.of_kind(STATE):
        place = f"self->states + {memory.offset}"
        if memory.contents is not None and any(memory.contents):
            lines.append(f"  memcpy({place}, start_of_{memory.name}, {memory.nbytes});")
        else:
            lines.append(f"  memset({place}, 0, {memory.nbytes});")
    if plan.events:
        lines.append(f"  {plan.name}_seed(self, {_seed_literal(plan.seed)});")
        lines.append(f"  self->counter = {plan.counter}u;")
    return "\n".join([*lines, f"  return {upper}_OK;", "}"])


def _weight_sums(weights: bytes) -> tuple[int, int]:
    """What the words of a file add up to, and what those sums do, in 64 bits (Fletcher, 1982): any
    word that is changed, and any two that change places, are found."""
    words = np.frombuffer(weights, "<u8")
    return int(words.sum(dtype=np.uint64)), int(words.cumsum(dtype=np.uint64).sum(dtype=np.uint64))


def _weight_check(upper: str, weights: bytes) -> list[str]:
    first, second = _weight_sums(weights)
    return [
        "  uint64_t first = 0, second = 0;",
        f"  for (size_t i = 0; i < {len(weights)}; i += 8) {{",
        "    uint64_t word;",
        "    memcpy(&word, (const unsigned char *)weights + i, 8);",
        "    first += word;",
        "    second += first;",
        "  }",
        f"  if (first != {first}ull || second != {second}ull) return {upper}_ERROR_WEIGHTS;",
    ]


def _create(plan: Plan, weights: bytes | None, has_pool: bool) -> str:
    name, upper = plan.name, plan.name.upper()
    given = "" if weights is None else "const void *weights, size_t weight_bytes, "
    passed = "" if weights is None else "weights, weight_bytes, "
    lines = [
        f"int {name}_create_in(void *memory, size_t bytes, {given}{name} **made) {{",
        f"  if (memory == NULL || made == NULL) return {upper}_ERROR_NULL;",
        "  *made = NULL;",
        f"  if (bytes < {name}_bytes()) return {upper}_ERROR_BYTES;",
    ]
    if weights is not None:
        lines += [
            f"  if (weights == NULL) return {upper}_ERROR_NULL;",
            f"  if ((uintptr_t)weights % 64) return {upper}_ERROR_ALIGNMENT;",
            f"  static const unsigned char head[{40}] = {{",
            "    " + ", ".join(str(byte) for byte in weights[:40]),
            "  };",
            "  const uint16_t order = 1;",
            f"  if (weight_bytes != {len(weights)} || memcmp(weights, head, 40) != 0 ||",
            f"      *(const unsigned char *)&order != 1) return {upper}_ERROR_WEIGHTS;",
            *_weight_check(upper, weights),
        ]
    lines += [
        "  unsigned char *start = (unsigned char *)memory;",
        "  start += (64 - (uintptr_t)start % 64) % 64;",
        f"  {name} *self = ({name} *)(void *)start;",
        f"  self->states = start + (sizeof({name}) + 63) / 64 * 64;",
        f"  self->arena = self->states + {plan.state_bytes};",
        "  self->block = NULL;",
    ]
    if weights is not None:
        lines.append("  self->weights = (const unsigned char *)weights;")
    lines.append(f"  {name}_reset(self);")
    if has_pool:
        lines.append("  pool_start(&self->pool);")
    lines += ["  *made = self;", f"  return {upper}_OK;", "}", ""]
    lines += [
        f"int {name}_create({given}{name} **made) {{",
        f"  if (made == NULL) return {upper}_ERROR_NULL;",
        f"  void *block = malloc({name}_bytes());",
        f"  if (block == NULL) return {upper}_ERROR_MEMORY;",
        f"  int code = {name}_create_in(block, {name}_bytes(), {passed}made);",
        f"  if (code != {upper}_OK) {{ free(block); return code; }}",
        "  (*made)->block = block;",
        f"  return {upper}_OK;",
        "}",
        "",
    ]
    if weights is not None:
        lines += _load(name, upper, len(weights))
    lines += [
        f"void {name}_destroy({name} *self) {{",
        "  if (self == NULL) return;",
    ]
    if has_pool:
        lines.append("  pool_stop(&self->pool);")
    lines += ["  free(self->block);", "}"]
    return "\n".join(lines)


def _load(name: str, upper: str, size: int) -> list[str]:
    return [
        f"int {name}_load(const char *path, {name} **made) {{",
        f"  if (path == NULL || made == NULL) return {upper}_ERROR_NULL;",
        "  *made = NULL;",
        '  FILE *file = fopen(path, "rb");',
        f"  if (file == NULL) return {upper}_ERROR_WEIGHTS;",
        f"  const size_t own = ({name}_bytes() + 63) / 64 * 64;",
        f"  unsigned char *block = (unsigned char *)malloc(own + {size} + 64);",
        f"  if (block == NULL) {{ fclose(file); return {upper}_ERROR_MEMORY; }}",
        "  unsigned char *weights = block + own;",
        "  weights += (64 - (uintptr_t)weights % 64) % 64;",
        f"  const size_t got = fread(weights, 1, {size}, file);",
        "  const int more = fgetc(file) != EOF;",
        "  fclose(file);",
        f"  int code = got == {size} && !more ? {upper}_OK : {upper}_ERROR_WEIGHTS;",
        f"  if (code == {upper}_OK) code = {name}_create_in(block, own, weights, got, made);",
        f"  if (code != {upper}_OK) {{ free(block); return code; }}",
        "  (*made)->block = block;",
        f"  return {upper}_OK;",
        "}",
        "",
    ]


# ------------------------------------------------------------ arrays with their bytes
def _checked_signature(name: str) -> str:
    taken = (
        f"{name} *self, const void *const *inputs, const size_t *input_bytes, size_t input_count,",
        "    const int64_t *sizes, size_t size_count, void *const *outputs, "
        "const size_t *output_bytes,",
        "    size_t output_count",
    )
    return f"int {name}_run_checked({chr(10).join(taken)})"


def checked_text(plan: Plan) -> str:
    """`run_checked`: the caller says how large its arrays are."""
    name, upper = plan.name, plan.name.upper()
    lines = [
        f"{_checked_signature(name)} {{",
        f"  if (input_count != {len(plan.inputs)} || size_count != {len(plan.sizes)} ||",
        f"      output_count != {len(plan.outputs)}) return {upper}_ERROR_BYTES;",
    ]
    for kind, values in (("input", plan.inputs), ("output", plan.outputs)):
        if values:
            lines.append(
                f"  if ({kind}s == NULL || {kind}_bytes == NULL) return {upper}_ERROR_NULL;"
            )
    if plan.sizes:
        lines.append(f"  if (sizes == NULL) return {upper}_ERROR_NULL;")
    else:
        lines.append("  (void)sizes;")
    if not plan.outputs:
        lines.append("  (void)outputs; (void)output_bytes;")
    for position, size in enumerate(plan.sizes):
        lines.append(f"  const int64_t {size.name} = sizes[{position}];")
        wrong = f"{size.name} < {size.low} || {size.name} > {size.high}"
        lines.append(f"  if ({wrong}) return {upper}_ERROR_SIZE;")
    for kind, values in (("input", plan.inputs), ("output", plan.outputs)):
        for position, value in enumerate(values):
            # kernels may read what is behind the last element of a part: all of a memory is asked
            nbytes = plan.memories[value.memory].nbytes
            lines.append(f"  if ({kind}_bytes[{position}] < {nbytes}u) return {upper}_ERROR_BYTES;")
    given = ["self"]
    for position, value in enumerate(plan.inputs):
        kind = c_type(plan.memories[value.memory].dtype)
        given.append(f"(const {kind} *)inputs[{position}]")
    given += [size.name for size in plan.sizes]
    for position, value in enumerate(plan.outputs):
        kind = c_type(plan.memories[value.memory].dtype)
        given.append(f"({kind} *)outputs[{position}]")
    lines.append(f"  return {name}_run({', '.join(given)});")
    return "\n".join([*lines, "}"])
