"""`weft doctor`: what weft finds on this machine, and what to do about what it does not like.

What comes in: nothing but the machine. What goes out: a report, and exit code 1 if something keeps
weft from working. Where it sits: with the other commands. The one invariant: it never raises about
a broken part; it says so and goes on with the next.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from weft import Device, Tensor, __version__
from weft.commands.ceilings import measure_ceilings
from weft.disk import cache_folder
from weft.errors import WeftError
from weft.knobs import CACHELEVEL, CCACHE, DEBUG, NOOPT, NUM_CPU_THREADS, SPEC, Context

NAME = "doctor"
HELP = "Show devices, versions, caches, threads and measured ceilings, and name known problems."

# what a package gives, so that the report can say what is lost without it
PACKAGES = {
    "llvmlite": "compiles kernels (required)",
    "numpy": "arrays in and out (required)",
    "z3-solver": "SPEC=2 proves every memory access",
    "safetensors": "not needed: weft reads and writes the format itself; used in tests",
    "torch": "a reference of the tests and benchmarks",
    "tqdm": "not needed: weft draws its own progress bars",
}
REQUIRED = ("llvmlite", "numpy")
LEAST_FREE_BYTES = 512 << 20


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be."""

    is_fatal: bool
    problem: str
    advice: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`--quick` leaves the measurements out."""
    parser.add_argument("--quick", action="store_true", help="do not measure the ceilings")


def run(args: argparse.Namespace) -> int:
    """Print the report."""
    findings: list[Finding] = []
    sections: tuple[tuple[str, Callable[[list[Finding]], Iterator[str]]], ...] = (
        ("versions", _versions),
        ("machine", _machine),
        ("devices", _devices),
        ("what the compiler knows of the default device", _description),
        ("cache", _cache),
        ("settings", _settings),
        ("a first kernel", _first_kernel),
    )
    for title, section in sections:
        print(title)
        for line in section(findings):
            print(f"  {line}")
    if not args.quick and not any(f.is_fatal for f in findings):
        print("ceilings, measured now")
        for line in _ceilings():
            print(f"  {line}")
    if not findings:
        print("No problems found.")
    for finding in findings:
        print(f"{'PROBLEM' if finding.is_fatal else 'note'}: {finding.problem}")
        print(f"  {finding.advice}")
    return 1 if any(f.is_fatal for f in findings) else 0


def _versions(findings: list[Finding]) -> Iterator[str]:
    yield f"weft {__version__}, Python {platform.python_version()} on {platform.platform()}"
    for package, purpose in PACKAGES.items():
        try:
            found = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found = "not installed"
            if package in REQUIRED:
                findings.append(
                    Finding(True, f"{package} is not installed", f"pip install {package}")
                )
        yield f"{package:12} {found:14} {purpose}"


def _allowed_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _machine(findings: list[Finding]) -> Iterator[str]:
    cores = _allowed_cores()
    threads = NUM_CPU_THREADS.value or cores
    yield f"{platform.machine()}, {cores} cores for this process, {threads} threads used"
    if threads > cores:
        findings.append(
            Finding(
                False,
                f"{threads} threads were asked for, but this process may use {cores} cores",
                "unset NUM_CPU_THREADS: threads that share a core wait for each other",
            )
        )
    if hasattr(os, "getloadavg"):
        load = os.getloadavg()[0]
        yield f"load {load:.1f}"
        if load > cores:
            findings.append(
                Finding(
                    False,
                    f"other programs keep the machine busy (load {load:.1f} on {cores} cores)",
                    "measure again when it is quiet: figures taken now say little",
                )
            )


def _devices(findings: list[Finding]) -> Iterator[str]:
    try:
        default = Device.DEFAULT
    except WeftError as error:
        findings.append(Finding(True, str(error), "unset DEVICE, DEV and the names of devices"))
        default = ""
    for name, device, reason in Device._try_all():
        if device is None:
            yield f"{name:8} no: {reason}"
            continue
        mark = " (default)" if default.split(":")[0] == name else ""
        yield f"{name:8} opens{mark} {device.description}".rstrip()
        for problem, advice in device.problems():
            findings.append(Finding(False, problem, advice))


def _description(findings: list[Finding]) -> Iterator[str]:
    """The fields of `Target` that are not as for any machine, times in cycles."""
    try:
        target = Device[Device.DEFAULT].renderer.target
    except WeftError:
        return
    for field in dataclasses.fields(target):
        value = getattr(target, field.name)
        if field.name == "features":
            continue
        asked = "" if value == field.default else " (asked of the machine)"
        yield f"{field.name:20} {value}{asked}"


def _cache(findings: list[Finding]) -> Iterator[str]:
    folder = cache_folder()
    yield f"folder {folder}"
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    yield f"{free / 1e9:.1f} GB free on its disk"
    if not os.access(existing, os.W_OK):
        findings.append(
            Finding(
                False,
                f"{existing} is read-only, so every process compiles its kernels anew",
                "set WEFT_CACHE to a folder that is yours",
            )
        )
    elif free < LEAST_FREE_BYTES:
        findings.append(
            Finding(
                False,
                f"only {free / 1e6:.0f} MB are free where compiled kernels are kept",
                "make room, or set WEFT_CACHE to another disk; `weft cache clear` empties it",
            )
        )
    if not CCACHE.value or CACHELEVEL.value < 1:
        findings.append(
            Finding(
                False,
                "compiled kernels are not kept (CCACHE=0 or CACHELEVEL=0)",
                "unset them, unless you measure compile times",
            )
        )


def _settings(findings: list[Finding]) -> Iterator[str]:
    slow = {
        "DEBUG": (DEBUG.value >= 2, "every kernel is waited for and printed"),
        "NOOPT": (bool(NOOPT.value), "kernels are not optimised"),
        "SPEC": (bool(SPEC.value), "every graph is verified while it is compiled"),
    }
    found = False
    for name, (is_set, effect) in slow.items():
        if is_set:
            found = True
            yield f"{name} is set: {effect}"
            findings.append(Finding(False, f"{name} slows programs down", f"unset {name}"))
    if not found:
        yield "nothing that slows programs down"


def _first_kernel(findings: list[Finding]) -> Iterator[str]:
    try:
        with Context(DEBUG=0):
            result = (Tensor([1.0, 2.0, 3.0]) * 2 + 1).tolist()
    except Exception as error:
        findings.append(
            Finding(
                True,
                f"a kernel could not be made or run: {type(error).__name__}: {error}",
                "try another device (DEVICE=PYTHON needs no compiler), and report this output",
            )
        )
        yield "failed"
        return
    if result != [3.0, 5.0, 7.0]:
        findings.append(
            Finding(True, f"[1, 2, 3] * 2 + 1 gave {result}", "report this output, please")
        )
    yield f"[1, 2, 3] * 2 + 1 = {result}"


def _ceilings() -> Iterator[str]:
    found = measure_ceilings()
    yield f"matmul    {found.matmul_gflops:8.1f} GFLOP/s"
    yield f"reading   {found.read_gbs:8.1f} GB/s"
    yield f"copying   {found.copy_gbs:8.1f} GB/s"
    for name, gbs in found.cache_gbs:
        yield f"out of {name} {gbs:8.1f} GB/s, one core"
    yield f"a launch  {found.launch_us:8.1f} us"
    if found.in_gbs:
        yield f"from host {found.in_gbs:8.1f} GB/s"
        yield f"to host   {found.out_gbs:8.1f} GB/s"
