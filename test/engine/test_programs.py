"""programs.py: a kernel is made once for a device and its knobs, and is found after that."""

from __future__ import annotations

from weft import Context, Tensor
from weft.engine import programs
from weft.uop.node import UOp


def kernel_of(value: Tensor) -> UOp:
    (item,) = value.schedule()
    return item.kernel


def test_equal_kernels_have_one_program() -> None:
    first = kernel_of(Tensor.empty(37) + 1)
    second = kernel_of(Tensor.empty(37) + 1)
    assert programs.runner_for(first, "CPU") is programs.runner_for(second, "CPU")


def test_knobs_that_change_code_have_programs_of_their_own() -> None:
    kernel = kernel_of(Tensor.empty(38) + 1)
    plain = programs.runner_for(kernel, "CPU")
    with Context(NOOPT=1):
        assert programs.runner_for(kernel, "CPU") is not plain
    assert programs.runner_for(kernel, "CPU") is plain


def test_devices_have_programs_of_their_own() -> None:
    kernel = kernel_of(Tensor.empty(39) + 1)
    found = [programs.runner_for(kernel, device) for device in ("CPU", "PYTHON")]
    assert [runner.device for runner in found] == ["CPU", "PYTHON"]


def test_programs_made_together_are_found() -> None:
    wanted = [kernel_of(Tensor.empty(size) * 3) for size in (41, 42, 43)]
    programs.make_runners([(kernel, "CPU") for kernel in wanted])
    for kernel in wanted:
        found = programs.kept_runner(kernel.key, "CPU")
        assert found is programs.runner_for(kernel, "CPU")


def test_what_was_never_made_is_not_made_by_asking() -> None:
    kernel = kernel_of(Tensor.empty(47, device="NULL").sin() * 5)
    assert programs.kept_runner(kernel.key, "NULL") is None


def test_estimates_count_what_a_kernel_does() -> None:
    runner = programs.runner_for(kernel_of(Tensor.empty(1000) + Tensor.empty(1000)), "CPU")
    assert runner.ops == 1000 and runner.mem == 3 * 4 * 1000
