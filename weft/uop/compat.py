"""Names of UOp that programs written for tinygrad know, over what the node itself has.

What comes in: a node (the mixin's `self`). What goes out: nodes, numbers, Buffers.
Where it sits: under `node.py`, whose UOp derives from it; it imports no UOp, `type(self)` is one.
The one invariant: nothing in weft itself needs these; they mean what tinygrad's users expect.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from weft.dtype import AddrSpace, DType, Invalid, dtypes, weak_dtype
from weft.errors import ArgumentError
from weft.uop.opset import GroupOp, Ops
from weft.uop.spelling import Spelling

Seen = TypeVar("Seen")

# What marks the number that stands where an index is not valid; its value is never used.
INVALID = "invalid"


# how the memory of a BUFFER is found: the engine registers itself here
_memory: list[Callable[[Any], Any]] = []


def register_memory(buffer_of: Callable[[Any], Any]) -> None:
    """The engine says what gives the Buffer of a BUFFER node."""
    _memory[:] = [buffer_of]


def in_order(value: Any, dtype: Any) -> tuple[DType, Any]:
    """(dtype, value) of a constant that was given the other way round, the dtype perhaps not."""
    if dtype is None:
        first = value[0] if isinstance(value, tuple) else value
        dtype = getattr(first, "dtype", None) or weak_dtype(False if first is Invalid else first)
    if not isinstance(dtype, DType):
        raise ArgumentError(f"a constant is a dtype and a number, found {value!r} and {dtype!r}")
    if isinstance(value, tuple) and dtype.count == 1 and len(value) > 1:
        dtype = dtype.vec(len(value))
    return dtype, value


class CompatibilityMixin:
    """What tinygrad's users ask of a UOp and weft itself does not need."""

    __slots__ = ()
    op: Any
    dtype: Any
    src: Any
    arg: Any
    tag: Any
    held: Any

    # ------------------------------------------------------------ building
    @classmethod
    def special(cls: Any, end: Any, name: str, dtype: DType = dtypes.weakint) -> Any:
        """A hardware index, 0 <= value < end."""
        size = cls.const(dtype, end)
        return cls(Ops.SPECIAL, dtype, (size,), name)

    @classmethod
    def invalid(cls: Any, dtype: DType = dtypes.bool) -> Any:
        """What stands where an index is not valid."""
        return cls(Ops.CONST, dtype, (), dtype.const(0), INVALID)

    @property
    def is_invalid(self) -> bool:
        """Whether this is `UOp.invalid()`."""
        return self.op is Ops.CONST and self.tag == INVALID

    def valid(self: Any, cond: Any) -> Any:
        """This index where `cond` holds, and no index elsewhere; `index` reads it as such."""
        condition = cond if isinstance(cond, type(self)) else type(self).const(dtypes.bool, cond)
        return condition.where(self, type(self).invalid(self.dtype))

    def get_idx(self: Any) -> Any:
        """The index of what `valid` made, or this."""
        return self.src[1] if _is_gated(self) else self

    def get_valid(self: Any) -> Any:
        """The condition of what `valid` made, or True."""
        if _is_gated(self):
            return self.src[0]
        return type(self).const(dtypes.bool, not self.is_invalid)

    @classmethod
    def group(cls: Any, *srcs: Any) -> Any:
        """Several effects as one; one alone is itself."""
        given = [s for s in srcs if s is not None]
        return given[0] if len(given) == 1 else cls(Ops.SINK, dtypes.void, tuple(given))

    def barrier(self: Any, *src: Any) -> Any:
        """The group's threads wait for each other after this."""
        return type(self)(Ops.BARRIER, dtypes.void, (self, *src))

    def spelled(self: Any, op: Spelling, *src: Any) -> Any:
        """An op that tinygrad has and weft writes in another form."""
        if op.name == "RECIPROCAL":
            return self.const_like(1).alu(Ops.FDIV, self)
        if op.name == "SUB":
            return self - src[0]
        quotient = self.div(src[0], rounding_mode="trunc")
        return quotient if op.name == "CDIV" else self - quotient * src[0]

    def vconst_like(self: Any, b: Any) -> Any:
        """A constant of this node's dtype."""
        return self.const_like(b)

    def ufix(self: Any, x: Any) -> Any:
        """A number as a node of this dtype, or of one that holds it; a node stays."""
        if isinstance(x, type(self)):
            return x
        dtype = (
            dtypes.weakfloat if isinstance(x, float) and not self.dtype.kind == "float" else None
        )
        return self.const_like(x, dtype)

    def usum(self: Any, *uops: Any) -> Any:
        """The sum of this and others."""
        total = self
        for other in uops:
            total = total + other
        return total

    def uprod(self: Any, *uops: Any) -> Any:
        """The product of this and others."""
        product = self
        for other in uops:
            product = product * other
        return product

    # ------------------------------------------------------------ looking at it
    @property
    def val(self: Any) -> Any:
        """The number of a constant."""
        if self.op is not Ops.CONST:
            raise ArgumentError(f"only a CONST has a val, not {self.op.name}")
        return self.arg

    @property
    def expr(self: Any) -> str:
        """The name of a variable."""
        if self.op is not Ops.VARIABLE:
            raise ArgumentError(f"only a Variable has an expr, not {self.op.name}")
        return str(self.arg.name)

    @property
    def is_variable(self) -> bool:
        """Whether it is a variable without a value."""
        return self.op is Ops.VARIABLE

    @property
    def is_bound_var(self) -> bool:
        """Whether it is a variable with a value."""
        return self.op is Ops.BIND

    @property
    def axis(self) -> int | None:
        """The axis that is spread over devices: none, as of now."""
        return None

    @property
    def metadata(self) -> tuple[Any, ...] | None:
        """What tinygrad keeps of the method that made a node; `origin` has the user's line."""
        return None

    @property
    def max_shape(self: Any) -> tuple[int, ...]:
        """The shape with every symbolic size at its greatest."""
        return tuple(size if isinstance(size, int) else size.vmax for size in self.shape)

    def max_numel(self) -> int:
        """How many elements there are at most."""
        return math.prod(self.max_shape)

    def nbytes(self: Any) -> int:
        """How many bytes the elements take, at most."""
        return int(self.max_numel() * self.dtype.itemsize)

    def argstr(self) -> str:
        """The arg as text."""
        return repr(self.arg)

    def tagstr(self) -> str:
        """The tag as text, nothing if there is none."""
        return "" if self.tag is None else f", tag={self.tag}"

    @property
    def backward_slice_with_self(self: Any) -> dict[Any, None]:
        """This and all nodes it is computed from."""
        return {self: None, **self.backward_slice}

    def op_in_backward_slice_with_self(self: Any, *ops: Ops) -> bool:
        """Whether this, or something it is computed from, is one of the ops."""
        return any(node.op in ops for node in self.toposort())

    def topovisit(self: Any, visitor: Callable[[Any], Seen], cache: dict[Any, Seen]) -> Seen:
        """`visitor` of every node below and including this one, sources first; what it gave."""
        for node in self.toposort(gate=lambda node: node not in cache):
            if node not in cache:
                cache[node] = visitor(node)
        return cache[self]

    @property
    def tuplize(self: Any) -> tuple[Any, ...]:
        """What orders nodes: the same in every process."""
        return (self.op.value, repr(self.arg), self.dtype.priority, self.key)

    # ------------------------------------------------------------ integers
    def sym_infer(self: Any, var_vals: dict[str, int]) -> int:
        """The value, given the variables by name."""
        values = {v: type(self).const(v.dtype, var_vals[v.arg.name]) for v in self.variables()}
        return int(self.substitute(values).simplify())

    def overflows(self: Any, dtype: DType) -> bool:
        """Whether a value of it may be outside of a dtype."""
        return bool(self.vmin < dtype.min or self.vmax > dtype.max)

    def split_uop(self: Any, sep: Ops) -> Iterator[Any]:
        """The operands of a chain of one op, from left to right."""
        pending = [self]
        while pending:
            node = pending.pop()
            if node.op is sep:
                pending.extend(reversed(node.src))
            else:
                yield node

    def pop_const(self: Any, op: Ops = Ops.ADD) -> tuple[Any, Any]:
        """The expression without the constant at its end, and that constant."""
        if self.op is op and self.src[1].op is Ops.CONST:
            return self.src[0], self.src[1].arg
        return self, {Ops.ADD: 0, Ops.MUL: 1}.get(op, self.dtype.min)

    def const_factor(self: Any) -> int:
        """A number that divides every value of it, the largest that is seen in its form."""
        factors: dict[Any, int] = {}
        for node in self.toposort():
            factors[node] = _factor(node, [factors[s] for s in node.src])
        return factors[self]

    def divides(self: Any, v: int) -> Any:
        """The quotient by `v` where the form shows that it divides every value, else None."""
        quotients: dict[Any, Any] = {}
        for node in self.toposort():
            quotients[node] = _quotient(node, v, [quotients[s] for s in node.src])
        return quotients[self]

    def divide_exact(self: Any, v: Any) -> Any:
        """The quotient by another expression where the form shows that it divides, else None."""
        if v.op is Ops.CONST:
            return self.divides(v.arg)
        if self.op is Ops.ADD:
            parts = [part.divide_exact(v) for part in self.split_uop(Ops.ADD)]
            return None if None in parts else parts[0].usum(*parts[1:])
        factor, wanted = _product(self)
        other_factor, others = _product(v)
        if factor % other_factor:
            return None
        for atom in others:
            if not any(atom is found for found in wanted):
                return None
            wanted.remove(atom)
        return self.const_like(factor // other_factor).uprod(*wanted)

    @staticmethod
    def gcd(*uops: Any) -> Any:
        """The greatest common factor that the forms show."""
        numbers, atoms = zip(*[_product(uop) for uop in uops], strict=True)
        common = [atom for atom in atoms[0] if all(atom in other for other in atoms[1:])]
        return uops[0].const_like(math.gcd(*numbers)).uprod(*common)

    @classmethod
    def cconst(cls: Any, b: Any, dtype: DType) -> Any:
        """A constant of a dtype."""
        return cls.const(dtype, b)

    def copy_to_device(self: Any, device: Any, arg: Any = None) -> Any:
        """The value on another device."""
        return type(self)(Ops.COPY, self.dtype, (self,), device)

    # ------------------------------------------------------------ memory
    @property
    def addrspace(self: Any) -> AddrSpace | None:
        """Where its memory is, None for a value that has none."""
        node = self.buf_uop
        if node.op is Ops.LOCAL:
            return AddrSpace.REG if node.arg.memory == "register" else AddrSpace.LOCAL
        return AddrSpace.GLOBAL if node.op in (Ops.BUFFER, Ops.PARAM) else None

    @property
    def without_after(self: Any) -> Any:
        """The memory, whatever is to happen to it before."""
        node = self
        while node.op is Ops.AFTER:
            node = node.src[0]
        return node

    def has_buffer_identity(self: Any, after_ok: bool = False) -> bool:
        """Whether it is a whole BUFFER or PARAM, perhaps in another shape."""
        node = self
        while node.op is Ops.RESHAPE or (after_ok and node.op is Ops.AFTER):
            node = node.src[0]
        return node.op in (Ops.BUFFER, Ops.PARAM)

    def contiguous_view(self: Any) -> tuple[Any, int] | None:
        """The memory that this is a piece of, and where it starts there; None if it is no piece."""
        offset = self.contiguous_view_offset()
        return None if offset is None else (self.buf_uop, offset)

    @property
    def buf_uop(self: Any) -> Any:
        """The BUFFER that this is a view of."""
        node = self.base
        while node.op in (Ops.AFTER, Ops.DETACH, Ops.CONTIGUOUS) or node.op in GroupOp.Movement:
            node = node.src[0]
        return node

    @property
    def buffer(self: Any) -> Any:
        """The Buffer that this is a view of; its memory may come later."""
        node = self.buf_uop
        if node.op is not Ops.BUFFER or not _memory:
            raise ArgumentError(f"{node.op.name} has no buffer: it is not in memory")
        return _memory[0](node)

    @property
    def realized(self: Any) -> Any:
        """The Buffer that this is a view of if its memory is there, else None."""
        node = self.base
        if node.op is not Ops.BUFFER or node.held is None or node.held.buffer is None:
            return None
        found = node.held.buffer
        return found if found.is_allocated() else None

    @property
    def is_realized(self) -> bool:
        """Whether it is a view of memory that is there."""
        return self.realized is not None

    def contiguous_view_offset(self: Any) -> int | None:
        """Where its elements start if they follow each other in what it is a view of, else None."""
        chain = []
        node = self
        while node.op in GroupOp.Movement:
            chain.append(node)
            node = node.src[0]
        view = _View(node.shape, _row_major(node.shape), 0)
        for step in reversed(chain):
            moved = _moved(view, step)
            if moved is None:
                return None
            view = moved
        return view.offset if _is_row_major(view) else None


def _is_gated(node: Any) -> bool:
    return node.op is Ops.WHERE and node.src[2].is_invalid


def _factor(node: Any, factors: list[int]) -> int:
    if node.op is Ops.CONST and isinstance(node.arg, int):
        return abs(node.arg)
    if node.op is Ops.ADD:
        return math.gcd(*factors)
    if node.op is Ops.MUL:
        return factors[0] * factors[1]
    if node.op in (Ops.NEG, Ops.BIND):
        return factors[0]
    return int(node.arg.multiple_of) if node.op is Ops.VARIABLE else 1


def _quotient(node: Any, v: int, quotients: list[Any]) -> Any:
    if v == 1:
        return node
    if node.op is Ops.CONST:
        return node.const_like(node.arg // v) if node.arg % v == 0 else None
    if node.op is Ops.ADD:
        return None if None in quotients else quotients[0] + quotients[1]
    if node.op is Ops.NEG:
        return None if quotients[0] is None else -quotients[0]
    if node.op is Ops.MUL:
        left, right = node.src
        if quotients[1] is not None:
            return left * quotients[1]
        return None if quotients[0] is None else quotients[0] * right
    return node // v if node.op is Ops.VARIABLE and node.arg.multiple_of % v == 0 else None


def _product(node: Any) -> tuple[int, list[Any]]:
    """An expression as a number and the other factors of a product."""
    number = 1
    atoms: list[Any] = []
    for part in node.split_uop(Ops.MUL):
        if part.op is Ops.CONST:
            number *= part.arg
        elif part.op is Ops.NEG:
            inner, others = _product(part.src[0])
            number, atoms = -number * inner, [*atoms, *others]
        elif part.op is Ops.ADD and (common := part.const_factor()) > 1:
            number, atoms = number * common, [*atoms, part.divides(common)]
        else:
            atoms.append(part)
    return number, atoms


# ------------------------------------------------------------ views of memory
class _View:
    """Elements of a memory: shape, the distance between neighbours of each axis, the first one."""

    __slots__ = ("offset", "shape", "strides")

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> None:
        self.shape = shape
        self.strides = strides
        self.offset = offset


def _row_major(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    strides: list[Any] = []
    step: Any = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))


def _is_row_major(view: _View) -> bool:
    wanted = _row_major(view.shape)
    pairs = zip(view.shape, view.strides, wanted, strict=True)
    return all(size == 1 or stride == step for size, stride, step in pairs)


def _moved(view: _View, step: Any) -> _View | None:
    """The view after one movement op, or None where it is none with fixed distances."""
    arg = step.marg
    if step.op is Ops.RESHAPE:
        return _View(arg, _row_major(arg), view.offset) if _is_row_major(view) else None
    if step.op is Ops.PERMUTE:
        return _View(
            tuple(view.shape[i] for i in arg), tuple(view.strides[i] for i in arg), view.offset
        )
    if step.op is Ops.SHRINK:
        if not all(isinstance(end, int) for pair in arg for end in pair):
            return None
        start = sum(low * stride for (low, _), stride in zip(arg, view.strides, strict=True))
        return _View(tuple(high - low for low, high in arg), view.strides, view.offset + start)
    if step.op is Ops.EXPAND:
        strides = tuple(
            stride if size == new else 0
            for size, new, stride in zip(view.shape, arg, view.strides, strict=True)
        )
        return _View(tuple(arg), strides, view.offset)
    return None
