"""The functions that users call: `c`, `wasm`, `web`.

In: a function, inputs, a path. Out: files, and the paths of them.
Sits over the writers.
Invariant: nothing is written unless everything could be made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.engine.schedule import machine_of
from weft.errors import ArgumentError
from weft.export.build import build_plan
from weft.export.capture import Captured, capture
from weft.export.write_c import COptions, write_c
from weft.export.write_wasm import loader_text, types_text, wasm_target, write_wasm
from weft.export.write_web import page_options, write_web
from weft.machine import Target

# any machine of the last decade; 16 bytes are what all of them have
PORTABLE = Target(name="c", vector_bytes=16, vector_registers=16, stack_bytes=256 << 10)
# weights beyond this many bytes go to a file of their own unless asked otherwise
MOST_INLINE = 4 << 20


def c(
    function: Callable[..., Any],
    inputs: Any,
    path: str | Path,
    *,
    weights: str | None = None,
    march: str | None = None,
    threads: int = 1,
    main: bool = True,
) -> list[Path]:
    """Write a function as C11: `path` (a .c file), a header, and a .bin of weights if need be.

    `inputs` are Tensors as the function takes them, a tuple, or a dict by name; bound Variables
    among them are sizes that every call gives. `weights` is "inline" or "file"; by default what is
    larger than 4 MB is a file. `march="native"` writes vectors as wide as this machine's, to be
    built with `-march=native`. With `threads` kernels are shared by so many threads (-pthread).
    `main=False` leaves the program out.
    """
    target = _c_target(path, march, threads)
    source = _path(path, ".c")
    if weights not in (None, "inline", "file"):
        raise ArgumentError(f'weights are "inline" or "file", found {weights!r}')
    captured = capture(function, inputs, source.stem)
    plan = build_plan(captured, _machine(captured, target, march))
    is_large = plan.weight_bytes > MOST_INLINE
    has_file = weights == "file" or (weights is None and is_large)
    options = COptions(_machine(captured, target, march), has_file, threads, main, march)
    files = write_c(plan, options, source.stem)
    written = [source, source.with_suffix(".h")]
    source.write_text(files.source)
    written[1].write_text(files.header)
    if files.weights is not None:
        written.append(source.with_suffix(".bin"))
        written[2].write_bytes(files.weights)
    return written


def wasm(
    function: Callable[..., Any], inputs: Any, path: str | Path, *, threads: int = 1
) -> list[Path]:
    """Write a function as a WebAssembly module: `path` (a .wasm file) with its weights, and beside
    it a loader in JavaScript with its types.

    The module imports nothing; any engine with SIMD runs it. The loader gives
    `const model = await load(url)`, whose `model.run({x: new Float32Array(...)})` takes and gives
    typed arrays by name. With `threads` kernels are shared by up to so many threads: the module
    imports a shared memory, and the loader starts workers (`load(url, {threads: 4})`).
    """
    _check_threads(threads)
    target = _path(path, ".wasm")
    captured = capture(function, inputs, target.stem)
    plan = build_plan(captured, wasm_target(threads))
    module = write_wasm(plan, threads)
    written = [target, target.with_suffix(".js"), target.with_suffix(".d.ts")]
    target.write_bytes(module)
    written[1].write_text(loader_text())
    written[2].write_text(types_text(plan))
    return written


def web(
    function: Callable[..., Any],
    inputs: Any,
    path: str | Path,
    *,
    title: str | None = None,
    about: str = "",
    view: str | None = None,
    labels: Sequence[str] | None = None,
    scale: float = 1.0,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    margin: float | None = None,
    prompt: str = "",
) -> list[Path]:
    """Write a page, `path` (an .html file), that runs a function on WebGPU, or as WebAssembly.

    `view` is "draw" (draw something, see its class), "image" (drop an image: see its class, or the
    image that comes out), "text" (a model of tokens with a position as its size writes) or "plain"
    (numbers); by default what the shapes suggest. `labels` name classes or tokens. Pixels are 0 to
    1, times `scale`, less `mean`, over `std`; `margin` is left free around a drawing.
    """
    target = _path(path, ".html")
    captured = capture(function, inputs, target.stem)
    rest = {"scale": float(scale), "mean": tuple(mean), "std": tuple(std)}
    options = page_options(
        title or target.stem, about, view, labels, margin=margin, prompt=prompt, **rest
    )
    target.write_text(write_web(captured, options), encoding="utf-8")
    return [target]


def _path(path: str | Path, suffix: str) -> Path:
    found = Path(path)
    if found.suffix != suffix:
        raise ArgumentError(f"the path of this export ends in {suffix}, found {found}")
    if not found.parent.is_dir():
        raise ArgumentError(f"the folder {found.parent} of {found.name} is not there; make it")
    return found


def _c_target(path: str | Path, march: str | None, threads: int) -> Target:
    if march not in (None, "native"):
        raise ArgumentError(f'march is None (any machine) or "native" (this one), found {march!r}')
    _check_threads(threads)
    return replace(PORTABLE, has_threads=threads > 1, cores=threads)


def _check_threads(threads: int) -> None:
    if type(threads) is not int or not 1 <= threads <= 256:
        raise ArgumentError(f"threads is a number from 1 to 256, found {threads!r}")


def _machine(captured: Captured, target: Target, march: str | None) -> Target:
    if march is None:
        return target
    own = machine_of(captured.device)
    if own.has_local:
        raise ArgumentError(f'march="native" is for functions of the CPU, found {captured.device}')
    # C knows nothing of the caches, and compilers have these conversions for vectors only
    return replace(
        own,
        has_threads=target.has_threads,
        cores=target.cores,
        has_streaming=False,
        has_half_conversion=False,
    )
