"""What the op table demands of one node: sources, dtypes, args, shapes.

What comes in: a node. What goes out: what is wrong with it in one sentence, or None.
Where it sits: under `spec.py`, which puts these together for each stage.
The one invariant: a rule looks at the node and its direct sources only, and survives broken nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from weft.dtype import ConstFloat, DType, dtypes
from weft.errors import WeftError
from weft.uop.args import (
    BufferArg,
    FunctionArg,
    HostArg,
    KernelInfo,
    LocalArg,
    MatrixArg,
    ParamArg,
    RangeArg,
    ReduceArg,
    StageArg,
    TileArg,
    VariableArg,
    combines_with,
)
from weft.uop.layout import ShardArg
from weft.uop.node import UOp
from weft.uop.opset import OPSET, GroupOp, Ops, Typing

Complaint: TypeAlias = str | None
Check: TypeAlias = Callable[[UOp], Complaint]

# ---------------------------------------------------------------- sources and dtypes


def check_arity(node: UOp) -> Complaint:
    """As many sources as the op takes."""
    arity = OPSET[node.op].arity
    least, most = (arity, arity) if isinstance(arity, int) else arity
    count = len(node.src)
    if count < least or (most is not None and count > most):
        wanted = (
            str(least)
            if least == most
            else f"{least} to {'any number of' if most is None else most}"
        )
        return f"{node.op.name} takes {wanted} sources, found {count}"
    return None


def check_typing(node: UOp) -> Complaint:
    """The dtype follows from the sources' as the op's row says."""
    typing = OPSET[node.op].typing
    found = [s.dtype for s in node.src]
    if typing is Typing.VOID:
        wanted = [dtypes.void]
        return None if node.dtype is dtypes.void else f"{node.op.name} has no value, so dtype void"
    if typing is Typing.GIVEN:
        return (
            f"{node.op.name} has a value, so not dtype void" if node.dtype is dtypes.void else None
        )
    if typing is Typing.SAME:
        wanted = [node.dtype]
    elif typing is Typing.COMPARE:
        wanted = [found[0]] * len(found)
        if node.dtype is not dtypes.bool.vec(found[0].count):
            return f"{node.op.name} gives {dtypes.bool.vec(found[0].count)}, found {node.dtype}"
    elif typing is Typing.WHERE:
        wanted = [dtypes.bool.vec(node.dtype.count), node.dtype, node.dtype]
    else:
        wanted = [node.dtype] * len(found)
    for place, (want, have) in enumerate(zip(wanted, found, strict=False)):
        if want is not have:
            return f"source {place} of {node.op.name} of dtype {node.dtype} is {want}, found {have}"
    return None


_DOMAINS: dict[str, tuple[str, ...]] = {
    "float": ("float",),
    "int": ("int", "uint"),
    "number": ("int", "uint", "float"),
    "bits": ("int", "uint", "bool"),
    "any": ("int", "uint", "float", "bool"),
}


def check_domain(node: UOp) -> Complaint:
    """An elementwise op (also one that a reduction folds with) is on dtypes that it takes."""
    op = node.op
    if op in (Ops.REDUCE, Ops.REDUCE_AXIS):
        op = node.arg if op is Ops.REDUCE else node.arg.op
        if op not in GroupOp.Reduce:
            return f"{node.op.name} folds with ADD, MUL or MAX, found {op}"
    elif op not in GroupOp.ALU:
        return None
    # of WHERE the condition has its own rule
    dtype = node.dtype if op is Ops.WHERE else node.src[0].dtype
    domain = OPSET[op].on
    if dtype.kind not in _DOMAINS[domain]:
        return f"{op.name} is on dtypes of kind {' '.join(_DOMAINS[domain])}, found {dtype}"
    return None


# ---------------------------------------------------------------- args


def _is_int(value: Any, least: int | None = None) -> bool:
    return type(value) is int and (least is None or value >= least)


def _is_ints(value: Any, least: int | None = None) -> bool:
    return isinstance(value, tuple) and all(_is_int(item, least) for item in value)


def _is_size(value: Any) -> bool:
    """An int, or None where the symbolic size is a source."""
    return value is None or _is_int(value)


def _is_sizes(value: Any) -> bool:
    return isinstance(value, tuple) and all(_is_size(item) for item in value)


def _is_size_pairs(value: Any) -> bool:
    return isinstance(value, tuple) and all(_is_sizes(pair) and len(pair) == 2 for pair in value)


def _is_device(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, tuple) and bool(value) and all(isinstance(name, str) for name in value)
    )


def _is_target(value: Any) -> bool:
    return isinstance(value, ShardArg) or _is_device(value)


def _is_axes(value: Any) -> bool:
    return _is_ints(value, 0) and list(value) == sorted(set(value))


def _is_buffer(value: Any) -> bool:
    return isinstance(value, BufferArg) and _is_int(value.size, 0) and _is_device(value.device)


def _is_variable(value: Any) -> bool:
    return isinstance(value, VariableArg) and value.lo <= value.hi and isinstance(value.name, str)


def _is_range(value: Any) -> bool:
    return isinstance(value, RangeArg) and bool(value.number) and _is_ints(value.number)


def _is_reduce(value: Any) -> bool:
    return isinstance(value, ReduceArg) and _is_axes(value.axes)


ARGS: dict[Ops, tuple[str, Callable[[Any], bool]]] = {
    Ops.CONST: ("a number", lambda arg: isinstance(arg, (bool, int, ConstFloat))),
    Ops.VARIABLE: ("VariableArg with lo <= hi", _is_variable),
    Ops.BUFFER: ("BufferArg", _is_buffer),
    Ops.PARAM: ("ParamArg", lambda arg: isinstance(arg, ParamArg) and _is_int(arg.slot, 0)),
    Ops.IOTA: ("a size, or None", lambda arg: arg is None or _is_int(arg, 0)),
    Ops.RESHAPE: ("a tuple of sizes", _is_sizes),
    Ops.EXPAND: ("a tuple of sizes", _is_sizes),
    Ops.PERMUTE: (
        "a permutation of the axes",
        lambda arg: _is_ints(arg) and sorted(arg) == list(range(len(arg))),
    ),
    Ops.PAD: ("a pair (before, after) per axis", _is_size_pairs),
    Ops.SHRINK: ("a pair (start, stop) per axis", _is_size_pairs),
    Ops.FLIP: (
        "a bool per axis",
        lambda arg: isinstance(arg, tuple) and all(type(item) is bool for item in arg),
    ),
    Ops.STRIDE: ("a positive int per axis", lambda arg: _is_ints(arg, 1)),
    Ops.CAT: ("an axis", lambda arg: _is_int(arg, 0)),
    Ops.GATHER: ("ascending axes", _is_axes),
    Ops.REDUCE_AXIS: ("ReduceArg with ascending axes", _is_reduce),
    Ops.FUNCTION: ("FunctionArg", lambda arg: isinstance(arg, FunctionArg)),
    Ops.HOST: ("HostArg", lambda arg: isinstance(arg, HostArg)),
    Ops.COPY: ("a device, a tuple of devices or ShardArg", _is_target),
    Ops.ALLREDUCE: ("a reduce op", lambda arg: arg in GroupOp.Reduce),
    Ops.RANGE: ("RangeArg", _is_range),
    Ops.SPECIAL: ("a name", lambda arg: isinstance(arg, str)),
    Ops.REDUCE: ("a reduce op", lambda arg: arg in GroupOp.Reduce),
    Ops.STORE: (
        "None or the reduce op that combines with what is there, or a Unique or Unordered of one",
        lambda arg: (op := combines_with(arg)) is None or op in GroupOp.Reduce,
    ),
    Ops.STAGE: ("StageArg", lambda arg: isinstance(arg, StageArg)),
    Ops.LOAD: (
        "None, MatrixArg or TileArg",
        lambda arg: arg is None or isinstance(arg, (MatrixArg, TileArg)),
    ),
    Ops.RUNNING: ("a bool", lambda arg: type(arg) is bool),
    Ops.SHUFFLE: ("the bits of a lane's number", lambda arg: _is_int(arg, 1)),
    Ops.LOCAL: ("LocalArg", lambda arg: isinstance(arg, LocalArg) and _is_int(arg.size, 0)),
    Ops.ACC: ("a number of its own", lambda arg: _is_int(arg, 0)),
    Ops.GEP: ("a tuple of lanes", lambda arg: _is_ints(arg, 0) and bool(arg)),
    Ops.SINK: ("KernelInfo or None", lambda arg: arg is None or isinstance(arg, KernelInfo)),
}
# args that are open: what they hold is the target's business
_FREE_ARGS = frozenset(
    {Ops.WMMA, Ops.CONTIGUOUS, Ops.BARRIER, Ops.FETCH, Ops.COMMIT, Ops.WAIT, Ops.SETTLE}
    | {Ops.SCAN, Ops.RANK}
)


def check_arg(node: UOp) -> Complaint:
    """The arg is of the kind that the op has."""
    if node.op in _FREE_ARGS:
        return None
    wanted = ARGS.get(node.op)
    if wanted is None:
        return None if node.arg is None else f"{node.op.name} has no arg, found {node.arg!r}"
    what, accepted = wanted
    if not accepted(node.arg):
        return f"the arg of {node.op.name} is {what}, found {node.arg!r}"
    if node.op is Ops.CONST:
        return _check_const(node)
    return None


def _check_const(node: UOp) -> Complaint:
    """A constant is stored as its dtype stores it, else interning would keep two of one value."""
    if node.dtype.count != 1:
        return f"CONST is scalar, found {node.dtype}; a vector is VECTORIZE of constants"
    wanted = node.dtype.const(node.arg)
    if type(wanted) is not type(node.arg) or wanted != node.arg:
        return f"a constant of {node.dtype} is {wanted!r} here, found {node.arg!r}; use UOp.const"
    return None


# ---------------------------------------------------------------- shapes and devices


def check_shape(node: UOp) -> Complaint:
    """The shape can be derived and the movement is possible."""
    try:
        if node.op in GroupOp.Movement:
            parts = sum(part is None for part in _flat(node.arg))
            if parts != len(node.src) - 1:
                found = f"{parts} for {len(node.src) - 1} sources"
                return f"each symbolic part of {node.op.name}'s arg is a source, found {found}"
        if node.op is Ops.IOTA and (node.arg is None) != (len(node.src) == 1):
            return "IOTA has its size in arg, or None there and the size as source"
        if OPSET[node.op].typing is not Typing.VOID:
            _ = node.shape
        rule = _SHAPES.get(node.op)
        return None if rule is None else rule(node)
    except WeftError as error:
        return str(error)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        return f"{node.op.name} has no shape: {type(error).__name__}: {error}"


def _flat(arg: Any) -> list[Any]:
    items: list[Any] = []
    for part in arg:
        items.extend(part if isinstance(part, tuple) else (part,))
    return items


def _sizes(*values: Any) -> bool:
    """Whether all are plain ints, so that they can be compared here and now."""
    return all(isinstance(value, int) for value in values)


def _reshape_shape(node: UOp) -> Complaint:
    before, after = node.src[0].size, node.size
    if _sizes(before, after) and before != after:
        return f"RESHAPE keeps the number of elements, found {node.src[0].shape} to {node.shape}"
    return None


def _same_rank(node: UOp) -> Complaint:
    source = node.src[0].shape
    if len(node.arg) != len(source):
        return f"{node.op.name} needs an arg for each of {len(source)} axes, found {node.arg}"
    return None


def _expand_shape(node: UOp) -> Complaint:
    source = node.src[0].shape
    if len(node.arg) != len(source):
        return f"EXPAND keeps the number of axes, found {source} to {node.shape}"
    for before, after in zip(source, node.shape, strict=True):
        if _sizes(before, after) and before not in (1, after):
            return f"EXPAND repeats axes of size 1, found {source} to {node.shape}"
    return None


def _pad_shape(node: UOp) -> Complaint:
    if any(isinstance(size, int) and size < 0 for size in _flat(node.marg)):
        return f"PAD adds, found {node.arg}; SHRINK takes away"
    return _same_rank(node)


def _shrink_shape(node: UOp) -> Complaint:
    source = node.src[0].shape
    if len(node.arg) != len(source):
        return _same_rank(node)
    for size, (start, stop) in zip(source, node.marg, strict=True):
        if _sizes(size, start, stop) and not 0 <= start <= stop <= size:
            return f"SHRINK keeps a part of each axis, found {node.arg} of {source}"
    return None


def _cat_shape(node: UOp) -> Complaint:
    first = node.src[0].shape
    for other in (s.shape for s in node.src[1:]):
        rest = [size for axis, size in enumerate(other) if axis != node.arg]
        if len(other) != len(first) or rest != [s for a, s in enumerate(first) if a != node.arg]:
            return f"CAT needs equal shapes but for axis {node.arg}, found {first} and {other}"
    return None


def _gather_shape(node: UOp) -> Complaint:
    if len(node.arg) != len(node.src) - 1:
        return f"GATHER needs an index per axis of {node.arg}, found {len(node.src) - 1}"
    for index in node.src[1:]:
        if not dtypes.is_int(index.dtype):
            return f"GATHER's indices are ints, found {index.dtype}"
        if index.shape != node.src[1].shape:
            return f"GATHER's indices have one shape, found {node.src[1].shape} and {index.shape}"
    return None


def _reduce_axis_shape(node: UOp) -> Complaint:
    rank = len(node.src[0].shape)
    if any(axis >= rank for axis in node.arg.axes):
        return f"REDUCE_AXIS folds axes below {rank}, found {node.arg.axes}"
    return None


_SHAPES: dict[Ops, Check] = {
    Ops.RESHAPE: _reshape_shape,
    Ops.EXPAND: _expand_shape,
    Ops.PERMUTE: _same_rank,
    Ops.FLIP: _same_rank,
    Ops.STRIDE: _same_rank,
    Ops.PAD: _pad_shape,
    Ops.SHRINK: _shrink_shape,
    Ops.CAT: _cat_shape,
    Ops.GATHER: _gather_shape,
    Ops.REDUCE_AXIS: _reduce_axis_shape,
}


def check_device(node: UOp) -> Complaint:
    """All that a node is computed from is on one device."""
    if node.op in (Ops.SINK, Ops.STORE, Ops.AFTER):
        # effects on several devices may be kept together
        return None
    try:
        _ = node.device
    except WeftError as error:
        return str(error)
    return None


# ---------------------------------------------------------------- vectors and memory


def check_lanes(node: UOp) -> Complaint:
    """VECTORIZE and GEP count lanes right; casts keep them."""
    if node.op is Ops.VECTORIZE:
        scalar = node.dtype.scalar()
        if node.dtype.count != len(node.src) or any(s.dtype is not scalar for s in node.src):
            found = ", ".join(s.dtype.name for s in node.src[:8])
            return f"VECTORIZE of {node.dtype} takes {node.dtype.count} of {scalar}, found {found}"
    if node.op is Ops.GEP:
        source = node.src[0].dtype
        if node.src[-1].dtype is not source:
            return f"GEP takes two vectors of one dtype, found {source} and {node.src[-1].dtype}"
        lanes = source.count * len(node.src)
        if any(lane >= lanes for lane in node.arg):
            return f"GEP takes lanes below {lanes}, found {node.arg}"
        if node.dtype is not source.scalar().vec(len(node.arg)):
            return f"GEP of {node.arg} from {source} is {source.scalar().vec(len(node.arg))}"
    if node.op in (Ops.CAST, Ops.BITCAST) and node.dtype.count != node.src[0].dtype.count:
        return f"{node.op.name} keeps the lanes, found {node.src[0].dtype} to {node.dtype}"
    return None


def is_half(dtype: DType) -> bool:
    """Types that are loaded and stored but not computed with."""
    scalar = dtype.scalar()
    return scalar in dtypes.fp8s or scalar in (dtypes.float16, dtypes.bfloat16)


def check_place(node: UOp) -> Complaint:
    """INDEX is (memory, int index, bool valid)."""
    if node.op is not Ops.INDEX:
        return None
    memory, idx = node.src[0], node.src[1]
    if memory.op not in GroupOp.Memory:
        return f"INDEX is into memory (PARAM, STAGE, LOCAL), found {memory.op.name}"
    if not dtypes.is_int(idx.dtype):
        return f"INDEX needs an int index, found {idx.dtype}"
    if len(node.src) == 3 and not dtypes.is_bool(node.src[2].dtype):
        return f"INDEX needs a bool valid, found {node.src[2].dtype}"
    return None
