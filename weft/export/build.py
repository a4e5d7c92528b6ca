"""Build a plan: a captured run, scheduled anew for the machine that it is exported to.

In: a `Captured` and a target. Out: a `Plan`, verified.
Sits between `capture` and the writers.
Invariant: what the plan computes is what the run computed. Kernels come from the same graphs, by
the same scheduler; only the machine differs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from weft.dtype import strong_dtype
from weft.engine.conditions import Condition, conditions_of, narrow
from weft.engine.jit.templates import (
    Again,
    CellOf,
    ConstantCell,
    Fill,
    Input,
    Known,
    Label,
    Made,
    Move,
    New,
    Outside,
    OutsideCell,
    Own,
    Rebind,
    Remove,
    Role,
    SetChild,
    Source,
    StoredCell,
    Template,
    View,
)
from weft.engine.jit.trace import Execution
from weft.engine.memory import plan_memory
from weft.engine.storage import buffer_of
from weft.errors import ExportError
from weft.export.capture import Captured
from weft.export.names import Names, identifier, kernel_name
from weft.export.plan import (
    ALIGNMENT,
    CONSTANT,
    INPUT,
    OUTPUT,
    SCRATCH,
    STATE,
    Claim,
    Copy,
    Draw,
    Kernel,
    Launch,
    Memory,
    Plan,
    Size,
    Value,
    kernel_parameters,
    kernel_variables,
    seal,
    touched,
    verify,
)
from weft.helpers import round_up
from weft.machine import Target
from weft.schedule.pipeline import Schedule, ScheduleItem, make_schedule
from weft.uop.args import BufferArg
from weft.uop.node import UOp
from weft.uop.opset import Ops


def build_plan(captured: Captured, target: Target) -> Plan:
    """The plan of a captured function for a machine."""
    plan = _Builder(captured, target).build()
    verify(plan)
    return plan


class _Builder:
    """A plan while it is made."""

    def __init__(self, captured: Captured, target: Target) -> None:
        self.captured = captured
        self.target = target
        self.run = captured.run
        self.memories: list[Memory] = []
        self.numbers: dict[Any, int] = {}  # of a role, or of (execution, BUFFER)
        self.kernels: dict[bytes, int] = {}
        self.made_kernels: list[Kernel] = []
        self.lines: dict[int, dict[tuple[str, int], None]] = {}
        self.steps: list[Launch | Copy] = []
        self.claims: dict[Any, Claim] = {}
        self.bounds: dict[str, tuple[int, int]] = {
            name: (variable.arg.lo, variable.arg.hi) for name, variable in captured.sizes.items()
        }
        self.memory_names = Names([captured.name])
        self.kernel_names = Names([captured.name])
        self.outputs: list[Value] = []
        self.late: set[int] = set()  # constants that the first call made

    # ------------------------------------------------------------ memory
    def add(self, name: str, kind: str, dtype: Any, size: int, contents: bytes | None) -> int:
        """A new memory; its number."""
        taken = self.memory_names.take(identifier(name))
        self.memories.append(Memory(taken, kind, strong_dtype(dtype), size, 0, contents))
        return len(self.memories) - 1

    def memory_of(self, role: Role, facts: tuple[Any, int, str] | None = None) -> int:
        """The number of a memory of the run."""
        key = self._key(role)
        number = self.numbers.get(key)
        if number is None:
            number = self.numbers[key] = self._new_memory(role, facts)
        return number

    def _key(self, role: Role) -> Any:
        if isinstance(role, Input):
            return Input(self.run.groups.get(role.label, role.label))
        return role

    def _new_memory(self, role: Role, facts: tuple[Any, int, str] | None) -> int:
        if isinstance(role, Outside):
            node = role.node
            contents = bytes(buffer_of(node).ensure_allocated().as_memoryview())
            return self.add("constant", CONSTANT, node.dtype, node.arg.size, contents)
        if isinstance(role, Own):
            if role.contents is None:
                return self.add("scratch", SCRATCH, role.dtype, role.size, None)
            return self.add("constant", CONSTANT, role.dtype, role.size, role.contents)
        assert isinstance(role, Input) and facts is not None, "made memory is known already"
        dtype, size, _ = facts
        label = self.run.groups.get(role.label, role.label)
        if label.kind == "argument":
            return self.add(self.captured.inputs[label.path[0]][0], INPUT, dtype, size, None)
        contents = self.captured.contents(label, size, size * dtype.itemsize)
        number = self.add(self.captured.state_names[label], CONSTANT, dtype, size, contents)
        if label in self.captured.late:
            self.late.add(number)
        return number

    def write_to(self, number: int, where: str) -> None:
        """A memory of the caller is written: it must be state."""
        memory = self.memories[number]
        if memory.kind == INPUT:
            raise ExportError(
                f"{where} writes to the input {memory.name}; exported functions only read their "
                "inputs: return the new value, or keep it as state (an attribute that is assigned)"
            )
        if number in self.late:
            raise ExportError(
                f"the state {memory.name} is no Tensor before the first call; call the function "
                "once before it is exported, or start with zeros"
            )
        if memory.kind == CONSTANT:
            self.memories[number] = replace(memory, kind=STATE)

    # ------------------------------------------------------------ executions
    def build(self) -> Plan:
        """All executions, then what comes out and what is kept."""
        self._add_inputs()
        for number, execution in enumerate(self.run.executions):
            self._add_execution(number, execution)
        self._add_effects()
        self._add_outputs()
        self._copy_fresh_constants()
        self._place_scratch()
        self._place_state()
        for number, lines in self.lines.items():
            self.made_kernels[number] = replace(self.made_kernels[number], lines=tuple(lines))
        arena, states = self.arena_bytes, self.state_bytes
        return seal(
            Plan(
                self.captured.name,
                tuple(self.memories),
                tuple(self.inputs),
                tuple(self.outputs),
                tuple(self.made_kernels),
                tuple(self.steps),
                tuple([Size(name, *bounds) for name, bounds in self.bounds.items()]),
                tuple(self.claims.values()),
                tuple(self.run.events),
                *self.captured.random,
                arena,
                states,
            )
        )

    def _add_inputs(self) -> None:
        """All of them, also those that nothing reads, in the order in which they were given."""
        facts = {
            role.label: fact
            for execution in self.run.executions
            for role, fact in zip(execution.roles, execution.facts, strict=True)
            if isinstance(role, Input)
        }
        self.inputs: list[Value] = []
        for index, (_, shape, dtype) in self.captured.inputs.items():
            label = Label("argument", (index,))
            elements = 1
            for size in shape:
                elements *= int(size.vmax) if isinstance(size, UOp) else size
            fact = facts.get(label) or (dtype, elements, self.captured.device)
            number = self.memory_of(Input(label), fact)
            self.inputs.append(Value(self.memories[number].name, number, shape))

    def _add_execution(self, number: int, execution: Execution) -> None:
        inputs = [
            self.memory_of(role, facts)
            for role, facts in zip(execution.roles, execution.facts, strict=True)
        ]
        graph = _rebuild(execution)
        values = {name: self._sample(source) for name, source in execution.sources.items()}
        conditions = conditions_of(graph) if values else ()
        for condition in conditions:
            self._claim(condition, execution)
        graph = narrow(graph, conditions, values)
        schedule = make_schedule(
            graph, -len(inputs) - 1, self.captured.device, lambda device: self.target
        )
        self._add_made(number, execution, schedule, inputs)
        for item in schedule.items:
            self._add_step(item, execution)

    def _sample(self, source: Source) -> int:
        if source.kind == "fixed":
            return int(source.value)
        return self.run.variables.get(source.name, 0) if source.kind == "argument" else 0

    def _claim(self, condition: Condition, execution: Execution) -> None:
        parts = []
        for part in (condition.start, condition.stop, condition.size):
            if isinstance(part, UOp):
                fixed = {
                    v: UOp.const(v.dtype, execution.sources[v.arg.name].value)
                    for v in part.variables()
                    if execution.sources[v.arg.name].kind == "fixed"
                }
                part = part.substitute(fixed).simplify() if fixed else part
                part = part.arg if part.op is Ops.CONST else part
            parts.append(part)
        self.claims.setdefault(tuple(parts), Claim(*parts))

    def _add_made(
        self, number: int, execution: Execution, schedule: Schedule, inputs: list[int]
    ) -> None:
        """The memories of a schedule: results of the run by their role, the rest as scratch."""
        self.local: dict[UOp, int] = {}
        self.tables = schedule.tables
        prepared = execution.prepared
        for position, memory in enumerate(inputs):
            node = UOp(
                Ops.BUFFER,
                execution.facts[position][0],
                (),
                BufferArg(
                    -1 - position, execution.facts[position][1], execution.facts[position][2]
                ),
            )
            self.local[node] = memory
        for position in prepared.overwritten:
            self.write_to(inputs[position], _where(schedule))
        for result, before in zip(schedule.results, prepared.results, strict=True):
            if result is None or before is None:
                continue
            if before >= prepared.inputs:
                role = Made(number, before)
                found = self._memory(result)
                self.numbers.setdefault(role, found)

    def _memory(self, node: UOp) -> int:
        found = self.local.get(node)
        if found is None:
            contents = self.tables.get(node)
            if contents is not None:
                found = self.add("table", CONSTANT, node.dtype, node.arg.size, contents)
            else:
                found = self.add("scratch", SCRATCH, node.dtype, node.arg.size, None)
            self.local[node] = found
        return found

    def _add_step(self, item: ScheduleItem, execution: Execution) -> None:
        where = "the function" if item.origin is None else f"{item.origin[0]}:{item.origin[1]}"
        if item.kernel is None:
            raise ExportError(
                f"{where} copies between devices; an export runs in one place: keep everything on "
                "one device"
            )
        arguments = tuple([(self._memory(a.memory), a.offset) for a in item.arguments])
        for number, _ in arguments:
            kind = self.memories[number].kind
            if kind not in (INPUT, CONSTANT, STATE, SCRATCH, OUTPUT):
                raise ExportError(f"{where} takes a memory of the kind {kind}")
        kernel = self._kernel(item)
        values = []
        for variable in kernel_variables(item.kernel):
            source = execution.sources[variable.arg.name]
            values.append(self._value(source, variable, where))
        self.steps.append(Launch(kernel, arguments, tuple(values)))

    def _kernel(self, item: ScheduleItem) -> int:
        assert item.kernel is not None
        number = self.kernels.get(item.kernel.key)
        if number is None:
            number = self.kernels[item.kernel.key] = len(self.made_kernels)
            names = tuple([v.arg.name for v in kernel_variables(item.kernel)])
            parameters = kernel_parameters(item.kernel)
            name = self.kernel_names.take(kernel_name(item.origin))
            self.made_kernels.append(Kernel(name, item.kernel, parameters, names))
        if item.origin is not None:
            self.lines.setdefault(number, {}).setdefault(item.origin)
        return number

    def _value(self, source: Source, variable: UOp, where: str) -> str | Draw | int:
        if source.kind == "fixed":
            return int(source.value)
        if source.kind == "draw":
            return Draw(source.value, source.other)
        if source.kind == "argument":
            low, high = self.bounds.get(source.name, (variable.arg.lo, variable.arg.hi))
            self.bounds[source.name] = (max(low, variable.arg.lo), min(high, variable.arg.hi))
            return source.name
        raise ExportError(f"{where} depends on a number of the host ({source.kind}); pass a Tensor")

    # ------------------------------------------------------------ what comes out
    def _add_effects(self) -> None:
        """State that is bound to new values: they are copied to where it is."""
        copies: dict[int, int] = {}
        for effect in self.run.effects:
            if isinstance(effect, SetChild):
                self._bind((*effect.label.path, effect.key), effect.label, effect.value, copies)
            elif isinstance(effect, Fill):
                self._bind(effect.label.path, effect.label, effect.value, copies)
            elif isinstance(effect, (Rebind, Move)):
                if not isinstance(
                    effect.label if isinstance(effect, Rebind) else effect.cell, Label
                ):
                    raise ExportError(
                        "the function assigns to a Tensor that it reaches in an unusual way; make "
                        "it an attribute or a name that the function uses"
                    )
                label = effect.label if isinstance(effect, Rebind) else effect.cell
                assert isinstance(label, Label)
                self._bind(label.path, label, effect.value, copies)
            elif not isinstance(effect, Remove):
                raise ExportError(
                    f"the function does {type(effect).__name__}, which is not exported"
                )
        for target, source in copies.items():
            if source == target:
                continue
            if source in copies and copies[source] != source:
                raise ExportError(
                    f"the states {self.memories[source].name} and {self.memories[target].name} "
                    "change places in every call; assign values to them instead"
                )
            self.write_to(target, "the function")
            self.steps.append(Copy(source, target))

    def _bind(
        self, path: tuple[Any, ...], label: Label, value: Template, copies: dict[int, int]
    ) -> None:
        if label.kind in ("argument", "container"):
            raise ExportError(
                "the function changes what it is given (an argument, or a container of "
                "arguments); return the new value instead"
            )
        if isinstance(value, New):
            for key, child in value.children:
                self._bind((*path, key), label, child, copies)
            return
        state = Label("state", path)
        target = self.numbers.get(self._key(Input(state)))
        if target is None:
            # nobody reads it
            return
        source = self._stored(value)
        if source is None or self.memories[source].size != self.memories[target].size:
            raise ExportError(
                f"the state {self.memories[target].name} is set to a constant, or to something of "
                "another size; assign a Tensor of the same shape that depends on an input"
            )
        copies[target] = source

    def _stored(self, value: Template | None) -> int | None:
        """The memory that a tensor of the result is the whole of, row by row."""
        if isinstance(value, Again):
            value = self._views().get(value.number)
        if isinstance(value, Known):
            return self.numbers.get(self._key(Input(value.label)))
        if isinstance(value, View):
            if any(op is not Ops.RESHAPE for op, _ in value.moves):
                return None
            value = value.cell
        if isinstance(value, CellOf):
            return self.numbers.get(self._key(Input(value.label)))
        if isinstance(value, StoredCell):
            if isinstance(value.role, Made):
                return self.numbers.get(value.role)
            return self.memory_of(value.role)
        if isinstance(value, (ConstantCell, OutsideCell)):
            return None
        return None

    def _views(self) -> dict[int, Template]:
        found: dict[int, Template] = {}
        pending: list[Any] = [self.run.result, *self.run.effects]
        while pending:
            part = pending.pop()
            if isinstance(part, (View, New)):
                found[part.number] = part
            if isinstance(part, (list, tuple)):
                pending.extend(part)
            elif isinstance(part, Template):
                pending.extend(part.parts())
        return found

    def _add_outputs(self) -> None:
        assert isinstance(self.run.result, New)
        results = dict(self.captured.results)
        taken = Names([*[value.name for value in self.inputs], *self.bounds])
        for name, template in self.run.result.children:
            tensor = results[name]
            shape = tuple([s.unbind_all()[0] if isinstance(s, UOp) else s for s in tensor.shape])
            number = self._stored(template)
            public = taken.take(identifier(str(name)))
            if number is None:
                number = self._constant_output(public, tensor)
            memory = self.memories[number]
            if memory.kind == SCRATCH:
                self.memories[number] = replace(memory, kind=OUTPUT, name=self._rename(public))
                self.outputs.append(Value(public, number, shape))
                continue
            copy = self.add(public, OUTPUT, memory.dtype, memory.size, None)
            self.outputs.append(Value(public, copy, shape))
            # before the states change places with what they become
            self.steps.insert(self._last_write(number), Copy(number, copy))
        if not self.outputs and not any(m.kind == STATE for m in self.memories):
            raise ExportError("the function gives no Tensor and keeps no state: nothing to export")

    def _rename(self, name: str) -> str:
        return self.memory_names.take(name)

    def _last_write(self, number: int) -> int:
        """Where a memory can be copied from: after all but the copies that end a call, if those
        write to it."""
        for position, step in enumerate(self.steps):
            if isinstance(step, Copy) and step.target == number:
                return position
        return len(self.steps)

    def _constant_output(self, name: str, tensor: Any) -> int:
        if any(isinstance(size, UOp) for size in tensor.shape):
            raise ExportError(
                f"the output {name} is a view of a size that changes; call .contiguous() on it"
            )
        dtype = strong_dtype(tensor.dtype)
        data = bytes(tensor.cast(dtype).contiguous().clone().realize()._bytes())
        return self.add(name, CONSTANT, dtype, len(data) // dtype.itemsize, data)

    def _copy_fresh_constants(self) -> None:
        """Data that the function makes and then writes to begins anew in every call."""
        for role, number in list(self.numbers.items()):
            memory = self.memories[number]
            if isinstance(role, Own) and role.contents is not None and memory.kind == STATE:
                assert memory.contents is not None
                facts = (memory.dtype, memory.size, memory.contents)
                fresh = self.add(f"{memory.name}_start", CONSTANT, *facts)
                self.memories[number] = replace(memory, kind=SCRATCH, contents=None)
                self.steps.insert(0, Copy(fresh, number))

    # ------------------------------------------------------------ places
    def _place_scratch(self) -> None:
        """Scratch that does not live at one time shares bytes; what nothing touches is gone."""
        used = dict.fromkeys(n for step in self.steps for n in touched(step))
        public = [value.memory for value in (*self.inputs, *self.outputs)]
        same: dict[tuple[Any, ...], int] = {}
        first: dict[int, int] = {}
        for number in sorted({*used, *public}):
            memory = self.memories[number]
            key = (memory.dtype, memory.contents) if memory.kind == CONSTANT else (number,)
            first[number] = same.setdefault(key, number)
        kept = sorted(same.values())
        places = {old: new for new, old in enumerate(kept)}
        renumbered = {number: places[other] for number, other in first.items()}
        self.memories = [self.memories[number] for number in kept]
        self.steps = [_renumber(step, renumbered) for step in self.steps]
        self.inputs = [replace(v, memory=renumbered[v.memory]) for v in self.inputs]
        self.outputs = [replace(v, memory=renumbered[v.memory]) for v in self.outputs]
        sizes: dict[int, Any] = {
            number: ("arena", memory.nbytes)
            for number, memory in enumerate(self.memories)
            if memory.kind == SCRATCH
        }
        offsets, arenas = plan_memory([touched(step) for step in self.steps], sizes)
        self.arena_bytes = arenas.get("arena", 0)
        for number, offset in offsets.items():
            self.memories[number] = replace(self.memories[number], offset=offset)

    def _place_state(self) -> None:
        at = 0
        for number, memory in enumerate(self.memories):
            if memory.kind == STATE:
                self.memories[number] = replace(memory, offset=at)
                at += round_up(memory.nbytes, ALIGNMENT)
        self.state_bytes = at


def _where(schedule: Schedule) -> str:
    lines = [item.origin for item in schedule.items if item.origin is not None]
    return f"{lines[0][0]}:{lines[0][1]}" if lines else "the function"


def _renumber(step: Launch | Copy, numbers: dict[int, int]) -> Launch | Copy:
    if isinstance(step, Copy):
        return Copy(numbers[step.source], numbers[step.target])
    return replace(step, arguments=tuple([(numbers[n], first) for n, first in step.arguments]))


def _rebuild(execution: Execution) -> UOp:
    """The graph that a schedule was made of, from its key."""
    nodes: list[UOp] = []
    writes = 0
    for row, origin in zip(execution.key[2:], execution.origins, strict=True):
        if row[0] is Ops.BUFFER:
            _, dtype, position, size, device = row
            node = UOp(Ops.BUFFER, dtype, (), BufferArg(-1 - position, size, device))
        else:
            op, dtype, src, arg, tag = row
            node = UOp(op, dtype, tuple([nodes[number] for number in src]), arg, tag)
            if op is Ops.STORE:
                node = node.rtag(("write", writes))
                writes += 1
        if node.origin is None:
            node.origin = origin
        nodes.append(node)
    return nodes[-1]
