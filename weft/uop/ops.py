"""Facade: the names of the IR that users import from `weft.uop.ops`, and nothing else."""

from weft.uop.args import (
    AxisType,
    BufferArg,
    KernelInfo,
    LocalArg,
    ParamArg,
    RangeArg,
    ReduceArg,
    StageArg,
    VariableArg,
)
from weft.uop.matcher import PatternMatcher
from weft.uop.node import UOp, Variable, sint
from weft.uop.opset import OPSET, GroupOp, OpRow, Ops
from weft.uop.pattern import UPat
from weft.uop.resolve import resolve, sym_infer
from weft.uop.rewrite import graph_rewrite, graph_rewrite_map
from weft.uop.text import expression_text, graph_text

__all__ = [
    "OPSET",
    "AxisType",
    "BufferArg",
    "GroupOp",
    "KernelInfo",
    "LocalArg",
    "OpRow",
    "Ops",
    "ParamArg",
    "PatternMatcher",
    "RangeArg",
    "ReduceArg",
    "StageArg",
    "UOp",
    "UPat",
    "Variable",
    "VariableArg",
    "expression_text",
    "graph_rewrite",
    "graph_rewrite_map",
    "graph_text",
    "resolve",
    "sint",
    "sym_infer",
]
