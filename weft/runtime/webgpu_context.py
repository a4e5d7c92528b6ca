"""One WebGPU device: the adapter behind it, its limits as a `Target`, and the commands that wait.

In: the number of an adapter, commands. Out: the package's device, the target, commands submitted in
order. First of the files of the WEBGPU device.
Invariant: commands are gathered and submitted together, in order; whoever writes memory from the
host or reads it submits what waits before. A call happens in the process that opened the device.
"""

from __future__ import annotations

import importlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from weft.contracts import Origin
from weft.errors import DeviceError
from weft.machine import Target
from weft.renderer.wgsl import WEBGPU

INSTALL = "pip install wgpu (the extra webgpu of weft)"
DRIVER = "install your GPU's driver, or one in software: apt-get install mesa-vulkan-drivers"
# limits that kernels gain by, in the package's spelling: as much as the adapter has is asked for
_LIMITS = (
    "max-storage-buffers-per-shader-stage",
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-compute-workgroup-storage-size",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-size-x",
    "max-compute-workgroup-size-y",
    "max-compute-workgroup-size-z",
    "max-compute-workgroups-per-dimension",
    "min-storage-buffer-offset-alignment",
)
# so many commands are submitted together at most
_GATHERED = 64
# how many launches an error can name
_NAMED = 8

_contexts: weakref.WeakSet[Context] = weakref.WeakSet()


def open_package() -> Any:
    """The package wgpu, or a sentence that says what is missing."""
    try:
        return importlib.import_module("wgpu")
    except (ImportError, OSError) as error:
        raise DeviceError(f"no WebGPU: {error}; {INSTALL}") from None


class Context:
    """A device that is open. `number` counts the adapters that the package shows."""

    def __init__(self, package: Any, name: str, number: int) -> None:
        self.package = package
        self.name = name
        try:
            adapters = list(package.gpu.enumerate_adapters_sync())
        except Exception as error:  # the package has errors of its own for what drivers do
            raise DeviceError(f"{name}: no adapter ({error}); {DRIVER}") from None
        if not adapters:
            raise DeviceError(f"{name}: the package finds no adapter; {DRIVER}")
        if number >= len(adapters):
            raise DeviceError(
                f"{name}: there {'is 1 adapter' if len(adapters) == 1 else f'are {len(adapters)}'},"
                f" so the last one is WEBGPU:{len(adapters) - 1}"
            )
        self.adapter = adapters[number]
        limits = {key: self.adapter.limits[key] for key in _LIMITS if key in self.adapter.limits}
        try:
            self.device = self.adapter.request_device_sync(required_limits=limits)
        except Exception as error:
            raise DeviceError(f"{name}: the adapter gives no device ({error}); {DRIVER}") from None
        self.limits = self.device.limits
        self.queue = self.device.queue
        # what is read to wait: `on_submitted_work_done` of wgpu 0.32 ends in a TypeError
        usage = package.BufferUsage.COPY_SRC
        self._mark = self.device.create_buffer(size=4, usage=usage)
        self._is_forked = False
        self.lock = threading.RLock()
        self._encoder: Any = None
        self._pass: Any = None
        self._gathered = 0
        self.submitted = 0
        self.completed = 0
        self._recent: deque[tuple[str, Origin | None]] = deque(maxlen=_GATHERED)
        _contexts.add(self)

    # ------------------------------------------------------------ facts
    @property
    def model(self) -> str:
        """The adapter's name."""
        return str(self.adapter.info.get("device") or "adapter without a name")

    @property
    def description(self) -> str:
        """The device in a few words."""
        info = self.adapter.info
        return f"{self.model}, {info.get('backend_type')}, {info.get('description')}"

    def limit(self, name: str) -> int:
        """A limit of the device."""
        return int(self.limits[name])

    @property
    def alignment(self) -> int:
        """Bytes that a binding starts at a multiple of."""
        return self.limit("min-storage-buffer-offset-alignment")

    def target(self) -> Target:
        """The device in codegen's terms."""
        groups = self.limit("max-compute-workgroups-per-dimension")
        sizes = [self.limit(f"max-compute-workgroup-size-{axis}") for axis in "xyz"]
        return replace(
            WEBGPU,
            name=f"webgpu {self.model}",
            max_buffers=min(64, self.limit("max-storage-buffers-per-shader-stage")),
            group_threads=min(1024, self.limit("max-compute-invocations-per-workgroup")),
            group_limits=tuple([min(1024, size) for size in sizes]),
            grid_limits=(groups, groups, groups),
            shared_bytes=self.limit("max-compute-workgroup-storage-size"),
        )

    # ------------------------------------------------------------ commands
    def use(self) -> None:
        """Before every call: refuses what a forked child cannot do."""
        if self._is_forked:
            raise DeviceError(
                f"{self.name} was opened before this process was forked, and a forked process "
                'cannot use a device of its parent; start it with multiprocessing\'s "spawn", or '
                f"use {self.name} in the child only"
            )

    @property
    def is_usable(self) -> bool:
        """Whether calls can be made at all."""
        return not self._is_forked

    def dispatch(
        self, name: str, origin: Origin | None, pipeline: Any, group: Any, size: tuple[int, ...]
    ) -> None:
        """Adds a launch to the commands that wait."""
        with self.lock:
            if self._pass is None:
                self._pass = self._open().begin_compute_pass()
            self._pass.set_pipeline(pipeline)
            self._pass.set_bind_group(0, group)
            self._pass.dispatch_workgroups(*size)
            self._recent.append((name, origin))
            self._count()

    def copy(self, target: Any, start: int, source: Any, byte: int, nbytes: int) -> None:
        """Adds a copy inside the device, of whole words."""
        with self.lock:
            self._end_pass()
            self._open().copy_buffer_to_buffer(source, byte, target, start, nbytes)
            self._count()

    def _open(self) -> Any:
        if self._encoder is None:
            self._encoder = self.device.create_command_encoder()
        return self._encoder

    def _end_pass(self) -> None:
        if self._pass is not None:
            self._pass.end()
            self._pass = None

    def _count(self) -> None:
        self.submitted += 1
        self._gathered += 1
        if self._gathered >= _GATHERED:
            self.flush()

    def flush(self) -> None:
        """Submits the commands that wait."""
        self.use()
        with self.lock:
            if self._encoder is None:
                return
            self._end_pass()
            encoder, self._encoder, self._gathered = self._encoder, None, 0
            self.guarded(lambda: self.queue.submit([encoder.finish()]))

    def synchronize(self) -> None:
        """Returns when all that was submitted is done."""
        before = self.submitted
        self.flush()
        self.guarded(lambda: self.queue.read_buffer(self._mark))
        with self.lock:
            self.completed = max(self.completed, before)

    def guarded(self, work: Callable[[], Any]) -> Any:
        """A call of the package, whose errors get the last launches."""
        package = self.package
        try:
            return work()
        except package.GPUOutOfMemoryError as error:
            raise MemoryError(str(error)) from None
        except package.GPUError as error:
            raise DeviceError(f"{self.name}: {error}. {self._suspects()}") from None

    def _suspects(self) -> str:
        recent = list(self._recent)[-_NAMED:]
        if not recent:
            return "No kernel of weft was running."
        named = [f"{name}{place_text(origin)}" for name, origin in reversed(recent)]
        return f"The last launches: {', '.join(named)}."


def place_text(origin: Origin | None) -> str:
    """A line of the user's, as it follows a kernel's name."""
    return "" if origin is None else f" ({PurePath(origin[0]).name}:{origin[1]})"


def _forget_in_child() -> None:
    for context in list(_contexts):
        context._is_forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
