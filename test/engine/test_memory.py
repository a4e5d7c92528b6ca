"""The memory planner: sharing without overlap."""

from __future__ import annotations

import random

from weft.engine.memory import ALIGNMENT, plan_memory


def test_chain_needs_two_places() -> None:
    steps = [[i, i + 1] for i in range(20)]
    sizes = {i: ("d", 1000) for i in range(1, 20)}
    offsets, arenas = plan_memory(steps, sizes)
    assert len(set(offsets.values())) == 2
    assert arenas == {"d": 2048}


def test_random_lives_never_overlap() -> None:
    rng = random.Random(0)
    for _ in range(200):
        count = rng.randint(1, 30)
        lives = {i: sorted(rng.choices(range(20), k=2)) for i in range(count)}
        sizes = {i: ("d", rng.randint(0, 5000)) for i in range(count)}
        steps = [[i for i, (a, b) in lives.items() if a <= step <= b] for step in range(20)]
        offsets, arenas = plan_memory(steps, sizes)
        for i in range(count):
            assert offsets[i] % ALIGNMENT == 0
            assert offsets[i] + sizes[i][1] <= arenas["d"]
            for j in range(i):
                apart = lives[i][1] < lives[j][0] or lives[j][1] < lives[i][0]
                a, b = offsets[i], offsets[j]
                assert apart or a + sizes[i][1] <= b or b + sizes[j][1] <= a
