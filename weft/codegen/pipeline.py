"""The codegen pipeline: one kernel AST -> a linear program and its text.

In: a SINK of STOREs over RANGEs, and the renderer of a target. Out: a `ProgramSpec`. Sits between
the schedule, which makes kernels, and the devices, which compile and run them.
Invariant: every pass keeps what the kernel computes. `DEBUG=5` prints the kernel after each pass;
`SPEC=1` verifies the program, `SPEC=2` the kernel after each pass as well, and that every access
is inside its memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from weft.codegen.add_barriers import add_barriers
from weft.codegen.bind_axes import bind_axes
from weft.codegen.decompose.decompose import decompose
from weft.codegen.decompose.longs import split_longs
from weft.codegen.decompose_updates import decompose_updates
from weft.codegen.estimate import estimate
from weft.codegen.expand import expand
from weft.codegen.fuse_products import fuse_products
from weft.codegen.hoist import hoist_sums
from weft.codegen.linearize import linearize
from weft.codegen.lower_index import lower_index
from weft.codegen.merge import merge
from weft.codegen.open_grid import open_grid, share_stages
from weft.codegen.opt.gpu import runs_in_any_order
from weft.codegen.opt.heuristic import optimise
from weft.codegen.pipeline_fills import pipeline_fills
from weft.codegen.place import LoopTree
from weft.codegen.separate import separate, separate_loops
from weft.codegen.settle_products import settle_products
from weft.codegen.share_reduces import share_reduces
from weft.codegen.share_threads import share_threads, thread_count
from weft.codegen.widen import widen
from weft.errors import CompileError
from weft.knobs import DEBUG, NOOPT, SPEC
from weft.machine import Target
from weft.renderer.base import (
    ProgramSpec,
    Renderer,
    program_params,
    program_size,
    program_variables,
)
from weft.uop.args import KernelInfo
from weft.uop.intern import leisurely_deaths
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.passes import Pass
from weft.uop.prove import prove_program
from weft.uop.rewrite import graph_rewrite
from weft.uop.spec import kernel_spec, program_spec, total_program_spec, type_verify
from weft.uop.symbolic import sym
from weft.uop.text import nodes_text


def _simplify(sink: UOp, renderer: Renderer) -> UOp:
    return graph_rewrite(sink, sym, name="simplify")


def _optimise(sink: UOp, renderer: Renderer) -> UOp:
    if NOOPT or not sink.arg.optimise:
        return sink
    better = optimise(sink, renderer.target)
    if DEBUG >= 6:
        for opt in better.arg.applied:
            print(f"*** {sink.arg.name}: {opt!r}")
    # splitting puts sums where one axis was: what divided or compared that axis may now be plain
    return better if better is sink else graph_rewrite(better, sym, name="simplify split axes")


def _for_groups(run: Callable[[UOp, Target], UOp]) -> Callable[[UOp, Renderer], UOp]:
    """A step that only targets with groups of threads need."""
    return lambda sink, r: run(sink, r.target) if r.target.has_local else sink


# from a kernel of scalars to a kernel of scalars, verified after each
_kernel_pass = partial(Pass, spec=kernel_spec)
KERNEL_PASSES = (
    _kernel_pass(
        "simplify", _simplify, "what was one index per op of the graph becomes one plain index"
    ),
    _kernel_pass(
        "merge", lambda sink, _: merge(sink), "independent reduces read their elements once"
    ),
    _kernel_pass(
        "separate", lambda sink, _: separate(sink), "each loop can then be optimised by itself"
    ),
    _kernel_pass(
        "widen", lambda sink, _: widen(sink), "registers are counted in the computed types"
    ),
    _kernel_pass("optimise", _optimise, "axes are split and typed for the target"),
    _kernel_pass("open_grid", _for_groups(open_grid), "groups run what loops would"),
    _kernel_pass("share_reduces", _for_groups(share_reduces), "before stages become memory"),
    _kernel_pass(
        "share_stages", _for_groups(share_stages), "one copy for a group, not one for a thread"
    ),
    _kernel_pass("decompose", decompose, "once per op, before expand copies it"),
    _kernel_pass(
        "share_threads", lambda sink, _: share_threads(sink), "a call runs one span of one axis"
    ),
)
# towards the machine: lanes, machine integers, loops
PROGRAM_PASSES = (
    Pass(
        "expand",
        lambda sink, renderer: expand(
            sink, in_rows=not renderer.target.has_local, has_max=renderer.target.has_max
        ),
        "registers and lanes are explicit",
    ),
    Pass("bind_axes", _for_groups(bind_axes), "what is left to fill is known only now"),
    Pass(
        "pipeline_fills", _for_groups(pipeline_fills), "what each thread copies is known only now"
    ),
    Pass("add_barriers", _for_groups(add_barriers), "who fills and who reads is known only now"),
    Pass(
        "lower_index",
        lambda sink, renderer: lower_index(sink, renderer.target.index_dtype),
        "before loops are placed, so that casts are placed with them",
    ),
    Pass("decompose_index", decompose, "index arithmetic has machine integers only now"),
    Pass("separate_loops", lambda sink, _: separate_loops(sink), "copies may need other levels"),
)


def lower(ast: UOp, renderer: Renderer) -> ProgramSpec:
    """The kernel as a program for the renderer's target."""
    if ast.op is not Ops.SINK or not isinstance(ast.arg, KernelInfo):
        raise CompileError(f"a kernel is a SINK with KernelInfo, found {ast!r}")
    with leisurely_deaths():
        return _lower(ast, renderer)


def _lower(ast: UOp, renderer: Renderer) -> ProgramSpec:
    sink = ast
    for step in KERNEL_PASSES:
        sink = step(sink, renderer)
        if step.name == "simplify":
            operations, touched = estimate(sink)
    threads = thread_count(sink)
    applied = sink.arg.applied
    for step in PROGRAM_PASSES:
        sink = step(sink, renderer)
    nest = LoopTree(sink)
    uops = fuse_products(linearize(hoist_sums(sink, nest), nest), renderer.target)
    uops = settle_products(uops)
    uops = decompose_updates(uops, renderer)
    # what was simplified away is still an argument: callers pass what the kernel was made with
    given = list(ast.toposort())
    params = program_params(given)
    uops = [*params, *[u for u in uops if u.op is not Ops.PARAM]]
    if SPEC >= 1:
        # a renderer whose division has the op table's meaning gets no raw ops
        total = renderer.is_native(Ops.IDIV)
        type_verify(uops, total_program_spec if total else program_spec, "linearize")
    if SPEC >= 2:
        prove_program(uops, ast.arg.name, "linearize")
    names = {u.arg.name for u in program_variables(uops)}
    outs, ins = _slots(uops, Ops.STORE), _slots(uops, Ops.LOAD)
    if not renderer.has_longs:
        uops = split_longs(uops)
    if SPEC >= 1 and not renderer.has_longs:
        type_verify(uops, program_spec, "split_longs")
    if DEBUG >= 5:
        print(f"*** {ast.arg.name}: linear program\n{nodes_text(uops)}")
    if DEBUG >= 1 and renderer.target.has_local and sink.src:
        _say_in_order(ast, uops)
    groups = [u for u in uops if u.op is Ops.SPECIAL]
    return ProgramSpec(
        name=ast.arg.name,
        src=renderer.render(ast.arg.name, uops),
        uops=uops,
        params=params,
        outs=outs,
        ins=ins,
        variables=tuple([u for u in program_variables(given) if u.arg.name in names]),
        threads_n=threads,
        ops=operations,
        mem=touched,
        applied=applied,
        global_size=program_size(groups, "gidx"),
        local_size=tuple([int(size) for size in program_size(groups, "lidx")]),
        layout=renderer.layout(uops),
        shared_bytes=renderer.shared_bytes(uops),
    )


def _say_in_order(ast: UOp, uops: list[UOp]) -> None:
    """`DEBUG=1`: a kernel that one thread of many runs, because its writes could not be proven to
    be apart."""
    if any([u.op is Ops.SPECIAL for u in uops]) or not any([u.op is Ops.RANGE for u in uops]):
        return
    if runs_in_any_order(ast):
        return
    where = f" of {ast.origin[0]}:{ast.origin[1]}" if ast.origin is not None else ""
    print(
        f"warning: kernel {ast.arg.name}{where} writes in order, on one thread: what its rounds "
        "write is not known to be apart"
    )


def _slots(uops: list[UOp], op: Ops) -> tuple[int, ...]:
    """The slots of the buffers that LOADs or STOREs of the program touch."""
    places = [u.src[0] for u in uops if u.op is op and u.src[0].op is Ops.INDEX]
    return tuple(sorted({p.src[0].arg.slot for p in places if p.src[0].op is Ops.PARAM}))
