"""Names of frameworks, and the environment that each one's process runs in.

In: a name such as `weft`, `tinygrad@BEAM=2`, `torch-compile`. Out: an environment, an interpreter,
and inside that process `prepare`, a step that runs and waits.
Sits under what measures. A framework is written NAME[@KNOB=VALUE,...]:
  torch           PyTorch, op by op
  torch-compile   torch.compile
  jax             jax.jit
  machine         nobody: as much reading or arithmetic as there has to be
  anything else   a module like tinygrad, imported by that name (weft, tinygrad)
Invariant: all of them get the same number of threads, and a device that was asked for by name: left
alone, tinygrad moves to OpenCL by itself once a driver is installed.
"""

from __future__ import annotations

import importlib
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.workloads import Case

ROOT = Path(__file__).resolve().parent.parent
# a step, its result as a NumPy array, and what else there is to know
Prepared = tuple[Callable[[], Any], Callable[[Any], Any], Callable[[], dict[str, Any]]]


def split(framework: str) -> tuple[str, dict[str, str]]:
    """
    >>> split("weft@WINO=1,DEBUG=2")
    ('weft', {'WINO': '1', 'DEBUG': '2'})
    """
    name, _, options = framework.partition("@")
    pairs = [option.partition("=") for option in options.split(",") if option]
    return name, {key: value for key, _, value in pairs}


def environment(framework: str, threads: int, cache: str | None = None) -> dict[str, str]:
    """The environment of its process; `cache` is the folder of every persistent cache."""
    count = str(threads)
    names = ["BENCH_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"]
    names += ["NUM_CPU_THREADS", "CPU_COUNT", "NPROC"]
    result = {**os.environ, **dict.fromkeys(names, count)}
    result["DEV"] = os.environ.get("BENCH_DEV", "CPU")
    platform = "cuda" if result["DEV"].startswith("CUDA") else "cpu"
    result |= {"JAX_PLATFORMS": platform, "TF_CPP_MIN_LOG_LEVEL": "3"}
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    result["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    if cache is not None:
        result |= {
            "XDG_CACHE_HOME": cache,
            "TORCHINDUCTOR_CACHE_DIR": os.path.join(cache, "inductor"),
            "JAX_COMPILATION_CACHE_DIR": os.path.join(cache, "jax"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
    return result | split(framework)[1]


def check_device(module: Any) -> str:
    """The device and renderer a tinygrad-like module uses; an error if not what was asked for."""
    found, asked = module.Device.DEFAULT, os.environ["DEV"]
    if found.split(":")[0] != asked.split(":")[0]:
        raise RuntimeError(f"{module.__name__} was asked for {asked} and took {found}")
    return f"{found}/{type(module.Device[found].renderer).__name__}"


def prioritise(nice: int) -> Callable[[], None] | None:
    """What a child calls first to run at this nice value; None for 0.

    Where the kernel groups tasks by session, nice only ranks tasks inside a session, and every
    session gets an equal share: the child gets a session of its own, and that gets the priority.
    """
    if not nice:
        return None

    def start() -> None:
        os.setsid()
        os.setpriority(os.PRIO_PROCESS, 0, nice)
        try:
            Path("/proc/self/autogroup").write_text(str(nice))
        except OSError:
            pass  # a kernel without groups

    return start


class Interference:
    """The share of the machine's time that others took over an interval."""

    def __init__(self) -> None:
        self.start = (self._busy(), self._own(), time.perf_counter())

    @staticmethod
    def _busy() -> float:
        try:
            with open("/proc/stat") as file:
                ticks = [int(part) for part in file.readline().split()[1:9]]
        except OSError:
            return 0.0
        # all but idle and waiting for a disk; what the hypervisor stole counts
        return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def _own() -> float:
        found = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(usage.ru_utime + usage.ru_stime for usage in found)

    def share(self) -> float:
        """From the start to now."""
        busy, own, started = self.start
        whole = (time.perf_counter() - started) * (os.cpu_count() or 1)
        others = (self._busy() - busy) - (self._own() - own)
        return max(0.0, others) / max(whole, 1e-9)


class Waiting:
    """The share of time that this process's threads were ready and not running: 0 if it is quiet.

    Unlike Interference this is right for a framework that leaves a core idle, which others may then
    use. (They still share caches and the memory bus.)
    """

    def __init__(self) -> None:
        self.start = (self._delay(), time.perf_counter())

    @staticmethod
    def _delay() -> float:
        total = 0
        try:
            threads = os.listdir("/proc/self/task")
        except OSError:
            return 0.0
        for thread in threads:
            try:
                text = Path(f"/proc/self/task/{thread}/schedstat").read_text()
                total += int(text.split()[1])
            except OSError:
                continue  # the thread has ended
        return total / 1e9

    def share(self) -> float:
        """From the start to now."""
        delay, started = self.start
        return max(0.0, self._delay() - delay) / max(time.perf_counter() - started, 1e-9)


def pin(threads: int) -> None:
    """Limit this process and its children to so many CPUs: every pool then sizes itself alike."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def prepare(framework: str, case: Case) -> Prepared:
    """A step of a framework for a case, inside its own process."""
    name, _ = split(framework)
    if name in ("torch", "torch-compile"):
        found = importlib.import_module("bench.in_torch").prepare(case, name == "torch-compile")
    elif name == "jax":
        found = importlib.import_module("bench.in_jax").prepare(case)
    elif name == "machine":
        found = importlib.import_module("bench.in_machine").prepare(case)
    else:
        found = importlib.import_module("bench.in_weft").prepare(name, case)
    prepared: Prepared = found
    return prepared


def python(framework: str) -> str:
    """The interpreter: BENCH_PYTHON_<NAME> if that is set, else the one that runs this."""
    name = split(framework)[0].upper().replace("-", "_")
    return os.environ.get(f"BENCH_PYTHON_{name}", sys.executable)
