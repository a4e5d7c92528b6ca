"""renderer/compat.py: what tinygrad's users ask a renderer is what its target says."""

from __future__ import annotations

from weft.renderer import Renderer, Target


def test_a_cpu_has_vectors_and_threads_and_no_groups() -> None:
    renderer = Renderer(Target(vector_bytes=32, has_threads=True))
    assert renderer.has_threads and renderer.supports_float4
    assert not renderer.has_local and not renderer.has_shared
    assert renderer.tensor_cores == [] and renderer.local_max is None


def test_groups_have_limits() -> None:
    target = Target(
        has_local=True, group_limits=(1024, 1024, 64), grid_limits=(9, 8, 7), shared_bytes=48
    )
    renderer = Renderer(target)
    assert renderer.has_local and renderer.has_shared and renderer.shared_max == 48
    assert (renderer.local_max, renderer.global_max) == ((1024, 1024, 64), (9, 8, 7))
