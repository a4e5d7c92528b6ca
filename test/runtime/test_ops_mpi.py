"""Ranks of MPI as devices: one program in several processes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time

import pytest

from test.children import Child
from test.optional import need, need_program
from weft import Device
from weft.errors import DeviceError

need("mpi4py")

HEAD = """
import os, signal, sys, time
import numpy as np
from weft import Device, Tensor, TinyJit, nn
devices = nn.parallel.ranks()
ranks = Device["MPI"].ranks
data = np.arange(35, dtype=np.float32).reshape(7, 5)
"""


def run(program: str, count: int = 2) -> tuple[int, str, str]:
    """The exit code and the output of a program in so many processes."""
    command = [need_program("mpiexec"), "-n", str(count), sys.executable, "-c"]
    whole = [*command, HEAD + textwrap.dedent(program)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # Open MPI asks for both where containers run as root
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    with Child(whole, limit=120, env={**os.environ, **root}, **pipes) as child:
        out, err = child.communicate()
        return child.returncode, out, err


def test_each_rank_has_its_part_and_all_have_the_sums() -> None:
    code, out, err = run(
        """
        from weft.engine.storage import buffer_of, parts_of
        cut = Tensor(data).shard(devices, 0).realize()
        own = parts_of(cut._cell.storage)[ranks.rank]
        bounds = cut.uop.bounds[ranks.rank]
        assert np.array_equal(buffer_of(own).numpy(), data[slice(*bounds)].reshape(-1))
        assert np.array_equal((cut * 2).numpy(), data * 2)
        assert np.array_equal(cut.sum(0).numpy(), data.sum(0))
        cut[2:6] = 0
        step = TinyJit(lambda x, y: (x @ y, (x * 2).sum()))
        other = Tensor(data.T.copy()).to(devices).realize()
        for i in range(4):
            product, total = step((Tensor(data) + i).shard(devices, 0).realize(), other)
            assert np.allclose(product.numpy(), (data + i) @ data.T)
            assert total.item() == 2 * (data + i).sum()
        assert cut.sum().item() == data.sum() - data[2:6].sum()
        # in one piece: the lines of the ranks come together in one stream
        os.write(1, f"rank {ranks.rank} is right\\n".encode())
        """
    )
    assert code == 0, err
    assert sorted(out.splitlines()) == ["rank 0 is right", "rank 1 is right"]


def test_collectives_with_shared_memory_and_with_messages() -> None:
    code, out, err = run(
        """
        from weft.device import Buffer
        from weft.dtype import dtypes
        from weft.engine.add_up import add_up
        rows = np.random.default_rng(1).standard_normal((3, 1001)).astype(np.float32)
        def memories(data):
            made = [Buffer(d, data.shape[1], dtypes.float32).allocate() for d in devices]
            made[ranks.rank].copyin(data[ranks.rank].tobytes())
            return made
        own = ranks.rank
        for shared in (True, False):
            assert len(ranks._windows) == (2 if shared else 0)
            values = memories(rows)
            ranks.all_reduce(values, add_up)
            assert np.array_equal(values[own].numpy(), (rows[0] + rows[1]) + rows[2])
            sources, targets = memories(rows[:, :999]), memories(rows[:, :999] * 0)
            ranks.all_to_all(targets, sources)
            expected = rows[:, :999].reshape(3, 3, 333).transpose(1, 0, 2).reshape(3, 999)
            assert np.array_equal(targets[own].numpy(), expected[own])
            wide = memories(np.zeros((3, 3003), np.float32))
            ranks.all_gather(wide, memories(rows))
            assert np.array_equal(wide[own].numpy(), rows.reshape(-1))
            cut = Tensor(rows).shard(devices, 0)
            assert np.allclose((cut @ Tensor(rows.T.copy()).to(devices)).numpy(), rows @ rows.T)
            ranks.barrier()
            ranks._windows.clear()
        os.write(1, b"right\\n")
        """,
        count=3,
    )
    assert code == 0, err
    assert out.splitlines() == ["right"] * 3


def test_ranks_that_do_different_things_are_told_their_lines() -> None:
    code, _, err = run(
        """
        cut = Tensor(data).shard(devices, 0).realize()
        (cut.sum(0) if ranks.rank else cut.sum(1).contiguous() + 1).realize()
        """
    )
    assert code != 0
    assert "the ranks compute different things: rank 0: line" in err


@pytest.mark.parametrize("how", ["os.kill(os.getpid(), signal.SIGKILL)", "raise ValueError('no')"])
def test_a_rank_that_ends_ends_the_others(how: str) -> None:
    started = time.monotonic()
    code, out, err = run(
        f"""
        cut = Tensor(data).shard(devices, 0).realize()
        print("begun", flush=True)
        if ranks.rank:
            {how}
        for i in range(10**6):
            cut.sum(0).numpy()
        print("ended")
        """
    )
    assert code != 0 and "begun" in out and "ended" not in out
    assert "SIGNAL" in (out + err).upper() or "rank 1 of 2 ends all others" in err
    assert time.monotonic() - started < 100


def test_a_device_of_a_rank_that_is_not_there() -> None:
    with pytest.raises(DeviceError, match="mpirun -n 8"):
        _ = Device["MPI:7"]
