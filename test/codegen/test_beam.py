"""BEAM=n: the search itself, what it starts from and moves by, and the process that tries.

The other process is real in these tests; where it shall misbehave, its program is replaced by one
that does.
"""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bench.beam
from test.codegen.opt.kernels import KERNELS
from test.fuzz.actions import Case, run
from weft import Context, Device, Tensor, TinyJit, Variable, dtypes
from weft.codegen.opt import Opt, OptOps, beam
from weft.codegen.opt.beam import Beam
from weft.codegen.opt.chosen import choosing, leave_to_heuristic
from weft.codegen.opt.heuristic import optimise
from weft.codegen.opt.moves import Candidate, Space, longest_sum, without_cores
from weft.codegen.opt.opt import OptError
from weft.codegen.pipeline import KERNEL_PASSES
from weft.disk import cache_entries
from weft.engine import search, search_process
from weft.engine.programs import clear_programs
from weft.engine.search_trial import first_difference, index_bounds, numbers
from weft.errors import DataError
from weft.helpers import diskcache_put
from weft.machine import Target
from weft.uop.node import UOp
from weft.uop.opset import Ops

WIDE = Target(name="wide", has_threads=True, cores=4, vector_bytes=32, has_fma=True)


def prepared(tensor: Tensor) -> UOp:
    """The last kernel of a tensor, as the search sees it."""
    ast = tensor.schedule()[-1].kernel
    assert ast is not None
    for step in KERNEL_PASSES:
        if step.name == "optimise":
            break
        ast = step.run(ast, Device["CPU"].renderer)
    return ast


# ------------------------------------------------------------ the search


def downhill(width: int, budget: int = 1000) -> tuple[Beam[int], list[int]]:
    """Numbers whose time is their distance from 37, reached by steps of 1 and 5."""
    asked: list[int] = []

    def measure(point: int, best: float) -> float | None:
        asked.append(point)
        return None if point == 20 else 1.0 + abs(point - 37)

    found = Beam(
        lambda point: [point + step for step in (-5, -1, 1, 5)],
        lambda point: 1.0,
        measure,
        lambda: len(asked) >= budget,
    )
    return found, asked


def test_a_search_goes_downhill_and_measures_nothing_twice() -> None:
    search_, asked = downhill(2)
    results = search_.search([0, 10], 2)
    assert results[0].point == 37 and results[0].seconds == 1.0
    assert len(asked) == len(set(asked)) == search_.tried
    assert {0, 10} <= {known.point for known in results}
    # what could not be measured is no result
    assert 20 not in {known.point for known in results}


def test_a_search_ends_when_its_time_is_over() -> None:
    search_, asked = downhill(2, budget=5)
    results = search_.search([0, 10], 2)
    assert asked == [0, 10, 5, 9, 11] and results[0].point == 11


def test_hopeless_estimates_are_not_measured() -> None:
    asked: list[int] = []
    search_ = Beam(
        lambda point: [1, 2, 3],
        lambda point: 100.0 if point == 2 else 1.0,
        lambda point, best: asked.append(point) or float(point + 1),
        lambda: False,
    )
    search_.search([0], 1)
    assert asked == [0, 1, 3]


# ------------------------------------------------------------ candidates


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


# ------------------------------------------------------------ scratch memory


def test_indices_of_scratch_memory_stay_inside() -> None:
    table = Tensor.empty(1000, 4).contiguous().realize()
    rows = Tensor([3, 999, 0], dtype=dtypes.int32).realize()
    ast = prepared(table[rows] * 2)
    slots = {u.arg.slot: u for u in ast.toposort() if u.op is Ops.PARAM}
    (slot,) = [number for number, param in slots.items() if param.dtype is dtypes.int32]
    bounds = index_bounds(ast)
    assert set(bounds) == {slot} and 400 < bounds[slot] <= 1000
    assert numbers(dtypes.int32, 5000, 1, bounds[slot]).max() < 1000


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda dtype: dtype.name)
def test_scratch_numbers_of_every_dtype(dtype: Any) -> None:
    found = numbers(dtype, 10_000, 3)
    assert found.nbytes == 10_000 * dtype.itemsize
    assert len(np.unique(found[:1000])) > 1
    np.testing.assert_array_equal(found, numbers(dtype, 10_000, 3))
    assert first_difference(found, found.copy(), dtype, 1) is None


def test_differences_beyond_rounding_are_found() -> None:
    right = np.linspace(1, 2, 100, dtype=np.float32)
    assert first_difference(right * np.float32(1 + 1e-7), right, dtypes.float32, 100) is None
    wrong = right.copy()
    wrong[42] += 0.01
    assert first_difference(wrong, right, dtypes.float32, 100) == 42
    missing = right.copy()
    missing[7] = np.nan
    assert first_difference(missing, right, dtypes.float32, 100) == 7
    assert first_difference(missing, missing.copy(), dtypes.float32, 100) is None
    whole = np.arange(10, dtype=np.int32)
    assert first_difference(whole + (whole == 3), whole, dtypes.int32, 100) == 3


# ------------------------------------------------------------ with the other process


@pytest.fixture(scope="module", autouse=True)
def no_process_is_left() -> Iterator[None]:
    yield
    search.clear_searches()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small searches, of kernels however small, that begin with nothing known."""
    monkeypatch.setattr(beam, "ROUNDS_AT_MOST", 1)
    monkeypatch.setattr(beam, "NEIGHBOURS_AT_MOST", 3)
    monkeypatch.setattr(search, "LEAST_SECONDS", 0.0)
    # anything that is not slower wins, so that what was found is what runs
    monkeypatch.setattr(search, "LEAST_GAIN", -1e9)
    search._found.clear()
    clear_programs()
    with Context(BEAM=2, BEAM_TIMEOUT=90.0, BEAM_TRIAL=60.0, CCACHE=0, SCACHE=0, CACHELEVEL=0):
        yield
    search._found.clear()
    clear_programs()


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def matmul() -> tuple[Tensor, np.ndarray]:
    a, b = array(33, 40), array(40, 50)
    return Tensor(a).realize() @ Tensor(b).realize(), a @ b


def reduction() -> tuple[Tensor, np.ndarray]:
    a = array(64, 130)
    return Tensor(a).realize().sum(axis=1), a.sum(axis=1)


def convolution() -> tuple[Tensor, np.ndarray]:
    a, w = array(1, 4, 9, 9), array(8, 4, 3, 3)
    windows = np.lib.stride_tricks.sliding_window_view(a, (3, 3), axis=(2, 3))
    return Tensor(a).realize().conv2d(Tensor(w).realize()), np.einsum(
        "nchwij,ocij->nohw", windows, w
    )


def gather() -> tuple[Tensor, np.ndarray]:
    a = array(100, 16)
    rows = np.arange(64) * 7 % 100
    return Tensor(a).realize()[Tensor(rows.astype(np.int32)).realize()] + 1, a[rows] + 1


def in_place() -> tuple[Tensor, np.ndarray]:
    a = array(50, 21)
    x = Tensor(a).realize()
    x += x * 2
    return x, a * 3


def symbolic() -> tuple[Tensor, np.ndarray]:
    a = array(10, 32)
    rows = Variable("rows", 1, 10).bind(7)
    return Tensor(a).realize().shrink(((0, rows), (0, 32))).sum(axis=0), a[:7].sum(axis=0)


CASES = [matmul, reduction, convolution, gather, in_place, symbolic]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_results_are_right(case: Any, short: None, capsys: pytest.CaptureFixture[str]) -> None:
    tensor, expected = case()
    with Context(DEBUG=2):
        found = tensor.numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    said = capsys.readouterr().out
    assert "tried in" in said and "heuristic:" in said and "0 crashed" in said


def test_a_jitted_function_is_searched_too(short: None) -> None:
    @TinyJit
    def step(x: Tensor) -> Tensor:
        return (x @ x).relu().realize()

    for number in range(4):
        a = array(24, 24) + number
        np.testing.assert_allclose(
            step(Tensor(a)).numpy(), np.maximum(a @ a, 0), rtol=1e-3, atol=1e-3
        )
    assert search._found


def test_the_benchmark_searches_what_matters(
    short: None, capsys: pytest.CaptureFixture[str]
) -> None:
    (ast,) = bench.beam.kernels_of(bench.beam.WORKLOADS["conv small"]())
    space = Space(ast, Device["CPU"].renderer.target)
    outcome = search.search_kernel(space, "CPU")
    assert outcome.finished and outcome.tried > 1 and not outcome.lost
    assert bench.beam.show("conv small", ast, outcome, "") is not None
    assert "conv small" in capsys.readouterr().out


MISBEHAVING = """
import os
from weft.engine import search_trial, search_worker
from weft.renderer.llvmir import LLVMRenderer

compile_one, render = search_trial.Trial._compile, LLVMRenderer.render
is_bad = False

def _compile(self, candidate):
    global is_bad
    is_bad = candidate != self.space.start
    return compile_one(self, candidate)

def _render(self, name, uops):
    text = render(self, name, uops)
    return text if not is_bad else {change}

search_trial.Trial._compile, LLVMRenderer.render = _compile, _render
search_worker.main()
"""
CRASHES = "text.replace('ret void', 'call void @llvm.trap()\\n  ret void')"
HANGS = "text.replace('ret void', 'br label %forever\\nforever:\\n  br label %forever')"
EXITS = "os._exit(3)"
IS_WRONG = "text.replace(' fadd ', ' fsub ')"
RAISES = "1 // 0"


@pytest.fixture
def misbehaving(monkeypatch: pytest.MonkeyPatch, short: None) -> Iterator[Any]:
    """Lets the other process do as told with all but the heuristic's choice."""
    search.clear_searches()

    def start(change: str) -> None:
        monkeypatch.setattr(search_process, "PROGRAM", MISBEHAVING.format(change=change))

    yield start
    search.clear_searches()


@pytest.mark.parametrize(
    "change, seconds, said",
    [(CRASHES, 60.0, "signal -"), (HANGS, 1.0, "no answer in"), (EXITS, 60.0, "code 3")],
    ids=["crashes", "hangs", "exits"],
)
def test_a_candidate_that_breaks_the_process_is_left_out(
    change: str,
    seconds: float,
    said: str,
    misbehaving: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(beam, "NEIGHBOURS_AT_MOST", 1)
    misbehaving(change)
    tensor, expected = reduction()
    with Context(DEBUG=2, BEAM_TRIAL=seconds):
        found = tensor.numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    text = capsys.readouterr().out
    assert said in text and "2 crashed or hung" in text
    assert list(search._found.values()) == [None]


def test_a_candidate_that_raises_is_refused(
    misbehaving: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    misbehaving(RAISES)
    tensor, expected = reduction()
    with Context(DEBUG=2):
        np.testing.assert_allclose(tensor.numpy(), expected, rtol=1e-4, atol=1e-4)
    assert " 0 refused" not in capsys.readouterr().out


def test_a_winner_that_is_wrong_is_named_as_a_bug(misbehaving: Any) -> None:
    misbehaving(IS_WRONG)
    tensor, expected = reduction()
    with pytest.warns(RuntimeWarning, match="a bug of weft: actions change what"):
        found = tensor.numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert list(search._found.values()) == [None]


def test_where_no_process_can_be_made_the_heuristic_picks(
    misbehaving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_process, "PROGRAM", "raise SystemExit(1)")
    monkeypatch.setattr(search, "_warned", set())
    first, expected = reduction()
    with pytest.warns(RuntimeWarning, match="no process can be made"):
        np.testing.assert_allclose(first.numpy(), expected, rtol=1e-4, atol=1e-4)
    other, expected = matmul()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(other.numpy(), expected, rtol=1e-4, atol=1e-4)


# ------------------------------------------------------------ remembering


def forget() -> None:
    """What a new process would not know."""
    search._found.clear()
    clear_programs()


def test_what_was_found_is_remembered(misbehaving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with Context(CACHELEVEL=2):
        tensor, expected = matmul()
        tensor.realize()
        (best,) = search._found.values()
        # from here on a search would fail
        monkeypatch.setattr(search_process, "PROGRAM", "raise SystemExit(1)")
        search.clear_searches()
        forget()
        again, expected = matmul()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_allclose(again.numpy(), expected, rtol=1e-4, atol=1e-4)
        assert list(search._found.values()) == [best]
        forget()
        monkeypatch.setattr(search, "_warned", set())
        with Context(IGNORE_BEAM_CACHE=1), pytest.warns(RuntimeWarning, match="no process"):
            matmul()[0].realize()


FAILS_TO_COMPARE = """
from weft.engine import search_trial, search_worker

def duel(self, candidates):
    raise RuntimeError("no duels here")

search_trial.Trial.duel = duel
search_worker.main()
"""


def watch_searches(monkeypatch: pytest.MonkeyPatch) -> list[search.Outcome]:
    """What comes out of all searches from now on."""
    seen: list[search.Outcome] = []
    search_kernel = search.search_kernel

    def watched(space: Space, device: str) -> search.Outcome:
        seen.append(search_kernel(space, device))
        return seen[-1]

    monkeypatch.setattr(search, "search_kernel", watched)
    return seen


SCRIPTED = """
from weft.engine import search_trial, search_worker

answers = {answers}

def duel(self, candidates):
    first, others = answers.pop(0)
    return [first] + [others] * (len(candidates) - 1)

search_trial.Trial.duel = duel
search_worker.main()
"""


@pytest.mark.parametrize(
    "second, is_taken", [((3.0, 1.5), True), ((1.0, 1.1), False), ((1.0, 3.0), False)]
)
def test_what_was_found_has_to_win_twice(
    second: tuple[float, float], is_taken: bool, misbehaving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many that are as fast as each other one always seems to be faster."""
    answers = [(2.0, 1.0), second]
    monkeypatch.setattr(search, "LEAST_GAIN", 0.02)
    monkeypatch.setattr(search_process, "PROGRAM", SCRIPTED.format(answers=answers))
    seen = watch_searches(monkeypatch)
    result, expected = matmul()
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-4, atol=1e-4)
    (outcome,) = seen
    assert (outcome.best is not None) == is_taken
    times = (outcome.heuristic_seconds, outcome.best_seconds)
    assert times == (second if is_taken else (second[0], second[0]))


# each with a number of rows of its own, for which nothing was found yet
@pytest.mark.parametrize(
    "program, rows",
    [
        (MISBEHAVING.format(change=RAISES), 37),
        (FAILS_TO_COMPARE, 38),
        (SCRIPTED.format(answers=[(2.0, 1.0)]), 40),
        ("raise SystemExit(1)", 39),
    ],
    ids=["all candidates fail", "none is compared", "none is compared again", "no process"],
)
def test_a_search_that_could_not_run_is_not_remembered(
    program: str, rows: int, misbehaving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = search_process.PROGRAM
    # nor is the program that the heuristic picked instead kept in place of the one to be found
    with Context(CACHELEVEL=2, CCACHE=1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        monkeypatch.setattr(search_process, "PROGRAM", program)
        x = array(rows, 130)
        np.testing.assert_allclose(Tensor(x).realize().sum(1).numpy(), x.sum(1), 1e-4, 1e-4)
        assert list(search._found.values()) == [None]
        search.clear_searches()
        forget()
        monkeypatch.setattr(search_process, "PROGRAM", sound)
        seen = watch_searches(monkeypatch)
        np.testing.assert_allclose(Tensor(x).realize().sum(1).numpy(), x.sum(1), 1e-4, 1e-4)
        assert len(seen) == 1 and seen[0].finished and seen[0].tried > 1
        forget()
        np.testing.assert_allclose(Tensor(x).realize().sum(1).numpy(), x.sum(1), 1e-4, 1e-4)
        assert len(seen) == 1 and not search._found


@pytest.mark.parametrize("damage", ["bits", "value", "actions"])
def test_a_damaged_memory_is_ignored(
    damage: str, short: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with Context(CACHELEVEL=2), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        space = Space(prepared(reduction()[0]), Device["CPU"].renderer.target)
        key = search._disk_key((space.ast.key.hex(), repr(space.target), 2, 1))
        value: Any = {"best": [[["UPCAST", [77], 4]]]} if damage == "actions" else [1, 2]
        diskcache_put("searches", key, value)
        if damage == "bits":
            for entry in cache_entries():
                if entry.table == "searches":
                    entry.path.write_bytes(entry.path.read_bytes()[:-1])
        tensor, expected = reduction()
        with Context(DEBUG=1):
            np.testing.assert_allclose(tensor.numpy(), expected, rtol=1e-4, atol=1e-4)
    assert "tried in" in capsys.readouterr().out


def test_without_the_knob_nothing_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "searched", lambda *_: pytest.fail("searched"))
    clear_programs()
    with Context(BEAM=0, CCACHE=0, SCACHE=0):
        tensor, expected = matmul()
        np.testing.assert_allclose(tensor.numpy(), expected, rtol=1e-4, atol=1e-4)
