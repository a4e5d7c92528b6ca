"""A linear program as a text that reads like the loops one would write by hand.

What comes in: the UOps of a program, in execution order. What goes out: indented lines with `for`
loops and one assignment for each value that is used more than once, and the program's axes.
Where it sits: beside the recorder; what renderers print is for machines, this is for people.
The one invariant: it never fails: an op it does not know is printed as a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.text import arg_text, range_name

# a longer expression gets a name, so that lines stay readable
INLINE_LIMIT = 96

# as tightly as in Python; a comparison binds looser than all of these there as well
_CHOICE, _COMPARE, _OR, _XOR, _AND, _SHIFT, _SUM, _PRODUCT, _UNARY, _ATOM = range(10)
_SYMBOLS = {
    Ops.ADD: ("+", _SUM),
    Ops.MUL: ("*", _PRODUCT),
    Ops.FDIV: ("/", _PRODUCT),
    Ops.IDIV: ("//", _PRODUCT),
    Ops.MOD: ("%", _PRODUCT),
    Ops.CMPLT: ("<", _COMPARE),
    Ops.CMPNE: ("!=", _COMPARE),
    Ops.CMPEQ: ("==", _COMPARE),
    Ops.AND: ("&", _AND),
    Ops.OR: ("|", _OR),
    Ops.XOR: ("^", _XOR),
    Ops.SHL: ("<<", _SHIFT),
    Ops.SHR: (">>", _SHIFT),
}
# text, and how tightly it binds
Piece = tuple[str, int]


@dataclass
class _Writer:
    uses: dict[UOp, int]
    pieces: dict[UOp, Piece] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    depth: int = 0
    named: int = 0

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def of(self, node: UOp, at_least: int = _CHOICE) -> str:
        """The text of an operand, in parentheses if it binds looser than `at_least`."""
        text, binding = self.pieces.get(node, (f"{node.op.name.lower()}?", _ATOM))
        return text if binding >= at_least else f"({text})"

    def name(self, node: UOp, name: str) -> None:
        """What the node is called from here on."""
        self.pieces[node] = (name, _ATOM)


def axes_of(uops: Sequence[UOp]) -> list[list[str]]:
    """Name, kind and size of each axis, in the order in which its loop opens."""
    found = []
    for node in uops:
        if node.op is Ops.RANGE:
            name = range_name(node.arg.number)
            found.append([name, node.arg.kind.name, node.src[0].text()[:60]])
        elif node.op is Ops.SPECIAL:
            kind = "GLOBAL" if str(node.arg).startswith("g") else "LOCAL"
            found.append([str(node.arg), kind, node.src[0].text()[:60]])
    return found


def listing(uops: Sequence[UOp]) -> str:
    """The program as text."""
    uses: dict[UOp, int] = {}
    for node in uops:
        for source in set(node.src):
            uses[source] = uses.get(source, 0) + 1
    writer = _Writer(uses)
    for node in uops:
        _write(writer, node)
    return "\n".join(writer.lines)


def _write(writer: _Writer, node: UOp) -> None:
    op = node.op
    if op is Ops.PARAM:
        writer.name(node, f"p{node.arg.slot}")
        writer.line(f"p{node.arg.slot}: {node.dtype.name}[{node.arg.size}]")
    elif op is Ops.RANGE:
        name = range_name(node.arg.number)
        writer.name(node, name)
        writer.line(f"for {name} in {writer.of(node.src[0])}:  # {node.arg.kind.name}")
        writer.depth += 1
    elif op is Ops.IF:
        writer.line(f"if {writer.of(node.src[0])}:")
        writer.depth += 1
    elif op in (Ops.END, Ops.ENDIF):
        writer.depth = max(0, writer.depth - 1)
    elif op is Ops.LOCAL:
        writer.name(node, f"local{node.arg.number}")
        writer.line(f"local{node.arg.number}: {node.dtype.name}[{node.arg.size}]")
    elif op is Ops.ACC:
        writer.name(node, f"acc{node.arg}")
        writer.line(f"acc{node.arg} = {writer.of(node.src[0])}")
    elif op is Ops.ACC_SET:
        writer.line(f"{writer.of(node.src[0])} = {writer.of(node.src[1])}")
    elif op is Ops.STORE:
        writer.line(f"{writer.of(node.src[0])} = {writer.of(node.src[1])}")
    elif op is Ops.BARRIER:
        writer.line("barrier()")
    else:
        _value(writer, node)


def _value(writer: _Writer, node: UOp) -> None:
    """A value: inlined where it is short and read once, else named."""
    if node.op is Ops.VECTORIZE and _is_splat(node) and node.src[0].op is Ops.CONST:
        # a number in every lane reads like the number
        writer.pieces[node] = writer.pieces[node.src[0]]
        return
    text, binding = _expression(writer, node)
    plain = node.op in (Ops.CONST, Ops.VARIABLE, Ops.SPECIAL, Ops.INDEX) or not node.src
    # a register is read when it stands there, so reading it later would be another value
    is_register = node.op is Ops.LOAD and node.src[0].op is Ops.ACC
    once = writer.uses.get(node, 0) <= 1 and not is_register
    if plain or is_register or (once and len(text) <= INLINE_LIMIT):
        writer.pieces[node] = (text, binding)
        return
    name = f"v{writer.named}"
    writer.named += 1
    writer.line(f"{name} = {text}")
    writer.name(node, name)


def _expression(writer: _Writer, node: UOp) -> Piece:
    op, src = node.op, node.src
    if op in _SYMBOLS and len(src) == 2:
        symbol, binding = _SYMBOLS[op]
        return f"{writer.of(src[0], binding)} {symbol} {writer.of(src[1], binding + 1)}", binding
    if op is Ops.NEG:
        return f"-{writer.of(src[0], _UNARY)}", _UNARY
    if op is Ops.WHERE and len(src) == 3:
        condition, chosen, other = (writer.of(source, _COMPARE) for source in src)
        return f"{chosen} if {condition} else {other}", _CHOICE
    return _atom(writer, node), _ATOM


def _atom(writer: _Writer, node: UOp) -> str:
    op = node.op
    operands = [writer.of(source) for source in node.src]
    if op is Ops.CONST or op is Ops.SPECIAL:
        return str(node.arg)
    if op is Ops.VARIABLE:
        return str(node.arg.name)
    if op is Ops.INDEX:
        valid = f" if {operands[2]}" if len(operands) > 2 else ""
        return f"{operands[0]}[{operands[1]}{valid}]"
    if op is Ops.LOAD:
        lanes = f".x{node.dtype.count}" if node.dtype.count > 1 and len(operands) == 1 else ""
        return operands[0] + lanes
    if op is Ops.VECTORIZE and not _is_splat(node):
        return f"{{{', '.join(operands)}}}"
    if op is Ops.GEP:
        if len(operands) > 1:
            return f"({', '.join(operands)}).lanes{list(node.arg)}"
        return f"{writer.of(node.src[0], _ATOM)}.lanes{list(node.arg)}"
    if op in (Ops.CAST, Ops.VECTORIZE):
        return f"{node.dtype.name}({operands[0]})"
    if op is Ops.BITCAST:
        return f"bits_{node.dtype.name}({operands[0]})"
    extra = arg_text(node.arg)
    name = "fma" if op is Ops.MULACC else op.name.lower()
    return f"{name}({', '.join([*operands, *([extra] if extra else [])])})"


def _is_splat(node: UOp) -> bool:
    return all(source is node.src[0] for source in node.src)
