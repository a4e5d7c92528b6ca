"""Linearize: the loop nest as a list of UOps in execution order.

In: a kernel and its `LoopTree`. Out: the linear program: memory and constants, then each node once,
where RANGE opens a loop and END closes it, and every REDUCE is a register (ACC) that its loop
updates. Last pass before rendering.
Invariant: in each loop the nodes keep the order of the expression, sources first, so that a value
is computed shortly before its use; a nested loop stands where the first of its results is needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from weft.codegen.place import Loop, LoopTree
from weft.dtype import DType, dtypes
from weft.uop.infer import derive_ranges
from weft.uop.node import UOp
from weft.uop.opset import OPSET, SUMMING, Ops

# named where they stand and never move: they come first
HEAD = (Ops.PARAM, Ops.VARIABLE, Ops.LOCAL, Ops.CONST)


@dataclass(eq=False, slots=True)
class Update:
    """The step of a reduce inside its loop: the register takes in one more value, or one of the
    products whose sum that is."""

    reduce: UOp
    value: UOp
    number: int = 0  # of the product, the first is 0
    is_last: bool = True
    factor: UOp | None = None  # what was there is multiplied by it first


Placed: TypeAlias = UOp | Update | Loop


def linearize(sink: UOp, nest: LoopTree) -> list[UOp]:
    """The kernel as a linear program."""
    return _Linearizer(sink, nest).run()


def identity_of(op: Ops, dtype: DType) -> UOp:
    """What a reduction with `op` starts from."""
    scalar = dtype.scalar()
    identity = scalar.min if op is Ops.MAX else OPSET[op].identity
    if identity is None:
        identity = 0
    return UOp.const(dtype, identity)


def step(op: Ops, total: UOp, value: UOp) -> UOp:
    """One more value taken in by a reduction."""
    tag = SUMMING if op is Ops.ADD and total.dtype.kind == "float" else None
    return UOp(op, total.dtype, (total, value), None, tag)


class _Linearizer:
    def __init__(self, sink: UOp, nest: LoopTree) -> None:
        self.nest = nest
        order = sink.toposort()
        derive_ranges(order)
        self.position = {node: i for i, node in enumerate(order)}
        self.block: dict[Placed, Loop] = {}  # the loop each item runs in
        # what an item waits for inside its block, but for its own sources there: those have
        # lower positions anyway
        self.after: dict[Placed, set[Placed]] = {}
        self.items: dict[Loop, dict[Placed, int]] = {}  # what a block holds, with its position
        self.reduces: dict[Loop, list[UOp]] = {}  # by the outermost loop they open
        self.registers: dict[UOp, UOp] = {}
        self.sums: dict[UOp, UOp] = {}  # of reduces that take in several products, after the last
        self.before: dict[UOp, UOp] = {}  # of reduces, what they were as a round began
        self.last: dict[UOp, Update] = {}  # the last step of a reduce
        self.terms = _sums_of_products(order)  # of each such reduce, and no other
        self.inside = {
            node for reduce in self.terms for node in _taken_apart(_summed(reduce)[0])[0]
        }
        self.numbers: set[tuple[int, ...]] = set()
        self.written: set[UOp] = set()
        self.done: dict[UOp, UOp] = {}  # what each node is in the linear program

    def run(self) -> list[UOp]:
        head = self._head()
        for node in head:
            self.done[node] = node
        for loop in self.nest.loops.values():
            self._add_item(loop, _parent(loop), _LAST)
        for node, position in self.position.items():
            if node not in self.done and node.op not in _NOT_ITEMS and node not in self.inside:
                self._add_node(node, position)
        for axis, loop in self.nest.loops.items():
            # a loop stands where its first result does, which may be before its size
            for size in axis.src:
                if size in self.block:
                    self._wait(loop, size)
        self._order_loads_before_stores()
        return [*head, *self._emit()]

    def _head(self) -> list[UOp]:
        """What stands before the first loop: memory, variables, constants, starts of registers."""
        head = [u for u in self.position if u.op in HEAD]
        starts = [identity_of(u.arg, u.dtype) for u in self.position if u.op is Ops.REDUCE]
        lanes = [lane for start in starts for lane in (*start.src, start)]
        head.sort(key=lambda u: (HEAD.index(u.op), self._head_order(u)))
        return list(dict.fromkeys([*head, *lanes]))

    def _head_order(self, node: UOp) -> tuple[int, str]:
        if node.op is Ops.PARAM:
            return node.arg.slot, ""
        if node.op is Ops.VARIABLE:
            return 0, node.arg.name
        return self.position[node], ""

    # ------------------------------------------------------------ items and what they wait for
    def _add_node(self, node: UOp, position: int) -> None:
        if node.op is Ops.STORE:
            self._add_item(node, self.nest.innermost(node), position)
            self._wait_for(node, node.src[:2])
            self._need_loops(node)
        elif node.op is Ops.REDUCE:
            update = self._add_updates(node, position)
            self._add_item(node, self.nest.loop_of(node), position)
            self._wait(node, update)
            self._need_loops(node)
            self.reduces.setdefault(self.nest.outermost(node), []).append(node)
        elif node.op is Ops.RUNNING:
            # it stands in the loop, so it waits for the step there and not for the end
            self._add_item(node, self.nest.loop_of(node), position)
            self._wait(node, self.last[node.src[0]])
        else:
            block = self.nest.loop_of(node)
            self._add_item(node, block, position)
            blocks = self.block
            for source in node.src:
                # what stands before the first loop, and axes, are in no block
                if blocks.get(source, block) is not block:
                    self._wait(node, source)

    def _add_updates(self, reduce: UOp, position: int) -> Update:
        """The steps of a reduce, one after the other; the last of them."""
        summed, factor = _summed(reduce)
        terms = self.terms.get(reduce, (summed,))
        before: Update | None = None
        for number, value in enumerate(terms):
            is_last = number == len(terms) - 1
            update = Update(reduce, value, number, is_last, None if number else factor)
            self._add_item(update, self.nest.innermost(reduce), position)
            self._wait_for(update, (value,) if update.factor is None else (value, update.factor))
            if before is not None:
                self._wait(update, before)
            before = update
        assert before is not None
        self.last[reduce] = before
        return before

    def _add_item(self, item: Placed, block: Loop, position: int) -> None:
        self.block[item] = block
        self.items.setdefault(block, {})[item] = position

    def _need_loops(self, closer: UOp) -> None:
        """The loops around a closer take the position of the first result they are needed for."""
        loop = self.nest.innermost(closer)
        while loop.parent is not None:
            siblings = self.items[loop.parent]
            siblings[loop] = min(siblings[loop], self.position[closer])
            loop = loop.parent

    def _wait_for(self, item: Placed, sources: tuple[UOp, ...]) -> None:
        for source in sources:
            if source in self.block:
                self._wait(item, source)

    def _wait(self, item: Placed, source: Placed) -> None:
        """`item` comes after `source`: said in the innermost block that holds both."""
        block, other = self.block[item], self.block[source]
        while block is not other:
            if block.depth >= other.depth:
                item, block = block, _parent(block)
            else:
                source, other = other, _parent(other)
        if item is not source:
            self.after.setdefault(item, set()).add(source)

    def _order_loads_before_stores(self) -> None:
        """Values are functions of what memory held before the nest, so its loads come first."""
        stores: dict[UOp, list[tuple[UOp, Loop]]] = {}
        for node in self.position:
            if node.op is Ops.STORE and _memory(node).op is Ops.PARAM:
                home = self._top(self.block[node])
                stores.setdefault(_memory(node), []).append((node, home))
        nests = {home for found in stores.values() for _, home in found} - {self.nest.root}
        for load in self.position:
            if load.op is not Ops.LOAD or _memory(load) not in stores:
                continue
            home = self._top(self.block[load])
            for store, nest in stores[_memory(load)]:
                # other nests come before or after as a whole, in the order of the SINK
                if home is nest or home not in nests:
                    self._wait(store, load)

    def _top(self, loop: Loop) -> Loop:
        """The outermost loop around (and including) this one; the root itself for the root."""
        while loop.parent is not None and loop.parent.parent is not None:
            loop = loop.parent
        return loop

    # ------------------------------------------------------------ writing the list
    def _emit(self) -> list[UOp]:
        """Blocks are ordered independently, then written from the root down without recursion."""
        orders = {block: iter(self._order(items)) for block, items in self.items.items()}
        program: list[UOp] = []
        open_blocks = [self.nest.root]
        while open_blocks:
            block = open_blocks[-1]
            for item in orders.get(block, ()):
                if isinstance(item, UOp):
                    new = self._write(item)
                    if new is not None:
                        program.append(new)
                elif isinstance(item, Update):
                    program.extend(self._update(item))
                else:
                    program.extend(self._start(item))
                    open_blocks.append(item)
                    break
            else:
                open_blocks.pop()
                if block.axis is not None:
                    program.append(self._end(block.axis))
        return program

    def _order(self, found: Mapping[Placed, float]) -> list[Placed]:
        """The items of a block, each after what it waits for, else by position."""
        items = _order_products(found)
        by_position = sorted(items, key=items.__getitem__)
        if items is found and self._is_order(by_position):
            return by_position
        after = {item: self._all_before(item, items) for item in items}
        waiting = {item: len(after[item]) for item in items}
        users: dict[Placed, list[Placed]] = {}
        for item in items:
            for source in after[item]:
                users.setdefault(source, []).append(item)
        numbered = list(items)
        numbers = {item: i for i, item in enumerate(numbered)}
        ready = [(items[item], numbers[item]) for item in numbered if not waiting[item]]
        heapify(ready)
        order: list[Placed] = []
        while ready:
            item = numbered[heappop(ready)[1]]
            order.append(item)
            for user in users.get(item, ()):
                waiting[user] -= 1
                if not waiting[user]:
                    heappush(ready, (items[user], numbers[user]))
        assert len(order) == len(items), "loops wait for each other in a circle"
        return order

    def _is_order(self, items: list[Placed]) -> bool:
        """Whether each item comes after what it waits for, as in most blocks it does."""
        passed: set[Placed] = set()
        for item in items:
            if item in self.after and not passed.issuperset(self.after[item]):
                return False
            passed.add(item)
        return True

    def _all_before(self, item: Placed, items: Mapping[Placed, float]) -> set[Placed]:
        """All that an item waits for in its block, its own sources included."""
        if isinstance(item, Loop):
            sources = _axis(item).src
        elif isinstance(item, Update):
            sources = (item.value,) if item.factor is None else (item.value, item.factor)
        elif item.op is Ops.REDUCE:
            # it waits for its loop, which was said when it was added
            sources = ()
        else:
            sources = item.src[:2] if item.op is Ops.STORE else item.src
        return {*self.after.get(item, ()), *[s for s in sources if s in items]}

    def _start(self, loop: Loop) -> list[UOp]:
        """The registers of the reduces that begin here, then the loop itself."""
        registers = []
        for reduce in self.reduces.get(loop, ()):
            start = identity_of(reduce.arg, reduce.dtype)
            register = UOp(Ops.ACC, reduce.dtype, (start,), len(self.registers))
            self.registers[reduce] = register
            registers.append(register)
        axis = _axis(loop)
        # a copy of an axis whose size depends on another may still have the number of its original
        while axis.arg.number in self.numbers:
            axis = axis.replace(arg=replace(axis.arg, number=(*axis.arg.number, 0)))
        self.numbers.add(axis.arg.number)
        self.done[_axis(loop)] = axis.with_src((self.done[axis.src[0]],))
        return [*registers, self.done[_axis(loop)]]

    def _end(self, axis: UOp) -> UOp:
        return UOp(Ops.END, dtypes.void, (self.done[axis],))

    def _update(self, update: Update) -> list[UOp]:
        reduce = update.reduce
        register = self.registers[reduce]
        written = []
        if update.number == 0:
            inside = self.done[_axis(self.nest.innermost(reduce))]
            self.sums[reduce] = UOp(Ops.LOAD, reduce.dtype, (register, inside))
            self.before[reduce] = self.sums[reduce]
            written.append(self.sums[reduce])
            if update.factor is not None:
                src = (self.sums[reduce], self.done[update.factor])
                self.sums[reduce] = UOp(Ops.MUL, reduce.dtype, src)
                written.append(self.sums[reduce])
        after = step(reduce.arg, self.sums[reduce], self.done[update.value])
        self.sums[reduce] = after
        written.append(after)
        if update.is_last:
            written.append(UOp(Ops.ACC_SET, dtypes.void, (register, after)))
        return written

    def _write(self, node: UOp) -> UOp | None:
        """What a node is in the program; None if that stands there already."""
        done = self.done
        op = node.op
        if op is Ops.AFTER:
            done[node] = done[node.src[0]]
            return None
        if op is Ops.RUNNING:
            done[node] = (self.sums if node.arg else self.before)[node.src[0]]
            return None
        if op is Ops.REDUCE:
            end = self._end(_axis(self.nest.outermost(node)))
            new = UOp(Ops.LOAD, node.dtype, (self.registers[node], end))
        elif op is Ops.BARRIER:
            # what it waits for stands before it, perhaps in a loop that is closed; a number of its
            # own tells it from the others
            new = UOp(Ops.BARRIER, dtypes.void, (), len(done))
        elif op in (Ops.COMMIT, Ops.WAIT, Ops.SETTLE):
            new = UOp(op, dtypes.void, (), (node.arg or 0, len(done)))
        else:
            src = tuple([done[s] for s in (node.src[:2] if op is Ops.STORE else node.src)])
            new = node if src == node.src else node.with_src(src)
        done[node] = new
        # filling and reading an element of a LOCAL may be the same INDEX, written by the first
        if new in self.written:
            return None
        self.written.add(new)
        return new


_NOT_ITEMS = frozenset({Ops.SINK, Ops.RANGE, Ops.RESCALED})
_LAST = 1 << 62
_PRODUCTS = (Ops.MUL, Ops.WMMA)
# products from which on their order decides whether registers suffice
_MANY = 4
# sums that keep the machine busy while each of them waits for its last product
_MANY_SUMS = 8


def _order_products(items: Mapping[Placed, float]) -> Mapping[Placed, float]:
    """New positions for the sums of products of a block: what has few values stays in registers.

    a0*b0 a0*b1 a0*b2 a1*b0 a1*b1 a1*b2 -> a0*b0 a1*b0 a0*b1 a1*b1 a0*b2 a1*b2: every b is used up
    before the next is read, so a0, a1 and one b are in registers instead of all b. Two lines of a
    tile are what the optimiser counts with.
    """
    updates = [item for item in items if isinstance(item, Update)]
    if len(updates) < _MANY or any([update.value.op not in _PRODUCTS for update in updates]):
        return items
    order: list[Update] = []
    for number in sorted({update.number for update in updates}):
        order += _in_order([update for update in updates if update.number == number])
    start = min([items[update] for update in updates])
    places: dict[Placed, float] = {}
    for place, update in enumerate(order):
        places[update] = start + place / len(updates)
    # what they are made of comes right before the first that needs it
    for item in sorted(items, key=lambda item: -items[item]):
        if isinstance(item, Loop):
            continue
        needed = places.get(item)
        for source in (item.value,) if isinstance(item, Update) else item.src:
            if needed is not None and source in items and places.get(source, _LAST) > needed:
                places[source] = needed
    return {item: places.get(item, position) for item, position in items.items()}


def _in_order(updates: list[Update]) -> list[Update]:
    """By the factor of which there are more."""
    pairs = [[_unspread(source) for source in update.value.src[:2]] for update in updates]
    values = [dict.fromkeys([pair[side] for pair in pairs]) for side in (0, 1)]
    many = 0 if len(values[0]) > len(values[1]) else 1
    rank = {value: i for i, value in enumerate(values[many])}
    numbers = sorted(range(len(updates)), key=lambda i: (rank[pairs[i][many]], i))
    return [updates[i] for i in numbers]


def _sums_of_products(order: Mapping[UOp, None]) -> dict[UOp, tuple[UOp, ...]]:
    """Reduces that sum up the sum of several products, and these, for registers to take them in one
    after the other: r + (a*b + c*d) -> (r + a*b) + c*d.

    So a tile of them needs no registers for sums of products beside its own, and the factors of one
    product are used up before those of the next are read. Each step waits for the one before, which
    costs nothing if there are many sums.
    """
    found: dict[UOp, tuple[UOp, ...]] = {}
    # the instruction adds as it multiplies, whatever their number
    fragments: dict[UOp, tuple[UOp, ...]] = {}
    uses: dict[UOp, int] | None = None
    for reduce in order:
        if reduce.op is not Ops.REDUCE or reduce.arg is not Ops.ADD:
            continue
        if _summed(reduce)[0].op is not Ops.ADD:
            continue
        if uses is None:
            uses = Counter([source for node in order for source in node.src])
        additions, terms = _taken_apart(_summed(reduce)[0])
        kinds = {term.op for term in terms}
        if len(kinds) > 1 or any([uses[u] != 1 for u in additions]):
            continue
        if kinds == {Ops.WMMA}:
            fragments[reduce] = tuple(terms)
        elif kinds == {Ops.MUL} and dtypes.is_float(reduce.dtype):
            found[reduce] = tuple(terms)
    return {**(found if len(found) >= _MANY_SUMS else {}), **fragments}


def _summed(reduce: UOp) -> tuple[UOp, UOp | None]:
    """What a reduce takes in each round, and what it multiplies its register by before."""
    value = reduce.src[0]
    return (value.src[0], value.src[1]) if value.op is Ops.RESCALED else (value, None)


def _taken_apart(value: UOp) -> tuple[list[UOp], list[UOp]]:
    """The ADDs that a value is the result of, and what they add up, from left to right."""
    additions, terms = [], []
    pending = [value]
    while pending:
        node = pending.pop()
        if node.op is Ops.ADD:
            additions.append(node)
            pending += reversed(node.src)
        else:
            terms.append(node)
    return additions, terms


def _unspread(value: UOp) -> UOp:
    """A vector of one value is that value."""
    if value.op is Ops.VECTORIZE and all([s is value.src[0] for s in value.src]):
        return value.src[0]
    return value


def _parent(loop: Loop) -> Loop:
    assert loop.parent is not None, "the root of the loops is in no loop"
    return loop.parent


def _axis(loop: Loop) -> UOp:
    assert loop.axis is not None, "the root of the loops has no axis"
    return loop.axis


def _memory(node: UOp) -> UOp:
    """The memory a LOAD or STORE touches."""
    memory = node.src[0].src[0]
    return memory.src[0] if memory.op is Ops.AFTER else memory
