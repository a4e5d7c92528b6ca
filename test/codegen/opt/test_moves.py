"""Moves: candidates that a search starts from and changes."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from test.codegen.opt.kernels import KERNELS, prepared
from test.fuzz.actions import Case, run
from weft import Tensor
from weft.codegen.opt import Opt, OptOps
from weft.codegen.opt.chosen import choosing, leave_to_heuristic
from weft.codegen.opt.heuristic import optimise
from weft.codegen.opt.moves import Candidate, Space, longest_sum, without_cores
from weft.codegen.opt.opt import OptError
from weft.errors import DataError
from weft.machine import Target

WIDE = Target(name="wide", has_threads=True, cores=4, vector_bytes=32, has_fma=True)


@pytest.mark.parametrize("build", KERNELS, ids=lambda build: build.__name__)
def test_the_start_is_what_the_heuristic_picks(build: Any) -> None:
    ast, _ = build(random.Random(5), 9)
    space = Space(ast, WIDE)
    with choosing(leave_to_heuristic):
        assert space.kernel(space.start).src == optimise(ast, WIDE).src
    assert Candidate.decode(json.loads(json.dumps(space.start.encode()))) == space.start


@pytest.mark.parametrize("build", KERNELS, ids=lambda build: build.__name__)
def test_neighbours_compute_the_same(build: Any) -> None:
    pick = random.Random(build.__name__)
    ast, arrays = build(pick, 9)
    space = Space(ast, WIDE)
    near = list(dict.fromkeys([space.plain(), *space.neighbours(space.start)]))
    far = list(space.neighbours(pick.choice(near)))
    for candidate in pick.sample(near, min(3, len(near))) + pick.sample(far, min(3, len(far))):
        flat = tuple([array.reshape(-1) for array in arrays])
        case = Case(0, ast, flat, (), WIDE)
        assert space.cost(candidate) > 0
        expected, found = run(ast, case), run(space.kernel(candidate), case)
        for left, right in zip(found, expected, strict=True):
            np.testing.assert_array_equal(left, right, err_msg=str(candidate))


def test_moves_change_sizes_and_add_and_leave_out_actions() -> None:
    a, b = (Tensor.empty(64, 64).contiguous().realize() for _ in range(2))
    space = Space(prepared(a @ b), WIDE)
    start = space.start.parts[0]
    near = [without_cores(candidate.parts[0]) for candidate in space.neighbours(space.start)]
    lengths = {len(actions) for actions in near}
    body = len(without_cores(start))
    assert {body - 1, body, body + 1} <= lengths
    assert len(set(near)) > 10


def test_cores_come_last_with_the_split_that_is_for_them() -> None:
    split, thread = Opt(OptOps.SPLIT, (0,), 8), Opt(OptOps.THREAD, (0, 0))
    tile = Opt(OptOps.SPLIT, (1,), 8)
    assert without_cores((tile, split, thread)) == (tile,)
    assert without_cores((split, tile, thread)) == (split, tile)
    assert without_cores((split,)) == (split,) and without_cores(()) == ()


def test_sums_do_not_get_longer_than_those_of_the_heuristic() -> None:
    space = Space(prepared(Tensor.empty(3, 1 << 16).contiguous().realize().sum(axis=1)), WIDE)
    assert space.most_terms == 2048
    for candidate in space.neighbours(space.start):
        assert longest_sum(space.kernel(candidate)) <= 2048


def test_cores_are_not_offered_to_kernels_that_may_not_share() -> None:
    x = Tensor.arange(64.0).contiguous().realize()
    ast = prepared(x.flip(0) + x.sum())
    space = Space(ast, WIDE)
    space.shares = False
    threads = Candidate(tuple([(Opt(OptOps.THREAD, (0,)),) for _ in space.nests]))
    with pytest.raises(OptError, match="cores may not"):
        space.kernel(threads)
    for candidate in space.neighbours(space.start):
        assert all(opt.op is not OptOps.THREAD for part in candidate.parts for opt in part[-1:])


@pytest.mark.parametrize(
    "data", [None, 3, [3], [["UPCAST"]], [[["NONE", [0], 1]]], [[["UPCAST", "x", 1]]]]
)
def test_what_is_no_candidate_is_refused(data: Any) -> None:
    with pytest.raises(DataError, match="no actions"):
        Candidate.decode(data)
