"""Assembly in a tensor program: `custom_kernel` whose body is machine code, on emulated GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft import Tensor, TinyJit
from weft.amd import rdna3, rdna4
from weft.engine.machine_code import check_code
from weft.errors import ArgumentError, DeviceError
from weft.machine import MachineKernel
from weft.uop.node import UOp

DEVICE = "AMD:gfx1100"


def scaled(isa: Any, wait: Any, target: str = "") -> Any:
    """out[i] = 3 * x[i] for groups of 32, as a kernel of a family."""
    v, s = isa.v, isa.s

    def body(out: UOp, x: UOp) -> MachineKernel:
        program = [
            isa.s_load_b128(s[4:7], s[0:1], 0),
            *([isa.v_mov_b32(v[2], s[2])] if isa is rdna3 else [isa.v_mov_b32(v[2], isa.ttmp[9])]),
            isa.v_lshlrev_b32(v[2], 5, v[2]),
            isa.v_add_nc_u32(v[0], v[2], v[0]),
            isa.v_lshlrev_b32(v[0], 2, v[0]),
            wait(0),
            isa.global_load_b32(v[1], v[0], s[6:7]),
            wait(1),
            isa.v_mul_f32(v[1], isa.lit(0x40400000), v[1]),
            isa.global_store_b32(v[0], v[1], s[4:5]),
            isa.s_endpgm(),
        ]
        assert isinstance(x.size, int)
        grid = (x.size // 32, 1, 1)
        made: MachineKernel = isa.custom("scaled", program, ["out", "x"], grid, (32, 1, 1),
                                         name=target)  # fmt: skip
        return made

    return body


def wait3(memory: int) -> Any:
    return rdna3.s_waitcnt(vmcnt=0) if memory else rdna3.s_waitcnt(lgkmcnt=0)


def wait4(memory: int) -> Any:
    return rdna4.s_wait_loadcnt(0) if memory else rdna4.s_wait_kmcnt(0)


TRIPLE = scaled(rdna3, wait3)


def triple(x: Tensor, **rest: Any) -> Tensor:
    found: Tensor = Tensor.empty(*x.shape, device=x.device).custom_kernel(x, fxn=TRIPLE, **rest)[0]
    return found


def test_assembly_between_tensor_ops() -> None:
    values = np.arange(64, dtype=np.float32)
    x = Tensor(values, device=DEVICE)
    found = (triple((x + 1).reshape(2, 32)) * 2).sum(1)
    np.testing.assert_allclose(found.numpy(), ((values + 1).reshape(2, 32) * 6).sum(1))


def test_another_family() -> None:
    x = Tensor(np.arange(32, dtype=np.float32), device="AMD:gfx1201")
    body = scaled(rdna4, wait4, "gfx1201")
    found = Tensor.empty(32, device="AMD:gfx1201").custom_kernel(x, fxn=body)[0]
    assert found.tolist() == [3.0 * i for i in range(32)]


def test_what_is_written_keeps_the_rest_and_readers_keep_theirs() -> None:
    target = Tensor(np.full(64, 7, np.float32), device=DEVICE).realize()
    before = target + 0
    view = target.reshape(2, 32)
    source = Tensor(np.arange(32, dtype=np.float32), device=DEVICE)
    result = target.custom_kernel(source, fxn=TRIPLE)[0]
    wanted = [3.0 * i for i in range(32)] + [7.0] * 32
    assert target.tolist() == wanted and result.tolist() == wanted
    assert view.numpy().reshape(-1).tolist() == wanted
    assert before.tolist() == [7.0] * 64


def test_it_may_write_what_it_reads() -> None:
    x = Tensor(np.arange(32, dtype=np.float32), device=DEVICE).realize()
    x.custom_kernel(x, fxn=TRIPLE)
    assert x.tolist() == [3.0 * i for i in range(32)]


def test_a_jit_captures_it() -> None:
    runs: list[int] = []

    @TinyJit
    def step(x: Tensor) -> Tensor:
        runs.append(1)
        return (triple(x + 1) - 1).realize()

    for offset in range(5):
        values = np.arange(64, dtype=np.float32) + offset
        np.testing.assert_allclose(
            step(Tensor(values, device=DEVICE).realize()).numpy(), (values + 1) * 3 - 1
        )
    assert len(runs) == 2


def test_a_jit_that_writes_state() -> None:
    state = Tensor(np.ones(32, np.float32), device=DEVICE).realize()

    @TinyJit
    def step() -> Tensor:
        state.custom_kernel(state, fxn=TRIPLE)
        return state.realize()

    for turn in range(1, 6):
        step()
        assert state.tolist() == [3.0**turn] * 32


def test_its_gradient_is_given_or_asked_for() -> None:
    x = Tensor(np.arange(32, dtype=np.float32), device=DEVICE)

    def rule(gradient: UOp, kernel: UOp) -> Any:
        return None, (Tensor(gradient) * 3).uop

    found = (triple(x, grad_fxn=rule) * 2).sum().gradient(x)[0]
    assert found.tolist() == [6.0] * 32
    with pytest.raises(ArgumentError, match="scaled is machine code.*pass grad_fxn"):
        triple(x).sum().gradient(x)


def test_errors_are_the_users() -> None:
    x = Tensor(np.arange(32, dtype=np.float32), device=DEVICE)
    empty = Tensor.empty(32, device=DEVICE)
    with pytest.raises(ArgumentError, match="scaled has 2 arguments, but 3 tensors are given"):
        empty.custom_kernel(x, x, fxn=lambda *p: TRIPLE(p[0], p[1]))
    with pytest.raises(
        ArgumentError, match="machine code for gfx1100.*AMD:gfx1201, which runs gfx"
    ):
        triple(x.to("AMD:gfx1201"))
    with pytest.raises(ArgumentError, match="one device, but its tensors are on"):
        Tensor.empty(32, device="CPU").custom_kernel(x, fxn=TRIPLE)
    with pytest.raises(ArgumentError, match="machine code for gfx1100, but its tensors are on CPU"):
        triple(Tensor(np.ones(32, np.float32), device="CPU"))
    with pytest.raises(ArgumentError, match="found a view"):
        Tensor.empty(64, device=DEVICE)[:32].custom_kernel(x, fxn=TRIPLE)
    made = TRIPLE(UOp.placeholder((32,), x.dtype, 0), UOp.placeholder((32,), x.dtype, 1))
    with pytest.raises(ArgumentError, match=r"groups are three positive numbers, not \(0, 1, 1\)"):
        MachineKernel("k", made.code, "gfx1100", 2, (0, 1, 1), (32, 1, 1))
    wrong = MachineKernel("k", made.code, "gfx1100", 2, (1, 1, 1), (32, 1, 1), (5,))
    with pytest.raises(ArgumentError, match=r"writes to tensors \[5\]; those of 2"):
        check_code(wrong, 2, [DEVICE] * 2)


def test_a_fault_names_the_instruction() -> None:
    x = Tensor(np.arange(64, dtype=np.float32), device=DEVICE).realize()
    with pytest.raises(
        DeviceError, match="scaled.*global_store_b32 v0, v1, s.*bytes after an allo"
    ):
        Tensor.empty(32, device=DEVICE).custom_kernel(x, fxn=TRIPLE)[0].realize()
