"""A part of a graph, compiled: called with tensors of PyTorch, gives new ones.

In: nodes of a graph that weft can say in Tensors, what they read and what others read of them. Out:
`Program`, whose `run` sets addresses, takes memory for the outputs and replays. Sits on `lower` and
the engine's `Addressed`; `plan` makes them.
Invariant: no value is copied on its way in or out. Inputs are read where PyTorch has them, outputs
are written into memory of PyTorch's own, mutated inputs where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch._C._dynamo import guards
from torch.fx import Node

from weft.device import Device
from weft.dtype import dtypes
from weft.engine import host
from weft.engine.addressed import Addressed
from weft.engine.storage import shaped
from weft.errors import UnsupportedError, WeftError
from weft.tensor import Tensor
from weft.torch.lower import Refused, Walk, value_of
from weft.torch.lowerings.movement import strided
from weft.torch.segments import Segment
from weft.torch.sizes import Numbers, Sizes, is_same
from weft.torch.types import Layout, device_of, dtype_of
from weft.uop.node import UOp
from weft.uop.opset import Ops


def _empty_strided(sizes: Any, strides: Any, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(sizes, strides, dtype=dtype)


# what PyTorch's own compiler takes memory with: several times faster than torch.empty_strided
_empty_strided_cpu = getattr(guards, "_empty_strided_cpu", None) or _empty_strided


@dataclass(frozen=True)
class Output:
    """Memory that a run takes for one value.

    `sizes` and `strides` are those of the memory, which is dense; where the tensor is strided in
    another way, `view` says how it is made of that.
    """

    slot: int
    word: int
    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    dtype: torch.dtype
    view: tuple[str, Any, Any] | None


class Program:
    """The nodes of one part of a graph."""

    def __init__(
        self,
        segment: Segment,
        slots: dict[Node, int],
        sizes: Sizes,
        numbers: Numbers,
        device: torch.device,
    ) -> None:
        self._sizes, self._numbers = sizes, numbers
        self.torch_device = device
        self.seed: UOp | None = None
        self._seed_tensor: Tensor | None = None
        walk = Walk(sizes, self._seed_value)
        try:
            self.device = device_of(device)
            memories = []
            for node in segment.inputs:
                memory, walk.values[node] = self._input(value_of(node))
                memories.append(memory)
            for node in segment.nodes:
                walk.lower(node)
            values = [self._stored(walk.values[node], value_of(node)) for node in segment.outputs]
            written = [self._written(walk, *pair) for pair in segment.writes]
            stated = [value for value in (*values, *written) if value is not None]
            given = [*memories, *([] if self.seed is None else [self.seed])]
            self.program = Addressed(stated, given, self.device)
        except Refused:
            raise
        except WeftError as error:
            raise Refused(None, str(error)) from error
        self._connect(segment, values, given, slots)

    # ------------------------------------------------------------ building
    def _input(self, meta: Any) -> tuple[UOp, Tensor]:
        """The BUFFER that stands for the memory of a tensor, and the tensor."""
        layout = Layout.of(meta, self._numbers)
        dtype = dtype_of(meta.dtype)
        shape = tuple([self._sizes.evaluated(size) for size in layout.sizes])
        if 0 in shape:
            memory = UOp.new_buffer(self.device, 0, dtype)
            return memory, Tensor._from_uop(memory).reshape(shape)
        if layout.nested is not None:
            return self._nested(layout.nested, shape, dtype)
        strides = tuple([self._sizes.evaluated(stride) for stride in layout.strides])
        if any(isinstance(part, UOp) for part in (*shape, *strides)):
            raise UnsupportedError("an input of free sizes whose axes overlap in memory")
        span = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
        memory = UOp.new_buffer(self.device, span, dtype)
        return memory, strided(Tensor._from_uop(memory), shape, strides)

    def _nested(
        self, axes: Sequence[tuple[int, Any, Any]], shape: tuple[Any, ...], dtype: Any
    ) -> tuple[UOp, Tensor]:
        """A view of memory whose axes lie inside of each other, with or without gaps: rows that
        are cut off where the elements end."""
        steps = [
            (axis, self._sizes.evaluated(size), self._sizes.evaluated(stride))
            for axis, size, stride in axes
        ]
        if not steps:
            memory = UOp.new_buffer(self.device, 1, dtype)
            return memory, Tensor._from_uop(memory).reshape((1,) * len(shape)).expand(shape)
        total = steps[0][1] * steps[0][2]
        memory = UOp.new_buffer(self.device, _most(total), dtype)
        has_gaps = any(
            not is_same(outer[2], inner[1] * inner[2])
            for outer, inner in zip(axes, axes[1:], strict=False)
        )
        ordered = tuple([size for _, size, _ in steps])
        if has_gaps or not is_same(axes[-1][2], 1):
            view = Tensor._from_uop(shaped(memory, (total,)))
            for place, (_, size, stride) in enumerate(steps):
                kept = [None] * place
                view = view.shrink((*kept, (0, size * stride)))
                view = view.reshape((*ordered[:place], size, stride))
            view = view.shrink((*[None] * len(steps), (0, 1))).reshape(ordered)
        else:
            view = Tensor._from_uop(shaped(memory, ordered))
        places = [axis for axis, _, _ in steps]
        back = sorted(range(len(places)), key=lambda place: places[place])
        small = tuple([size if axis in places else 1 for axis, size in enumerate(shape)])
        return memory, view.permute(tuple(back)).reshape(small).expand(shape)

    def _seed_value(self) -> Tensor:
        """Two words that PyTorch's generator draws at each call."""
        if self._seed_tensor is None:
            self.seed = UOp.new_buffer(self.device, 2, dtypes.uint32)
            self._seed_tensor = Tensor._from_uop(self.seed)
        return self._seed_tensor

    def _stored(self, value: Any, meta: Any) -> UOp | None:
        """The value in the order of the memory that its tensor shall have."""
        if not isinstance(value, Tensor):
            raise UnsupportedError(f"a {type(value).__name__} as a result")
        layout = Layout.of(meta, self._numbers)
        if 0 in value.shape:
            return None
        if layout.repeated and layout.is_dense_apart:
            for axis in layout.repeated:
                value = value.shrink(
                    tuple([(0, 1) if i == axis else None for i in range(value.ndim)])
                )
            value = value.permute(layout.order)
        elif layout.is_dense:
            value = value.permute(layout.order)
        node = value.cast(dtype_of(meta.dtype)).uop
        if node.device is None:
            node = host.pin(node, self.device)
        return UOp(Ops.CONTIGUOUS, node.dtype, (node,))

    def _written(self, walk: Walk, target: Node, source: Node) -> UOp | None:
        """The memory of an input after a value was written to it."""
        place = walk.values[target]
        if 0 in place.shape:
            return None
        if place._cell.storage is None:
            raise UnsupportedError("an input with gaps between its elements is written")
        place.assign(walk.values[source].cast(place.dtype))
        state: UOp = place._cell.value
        return state

    def _connect(
        self,
        segment: Segment,
        values: Sequence[UOp | None],
        given: Sequence[UOp],
        slots: dict[Node, int],
    ) -> None:
        """Which slot of a call goes into which word, and which word comes out in which slot."""
        program, inputs, outputs = self.program, segment.inputs, segment.outputs
        pairs = list(zip(program.input_words, given, strict=True))
        self._inputs = [
            (word, slots[node])
            for (word, _), node in zip(pairs[: len(inputs)], inputs, strict=True)
            if word is not None
        ]
        self._moved = [
            slot
            for node in inputs
            for slot in [slots[node]]
            if value_of(node).device.type != self.torch_device.type
        ]
        self._seed_word = pairs[-1][0] if self.seed is not None else None
        self._outputs: list[Output] = []
        # slot <- slot of an output or input with the same elements in memory, in the same order
        self._copies: list[tuple[int, int, Any]] = []
        self._empty: list[tuple[int, Any]] = []
        of_word: dict[int, int] = {}
        numbers = iter(zip(program.results, program.result_inputs, strict=True))
        known = {
            program.place_of_input(memory): node
            for memory, node in zip(given, inputs, strict=False)
        }
        for node, value in zip(outputs, values, strict=True):
            slot, meta = slots[node], value_of(node)
            if value is None:
                self._empty.append((slot, meta))
                continue
            place, number = next(numbers)
            if place is None:
                self._copies.append((slot, slots[known[number]], meta))
                continue
            word = program.result_words[place]
            if word in of_word:
                self._copies.append((slot, of_word[word], meta))
                continue
            of_word[word] = slot
            self._outputs.append(self._output(slot, word, meta))
        self._shapes: dict[tuple[int, ...], list[Any]] = {}
        self._is_cpu = self.torch_device.type == "cpu"
        self._has_more = bool(self._copies or self._empty) or any(
            output.view for output in self._outputs
        )
        self._variables = [(word, name) for name, word in program.value_words.items()]

    def _output(self, slot: int, word: int, meta: Any) -> Output:
        layout = Layout.of(meta, self._numbers)
        sizes, strides = layout.sizes, layout.strides
        if layout.is_dense:
            return Output(slot, word, sizes, strides, meta.dtype, None)
        if layout.repeated and layout.is_dense_apart:
            small = tuple([1 if axis in layout.repeated else n for axis, n in enumerate(sizes)])
            return Output(slot, word, small, strides, meta.dtype, ("expand", sizes, strides))
        return Output(slot, word, sizes, _row_major(sizes), meta.dtype, ("copy", sizes, strides))

    # ------------------------------------------------------------ running
    @property
    def kernels(self) -> int:
        """How many launches a run is."""
        return len(self.program.prepared.steps)

    def run(self, slots: list[Any], now: Numbers) -> None:
        """Reads and fills the slots of a call; `now` are the values of the free sizes."""
        program = self.program
        words = program.words
        shapes = self._shapes.get(now.key)
        if shapes is None:
            shapes = self._shapes[now.key] = self._shapes_of(now)
        kept = []
        for slot in self._moved:
            kept.append(slots[slot])
            slots[slot] = slots[slot].to(self.torch_device)
        with program.lock:
            for word, slot in self._inputs:
                words[word] = slots[slot].data_ptr()
            if self._seed_word is not None:
                seed = torch.randint(-(1 << 62), 1 << 62, (1,), device=self.torch_device)
                words[self._seed_word] = seed.data_ptr()
            for word, name in self._variables:
                words[word] = now.by_name[name]
            if self._is_cpu:
                for slot, word, sizes, strides, dtype in shapes:
                    made = slots[slot] = _empty_strided_cpu(sizes, strides, dtype)
                    words[word] = made.data_ptr()
                program.run()
            else:
                for slot, word, sizes, strides, dtype in shapes:
                    made = slots[slot] = torch.empty_strided(
                        sizes, strides, dtype=dtype, device=self.torch_device
                    )
                    words[word] = made.data_ptr()
                with _ordered(self.torch_device, self.device):
                    program.run()
        for slot, tensor in zip(self._moved, kept, strict=True):
            slots[slot] = tensor
        if self._has_more:
            self._finish(slots, now)

    def _shapes_of(self, now: Numbers) -> list[Any]:
        if len(self._shapes) >= _MOST_SHAPES:
            self._shapes.clear()
        return [
            (o.slot, o.word, now.of(o.sizes), now.of(o.strides), o.dtype) for o in self._outputs
        ]

    def _finish(self, slots: list[Any], now: Numbers) -> None:
        """What is not simply new memory: views of it, copies, nothing."""
        for output in self._outputs:
            if output.view is None:
                continue
            kind, sizes, strides = output.view
            made = slots[output.slot]
            if kind == "expand":
                slots[output.slot] = made.expand(now.of(sizes))
            else:
                room = torch.empty_strided(
                    now.of(sizes), now.of(strides), dtype=made.dtype, device=made.device
                )
                slots[output.slot] = room.copy_(made)
        for slot, meta in self._empty:
            slots[slot] = torch.empty(
                now.shape(meta.shape), dtype=meta.dtype, device=self.torch_device
            )
        for slot, other, meta in self._copies:
            base = slots[other]
            view = base.as_strided(
                now.shape(meta.shape), now.shape(meta.stride()), base.storage_offset()
            )
            slots[slot] = view.clone()


# sizes of outputs that are kept for calls with the same free sizes
_MOST_SHAPES = 256


def _most(size: Any) -> int:
    return size if isinstance(size, int) else int(size.vmax)


def _row_major(sizes: Sequence[Any]) -> tuple[Any, ...]:
    strides: list[Any] = []
    step: Any = 1
    for size in reversed(sizes):
        strides.insert(0, step)
        step = step * size
    return tuple(strides)


@contextmanager
def _ordered(device: torch.device, name: str) -> Iterator[None]:
    """Work of weft between the work of PyTorch's current stream before and after it."""
    stream = torch.cuda.current_stream(device)
    home = Device[name]
    if home.stream is not None and stream.cuda_stream != 0:
        torch.cuda.ExternalStream(home.stream, device=device).wait_stream(stream)
    yield
    home.let_wait(stream.cuda_stream or None)
