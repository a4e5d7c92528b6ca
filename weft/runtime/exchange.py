"""Exchange: what the lanes of a warp do together, and copies that nobody waits for.

In: UOps of lanes (WMMA, SETTLE, SHUFFLE, LOADs of matrices and tiles) and of copies (FETCH, COMMIT,
WAIT). Out: the steps that the interpreter runs for them. Beside `steps.py`, under `interpreter.py`.
Invariant: a product of fragments is what the fragment's maps say: exact products, their sum with
what was there rounded once. A copy happens as late as it may: at the WAIT that says it is done. A
product out of shared memory reads when it begins, and counts as reading until it is settled.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

from weft.dtype import convert, dtypes, truncate
from weft.errors import SpecError
from weft.fragment import Fragment, OperandMap
from weft.runtime.races import WorkItem
from weft.runtime.steps import Access, Registers, Step
from weft.uop.args import MatrixArg, TileArg

# lanes that share a row of a matrix, and lanes that name the rows of one
_IN_ROW, _ROWS = 4, 8
# bits of a float32 that tf32 has no room for
_TF32_CUT = 13


def multiply_fragments(
    target: int, sources: list[int], item_place: int, fragment: Fragment
) -> tuple[Step, Step]:
    """Each lane gives its registers, and takes those of the result."""

    def give(registers: Registers) -> None:
        item: WorkItem = registers[item_place]
        assert item.warp is not None
        item.warp.given[item.lane] = [registers[source] for source in sources]

    def take(registers: Registers) -> None:
        item: WorkItem = registers[item_place]
        assert item.warp is not None and item.warp.taken is not None
        exchange = item.warp.taken
        if exchange.result is None:
            exchange.result = _product(exchange.given, fragment)
        places = [fragment.c.place(item.lane, r) for r in range(fragment.c.count)]
        registers[target] = [exchange.result[place] for place in places]

    return give, take


def _product(given: dict[int, Any], fragment: Fragment) -> dict[tuple[int, int], Any]:
    left = _elements(given, 0, fragment.a)
    right = _elements(given, 1, fragment.b)
    total = _elements(given, 2, fragment.c)
    if not fragment.exact:
        left = {place: _tf32(value) for place, value in left.items()}
        right = {place: _tf32(value) for place, value in right.items()}
    result = {}
    for row in range(fragment.m):
        for column in range(fragment.n):
            terms = [left[row, k] * right[k, column] for k in range(fragment.k)]
            terms.append(total[row, column])
            result[row, column] = _sum(terms, fragment)
    return result


def name_tile(target: int, access: Access, arg: TileArg) -> Step:
    """Where the tile begins, and how to read it."""

    def step(registers: Registers) -> None:
        (start,) = access.positions(registers)
        assert start is not None
        if start + arg.span > access.size:
            raise access.outside(start + arg.span - 1)
        registers[target] = (start, registers[access.memory])

    return step


def multiply_tiles(
    target: int,
    sources: list[int],
    tiles: tuple[tuple[Access, TileArg], ...],
    fragment: Fragment,
) -> tuple[Step, Step]:
    """As `multiply_fragments`, of operands in shared memory."""
    item_place = tiles[0][0].item

    def give(registers: Registers) -> None:
        item: WorkItem = registers[item_place]
        assert item.warp is not None
        item.warp.given[item.lane] = [registers[source] for source in sources]
        if item.lane in (0, fragment.lanes - 1):
            # two of them read for all: one of them is not who writes
            starts = [registers[source][0] for source in sources[:2]]

            def read() -> None:
                for (access, arg), start in zip(tiles, starts, strict=True):
                    if access.watch is not None:
                        watch = registers[access.watch]
                        for place in _tile_places(arg):
                            watch.read(start + place, item, access.line)

            read()
            item.products.append(read)

    def take(registers: Registers) -> None:
        item: WorkItem = registers[item_place]
        assert item.warp is not None and item.warp.taken is not None
        exchange = item.warp.taken
        if exchange.result is None:
            exchange.result = _tile_product(exchange.given, [arg for _, arg in tiles], fragment)
        places = [fragment.c.place(item.lane, r) for r in range(fragment.c.count)]
        registers[target] = [exchange.result[row][column] for row, column in places]

    return give, take


def _tile_product(
    given: dict[int, Any], args: list[TileArg], fragment: Fragment
) -> list[list[Any]]:
    """Rows of the result; the operands are where all lanes say they are."""
    sides = []
    for number, arg in enumerate(args):
        starts = {operands[number][0] for operands in given.values()}
        if len(starts) > 1:
            raise SpecError(f"lanes of {fragment.name} name different tiles, at {sorted(starts)}")
        start, memory = given[0][number]
        values = [memory[start + place] for place in _tile_places(arg)]
        if not fragment.exact:
            values = [_tf32(value, cut=True) for value in values]
        sides.append([values[i : i + arg.terms] for i in range(0, len(values), arg.terms)])
    total = _elements(given, 2, fragment.c)
    left, right = sides
    return [
        [
            _sum([*map(operator.mul, row, column), total[i, j]], fragment)
            for j, column in enumerate(right)
        ]
        for i, row in enumerate(left)
    ]


@functools.cache
def _tile_places(arg: TileArg) -> tuple[int, ...]:
    return tuple([arg.place(i, k) for i in range(arg.count) for k in range(arg.terms)])


def settle(item_place: int, going_on: int) -> Step:
    """Products that are still read for are so up to here."""

    def step(registers: Registers) -> None:
        item: WorkItem = registers[item_place]
        while len(item.products) > going_on:
            item.products.pop(0)()

    return step


def _elements(given: dict[int, Any], operand: int, held: OperandMap) -> dict[tuple[int, int], Any]:
    """The matrix that all lanes hold together."""
    found = {}
    for lane, operands in given.items():
        for register, value in enumerate(operands[operand]):
            found[held.place(lane, register)] = value
    return found


def _sum(terms: list[Any], fragment: Fragment) -> Any:
    if fragment.c_dtype.kind != "float":
        return truncate[fragment.c_dtype](sum(terms))
    if all([math.isfinite(term) for term in terms]):
        return convert(math.fsum(terms), dtypes.float64, fragment.c_dtype)
    return convert(sum(terms), dtypes.float64, fragment.c_dtype)


def _tf32(value: float, cut: bool = False) -> float:
    """Rounded to 10 bits behind the point, ties away from zero; or cut there."""
    if not math.isfinite(value) or value == 0:
        return value
    mantissa, exponent = math.frexp(value)
    scaled = abs(mantissa) * (1 << (24 - _TF32_CUT))
    whole = math.floor(scaled if cut else scaled + 0.5)
    return math.copysign(math.ldexp(whole, exponent - 24 + _TF32_CUT), value)


def load_matrices(target: int, access: Access, arg: MatrixArg) -> tuple[Step, Step]:
    """Each lane reads the row that it names, and takes its words of all matrices."""
    item_place = access.item

    def give(registers: Registers) -> None:
        item: WorkItem = registers[item_place]
        assert item.warp is not None
        data = registers[access.memory]
        row = []
        if item.lane < arg.count * _ROWS:
            for position in access.positions(registers):
                assert position is not None
                if access.watch is not None:
                    registers[access.watch].read(position, item, access.line)
                row.append(data[position])
        item.warp.given[item.lane] = row

    def take(registers: Registers) -> None:
        item: WorkItem = registers[item_place]
        assert item.warp is not None and item.warp.taken is not None
        given = item.warp.taken.given
        word = access.lanes // _IN_ROW
        group, place = divmod(item.lane, _IN_ROW)
        found: list[Any] = []
        for number in range(arg.count):
            first = number * _ROWS
            if arg.transposed:
                found += [given[first + place * word + i][group] for i in range(word)]
            else:
                found += given[first + group][place * word : (place + 1) * word]
        registers[target] = found

    return give, take


def shuffle(target: int, source: int, item_place: int, bits: int) -> tuple[Step, Step]:
    """Each lane gives a value, and takes that of the lane whose number differs in some bits."""

    def give(registers: Registers) -> None:
        item: WorkItem = registers[item_place]
        assert item.warp is not None
        item.warp.given[item.lane] = registers[source]

    def take(registers: Registers) -> None:
        item: WorkItem = registers[item_place]
        assert item.warp is not None and item.warp.taken is not None
        registers[target] = item.warp.taken.given[item.lane ^ bits]

    return give, take


def fetch(read: Step, write: Step, target: Access, item_place: int) -> Step:
    """A copy, which may be seen from now on and is sure to have happened at its WAIT."""

    def step(registers: Registers) -> None:
        item: WorkItem = registers[item_place]
        read(registers)
        # what the index and the value are now
        kept = registers.copy()
        if target.watch is not None:
            for position in target.positions(kept):
                if position is not None:
                    registers[target.watch].write(position, item, target.line)
        item.fetches[-1].append(lambda: write(kept))

    return step


def commit(item_place: int) -> Step:
    def step(registers: Registers) -> None:
        registers[item_place].fetches.append([])

    return step


def wait(item_place: int, in_flight: int) -> Step:
    def step(registers: Registers) -> None:
        fetches = registers[item_place].fetches
        # the last one is not committed yet
        while len(fetches) - 1 > in_flight:
            for copy in fetches.pop(0):
                copy()

    return step
