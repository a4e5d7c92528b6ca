"""A share of `python -m test.parallel.kills`."""

from __future__ import annotations

from test.optional import need, need_program
from test.parallel.kills import kill

need("mpi4py")


def test_ranks_end_and_checkpoints_are_whole_when_one_is_killed() -> None:
    need_program("mpiexec")
    kill(count=2, ranks=2, steps=20, seed=3)
