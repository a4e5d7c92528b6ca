"""`torch.compile(model, backend="weft")`: what dynamo calls with a graph.

In: a graph that dynamo traced, and example inputs. Out: a function for it. Sits at the top of the
package: AOTAutograd makes functional graphs of operators, one for the forward and one for the
backward pass, and each becomes a `Plan`.
Invariant: dynamo breaks no graph because of weft; every graph that comes here runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.registry import register_backend
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.fx import GraphModule

from weft.torch import counts
from weft.torch.decompositions import decompositions
from weft.torch.plan import Plan


def compile_graph(graph: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """One functional graph: what AOTAutograd calls."""
    counts.report().graphs += 1
    plan = Plan(graph)
    plan.prepare()
    return _boxed(plan)


def _boxed(plan: Plan) -> Callable[..., Any]:
    """A function that takes its arguments as one list, which it empties."""

    def call(args: list[Any]) -> list[Any]:
        return plan(args)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def weft_backend(
    graph: GraphModule, example_inputs: Sequence[Any], **options: Any
) -> Callable[..., Any]:
    """The backend that dynamo knows as "weft"."""
    compiler = aot_autograd(
        fw_compiler=compile_graph,
        bw_compiler=compile_graph,
        inference_compiler=compile_graph,
        decompositions=decompositions(),
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
    found: Callable[..., Any] = compiler(graph, example_inputs)
    return found


def register() -> None:
    """Make `backend="weft"` known to dynamo."""
    if "weft" not in torch._dynamo.list_backends(exclude_tags=()):
        register_backend(compiler_fn=weft_backend, name="weft")
