"""Longs: the 64-bit integers of a program as two words each, for targets that have no others.

In: a linear program. Out: the same program without int64 and uint64: values are pairs of uint32,
memory of them is memory of twice as many words, low word first, as on every device. A variable of
64 bits becomes the variables `name__low` and `name__high`. Sits at the end of codegen, where
registers, loops and accesses are explicit.
Invariant: results are those of 64-bit integers, to the bit. What bounds prove to be shorter than 64
bits is computed with one word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from weft.codegen.decompose import pairs
from weft.codegen.decompose.pairs import Pair
from weft.codegen.decompose.words import WORD, Words, constant_of
from weft.dtype import DType, dtypes
from weft.errors import CompileError
from weft.renderer.groups import LONGS, WORD_NAMES
from weft.uop.args import VariableArg
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

_WORD_COUNT = 1 << 32
_SMALL_DIVISOR = 1 << 16


def split_longs(uops: Sequence[UOp]) -> list[UOp]:
    """The program without 64-bit integers; one with float64 is left for the renderer to refuse."""
    found = {u.dtype.scalar() for u in uops}
    if found.isdisjoint(LONGS) or dtypes.float64 in found:
        return list(uops)
    return _Splitter(uops).run()


def is_long(node: UOp) -> bool:
    """Whether a node's values have 64 bits."""
    return node.dtype.scalar() in LONGS


class _Splitter:
    """One program while it is written anew."""

    def __init__(self, uops: Sequence[UOp]) -> None:
        self.uops = uops
        self.words = Words(uops)
        self.done: dict[UOp, UOp] = {}  # what stands for a node that is not long
        self.pairs: dict[UOp, Pair] = {}  # and for one that is

    def run(self) -> list[UOp]:
        for uop in self.uops:
            if is_long(uop) or any([is_long(s) for s in uop.src]):
                self._split(uop)
            else:
                src = tuple([self.value(s) for s in uop.src])
                new = uop if src == uop.src else uop.with_src(src)
                self.done[uop] = self.words.write(new)
        return self.words.program()

    # ------------------------------------------------------------ operands
    def value(self, uop: UOp) -> UOp:
        """What stands for a node that is not long; indices that are long fit a word."""
        if is_long(uop) and uop.op not in _MEMORY:
            return self.words.signed(self.pair(uop)[0])
        return self.done.get(uop, uop)

    def pair(self, uop: UOp) -> Pair:
        """The words of a long."""
        found = self.pairs.get(uop)
        if found is None:
            if uop.op is Ops.CONST:
                found = self._constant(uop)
            elif uop.op is Ops.VECTORIZE:
                found = self._vector(uop)
            else:
                raise CompileError(f"{uop.op.name} is used before it stands in the program")
            self.pairs[uop] = found
        return found

    def _constant(self, uop: UOp) -> Pair:
        value = int(uop.arg) % (1 << 64)
        words = self.words
        return words.constant(value % _WORD_COUNT), words.constant(value >> 32)

    def _vector(self, uop: UOp) -> Pair:
        lanes = [self.pair(lane) for lane in uop.src]
        low, high = [[lane[k] for lane in lanes] for k in range(2)]
        return self.words.vector(low), self.words.vector(high)

    # ------------------------------------------------------------ nodes
    def _split(self, uop: UOp) -> None:
        op = uop.op
        if op in (Ops.CONST, Ops.VECTORIZE):
            self.pair(uop)
        elif op in _HANDLERS:
            _HANDLERS[op](self, uop)
        elif op in GroupOp.Elementwise and is_long(uop):
            self.pairs[uop] = self._narrow(uop, self._compute(uop))
        elif op in GroupOp.Elementwise:
            self.done[uop] = self._judge(uop)
        else:
            self.done[uop] = self.words.write(uop.with_src(tuple(map(self.value, uop.src))))

    def _narrow(self, uop: UOp, found: Pair) -> Pair:
        """What bounds know of the high word."""
        if 0 <= uop.vmin and uop.vmax < _WORD_COUNT:
            return found[0], self.words.like(0, found[0])
        return found

    def _compute(self, uop: UOp) -> Pair:
        """An op that gives a long."""
        words, op = self.words, uop.op
        if op is Ops.CAST:
            source = uop.src[0]
            return self.pair(source) if is_long(source) else self._extend(source)
        if op is Ops.BITCAST:
            return self.pair(uop.src[0])
        if op is Ops.WHERE:
            condition = self.value(uop.src[0])
            return pairs.select(words, condition, self.pair(uop.src[1]), self.pair(uop.src[2]))
        x = self.pair(uop.src[0])
        if op is Ops.NEG:
            return pairs.negate(words, x)
        y = self.pair(uop.src[1])
        signed = uop.dtype.kind == "int"
        if op in (Ops.IDIV, Ops.MOD):
            return self._divide(uop, x, y)
        if op is Ops.MAX:
            return pairs.select(words, pairs.less(words, x, y, signed), y, x)
        if op is Ops.SHL:
            return pairs.shift_left(words, x, y[0])
        if op is Ops.SHR:
            return pairs.shift_right(words, x, y[0], signed)
        if op in _ARITHMETIC:
            return _ARITHMETIC[op](words, x, y)
        if op in _BITWISE:
            low, high = [words.make(op, x[k].dtype, x[k], y[k]) for k in range(2)]
            return low, high
        raise CompileError(f"{op.name} of {uop.dtype} is not decomposed for 32-bit words")

    def _extend(self, source: UOp) -> Pair:
        return pairs.from_value(self.words, self.value(source))

    def _divide(self, uop: UOp, x: Pair, y: Pair) -> Pair:
        """IDIV or MOD as C has them; short operands are divided as words."""
        words, place = self.words, uop.op is Ops.MOD
        first, second = uop.src
        if 0 <= first.vmin and first.vmax < _WORD_COUNT and second.vmin > 0:
            if second.vmax < _WORD_COUNT:
                found = words.make(uop.op, x[0].dtype, x[0], y[0], tag="raw")
                return found, words.like(0, found)
        is_small = bool(0 < second.vmin and second.vmax < _SMALL_DIVISOR)
        signed = uop.dtype.kind == "int" and first.vmin < 0
        signed = signed or (uop.dtype.kind == "int" and second.vmin < 0)
        quotient, remainder = pairs.divide(words, x, y, signed, is_small)
        return remainder if place else quotient

    def _judge(self, uop: UOp) -> UOp:
        """An op on longs that gives something else."""
        words, op = self.words, uop.op
        source = uop.src[0]
        signed = source.dtype.kind == "int"
        if op is Ops.CAST:
            return pairs.to_value(words, self.pair(source), uop.dtype.scalar(), signed)
        x, y = self.pair(source), self.pair(uop.src[1])
        if op is Ops.CMPLT:
            return self._less(uop, x, y, signed)
        bits = pairs.differ(words, x, y)
        if op not in (Ops.CMPEQ, Ops.CMPNE):
            raise CompileError(f"{op.name} of {source.dtype} is not decomposed for 32-bit words")
        return words.make(op, uop.dtype, bits, words.like(0, bits))

    def _less(self, uop: UOp, x: Pair, y: Pair, signed: bool) -> UOp:
        words = self.words
        if all([dtypes.int32.min <= s.vmin and s.vmax <= dtypes.int32.max for s in uop.src]):
            return words.less(words.signed(x[0]), words.signed(y[0]))
        if constant_of(x[1]) == 0 and constant_of(y[1]) == 0:
            return words.less(x[0], y[0])
        return pairs.less(words, x, y, signed)

    # ------------------------------------------------------------ memory, registers, loops
    def _memory(self, uop: UOp) -> None:
        """Twice as many words."""
        argument = replace(uop.arg, size=2 * uop.arg.size)
        self.done[uop] = self.words.write(UOp(uop.op, WORD, (), argument, uop.tag))

    def _index(self, uop: UOp) -> None:
        """Of other memory; what is in memory of longs is found where it is read or written."""
        if not is_long(uop.src[0]):
            self.done[uop] = self.words.write(uop.with_src(tuple(map(self.value, uop.src))))

    def _places(self, index: UOp, count: int) -> tuple[UOp, UOp]:
        """Where the low and the high words are of what stands at an INDEX."""
        words = self.words
        memory, idx = self.done[index.src[0]], self.value(index.src[1])
        starts: list[UOp] = []
        if idx.dtype.count < count:
            first = words.multiply(idx, 2)
            starts = [words.add(first, 2 * k) for k in range(count)]
        elif idx.op is Ops.VECTORIZE:
            # lane by lane, so that those of constants are constants
            starts = [words.multiply(lane, 2) for lane in idx.src]
        low = words.vector(starts) if starts else words.multiply(idx, 2)
        high = words.vector([words.add(s, 1) for s in starts]) if starts else words.add(low, 1)
        rest = tuple([self._spread(s, low.dtype.count) for s in index.src[2:]])
        found = []
        for place in (low, high):
            found.append(words.place(UOp(Ops.INDEX, WORD, (memory, place, *rest))))
        return found[0], found[1]

    def _spread(self, condition: UOp, count: int) -> UOp:
        value = self.value(condition)
        return value if value.dtype.count == count else self.words.vector([value] * count)

    def _load(self, uop: UOp) -> None:
        words, source = self.words, uop.src[0]
        dtype = WORD.vec(uop.dtype.count)
        if source.op is Ops.ACC:
            after = tuple([self.value(s) for s in uop.src[1:]])
            places = self.pairs[source]
        else:
            after = tuple([self.value(s) for s in uop.src[1:]])
            places = self._places(source, uop.dtype.count)
        low, high = [words.write(UOp(Ops.LOAD, dtype, (p, *after), uop.arg)) for p in places]
        self.pairs[uop] = (low, high)

    def _store(self, uop: UOp) -> None:
        index, value = uop.src[:2]
        if not is_long(value):
            self.done[uop] = self.words.write(uop.with_src(tuple(map(self.value, uop.src))))
            return
        rest = tuple([self.value(s) for s in uop.src[2:]])
        places = self._places(index, value.dtype.count)
        for place, word in zip(places, self.pair(value), strict=True):
            node = UOp(Ops.STORE, uop.dtype, (place, word, *rest), uop.arg, uop.tag)
            self.done[uop] = self.words.write(node)

    def _register(self, uop: UOp) -> None:
        low, high = self.pair(uop.src[0])
        first = self.words.write(UOp(Ops.ACC, low.dtype, (low,), uop.arg))
        self.pairs[uop] = (first, self.words.register(high))

    def _set(self, uop: UOp) -> None:
        registers, values = self.pairs[uop.src[0]], self.pair(uop.src[1])
        for register, value in zip(registers, values, strict=True):
            self.done[uop] = self.words.set(register, value)

    def _counter(self, uop: UOp) -> None:
        """A loop or an index of the hardware: no target of 32 bits counts further."""
        if uop.vmax > dtypes.int32.max:
            raise CompileError(f"a loop of {uop.vmax + 1} rounds is too long for 32-bit integers")
        src = tuple([self.value(s) if is_long(s) else self.done.get(s, s) for s in uop.src])
        new = self.words.write(UOp(uop.op, dtypes.int32, src, uop.arg, uop.tag))
        self.done[uop] = new
        self.pairs[uop] = pairs.from_value(self.words, new)

    def _end(self, uop: UOp) -> None:
        self.done[uop] = self.words.write(uop.with_src((self.done[uop.src[0]],)))

    def _variable(self, uop: UOp) -> None:
        low_bound, high_bound = uop.vmin, uop.vmax
        words = self.words
        name, is_short = uop.arg.name, 0 <= low_bound and high_bound < _WORD_COUNT
        bounds = (low_bound, high_bound) if is_short else (0, _WORD_COUNT - 1)
        low = words.place(UOp(Ops.VARIABLE, WORD, (), VariableArg(name + WORD_NAMES[0], *bounds)))
        if is_short:
            self.pairs[uop] = (low, words.like(0, low))
        elif dtypes.int32.min <= low_bound and high_bound <= dtypes.int32.max:
            self.pairs[uop] = (low, words.sign_of(low))
        else:
            every = VariableArg(name + WORD_NAMES[1], 0, _WORD_COUNT - 1)
            self.pairs[uop] = (low, words.place(UOp(Ops.VARIABLE, WORD, (), every)))

    def _lanes(self, uop: UOp) -> None:
        """GEP: lanes of both words."""
        dtype: DType = WORD.vec(uop.dtype.count)
        sources = [self.pair(s) for s in uop.src]
        low, high = [
            self.words.place(UOp(Ops.GEP, dtype, tuple([s[k] for s in sources]), uop.arg))
            for k in range(2)
        ]
        self.pairs[uop] = (low, high)


_MEMORY = frozenset({Ops.PARAM, Ops.LOCAL})
_ARITHMETIC: dict[Ops, Callable[[Words, Pair, Pair], Pair]] = {
    Ops.ADD: pairs.add,
    Ops.MUL: pairs.multiply,
}
_BITWISE = frozenset({Ops.AND, Ops.OR, Ops.XOR})
_HANDLERS: dict[Ops, Callable[[_Splitter, UOp], None]] = {
    Ops.PARAM: _Splitter._memory,
    Ops.LOCAL: _Splitter._memory,
    Ops.INDEX: _Splitter._index,
    Ops.LOAD: _Splitter._load,
    Ops.STORE: _Splitter._store,
    Ops.ACC: _Splitter._register,
    Ops.ACC_SET: _Splitter._set,
    Ops.RANGE: _Splitter._counter,
    Ops.SPECIAL: _Splitter._counter,
    Ops.END: _Splitter._end,
    Ops.VARIABLE: _Splitter._variable,
    Ops.GEP: _Splitter._lanes,
}
