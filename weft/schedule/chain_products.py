"""Chain products: a product whose factor is made of other products is one kernel with them.

What comes in: built kernels. What goes out: the same, but where a product reads a matrix that only
it wants, and that is made of products and of reductions of their rows, all of that is inside of it:
attention without the matrix of scores, on machines whose fragments pass it on in registers.
Where it sits: after build, beside stage_rows, which does this for caches.
The one invariant: a kernel is made only if it is a chain (`uop/chained.py`), which the optimiser
computes block by block. What is inside is computed once for each of its elements, as before.

    S[q, k] = sum(Q[q, e]*K[k, e], e);  P[q, k] = f(S[q, k], rows of S);  O = sum(P*V[k, d], k)
    -> O[q, d] = sum(f(sum(Q*K, e), rows of it)*V[k, d], k)
"""

from __future__ import annotations

from dataclasses import replace

from weft.helpers import prod
from weft.knobs import USE_TC
from weft.machine import Machines, Target
from weft.schedule.build import Built
from weft.schedule.chains import linear_index, replace_chains
from weft.schedule.draft import size_of
from weft.schedule.order import writers
from weft.schedule.survey import Survey
from weft.uop.chained import find_chain
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

# reductions of rows that are told apart below one value
_MOST_ROWS = 16


def chain_products(kernels: list[Built], kept: set[UOp], machines: Machines) -> list[Built]:
    """The kernels with chains made one; as they were if they would wait for each other then.

    `kept` are values that somebody else wants too.
    """
    # a transfer stores nothing itself, and its device may be one that computes nothing
    computing = [kernel for kernel in kernels if kernel.stores]
    if not USE_TC or not any([machines(k.draft.device).fragments for k in computing]):
        return kernels
    kernels = replace_chains(kernels, *_Chains(kernels, kept, machines).run())
    return replace_chains(kernels, *_Chains(kernels, kept, machines).vanish())


class _Chains:
    """All kernels of a schedule, while chains are found among them."""

    def __init__(self, kernels: list[Built], kept: set[UOp], machines: Machines) -> None:
        self.kernels = kernels
        self.kept = kept
        self.machines = machines
        self.made_by = writers(kernels)
        self.readers: dict[UOp, list[Built]] = {}
        for kernel in kernels:
            for value in kernel.waits:
                self.readers.setdefault(value, []).append(kernel)

    def run(self) -> tuple[dict[Built, Built], set[Built]]:
        """What the last kernel of each chain became, and those that are gone into it."""
        fused: dict[Built, Built] = {}
        gone: set[Built] = set()
        for last in self.kernels:
            if not last.draft.heavy or len(last.stores) != 1 or last.overwrites:
                continue
            target = self.machines(last.draft.device)
            inside = self._inside(last) if target.fragments else {}
            if not inside:
                continue
            new = self._fused(last, inside)
            if new is not None:
                fused[last] = new
                gone.update(inside.values())
        return fused, gone

    # ------------------------------------------------------------ matrices with several readers
    def vanish(self) -> tuple[dict[Built, Built], set[Built]]:
        """Matrices of products that each of their readers computes anew: gradients of attention.

        One that some reader cannot compute as a chain is stored, and read by all of them.
        """
        going = self._matrices()
        while going:
            readers = [
                kernel
                for kernel in self.kernels
                if kernel not in going.values() and any([v in going for v in kernel.waits])
            ]
            fused: dict[Built, Built] = {}
            failed: set[UOp] = set()
            for kernel in readers:
                inside = self._below(kernel, going)
                new = self._fused(kernel, inside)
                if new is None:
                    failed.update(inside)
                else:
                    fused[kernel] = new
            if not failed:
                return fused, set(going.values())
            going = {v: k for v, k in going.items() if failed.isdisjoint(k.writes)}
            # what is made of something stored that is no product any more is stored as well
            going = self._grown({v: k for v, k in going.items() if k.draft.heavy}, going)
        return {}, set()

    def _fused(self, last: Built, inside: dict[UOp, Built]) -> Built | None:
        """A kernel with values inside, if it is a chain then."""
        if len(last.stores) != 1 or last.overwrites:
            return None
        store, number = self._inlined(last, inside)
        fragments = self.machines(last.draft.device).fragments
        if find_chain(store, fragments) is None:
            return None
        return self._built(last, store, inside, number)

    def _matrices(self) -> dict[UOp, Built]:
        """Products that take more memory than what they are made of, and what is as large and
        made of them alone."""
        found: dict[UOp, Built] = {}
        for kernel in self.kernels:
            if kernel.draft.heavy and self._is_inner(kernel):
                if _is_large(kernel):
                    found.update(dict.fromkeys(kernel.writes, kernel))
        return self._grown(found, None)

    def _is_inner(self, kernel: Built) -> bool:
        if kernel.overwrites or not kernel.stores:
            return False
        if not self.machines(kernel.draft.device).fragments:
            return False
        if any([value in self.kept for value in kernel.writes]):
            return False
        stores = kernel.stores
        return all([linear_index(s.src[0].src[1]) is not None and _is_fixed(s) for s in stores])

    def _grown(self, found: dict[UOp, Built], among: dict[UOp, Built] | None) -> dict[UOp, Built]:
        """With all that is computed of them element by element."""
        # kernels stand behind those that make what they read
        for kernel in self.kernels:
            if kernel.draft.heavy or not kernel.writes or kernel.writes[0] in found:
                continue
            if among is not None and kernel.writes[0] not in among:
                continue
            sizes = [_elements(found[v].stores[0]) for v in kernel.waits if v in found]
            if not sizes or not self._is_inner(kernel):
                continue
            if all([_elements(store) == max(sizes) for store in kernel.stores]):
                found.update(dict.fromkeys(kernel.writes, kernel))
        return found

    def _below(self, last: Built, going: dict[UOp, Built]) -> dict[UOp, Built]:
        """The values that a kernel has inside, if it computes all that goes."""
        found: dict[UOp, Built] = {}
        pending = [last]
        while pending:
            for value in pending.pop().waits:
                if value in going and value not in found:
                    found[value] = going[value]
                    pending.append(going[value])
        return found

    # ------------------------------------------------------------ matrices with one reader
    def _inside(self, last: Built) -> dict[UOp, Built]:
        """The values that only this kernel needs in the end, down to products of what is stored:
        each with the kernel that makes it."""
        found: dict[UOp, Built] = {}
        members = {last}
        grows = True
        while grows:
            grows = False
            for member in list(members):
                if member is not last and member.draft.heavy:
                    continue
                for value in member.waits:
                    if value not in found and self._may_go(value, last, members):
                        maker = self.made_by[value]
                        found.update(dict.fromkeys(maker.writes, maker))
                        members.add(maker)
                        grows = True
        return found

    def _may_go(self, value: UOp, last: Built, members: set[Built]) -> bool:
        maker = self.made_by[value]
        if maker.overwrites or maker.draft.device != last.draft.device:
            return False
        for other in maker.writes:
            if other in self.kept or not members.issuperset(self.readers.get(other, ())):
                return False
        for store in maker.stores:
            if linear_index(store.src[0].src[1]) is None or not _is_fixed(store):
                return False
        return not maker.draft.heavy or _is_large(maker)

    def _inlined(self, last: Built, inside: dict[UOp, Built]) -> tuple[UOp, int]:
        """The last store with the values inside, and the next number of an axis."""
        number = last.draft.next_number
        stores = [store for kernel in inside.values() for store in kernel.stores]
        memories = {store.src[0].src[0]: store for store in stores}
        store = last.stores[0]
        while True:
            loads = [
                u for u in store.toposort() if u.op is Ops.LOAD and u.src[0].src[0] in memories
            ]
            if not loads:
                return store, number
            changes: dict[UOp, UOp] = {}
            for load in loads:
                changes[load], number = _value_at(load, memories[load.src[0].src[0]], number)
            # a load inside of the index of another waits for the next round
            store = store.substitute(changes)

    def _built(self, last: Built, store: UOp, inside: dict[UOp, Built], number: int) -> Built:
        parts = [*dict.fromkeys(inside.values()), last]
        # a tile of its own, which shares its registers with nothing
        draft = replace(last.draft, next_number=number, heavy=True)
        draft.count = sum(part.draft.count for part in parts)
        draft.buffers = set().union(*[part.draft.buffers for part in parts])
        reads: dict[UOp, None] = {}
        waits: dict[UOp, None] = {}
        for part in parts:
            reads.update(part.reads)
            waits.update(part.waits)
        waits = {value: None for value in waits if value not in inside}
        return Built(draft, [store], reads, last.overwrites, waits, last.writes)


def shared_rows(survey: Survey, target: Target) -> set[UOp]:
    """Reductions of rows of products that several other products need: computed once, and stored.

    The greatest score of a row and the sum of its powers: all gradients of attention read them.
    """
    if not target.fragments or not USE_TC:
        return set()
    scores: set[UOp] = set()  # what is as large as a product, and made of it
    below: dict[UOp, frozenset[UOp]] = {}  # the reductions of rows that a value is made of
    uses: dict[UOp, int] = {}
    for node in survey.order:
        if node.op in (Ops.STORE, Ops.SINK, Ops.AFTER, Ops.BUFFER) or node in survey.must_store:
            continue
        found = frozenset().union(*[below.get(s, frozenset()) for s in node.src])
        if node in survey.heavy:
            for row in found:
                uses[row] = uses.get(row, 0) + 1
            if _is_score(node, survey, target):
                scores.add(node)
            continue
        if any([s in scores for s in node.src]):
            if node.op is Ops.REDUCE_AXIS:
                found |= {node}
            else:
                scores.add(node)
        if found and len(found) <= _MOST_ROWS:
            below[node] = found
    return {row for row, count in uses.items() if count > 1}


def _is_score(node: UOp, survey: Survey, target: Target) -> bool:
    """Whether a product of fragments takes more memory than what it is made of."""
    if survey.elements[node] * node.dtype.itemsize <= survey.read_bytes[node.src[0]]:
        return False
    held = {fragment.a_dtype for fragment in target.fragments if fragment.exact}
    product = node.src[0]
    while product.op is Ops.CAST or product.op in GroupOp.Movement:
        product = product.src[0]
    if product.op is not Ops.MUL:
        return False
    for factor in product.src:
        while factor.dtype not in held:
            if factor.op is not Ops.CAST and factor.op not in GroupOp.Movement:
                return False
            factor = factor.src[0]
    return True


def _elements(store: UOp) -> int:
    return prod(size_of(axis) for axis in store.src[2:])


def _is_fixed(store: UOp) -> bool:
    """Whether all axes of what is stored have one size."""
    return all([axis.src[0].op is Ops.CONST for axis in store.src[2:]])


def _is_large(kernel: Built) -> bool:
    """Whether what a kernel stores takes more memory than all that its products read."""
    own = sum(_elements(store) * store.src[0].dtype.itemsize for store in kernel.stores)
    loads = [u for u in UOp.sink(*kernel.stores).toposort() if u.op is Ops.LOAD]
    read = sum(prod(size_of(a) for a in u.ranges) * u.dtype.itemsize for u in loads)
    return own > read


def _value_at(load: UOp, store: UOp, number: int) -> tuple[UOp, int]:
    """What a STORE stores where a LOAD reads, its reductions over axes of their own."""
    place, value, *axes = store.src
    found = linear_index(place.src[1])
    assert found is not None
    steps, start = found
    index = load.src[0].src[1] - start if start else load.src[0].src[1]
    changes: dict[UOp, UOp] = {}
    for axis in axes:
        size = size_of(axis)
        digit = index // steps[axis] if steps.get(axis, 1) > 1 else index
        changes[axis] = (digit % size).simplify()
    for node in value.toposort():
        if node.op is Ops.RANGE and node not in changes:
            changes[node] = UOp.range(node.src[0].substitute(changes), number, node.arg.kind)
            number += 1
    whole = value.substitute(changes)
    if len(load.src[0].src) > 2:
        whole = load.src[0].src[2].where(whole, UOp.const(whole.dtype, 0))
    return whole, number
