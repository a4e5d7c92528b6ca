"""What a renderer is, and what a lowered kernel looks like.

In: the description of a machine. Out: `Renderer` (linear program -> text) and `ProgramSpec`
(everything about one lowered kernel). First of the renderers; codegen, devices and the engine read
these.
Invariant: a renderer prints what the linear program says; it never decides or optimises anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.dtype import DType, dtypes
from weft.errors import CompileError
from weft.machine import Target as Target
from weft.renderer.compat import RendererNames
from weft.uop.node import UOp
from weft.uop.opset import Ops


class Renderer(RendererNames):
    """Prints linear programs for one target.

    `code_for_op` names the elementwise ops that the renderer prints with the op table's meaning for
    every input. What is missing there is decomposed before. Every renderer prints the forms tagged
    "raw" (C semantics, operands proven safe) of IDIV, MOD, SHL, SHR and CAST.
    """

    name: str = "base"
    # the op -> how it is printed: a template, a function, or True; only the keys matter to others
    code_for_op: Mapping[Ops, Any] = {}
    # dtypes whose CAST to and from float32 is printed; the other narrow floats are decomposed to
    # integers and appear only in LOAD, STORE and BITCAST, as bits
    native_dtypes: frozenset[DType] = frozenset((*dtypes.all, *dtypes.weaks))
    # whether a FALLING EXP2 of float32 is an instruction, off by two units in the last place
    has_falling_exp2: bool = False
    # whether there are 64-bit integers; where there are none, programs have pairs of uint32
    has_longs: bool = True
    suffix: str = "txt"  # of a file with such text

    def __init__(self, target: Target | None = None) -> None:
        self.target = target if target is not None else Target()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.target.name!r})"

    def supported_dtypes(self) -> frozenset[DType]:
        """The dtypes that buffers and values of a kernel may have."""
        return frozenset(dtypes.all)

    def is_native(self, op: Ops) -> bool:
        """Whether the op may stay as it is, for all inputs."""
        return op in self.code_for_op

    def layout(self, uops: Sequence[UOp]) -> tuple[tuple[str, int], ...]:
        """The arguments of the program's entry, see `groups.word_layout`; (): buffers by slot,
        then variables by name."""
        return ()

    def shared_bytes(self, uops: Sequence[UOp]) -> int:
        """Memory that a group shares and that a launch of the program has to ask for."""
        return 0

    def render(self, name: str, uops: Sequence[UOp]) -> str:
        """The text of the linear program, as a function called `name`."""
        raise CompileError(f"{type(self).__name__} cannot print programs; a derived class can")


@dataclass(frozen=True)
class ProgramSpec:
    """One lowered kernel: its text, and what running it needs to know.

    The kernel's arguments are `buffer_count` buffers, the one of a PARAM at its slot, then the
    values of `variables` in their order.
    """

    name: str
    src: str
    uops: Sequence[UOp] = field(repr=False, compare=False)
    params: tuple[UOp, ...]  # PARAMs by slot: arg.slot, arg.size, dtype
    outs: tuple[int, ...]  # slots that are written
    ins: tuple[int, ...]  # slots that are read
    variables: tuple[UOp, ...] = ()  # VARIABLEs by name
    threads_n: int = 1  # size of the axis that threads share; 1: not parallel
    ops: int | UOp = 0  # estimate of arithmetic ops
    mem: int | UOp = 0  # estimate of bytes touched
    applied: tuple[Any, ...] = ()  # the optimisations, as actions
    global_size: tuple[int | UOp, ...] = ()  # groups along x, y, z; may depend on `variables`
    local_size: tuple[int, ...] = ()  # threads of a group along x, y, z; (): no groups
    layout: tuple[tuple[str, int], ...] = ()  # arguments of the entry, see Renderer.layout
    shared_bytes: int = 0  # shared memory that a launch has to ask for

    @property
    def buffer_count(self) -> int:
        """How many buffers the kernel takes: slots 0 to this, used or not."""
        return 1 + max((param.arg.slot for param in self.params), default=-1)


def program_params(uops: Sequence[UOp]) -> tuple[UOp, ...]:
    """The PARAMs of a linear program, by slot."""
    found = {u for u in uops if u.op is Ops.PARAM}
    return tuple(sorted(found, key=lambda u: (u.arg.slot, u.dtype)))


def program_variables(uops: Sequence[UOp]) -> tuple[UOp, ...]:
    """The VARIABLEs of a linear program, by name: the order in which a kernel receives them."""
    found = {u for u in uops if u.op is Ops.VARIABLE}
    return tuple(sorted(found, key=lambda u: str(u.arg.name)))


def program_size(uops: Sequence[UOp], name: str) -> tuple[int | UOp, ...]:
    """How many groups ("gidx") or threads of a group ("lidx") a linear program runs, along x, y, z.

    A number, or an expression of the program's variables; 1 along what it does not ask about.
    """
    sizes = {u.arg: u.src[0] for u in uops if u.op is Ops.SPECIAL and u.arg.startswith(name)}
    if not any(u.op is Ops.SPECIAL for u in uops):
        return ()
    places = [sizes.get(f"{name}{place}") for place in range(3)]
    return tuple(1 if s is None else s.arg if s.op is Ops.CONST else s for s in places)
