"""BEAM=n: searches with the process that tries candidates.

The other process is real in these tests; where it shall misbehave, its program is replaced by one
that does.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bench.beam
from test.codegen.opt.kernels import prepared
from weft import Context, Device, Tensor, TinyJit, Variable
from weft.codegen.opt import beam
from weft.codegen.opt.moves import Space
from weft.disk import cache_entries
from weft.engine import search, search_process
from weft.engine.programs import clear_programs
from weft.helpers import diskcache_put

# kernels of groups of threads are not searched yet
pytestmark = pytest.mark.device("CPU")


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
