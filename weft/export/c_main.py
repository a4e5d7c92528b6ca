"""A model as a program: `main` of exported C.

In: a plan. Out: text: raw arrays are read from files and outputs written to standard output.
Sits under `write_c`.
Invariant: its exit code is the model's error code; 2 and a line of usage where words are missing.
"""

from __future__ import annotations

from weft.export.c_frame import bytes_text
from weft.export.c_text import c_type
from weft.export.plan import Plan

_HEAD = (
    "#ifndef WEFT_NO_MAIN",
    "/* ---------------------------------------------------------------- as a program */",
    "static int read_array(const char *path, void *data, size_t bytes) {",
    '  FILE *file = fopen(path, "rb");',
    "  if (file == NULL) return 0;",
    "  const size_t got = fread(data, 1, bytes, file);",
    "  fclose(file);",
    "  return got == bytes;",
    "}",
    "",
)


def main_text(plan: Plan, has_weights_file: bool) -> str:
    """`main`: raw arrays in files, raw outputs to standard output."""
    name, upper = plan.name, plan.name.upper()
    names = [v.name for v in plan.inputs] + [f"{s.name}" for s in plan.sizes]
    weights = ["WEIGHTS"] if has_weights_file else []
    usage = " ".join(
        [*weights, *[f"{v.name}.bin" for v in plan.inputs], *[s.name for s in plan.sizes]]
    )
    first = 1 + len(weights)
    count = first + len(names)
    lines = [
        *_HEAD,
        "int main(int count, char **words) {",
        f"  if (count != {count}) {{",
        f'    fprintf(stderr, "usage: %s {usage} > outputs\\n", words[0]);',
        "    return 2;",
        "  }",
        f"  {name} *self = NULL;",
    ]
    create = f"{name}_load(words[1], &self)" if has_weights_file else f"{name}_create(&self)"
    lines.append(f"  int code = {create};")
    values = (*plan.inputs, *plan.outputs)
    for value in values:
        memory = plan.memories[value.memory]
        kind = c_type(memory.dtype)
        lines.append(f"  {kind} *{value.name} = ({kind} *)calloc({memory.size}, sizeof({kind}));")
    nothing = " || ".join(f"{v.name} == NULL" for v in values)
    lines.append(f"  if (code == {upper}_OK && ({nothing})) code = {upper}_ERROR_MEMORY;")
    for position, size in enumerate(plan.sizes, first + len(plan.inputs)):
        lines.append(f"  const int64_t {size.name} = strtoll(words[{position}], NULL, 10);")
        wrong = f"{size.name} < {size.low} || {size.name} > {size.high}"
        lines.append(f"  if (code == {upper}_OK && ({wrong})) code = {upper}_ERROR_SIZE;")
    for position, value in enumerate(plan.inputs, first):
        lines.append(
            f"  if (code == {upper}_OK && !read_array(words[{position}], {value.name}, "
            f"{bytes_text(plan, value)})) code = {upper}_ERROR_BYTES;"
        )
    given = ", ".join(
        [
            "self",
            *[v.name for v in plan.inputs],
            *[s.name for s in plan.sizes],
            *[v.name for v in plan.outputs],
        ]
    )
    lines.append(f"  if (code == {upper}_OK) code = {name}_run({given});")
    for value in plan.outputs:
        write = f"fwrite({value.name}, 1, {bytes_text(plan, value)}, stdout);"
        lines.append(f"  if (code == {upper}_OK) {write}")
    lines.append(f'  if (code != {upper}_OK) fprintf(stderr, "%s\\n", {name}_error(code));')
    lines += [f"  free({value.name});" for value in values]
    lines += [f"  {name}_destroy(self);", "  return code;", "}", "#endif"]
    return "\n".join(lines)
