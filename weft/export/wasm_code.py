"""The frame of a WebAssembly export, as LLVM IR: `run`, `reset`, `seed` over fixed addresses.

In: a plan and where its memories are. Out: the text of a module that calls the kernels.
Sits under `write_wasm`.
Invariant: all addresses are constants of the module, so no caller can pass a wrong one; sizes are
checked before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.errors import ExportError
from weft.export.plan import CONSTANT, STATE, Copy, Draw, Launch, Plan
from weft.export.wasm_pool import POOL_BYTES, pool_ir
from weft.helpers import round_up
from weft.renderer.base import ProgramSpec
from weft.uop.node import UOp
from weft.uop.opset import Ops

# what `run` gives, as the C writer numbers them
OK, ERROR_SIZE = 0, 2
# nothing is at address 0
_FIRST = 1024
_ALIGNMENT = 64
_SEED_KEY = 0x14B81119


@dataclass
class Addresses:
    """Where everything is: memories by number, arguments of launches, the random state."""

    memories: dict[int, int] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)  # what a state begins with
    arguments: dict[int, int] = field(default_factory=dict)  # of a step
    random: int = 0
    keys: int = 0
    pool: int = 0
    end: int = 0


def place_all(plan: Plan, slots: Mapping[int, int]) -> Addresses:
    """Addresses one after another; `slots` are the words that each launch takes."""
    found = Addresses(end=_FIRST)

    def take(nbytes: int) -> int:
        at = found.end
        found.end = round_up(at + max(1, nbytes), _ALIGNMENT)
        return at

    found.random = take(16)
    found.pool = take(POOL_BYTES)
    draws = sum(kind == "draw" for kind, _ in plan.events)
    found.keys = take(16 * draws)
    for position, count in slots.items():
        found.arguments[position] = take(8 * count)
    for number, memory in enumerate(plan.memories):
        if memory.kind == STATE:
            found.memories[number] = take(memory.nbytes)
            if memory.contents is not None and any(memory.contents):
                found.starts[number] = take(memory.nbytes)
        elif memory.kind != "scratch":
            found.memories[number] = take(memory.nbytes)
    found.end = round_up(found.end, 256)
    arena = take(plan.arena_bytes)
    for number, memory in enumerate(plan.memories):
        if memory.kind == "scratch":
            found.memories[number] = arena + memory.offset
    return found


def fixed_data(plan: Plan, places: Addresses, has_constants: bool) -> dict[int, bytes]:
    """What is in memory from the beginning: constants, states, arguments of launches."""
    data: dict[int, bytes] = {}
    for number, memory in enumerate(plan.memories):
        if memory.kind == CONSTANT:
            assert memory.contents is not None
            if not has_constants or not any(memory.contents):
                continue
            data[places.memories[number]] = memory.contents
        elif number in places.starts:
            assert memory.contents is not None
            data[places.starts[number]] = memory.contents
            data[places.memories[number]] = memory.contents
    for position, at in places.arguments.items():
        step = plan.steps[position]
        assert isinstance(step, Launch)
        data[at] = b"".join(w.to_bytes(8, "little") for w in _words(plan, step, places))
    if plan.events:
        key = _seed_key(plan.seed)
        counter = plan.counter & ((1 << 64) - 1)
        data[places.random] = key.to_bytes(8, "little") + counter.to_bytes(8, "little")
    return data


def _words(plan: Plan, step: Launch, places: Addresses) -> list[int]:
    words = []
    for number, first in step.arguments:
        width = plan.memories[number].dtype.itemsize
        words.append(places.memories[number] + first * width)
    for value in step.values:
        words.append(value & ((1 << 64) - 1) if isinstance(value, int) else 0)
    return words


def _seed_key(seed: int) -> int:
    high = 0 if abs(seed) <= 0xFFFFFFFF else seed >> 32
    return ((_SEED_KEY ^ high) & 0xFFFFFFFF) | (seed & 0xFFFFFFFF) << 32


# ------------------------------------------------------------ text
def pointer(address: int) -> str:
    """A constant address."""
    return f"ptr inttoptr (i32 {address} to ptr)"


class _Text:
    """IR while it is written."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0

    def emit(self, expression: str) -> str:
        """A new value."""
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"  {name} = {expression}")
        return name

    def write(self, line: str) -> None:
        """A statement."""
        self.lines.append(f"  {line}")

    def leave_if(self, condition: str, code: int) -> None:
        """Return a code where a condition holds."""
        self.count += 1
        number = self.count
        self.write(f"br i1 {condition}, label %wrong{number}, label %right{number}")
        self.lines += [f"wrong{number}:", f"  ret i32 {code}", f"right{number}:"]


def frame_ir(
    plan: Plan, specs: Mapping[int, ProgramSpec], places: Addresses, threads: int = 1
) -> str:
    """`run` takes the sizes as i32 and gives a code; `reset`; `seed` takes an i64; with threads
    `work`, in which workers stay."""
    names = sorted({plan.kernels[n].name for n in specs})
    lines = [f"declare void @{name}(ptr, i64, i64)" for name in names]
    lines.append("declare void @llvm.memcpy.p0.p0.i32(ptr, ptr, i32, i1)")
    lines.append("declare void @llvm.memset.p0.i32(ptr, i8, i32, i1)")
    if plan.events:
        lines += _threefry_ir()
    shared = [n for n in specs if specs[n].threads_n > 1] if threads > 1 else []
    if threads > 1:
        lines += pool_ir([plan.kernels[n].name for n in shared], places.pool, threads)
    lines += _run_ir(plan, specs, places, shared)
    lines += _reset_ir(plan, places)
    if plan.events:
        lines += _seed_ir(places)
    return "\n".join([*lines, ""])


def _run_ir(
    plan: Plan, specs: Mapping[int, ProgramSpec], places: Addresses, shared: Sequence[int]
) -> list[str]:
    body = _Text()
    sizes = {}
    for size in plan.sizes:
        low = body.emit(f"icmp slt i32 %{size.name}, {size.low}")
        high = body.emit(f"icmp sgt i32 %{size.name}, {size.high}")
        body.leave_if(body.emit(f"or i1 {low}, {high}"), ERROR_SIZE)
        sizes[size.name] = body.emit(f"sext i32 %{size.name} to i64")
    for claim in plan.claims:
        start, stop, end = (_size_ir(body, p, sizes) for p in (claim.start, claim.stop, claim.size))
        for less, more in (("0", start), (start, stop), (stop, end)):
            body.leave_if(body.emit(f"icmp slt i64 {more}, {less}"), ERROR_SIZE)
    _draw_ir(plan, body, places)
    for position, step in enumerate(plan.steps):
        if isinstance(step, Copy):
            nbytes = plan.memories[step.source].nbytes
            target, source = places.memories[step.target], places.memories[step.source]
            given = f"{pointer(target)}, {pointer(source)}, i32 {nbytes}, i1 false"
            body.write(f"call void @llvm.memcpy.p0.p0.i32({given})")
            continue
        at = places.arguments[position]
        for number, value in enumerate(step.values, len(step.arguments)):
            place = pointer(at + 8 * number)
            if isinstance(value, Draw):
                key = pointer(places.keys + 16 * value.number + 8 * value.word)
                body.write(f"store i64 {body.emit(f'load i64, {key}')}, {place}")
            elif isinstance(value, str):
                body.write(f"store i64 {sizes[value]}, {place}")
        parts = specs[step.kernel].threads_n
        if step.kernel in shared:
            number = shared.index(step.kernel)
            body.write(f"call void @pool_run(i32 {number}, {pointer(at)}, i32 {parts})")
            continue
        name = plan.kernels[step.kernel].name
        body.write(f"call void @{name}({pointer(at)}, i64 0, i64 {parts})")
    body.write(f"ret i32 {OK}")
    taken = ", ".join(f"i32 %{size.name}" for size in plan.sizes)
    return [f"define i32 @run({taken}) {{", "entry:", *body.lines, "}"]


def _reset_ir(plan: Plan, places: Addresses) -> list[str]:
    body = _Text()
    for number, memory in enumerate(plan.memories):
        if memory.kind != STATE:
            continue
        target = pointer(places.memories[number])
        if number in places.starts:
            source = pointer(places.starts[number])
            given = f"{target}, {source}, i32 {memory.nbytes}, i1 false"
            body.write(f"call void @llvm.memcpy.p0.p0.i32({given})")
        else:
            body.write(
                f"call void @llvm.memset.p0.i32({target}, i8 0, i32 {memory.nbytes}, i1 false)"
            )
    if plan.events:
        body.write(f"store i64 {_seed_key(plan.seed)}, {pointer(places.random)}")
        body.write(f"store i64 {plan.counter}, {pointer(places.random + 8)}")
    return ["define void @reset() {", *body.lines, "  ret void", "}"]


# ------------------------------------------------------------ random numbers
def _threefry_ir() -> list[str]:
    """Threefry-2x32 of 20 rounds, unrolled."""
    body = _Text()
    emit = body.emit
    k0, high = emit("trunc i64 %key to i32"), emit("lshr i64 %key, 32")
    k1 = emit(f"trunc i64 {high} to i32")
    k2 = emit(f"xor i32 {emit(f'xor i32 {k0}, {k1}')}, {0x1BD11BDA}")
    keys = (k0, k1, k2)
    low, top = emit("trunc i64 %counter to i32"), emit("lshr i64 %counter, 32")
    a = emit(f"add i32 {low}, {k0}")
    b = emit(f"add i32 {emit(f'trunc i64 {top} to i32')}, {k1}")
    turns = ((13, 15, 26, 6), (17, 29, 16, 24))
    for group in range(5):
        for turn in turns[group % 2]:
            a = emit(f"add i32 {a}, {b}")
            left, right = emit(f"shl i32 {b}, {turn}"), emit(f"lshr i32 {b}, {32 - turn}")
            b = emit(f"xor i32 {emit(f'or i32 {left}, {right}')}, {a}")
        a = emit(f"add i32 {a}, {keys[(group + 1) % 3]}")
        b = emit(f"add i32 {emit(f'add i32 {b}, {keys[(group + 2) % 3]}')}, {group + 1}")
    wide = emit(f"shl i64 {emit(f'zext i32 {b} to i64')}, 32")
    found = emit(f"or i64 {wide}, {emit(f'zext i32 {a} to i64')}")
    return [
        "define internal i64 @threefry(i64 %counter, i64 %key) {",
        *body.lines,
        f"  ret i64 {found}",
        "}",
    ]


def _draw_ir(plan: Plan, body: _Text, places: Addresses) -> None:
    number = 0
    key_at, counter_at = pointer(places.random), pointer(places.random + 8)
    for kind, value in plan.events:
        if kind == "seed":
            body.write(f"store i64 {_seed_key(value)}, {key_at}")
            body.write(f"store i64 0, {counter_at}")
            continue
        counter, key = body.emit(f"load i64, {counter_at}"), body.emit(f"load i64, {key_at}")
        drawn = body.emit(f"call i64 @threefry(i64 {counter}, i64 {key})")
        low = body.emit(f"and i64 {drawn}, {0xFFFFFFFF}")
        high = body.emit(f"lshr i64 {drawn}, 32")
        body.write(f"store i64 {low}, {pointer(places.keys + 16 * number)}")
        body.write(f"store i64 {high}, {pointer(places.keys + 16 * number + 8)}")
        body.write(f"store i64 {body.emit(f'add i64 {counter}, {value}')}, {counter_at}")
        number += 1


def _seed_ir(places: Addresses) -> list[str]:
    """As RandomState: a seed that fits one word, with or without sign, is that word alone."""
    return [
        "define void @seed(i64 %seed) {",
        f"  %above = icmp sgt i64 %seed, {0xFFFFFFFF}",
        f"  %below = icmp slt i64 %seed, {-0xFFFFFFFF}",
        "  %is.wide = or i1 %above, %below",
        "  %upper = ashr i64 %seed, 32",
        "  %high = select i1 %is.wide, i64 %upper, i64 0",
        f"  %mixed = xor i64 %high, {_SEED_KEY}",
        f"  %first = and i64 %mixed, {0xFFFFFFFF}",
        "  %second = shl i64 %seed, 32",
        "  %key = or i64 %first, %second",
        f"  store i64 %key, {pointer(places.random)}",
        f"  store i64 0, {pointer(places.random + 8)}",
        "  ret void",
        "}",
    ]


# ------------------------------------------------------------ expressions over sizes
_SIMPLE: dict[Ops, str] = {Ops.ADD: "add", Ops.MUL: "mul", Ops.AND: "and", Ops.OR: "or"}
_COMPARED = {Ops.CMPLT: "slt", Ops.CMPEQ: "eq", Ops.CMPNE: "ne"}


def _size_ir(body: _Text, value: Any, sizes: Mapping[str, str]) -> str:
    """An expression over sizes as i64."""
    if isinstance(value, int):
        return str(value)
    names: dict[UOp, str] = {}
    for node in value.toposort():
        given = [names[s] for s in node.src]
        names[node] = _node_ir(body, node, given, sizes)
    return names[value]


def _node_ir(body: _Text, node: UOp, given: list[str], sizes: Mapping[str, str]) -> str:
    emit: Callable[[str], str] = body.emit
    op = node.op
    if op is Ops.CONST:
        return str(int(node.arg))
    if op is Ops.VARIABLE:
        return sizes[node.arg.name]
    if op in _SIMPLE:
        return emit(f"{_SIMPLE[op]} i64 {given[0]}, {given[1]}")
    if op is Ops.XOR:
        return emit(f"xor i64 {given[0]}, {given[1]}")
    if op is Ops.NEG:
        return emit(f"sub i64 0, {given[0]}")
    if op is Ops.CAST:
        return given[0]
    if op is Ops.MAX:
        is_more = emit(f"icmp sgt i64 {given[0]}, {given[1]}")
        return emit(f"select i1 {is_more}, i64 {given[0]}, i64 {given[1]}")
    if op in _COMPARED:
        return emit(f"zext i1 {emit(f'icmp {_COMPARED[op]} i64 {given[0]}, {given[1]}')} to i64")
    if op is Ops.WHERE:
        chosen = emit(f"icmp ne i64 {given[0]}, 0")
        return emit(f"select i1 {chosen}, i64 {given[1]}, i64 {given[2]}")
    if op in (Ops.IDIV, Ops.MOD) and node.src[1].op is Ops.CONST and node.src[1].arg > 0:
        rest = emit(f"srem i64 {given[0]}, {given[1]}")
        is_below = emit(f"zext i1 {emit(f'icmp slt i64 {rest}, 0')} to i64")
        if op is Ops.IDIV:
            return emit(f"sub i64 {emit(f'sdiv i64 {given[0]}, {given[1]}')}, {is_below}")
        return emit(f"add i64 {rest}, {emit(f'mul i64 {is_below}, {given[1]}')}")
    raise ExportError(f"a size depends on {op.name}, which exported code cannot compute")


# ------------------------------------------------------------ products and sums, rounded once
def fma_ir(kinds: set[str]) -> list[str]:
    """WebAssembly has no fma: products of float32 are exact in float64; of float64 they are the sum
    of two numbers (Dekker, 1971), and what is added is added to both (Knuth's sum)."""
    lines = []
    for kind in sorted(kinds):
        wide = kind.replace("f32", "f64")
        single, double = _vector_type(kind), _vector_type(wide)
        head = (
            f"define internal {single} @weft.fma.{kind}({single} %a, {single} %b, {single} %c) {{"
        )
        body = _Text()
        emit = body.emit
        if "f32" in kind:
            x, y, z = (emit(f"fpext {single} %{n} to {double}") for n in "abc")
            total = emit(f"fadd {double} {emit(f'fmul {double} {x}, {y}')}, {z}")
            result = emit(f"fptrunc {double} {total} to {single}")
        else:
            result = _exact_fma(emit, single)
        lines += [head, *body.lines, f"  ret {single} {result}", "}"]
    return lines


def _exact_fma(emit: Callable[[str], str], kind: str) -> str:
    def op(name: str, x: str, y: str) -> str:
        return emit(f"{name} {kind} {x}, {y}")

    count = int(kind[1:].split(" ")[0]) if kind.startswith("<") else 0
    split = "134217729.0"
    if count:
        split = f"<{', '.join([f'double {split}'] * count)}>"

    def halves(x: str) -> tuple[str, str]:
        wide = op("fmul", x, split)
        high = op("fsub", wide, op("fsub", wide, x))
        return high, op("fsub", x, high)

    product = op("fmul", "%a", "%b")
    (a1, a2), (b1, b2) = halves("%a"), halves("%b")
    rest = op("fsub", op("fmul", a1, b1), product)
    rest = op("fadd", rest, op("fmul", a1, b2))
    rest = op("fadd", rest, op("fmul", a2, b1))
    rest = op("fadd", rest, op("fmul", a2, b2))
    total = op("fadd", product, "%c")
    moved = op("fsub", total, product)
    lost = op("fadd", op("fsub", product, op("fsub", total, moved)), op("fsub", "%c", moved))
    return op("fadd", total, op("fadd", rest, lost))


def _vector_type(kind: str) -> str:
    """f32 -> float, v4f64 -> <4 x double>"""
    scalar = "float" if kind.endswith("f32") else "double"
    count = kind[1:-3] if kind.startswith("v") else ""
    return f"<{count} x {scalar}>" if count else scalar
