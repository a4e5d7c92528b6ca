"""A fixed share of the random actions; any count by hand with `python -m test.fuzz actions`."""

from __future__ import annotations

import numpy as np
import pytest

from test.codegen.kernel_builder import Axes, kernel, load, params
from test.fuzz.actions import Case, check_seed, difference, random_case, shrink
from test.optional import STRICTEST
from weft import Context
from weft.codegen.opt import Opt, OptOps
from weft.codegen.opt.actions import apply_opt
from weft.codegen.opt.opt import OptError
from weft.uop.reproduce import graph_rows, parse_rows


@pytest.mark.parametrize("block", range(8))
def test_random_actions_on_random_kernels(block: int) -> None:
    for seed in range(block * 40, block * 40 + 40):
        report = check_seed(seed)
        assert report is None, report


def test_random_actions_are_verified() -> None:
    with Context(SPEC=STRICTEST):
        for seed in range(5000, 5050):
            report = check_seed(seed)
            assert report is None, report


def test_random_actions_on_the_default_device() -> None:
    for seed in range(6000, 6060):
        report = check_seed(seed, "CPU")
        assert report is None, report


def test_cases_repeat_and_print_as_code() -> None:
    case, again = random_case(11), random_case(11)
    assert case.ast is again.ast and case.opts == again.opts
    assert parse_rows(graph_rows(case.ast)) is case.ast
    environment: dict[str, object] = {}
    exec(case.source().replace("print(", "found = ("), environment)
    assert environment["found"] is None


def test_shrinking_leaves_the_action_that_matters() -> None:
    arrays = (np.arange(10, dtype=np.float32),)
    (x,) = params(*arrays)
    i = Axes().loop(10)
    ast = kernel(x.index(i).store(load(x, i) + 1.0, i))
    opts = (
        Opt(OptOps.SPLIT, (0,), 5),
        Opt(OptOps.UPCAST, (0, 1), 5),
        Opt(OptOps.UPCAST, (0, 0), 2),
    )
    case = Case(0, ast, arrays, opts)
    assert difference(case) is None

    def fails(other: Case) -> bool:
        return any(opt.op is OptOps.UPCAST and opt.axis == (0, 1) for opt in other.opts)

    assert shrink(case, fails).opts == opts[:2]


def test_a_row_is_not_kept_for_lanes() -> None:
    """Found by seed 2288: KEEP after VECTOR was accepted, and could not be lowered."""
    case = random_case(2288)
    rows = """
0: PARAM int32 () [{"ParamArg":[0,6]},null]
1: CONST weakint () [2,null]
2: RANGE weakint (1) [{"RangeArg":[[0],{"AxisType":"LOOP"}]},null]
3: CONST weakint () [3,null]
4: MUL weakint (2 3)
5: RANGE weakint (3) [{"RangeArg":[[1],{"AxisType":"LOOP"}]},null]
6: ADD weakint (4 5)
7: INDEX int32 (0 6)
8: PARAM int32 () [{"ParamArg":[1,6]},null]
9: INDEX int32 (8 6)
10: LOAD int32 (9)
11: RANGE weakint (3) [{"RangeArg":[[2],{"AxisType":"REDUCE"}]},null]
12: ADD weakint (4 11)
13: INDEX int32 (8 12)
14: LOAD int32 (13)
15: REDUCE int32 (14 11) [{"Ops":"MAX"},null]
16: NEG int32 (15)
17: ADD int32 (10 16)
18: CONST int32 () [5,null]
19: MUL int32 (17 18)
20: CONST int32 () [3,null]
21: IDIV int32 (19 20)
22: RANGE weakint (3) [{"RangeArg":[[3],{"AxisType":"REDUCE"}]},null]
23: ADD weakint (4 22)
24: INDEX int32 (8 23)
25: LOAD int32 (24)
26: ADD int32 (25 16)
27: MUL int32 (26 18)
28: IDIV int32 (27 20)
29: REDUCE int32 (28 22) [{"Ops":"ADD"},null]
30: MUL int32 (21 29)
31: STORE void (7 30 2 5)
32: SINK void (31) [{"KernelInfo":["test",[],true,[]]},null]
"""
    ast = apply_opt(parse_rows(rows), Opt(OptOps.VECTOR, (0,), 0))
    with pytest.raises(OptError, match="no costly value"):
        apply_opt(ast, Opt(OptOps.KEEP, (3,), 3))
    assert difference(case) is None
