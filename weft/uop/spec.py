"""Is this graph legal? One spec per stage: tensor graph, kernel, linear program.

What comes in: a graph or a linear program, and the spec of its stage. What goes out: nothing, or a
SpecError that starts with `SPEC ISSUE` and shows the node, the rule it breaks, and the pass that
made it.
Where it sits: between passes; the pipelines call `type_verify` when the knob SPEC is on.
The one invariant: what every spec shares is read off the op table; a stage adds what the table
cannot say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from weft.dtype import dtypes
from weft.errors import SpecError
from weft.uop import spec_rules
from weft.uop.args import AxisType, KernelInfo
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops
from weft.uop.spec_rules import Check, Complaint
from weft.uop.text import neighbourhood_text

# A rule about the whole: the nodes in order, sources first or as executed.
WholeCheck: TypeAlias = Callable[[Sequence[UOp]], tuple[UOp, str] | None]


@dataclass(frozen=True)
class Spec:
    """What is legal at one stage."""

    name: str
    ops: frozenset[Ops]
    checks: tuple[Check, ...]
    wholes: tuple[WholeCheck, ...] = ()


def type_verify(
    graph: UOp | Sequence[UOp], spec: Spec | None = None, pass_name: str | None = None
) -> None:
    """Raise SpecError if the graph (or the linear program, a list) breaks a rule of its stage."""
    nodes = list(graph.toposort()) if isinstance(graph, UOp) else list(graph)
    if spec is None:
        spec = tensor_spec if isinstance(graph, UOp) else program_spec
    for node in nodes:
        complaint = _complaint(node, spec)
        if complaint is not None:
            raise _issue(node, complaint, spec, pass_name)
    for whole in spec.wholes:
        found = whole(nodes)
        if found is not None:
            raise _issue(*found, spec, pass_name)


def _complaint(node: UOp, spec: Spec) -> Complaint:
    if node.op not in spec.ops:
        return f"{node.op.name} is not part of a {spec.name}"
    # arity first: the other checks look at sources
    for check in (spec_rules.check_arity, spec_rules.check_arg, *spec.checks):
        complaint = check(node)
        if complaint is not None:
            return complaint
    return None


def _issue(node: UOp, complaint: str, spec: Spec, pass_name: str | None) -> SpecError:
    made_by = f" after pass {pass_name!r}" if pass_name else ""
    return SpecError(
        f"SPEC ISSUE in a {spec.name}{made_by}: {complaint}\n{neighbourhood_text(node)}"
    )


# ---------------------------------------------------------------- tensor graphs


def check_tensor_store(node: UOp) -> Complaint:
    """A STORE writes a value to a view of a BUFFER, shape by shape."""
    if node.op is not Ops.STORE:
        return None
    place, value = node.src[0], node.src[1]
    base = place
    while base.op in GroupOp.View or base.op in (Ops.AFTER, Ops.BITCAST, Ops.GATHER):
        base = base.src[0]
    if base.op is not Ops.BUFFER:
        return f"STORE writes to a view of a BUFFER, found {base.op.name}"
    if place.dtype is not value.dtype:
        return f"STORE writes {place.dtype}, found {value.dtype}"
    if place.shape != value.shape and value.shape != ():
        return f"STORE writes a value of shape {place.shape}, found {value.shape}"
    return None


_SHARED: tuple[Check, ...] = (spec_rules.check_typing, spec_rules.check_domain)
_LEAVES = frozenset({Ops.CONST, Ops.VARIABLE})

tensor_spec = Spec(
    "tensor graph",
    GroupOp.Elementwise
    | GroupOp.Movement
    | _LEAVES
    | {Ops.BIND, Ops.BUFFER, Ops.IOTA, Ops.CAT, Ops.GATHER, Ops.REDUCE_AXIS, Ops.CONTIGUOUS}
    | {
        Ops.CONTIGUOUS_BACKWARD,
        Ops.DETACH,
        Ops.FUNCTION,
        Ops.HOST,
        Ops.COPY,
        Ops.ALLREDUCE,
        Ops.AFTER,
        Ops.STORE,
        Ops.SINK,
    },
    (*_SHARED, spec_rules.check_shape, spec_rules.check_device, check_tensor_store),
)


# ---------------------------------------------------------------- kernels


def check_scalar(node: UOp) -> Complaint:
    """A kernel is written for one element; vectors come later."""
    if node.dtype.count != 1:
        return f"a kernel is scalar, found {node.dtype}"
    return None


def check_kernel_memory(node: UOp) -> Complaint:
    """LOAD and STORE go through an INDEX of the same dtype; memory holds no weak numbers."""
    if node.op is Ops.LOAD:
        if len(node.src) != 1 or node.src[0].op is not Ops.INDEX:
            return "LOAD reads an INDEX in a kernel"
        if node.dtype is not node.src[0].dtype:
            return f"LOAD gives its INDEX's {node.src[0].dtype}, found {node.dtype}"
    if node.op is Ops.STORE:
        place, value = node.src[0], node.src[1]
        if place.op is not Ops.INDEX or place.src[0].op is not Ops.PARAM:
            return "STORE writes an INDEX of a PARAM in a kernel"
        if value.dtype is not place.dtype:
            return f"STORE writes {place.dtype}, found {value.dtype}"
    if node.op in GroupOp.Memory and (dtypes.is_weak(node.dtype) or node.dtype is dtypes.void):
        return f"memory holds numbers of a strong dtype, found {node.dtype}"
    return None


# from which source on an op has nothing but ranges
_RANGES_FROM = {Ops.REDUCE: 1, Ops.STAGE: 1, Ops.STORE: 2}


def check_ranges(node: UOp) -> Complaint:
    """Ranges are where ranges belong, distinct, and have an int size."""
    if node.op is Ops.RANGE:
        if not dtypes.is_int(node.dtype) or node.src[0].dtype is not node.dtype:
            return f"RANGE and its size are of one int dtype, found {node.dtype}"
        return None
    first = _RANGES_FROM.get(node.op)
    if first is None:
        return None
    ranges = node.src[first:]
    for source in ranges:
        if source.op is not Ops.RANGE:
            return f"{node.op.name} closes RANGEs, found {source.op.name}"
    if len(set(ranges)) != len(ranges):
        return f"{node.op.name} closes a RANGE twice"
    if node.op is Ops.STAGE and any(source.src[0].op is not Ops.CONST for source in ranges[1:]):
        return "STAGE fills memory row by row: its RANGEs but the first have constant sizes"
    return None


def check_kernel_whole(nodes: Sequence[UOp]) -> tuple[UOp, str] | None:
    """One SINK of STOREs on top, every range closed, no two ranges of one number."""
    root = nodes[-1]
    if root.op is not Ops.SINK or not isinstance(root.arg, KernelInfo):
        return root, "a kernel is a SINK with KernelInfo"
    for source in root.src:
        if source.op is not Ops.STORE:
            return root, f"a kernel's SINK keeps STOREs, found {source.op.name}"
        if source.ranges:
            left = ", ".join(sorted(r.text() for r in source.ranges))
            return source, f"{left} stays open: STORE must close every RANGE it depends on"
    numbers: dict[tuple[int, ...], UOp] = {}
    for node in nodes:
        if node.op is Ops.RANGE and numbers.setdefault(node.arg.number, node) is not node:
            return node, f"two different RANGEs have the number {node.arg.number}"
        if node.op is Ops.STORE and node not in root.src:
            return node, "STORE stands under the SINK, not inside a value"
    return None


kernel_spec = Spec(
    "kernel",
    GroupOp.Elementwise
    | _LEAVES
    | {Ops.PARAM, Ops.RANGE, Ops.SPECIAL, Ops.INDEX, Ops.LOAD, Ops.STORE, Ops.REDUCE, Ops.STAGE}
    | {Ops.SHUFFLE, Ops.RUNNING, Ops.RESCALED}
    | {Ops.WMMA, Ops.SCAN, Ops.RANK, Ops.MOVE, Ops.SINK},
    (
        *_SHARED,
        check_scalar,
        spec_rules.check_place,
        check_kernel_memory,
        check_ranges,
    ),
    (check_kernel_whole,),
)


# ---------------------------------------------------------------- linear programs

_WRITTEN_OUT = (AxisType.UPCAST, AxisType.UNROLL, AxisType.VECTOR)


def check_concrete(node: UOp) -> Complaint:
    """Nothing weak is left, and half types are only loaded, stored and converted."""
    if dtypes.is_weak(node.dtype):
        return f"a program has no weak dtypes, found {node.dtype}"
    if node.op in GroupOp.ALU:
        for dtype in (node.dtype, *[s.dtype for s in node.src]):
            if spec_rules.is_half(dtype):
                return f"half types are computed in float32, found {node.op.name} on {dtype}"
    if node.op is Ops.RANGE and node.arg.kind in _WRITTEN_OUT:
        return f"axes of type {node.arg.kind.name} are written out in a program"
    return None


def check_program_memory(node: UOp) -> Complaint:
    """Lanes of index, validity and value fit; registers are read and set in their dtype."""
    if node.op is Ops.LOAD and node.src[0].op is Ops.ACC:
        if len(node.src) != 2 or node.src[1].op not in (Ops.RANGE, Ops.END):
            return "a register is read as LOAD(ACC, RANGE or END)"
        return None if node.dtype is node.src[0].dtype else _differs("LOAD", node.src[0], node)
    if node.op is Ops.ACC_SET:
        if node.src[0].op is not Ops.ACC:
            return f"ACC_SET sets an ACC, found {node.src[0].op.name}"
        same = node.src[0].dtype is node.src[1].dtype
        return None if same else _differs("ACC_SET", node.src[0], node.src[1])
    if node.op not in (Ops.LOAD, Ops.STORE):
        return None
    place = node.src[0]
    if place.op is not Ops.INDEX:
        return f"{node.op.name} goes through an INDEX, found {place.op.name}"
    dtype = node.dtype if node.op is Ops.LOAD else node.src[1].dtype
    if node.op is Ops.STORE and len(node.src) != 2:
        return "STORE is (INDEX, value) in a program: its loops are RANGE and END"
    if dtype.scalar() is not place.dtype:
        return f"{node.op.name} is of {place.dtype} or a vector of it, found {dtype}"
    for what, part in zip(("index", "valid"), place.src[1:], strict=False):
        if part.dtype.count not in (1, dtype.count):
            lanes = f"1 or {dtype.count} lanes"
            return f"{node.op.name} of {dtype} has a {what} of {lanes}, found {part.dtype}"
    return None


def _differs(what: str, register: UOp, other: UOp) -> str:
    return f"{what} of a register of {register.dtype} found {other.dtype}"


def check_raw(node: UOp) -> Complaint:
    """Ops that machines leave undefined somewhere were proven safe or decomposed: tag "raw"."""
    risky = node.op in (Ops.IDIV, Ops.MOD, Ops.SHL, Ops.SHR)
    if node.op is Ops.CAST and dtypes.is_float(node.src[0].dtype) and dtypes.is_int(node.dtype):
        risky = True
    if risky and node.tag != "raw":
        return f'{node.op.name} is decomposed or proven safe, then tagged "raw"'
    return None


def check_order(nodes: Sequence[UOp]) -> tuple[UOp, str] | None:
    """Defined before used, loops and conditions nest, nothing is used outside its own loop."""
    open_blocks: list[UOp] = []
    # the blocks that were open where each node was defined
    scopes: dict[UOp, tuple[UOp, ...]] = {}
    for node in nodes:
        if node in scopes:
            return node, "a node stands in a program once"
        if node.op in (Ops.END, Ops.ENDIF):
            if not open_blocks or open_blocks[-1] is not node.src[0]:
                last = open_blocks[-1].text() if open_blocks else "nothing"
                return node, f"{node.op.name} closes the block opened last, which is {last}"
        for source in node.src:
            if source.op is Ops.CONST and source not in scopes:
                continue
            scope = scopes.get(source)
            if scope is None:
                return node, f"{source.op.name} is used before it is defined"
            if tuple(open_blocks[: len(scope)]) != scope:
                return node, f"{source.op.name} is used outside the loop it is defined in"
        complaint = _check_block(node, open_blocks)
        if complaint is not None:
            return node, complaint
        if node.op in (Ops.END, Ops.ENDIF):
            open_blocks.pop()
        if node.op in (Ops.RANGE, Ops.IF):
            open_blocks.append(node)
        scopes[node] = tuple(open_blocks)
    if open_blocks:
        return open_blocks[-1], f"{open_blocks[-1].op.name} is never closed"
    return None


def _check_block(node: UOp, open_blocks: list[UOp]) -> Complaint:
    if node.op is Ops.RANGE and node.arg.kind is AxisType.THREAD and open_blocks:
        return "the THREAD axis is the outermost loop"
    return None


def check_registers(nodes: Sequence[UOp]) -> tuple[UOp, str] | None:
    """Registers have numbers of their own."""
    numbers: dict[int, UOp] = {}
    for node in nodes:
        if node.op is Ops.ACC and numbers.setdefault(node.arg, node) is not node:
            return node, f"two registers have the number {node.arg}"
    return None


_PROGRAM_OPS = (
    GroupOp.Elementwise
    | _LEAVES
    | {Ops.PARAM, Ops.LOCAL, Ops.SPECIAL, Ops.RANGE, Ops.END, Ops.IF, Ops.ENDIF, Ops.BARRIER}
    | {Ops.INDEX, Ops.LOAD, Ops.STORE, Ops.ACC, Ops.ACC_SET, Ops.VECTORIZE, Ops.GEP, Ops.WMMA}
    | {Ops.FETCH, Ops.COMMIT, Ops.WAIT, Ops.SETTLE, Ops.SCAN, Ops.RANK, Ops.MOVE, Ops.SINK}
    | {Ops.SHUFFLE}
)
_PROGRAM_CHECKS: tuple[Check, ...] = (
    *_SHARED,
    spec_rules.check_lanes,
    check_concrete,
    spec_rules.check_place,
    check_program_memory,
)
_PROGRAM_WHOLES: tuple[WholeCheck, ...] = (check_order, check_registers)

# what a machine runs
program_spec = Spec("program", _PROGRAM_OPS, (*_PROGRAM_CHECKS, check_raw), _PROGRAM_WHOLES)
# what the interpreter also runs: ops that are total as in the op table
total_program_spec = Spec("program", _PROGRAM_OPS, _PROGRAM_CHECKS, _PROGRAM_WHOLES)
