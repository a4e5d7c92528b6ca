"""Runs: compared field by field, and merged where only variables differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weft.engine.jit.templates import Label, New, Plain, Same, SetChild, Source, Symbolic, _Blank
from weft.engine.jit.trace import Expectation, Mismatch, Run, labels_in, merge_runs, parts_in

LABEL = Label("container", (0,))


def run(value: int, given: int, text: str = "same") -> Run:
    """A run that returns (n, text): n is `value`, and what the arguments say of n is `given`."""
    symbolic = Symbolic("n", (Source("n", "given", value, given),))
    result = New(0, tuple, _Blank(()), ((0, symbolic), (1, Plain(str, text))))
    return Run({"n": given}, result=result, effects=[SetChild(LABEL, "k", Same(print))])


def source_of(merged: Run) -> Source:
    (found,) = [part for part in parts_in(merged.result) if isinstance(part, Source)]
    return found


def test_a_variable_follows_its_argument_or_is_fixed() -> None:
    assert source_of(merge_runs(run(3, 3), run(5, 5))) == Source("n", "argument")
    assert source_of(merge_runs(run(3, 4), run(3, 5))) == Source("n", "fixed", 3)
    with pytest.raises(Mismatch):
        merge_runs(run(3, 4), run(5, 6))


def test_runs_that_did_other_things_do_not_merge() -> None:
    with pytest.raises(Mismatch):
        merge_runs(run(3, 3), run(3, 3, "other"))
    with pytest.raises(Mismatch):
        merge_runs(run(3, 3), replace(run(3, 3), effects=[]))
    with pytest.raises(Mismatch):
        merge_runs(run(3, 3), replace(run(3, 3), events=[("draw", 4)]))
    with pytest.raises(Mismatch):
        merge_runs(run(3, 3), replace(run(3, 3), tree={(0,): Expectation.of([])}))


def test_labels_are_found_in_any_depth() -> None:
    assert labels_in([[run(3, 3).effects]]) == {LABEL} and labels_in(run(3, 3).result) == set()


def test_what_a_place_has_to_hold() -> None:
    assert Expectation.of([1, 2]) == Expectation(list, 2, None) == Expectation.of([3, 4])
    assert Expectation.of({}) == Expectation(dict, None, None)
    assert Expectation.of(print).identity == id(print)
