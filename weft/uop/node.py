"""UOp, the one interned immutable node.

What comes in: (op, dtype, src, arg, tag). What goes out: the one object with these contents.
Where it sits: under everything; tensors, buffers, kernels, ranges and programs are all UOps.
The one invariant: the same contents give the same object (`intern.py`), so `is` is equality.
Derived facts are cached on the node, and nothing here recurses over the graph.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Union

from weft.dtype import DType, Invalid, dtypes, least_upper_dtype, to_dtype
from weft.errors import ArgumentError
from weft.helpers import prod
from weft.mixin.rearrange import RearrangeMixin
from weft.mixin.reduce import ReduceMixin
from weft.mixin.trigonometry import TrigonometryMixin
from weft.uop import bounds, evaluate
from weft.uop.args import KernelInfo, ReduceArg, bound_value, variable_arg
from weft.uop.build import BuildMixin
from weft.uop.compat import CompatibilityMixin, in_order
from weft.uop.compat_kernel import KernelCompatibilityMixin
from weft.uop.infer import UNSET, Devices, infer_device, infer_shape, open_ranges
from weft.uop.intern import NodeRef, dead, deaths, forget, table, take_place
from weft.uop.layout import Layout, Placement, layout_of
from weft.uop.opset import OPSET, GroupOp, Ops, Shape, Typing
from weft.uop.spelling import Spelling

sint = Union[int, "UOp"]


class UOp(
    ReduceMixin,
    RearrangeMixin,
    TrigonometryMixin,
    CompatibilityMixin,
    KernelCompatibilityMixin,
    BuildMixin,
):
    """A node. Build with `UOp(op, dtype, src, arg, tag)` or the helpers below; never mutate one."""

    __slots__ = (
        "__weakref__",
        "_bounds",
        "_device",
        "_key",
        "_ranges",
        "_shape",
        "arg",
        "dtype",
        "held",
        "op",
        "origin",
        "src",
        "tag",
    )
    op: Ops
    dtype: DType
    src: tuple[UOp, ...]
    arg: Any
    tag: Any
    origin: tuple[str, int] | None  # the user's source line; not part of the contents
    held: Any  # what the engine keeps with the node while it lives; not part of the contents
    _shape: Any
    _device: Any
    _ranges: Any
    _bounds: Any
    _key: Any

    def __new__(
        cls,
        op: Ops,
        dtype: DType = dtypes.void,
        src: tuple[UOp, ...] = (),
        arg: Any = None,
        tag: Any = None,
    ) -> UOp:
        key = (op, dtype, src, arg, tag)
        entry = table.get(key)
        if entry is not None:
            node = entry()
            if node is not None:
                return node
        node = object.__new__(cls)
        node.op = op
        node.dtype = dtype
        node.src = src
        node.arg = arg
        node.tag = tag
        node.origin = node.held = None
        node._shape = node._device = node._ranges = node._bounds = node._key = UNSET
        new_entry = NodeRef(node, deaths.at_death)
        new_entry.key = key
        # one step, so that of two threads one is first; a lock for every node would cost more
        entry = table.setdefault(key, new_entry)
        if entry is not new_entry:
            node = take_place(entry, new_entry, node)
        if dead and len(dead) > deaths.may_wait:
            forget()
        return node

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (flatten_nodes(self),)

    def __copy__(self) -> UOp:
        return self

    def __deepcopy__(self, memo: Any) -> UOp:
        return self

    def __bool__(self) -> bool:
        if self.op is Ops.CONST:
            return bool(self.arg)
        low, high = self.vmin, self.vmax
        if low == high:
            return bool(low)
        raise ArgumentError(
            f"the truth of {self.text()} is not known yet: it is between {low} and {high}"
        )

    def __int__(self) -> int:
        return int(self._decided())

    def __float__(self) -> float:
        return float(self._decided())

    def __index__(self) -> int:
        return int(self._decided())

    def _decided(self) -> Any:
        if self.op is Ops.BIND:
            return self.src[1].arg
        low, high = self.vmin, self.vmax
        if low != high:
            raise ArgumentError(
                f"{self.text()} has no single value: it is between {low} and {high}"
            )
        return low

    def __repr__(self) -> str:
        if self._is_size():
            text = self.text()
            return text[1:-1] if self.op is Ops.BIND else text
        return f"UOp({self.op}, {self.dtype}, arg={self.arg!r}, {len(self.src)} src)"

    # ------------------------------------------------------------ rebuilding
    def replace(self, **changes: Any) -> UOp:
        """The node with some of op, dtype, src, arg, tag changed."""
        unknown = changes.keys() - {"op", "dtype", "src", "arg", "tag"}
        if unknown:
            raise ArgumentError(f"replace() takes op, dtype, src, arg, tag, not {sorted(unknown)}")
        new = UOp(
            changes.get("op", self.op),
            changes.get("dtype", self.dtype),
            changes.get("src", self.src),
            changes.get("arg", self.arg),
            changes.get("tag", self.tag),
        )
        if new.origin is None:
            new.origin = self.origin
        return new

    def rtag(self, tag: Any = True) -> UOp:
        """The node with another tag."""
        return self.replace(tag=tag)

    def _marked(self, tag: str) -> UOp:
        """The same, with what a decomposition may know about it."""
        return self.rtag(tag)

    def with_src(self, src: tuple[UOp, ...]) -> UOp:
        """The node with other sources: the hot path of every rewrite."""
        new = UOp(self.op, self.dtype, src, self.arg, self.tag)
        if new.origin is None:
            new.origin = self.origin
        return new

    def substitute(
        self,
        changes: dict[UOp, UOp],
        name: str | None = None,
        walk: bool = False,
        extra_pm: Any = None,
    ) -> UOp:
        """Every node that is a key of `changes` replaced by its value; values are not searched
        again, whatever `walk` says. `name` is tinygrad's, for its viewer. The rules `extra_pm` are
        tried on every other node, once its sources are done."""
        if not changes and extra_pm is None:
            return self
        done = dict(changes)
        # None stands above a node whose sources were pushed: when it comes up, they are done
        stack: list[Any] = [self]
        while stack:
            node = stack.pop()
            if node is None:
                node = stack.pop()
                src = tuple([done[s] for s in node.src])
                new = node if src == node.src else node.with_src(src)
                done[node] = new if extra_pm is None else _rewritten(new, extra_pm)
            elif node not in done:
                if not node.src:
                    done[node] = node if extra_pm is None else _rewritten(node, extra_pm)
                    continue
                stack.append(node)
                stack.append(None)
                for s in reversed(node.src):
                    if s not in done:
                        stack.append(s)
        return done[self]

    # ------------------------------------------------------------ walking
    def toposort(
        self, gate: Callable[[UOp], bool] | None = None, enter_calls: bool = True
    ) -> dict[UOp, None]:
        """All nodes below and including this one, sources first. `gate` says whose sources to
        enter; `enter_calls` is tinygrad's, here functions are part of the graph."""
        order: dict[UOp, None] = {}
        # None stands above a node whose sources were pushed: when it comes up, they are done
        stack: list[UOp | None] = [self]
        while stack:
            node = stack.pop()
            if node is None:
                order[stack.pop()] = None  # type: ignore[index]
            elif node not in order:
                if not node.src or (gate is not None and not gate(node)):
                    order[node] = None
                    continue
                stack.append(node)
                stack.append(None)
                for s in reversed(node.src):
                    if s not in order:
                        stack.append(s)
        return order

    @property
    def backward_slice(self) -> dict[UOp, None]:
        """All nodes this one is computed from, itself excluded."""
        order = self.toposort()
        del order[self]
        return order

    def _derive(self, slot: str, rule: Callable[[UOp], Any]) -> Any:
        """Fill the cached fact `slot` of this node and of every source that lacks it."""
        for s in self.src:
            if getattr(s, slot) is UNSET:
                break
        else:
            fact = rule(self)
            setattr(self, slot, fact)
            return fact
        stack = [self]
        while stack:
            node = stack[-1]
            if getattr(node, slot) is not UNSET:
                stack.pop()
                continue
            missing = [s for s in node.src if getattr(s, slot) is UNSET]
            if missing:
                stack.extend(missing)
                continue
            setattr(node, slot, rule(node))
            stack.pop()
        return getattr(self, slot)

    # ------------------------------------------------------------ derived facts
    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape; empty for scalars and for everything inside a kernel."""
        shape = self._shape
        if shape is UNSET:
            if OPSET[self.op].shape is Shape.SCALAR:
                self._shape = shape = ()
            else:
                shape = self._derive("_shape", infer_shape)
        if shape is None:
            raise ArgumentError(f"{self.op.name} has no value, so it has no shape")
        return shape

    @property
    def device(self) -> Devices:
        """None, a device, or a tuple of devices."""
        device = self._device
        if device is UNSET:
            device = self._derive("_device", infer_device)
        return device.devices if type(device) is Placement else device

    @property
    def layout(self) -> Layout | None:
        """How it is cut over several devices; None for what is whole on each, or on one device."""
        self.device  # noqa: B018
        return layout_of(self)

    @property
    def axis(self) -> int | None:
        """The axis along which it is cut over several devices; None for what is not, or where a
        reshape has left no such axis."""
        layout = self.layout
        return None if layout is None or layout.shape != self.shape else layout.axis

    @property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """Where each part along `axis` starts and stops."""
        layout = self.layout
        if layout is None:
            raise ArgumentError("only what is cut over several devices has bounds; use shard(...)")
        return tuple([layout.part(number) for number in range(layout.count)])

    @property
    def ranges(self) -> frozenset[UOp]:
        """The open axes this value depends on."""
        ranges = self._ranges
        if ranges is UNSET:
            ranges = self._derive("_ranges", open_ranges)
        return ranges

    @property
    def _min_max(self) -> tuple[Any, Any]:
        found = self._bounds
        if found is UNSET:
            found = self._derive("_bounds", bounds.min_max)
        return found

    @property
    def vmin(self) -> Any:
        """The least value it can have, as exactly as its sources' bounds allow."""
        return self._min_max[0]

    @property
    def vmax(self) -> Any:
        """The greatest value it can have."""
        return self._min_max[1]

    @property
    def key(self) -> bytes:
        """A hash of the contents that is the same in every process."""
        key = self._key
        if key is UNSET:
            key = self._derive("_key", _content_hash)
        return key

    @property
    def size(self) -> sint:
        """How many elements."""
        return prod(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def base(self) -> UOp:
        """What this is a view of, movement ops taken off."""
        node = self
        while node.op in GroupOp.Movement:
            node = node.src[0]
        return node

    @property
    def marg(self) -> tuple[Any, ...]:
        """A movement op's argument with its symbolic parts (kept as sources) put back."""
        if len(self.src) == 1:
            return self.arg
        symbolic = iter(self.src[1:])

        def fill(item: Any) -> Any:
            if item is None:
                return next(symbolic)
            return tuple(fill(part) for part in item) if isinstance(item, tuple) else item

        return tuple(fill(item) for item in self.arg)

    def _mop(self, op: Ops, arg: tuple[Any, ...]) -> UOp:
        """A movement op on this; symbolic parts of `arg` become sources (`marg` puts them back).

        `x._mop(Ops.RESHAPE, (n, 4))` -> RESHAPE(x, n; arg=(None, 4))
        """
        symbolic: list[UOp] = []

        def split(item: Any) -> Any:
            if type(item) is int:
                return item
            if isinstance(item, (tuple, list)):
                return tuple([split(part) for part in item])
            if not isinstance(item, UOp):
                return item
            if item.op is Ops.CONST:
                return item.arg
            symbolic.append(item)
            return None

        plain = tuple([split(item) for item in arg])
        return UOp(op, self.dtype, (self, *symbolic), plain)

    def _reduce_axis(self, op: Ops, axes: tuple[int, ...]) -> UOp:
        """Axes folded with op; they keep size 1."""
        return UOp(Ops.REDUCE_AXIS, self.dtype, (self,), ReduceArg(op, axes))

    def _cat(self, others: Sequence[UOp], axis: int) -> UOp:
        """Nodes one after another along an axis, in their least upper dtype."""
        parts = (self, *others)
        dtype = least_upper_dtype(*[part.dtype for part in parts])
        return UOp(Ops.CAT, dtype, tuple([part.cast(dtype) for part in parts]), axis)

    # ------------------------------------------------------------ building
    @staticmethod
    def const(dtype: Any, value: Any = None) -> UOp:
        """A number of a dtype (a vector dtype gives a vector of it), given in either order."""
        if type(dtype) is not DType:
            dtype, value = in_order(dtype, value)
        if isinstance(value, UOp):
            return value.cast(dtype)
        if value is Invalid:
            return UOp.invalid(dtype)
        if dtype.count > 1:
            lanes = value if isinstance(value, tuple) else (value,) * dtype.count
            scalar = dtype.scalar()
            return UOp(Ops.VECTORIZE, dtype, tuple([UOp.const(scalar, lane) for lane in lanes]))
        return UOp(Ops.CONST, dtype, (), dtype.const(value))

    def const_like(self, b: Any, dtype: DType | None = None) -> UOp:
        """A constant of this node's dtype."""
        return b if isinstance(b, UOp) else UOp.const(dtype or self.dtype, b)

    @staticmethod
    def variable(
        name: str,
        min_val: Any,
        max_val: Any,
        dtype: DType = dtypes.weakint,
        multiple_of: int = 1,
        param: bool = False,
    ) -> UOp:
        """A run-time number, min_val <= value <= max_val; infinite means what the dtype has.

        `param` is accepted for tinygrad's sake: every variable is a parameter of its kernels.
        """
        return UOp(
            Ops.VARIABLE, dtype, (), variable_arg(name, min_val, max_val, dtype, multiple_of)
        )

    def bind(self, value: Any) -> UOp:
        """The variable with a value for the next run."""
        if self.op is not Ops.VARIABLE:
            raise ArgumentError(f"only a Variable can be bound, not {self.op.name}")
        if isinstance(value, UOp):
            value = value.simplify().arg if value.op is not Ops.BIND else value.src[1].arg
        value = bound_value(self.arg, value)
        return UOp(Ops.BIND, self.dtype, (self, UOp.const(self.dtype, value)))

    def unbind(self) -> tuple[UOp, int]:
        """The variable and its value."""
        if self.op is not Ops.BIND:
            raise ArgumentError(f"only a bound Variable can be unbound, not {self.op.name}")
        return self.src[0], self.src[1].arg

    def unbind_all(self) -> tuple[UOp, dict[UOp, int]]:
        """The same expression over free variables, and the values they had."""
        values = {u.src[0]: u.src[1].arg for u in self.toposort() if u.op is Ops.BIND}
        binds = {u: u.src[0] for u in self.toposort() if u.op is Ops.BIND}
        return self.substitute(binds), values

    def variables(self) -> list[UOp]:
        """The variables in it, by name."""
        found = {u for u in self.toposort() if u.op is Ops.VARIABLE}
        return sorted(found, key=lambda u: u.arg.name)

    def sink(*nodes: UOp | None, arg: KernelInfo | None = None, tag: Any = None) -> UOp:
        """Several nodes as one; `a.sink(b)` or `UOp.sink(a, b)`, None is left out."""
        given = tuple([node for node in nodes if node is not None])
        return UOp(Ops.SINK, dtypes.void, given, arg, tag)

    def cast(self, dtype: DType | str) -> UOp:
        """The value in another dtype (lane by lane for vectors)."""
        if isinstance(dtype, str):
            dtype = to_dtype(dtype)
        target = dtype if dtype.count == self.dtype.count else dtype.scalar().vec(self.dtype.count)
        if target is self.dtype:
            return self
        if self.op is Ops.CONST:
            return UOp.const(target, evaluate.cast(self.arg, self.dtype, target))
        return UOp(Ops.CAST, target, (self,))

    def bitcast(self, dtype: DType | str) -> UOp:
        """The same bits as another dtype."""
        dtype = to_dtype(dtype)
        return self if dtype is self.dtype else UOp(Ops.BITCAST, dtype, (self,))

    def where(self, x: Any, y: Any) -> UOp:
        """x where this is true, else y."""
        if not isinstance(x, UOp):
            x = y.const_like(x) if isinstance(y, UOp) else UOp.const(dtypes.from_py(x), x)
        return UOp(Ops.WHERE, x.dtype, (self, x, x.const_like(y)))

    def alu(self, op: Ops | Spelling, *src: Any) -> UOp:
        """One elementwise op; numbers take this node's dtype, mixed dtypes their least upper
        bound."""
        if isinstance(op, Spelling):
            return self.spelled(op, *src)
        operands = (self, *[s if isinstance(s, UOp) else self.const_like(s) for s in src])
        if op is Ops.WHERE:
            return self.where(operands[1], operands[2])
        dtype = operands[0].dtype
        if any(s.dtype is not dtype for s in operands):
            dtype = least_upper_dtype(*[s.dtype for s in operands])
            operands = tuple([s.cast(dtype) for s in operands])
        if OPSET[op].typing is Typing.COMPARE:
            dtype = dtypes.bool if dtype.count == 1 else dtypes.bool.vec(dtype.count)
        return UOp(op, dtype, operands)

    # ------------------------------------------------------------ simplifying and printing
    def simplify(self, tracked: bool = False) -> UOp:
        """The same value, as plain as the rules can make it. (`VIZ=1` tracks it in any case.)"""
        return _simplifier[0](self) if _simplifier else self

    def ssimplify(self) -> Any:
        """`simplify`, and a Python number where it is one."""
        simple = self.simplify()
        return simple.arg if simple.op is Ops.CONST else simple

    def __ne__(self, other: object) -> Any:
        """Not the same node; of a truth value and True or False, the comparison of values."""
        if isinstance(other, bool) and self.dtype.kind == "bool":
            return self.alu(Ops.CMPNE, other)
        return self is not other

    __hash__ = object.__hash__

    def text(self) -> str:
        """An expression as Python-like text, as weft's own messages show it."""
        return _printer[0](self) if _printer else repr(self)

    def render(self, simplify: bool = True, pm: Any = None) -> str:
        """The expression as text in the form that tinygrad's users know, simplified before."""
        return _renderer[0](self, simplify, pm) if _renderer else self.text()

    def __str__(self) -> str:
        if len(_printer) < 2 or self._is_size():
            return repr(self)
        return _printer[1](self)

    def _is_size(self) -> bool:
        """Whether this is what shapes are made of: numbers and variables. It reads as one."""
        if self.dtype is not dtypes.weakint or self.op is Ops.CONST or not _printer:
            return False
        leaves = (Ops.VARIABLE, Ops.CONST)
        return all(n.op in leaves or (n.src and n.op is not Ops.RANGE) for n in self.toposort())


_simplifier: list[Callable[[UOp], UOp]] = []
_printer: list[Callable[[UOp], str]] = []
_renderer: list[Callable[[UOp, bool, Any], str]] = []


def register_simplifier(simplify: Callable[[UOp], UOp]) -> None:
    """The rules live above this file; they register here so that shapes can be simplified."""
    _simplifier[:] = [simplify]


def register_printer(expression: Callable[[UOp], str], graph: Callable[[UOp], str]) -> None:
    """`render` and `print` are written above this file as well."""
    _printer[:] = [expression, graph]


def register_renderer(render: Callable[[UOp, bool, Any], str]) -> None:
    """And so is `UOp.render`."""
    _renderer[:] = [render]


def _rewritten(node: UOp, rules: Any) -> UOp:
    """What is left when no rule fits the node any more."""
    while (new := rules.rewrite(node)) is not None and new is not node:
        node = new
    return node


def _content_hash(node: UOp) -> bytes:
    text = repr((node.op.name, str(node.dtype), node.arg, node.tag))
    digest = hashlib.sha256(text.encode())
    for s in node.src:
        digest.update(s._key)
    return digest.digest()


def flatten_nodes(node: UOp) -> list[tuple[Any, ...]]:
    """The graph as a flat list of rows whose sources are positions: what pickle stores."""
    order = {u: i for i, u in enumerate(node.toposort())}
    return [(u.op.name, u.dtype, tuple(order[s] for s in u.src), u.arg, u.tag) for u in order]


def _rebuild(rows: Iterable[tuple[Any, ...]]) -> UOp:
    nodes: list[UOp] = []
    for name, dtype, src, arg, tag in rows:
        nodes.append(UOp(Ops[name], dtype, tuple(nodes[i] for i in src), arg, tag))
    return nodes[-1]


Variable = UOp.variable
