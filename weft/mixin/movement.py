"""Movement: the same elements in another arrangement, shared by `UOp` and `Tensor`.

In: a class with `shape` and `_mop(op, arg)`. Out: reshape, permute, slices, padding and all that is
made of them. Sits below both users; imports no UOp.
Invariant: nothing here computes or copies. What is not a PAD or a CAT is a view: it names
elements of its source, and a Tensor can be written through it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from weft.errors import ArgumentError, IndexingError, ShapeError
from weft.helpers import argfix, ceildiv, prod
from weft.mixin.arith import ArithMixin
from weft.mixin.check import described, tensors, whole_number, whole_numbers
from weft.uop.opset import Ops

Shape = tuple[Any, ...]


def is_int(size: Any) -> bool:
    """Whether a size is a plain number (a symbolic one is not)."""
    return isinstance(size, int)


def same_size(a: Any, b: Any) -> bool:
    """Whether two sizes are known to be equal."""
    if a is b:
        return True
    if is_int(a) and is_int(b):
        return bool(a == b)
    difference = a - b
    return bool(difference.simplify().vmin == 0 == difference.simplify().vmax)


def same_shape(first: Shape, second: Shape) -> bool:
    """Whether two shapes are known to be equal."""
    return len(first) == len(second) and all(map(same_size, first, second))


def broadcast_shape(*shapes: Shape) -> Shape:
    """The common shape of operands, aligned at their last axes.

    >>> broadcast_shape((3, 1), (4,))
    (3, 4)
    """
    first = shapes[0]
    if all(shape == first for shape in shapes):
        return first
    rank = max(len(shape) for shape in shapes)
    result: list[Any] = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if is_int(size) and size == 1:
                continue
            if is_int(result[axis]) and result[axis] == 1:
                result[axis] = size
            elif not same_size(result[axis], size):
                named = " and ".join(str(shape) for shape in dict.fromkeys(shapes))
                raise ShapeError(
                    f"shapes {named} do not broadcast: axis {axis - rank} has sizes "
                    f"{result[axis]} and {size}; they must be equal or 1"
                )
    return tuple(result)


class MovementMixin(ArithMixin):
    """Methods over the protocol `shape`, `_mop`, `_cat`."""

    __slots__ = ()

    @property
    def shape(self) -> Shape:
        """The sizes of the axes. Provided by the class."""
        raise NotImplementedError

    def _mop(self, op: Ops, arg: Any) -> Self:
        """One movement op. Provided by the class."""
        raise NotImplementedError

    def _cat(self, others: Sequence[Self], axis: int) -> Self:
        """CAT with others of the same other sizes. Provided by the class."""
        raise NotImplementedError

    @property
    def ndim(self) -> int:
        """How many axes.

        >>> Tensor.zeros(2, 3).ndim
        2
        """
        return len(self.shape)

    def numel(self) -> Any:
        """How many elements.

        >>> Tensor.zeros(2, 3).numel()
        6
        """
        return prod(self.shape)

    def _axis(self, dim: Any, extra: int = 0) -> int:
        """An axis number, negative ones counted from the end; `extra` axes are to be added."""
        rank = self.ndim + extra
        dim = dim if is_int(dim) else whole_number("an axis", dim)
        # a scalar is allowed its one imagined axis, as in NumPy and PyTorch
        if not -max(1, rank) <= dim < max(1, rank):
            raise IndexingError(
                f"axis {dim} of a tensor of shape {self.shape}: it must be from {-max(1, rank)} to "
                f"{max(1, rank) - 1}"
            )
        return int(dim) + max(1, rank) if dim < 0 else int(dim)

    # ------------------------------------------------------------ the primitive ones
    def reshape(self, shape: Any, *args: Any) -> Self:
        """The same elements in another shape; one size may be -1, None keeps a size.

        >>> Tensor.arange(6).reshape(2, -1).shape
        (2, 3)
        """
        asked = argfix(shape, *args)
        if len(asked) > self.ndim and None in asked[self.ndim :]:
            raise ShapeError(f"cannot reshape {self.shape} to {asked}: None keeps a size it has")
        sizes = [self.shape[i] if size is None else size for i, size in enumerate(asked)]
        new = self._infer_size([whole_number("a size", size) for size in sizes])
        if new == self.shape:
            return self
        if any(is_int(size) and size < 0 for size in new) or not same_size(
            prod(self.shape), prod(new)
        ):
            raise ShapeError(
                f"cannot reshape {self.shape} to {tuple(asked)}: {prod(self.shape)} elements do "
                f"not fill a shape of {prod(new)}"
            )
        return self._mop(Ops.RESHAPE, new)

    def _infer_size(self, sizes: list[Any]) -> Shape:
        """The shape with its -1 replaced by what is left."""
        unknown = [i for i, size in enumerate(sizes) if is_int(size) and size == -1]
        if len(unknown) > 1:
            raise ShapeError(f"reshape to {tuple(sizes)} has {len(unknown)} sizes -1; one may be")
        if not unknown:
            return tuple(sizes)
        known = prod(size for i, size in enumerate(sizes) if i != unknown[0])
        total = prod(self.shape)
        if is_int(known) and known == 0:
            raise ShapeError(f"reshape to {tuple(sizes)}: with a size 0 the -1 could be anything")
        rest = total // known
        if is_int(rest) and is_int(known) and rest * known != total:
            raise ShapeError(
                f"cannot reshape {self.shape} to {tuple(sizes)}: {total} elements do not divide by "
                f"{known}"
            )
        sizes = list(sizes)
        sizes[unknown[0]] = rest if is_int(rest) else rest.ssimplify()
        return tuple(sizes)

    def view(self, shape: Any, *args: Any) -> Self:
        """Another name of `reshape`.

        >>> Tensor.arange(6).view(3, 2).shape
        (3, 2)
        """
        return self.reshape(shape, *args)

    def expand(self, shape: Any, *args: Any) -> Self:
        """Axes of size 1 repeated; -1 keeps a size, new axes come first.

        >>> Tensor([[1], [2]]).expand(2, 3).tolist()
        [[1, 1, 1], [2, 2, 2]]
        """
        asked = argfix(shape, *args)
        if len(asked) < self.ndim:
            raise ShapeError(f"cannot expand {self.shape} to {asked}, which has fewer axes")
        padded = (1,) * (len(asked) - self.ndim) + self.shape
        new = tuple(
            old if size is None or (is_int(size) and size == -1) else whole_number("a size", size)
            for old, size in zip(padded, asked, strict=True)
        )
        if new == self.shape:
            return self
        for old, size in zip(padded, new, strict=True):
            if not (is_int(old) and old == 1) and not same_size(old, size):
                raise ShapeError(
                    f"cannot expand {self.shape} to {asked}: only axes of size 1 can grow, found "
                    f"{old} for {size}"
                )
        source = self.reshape(padded)
        return source if new == padded else source._mop(Ops.EXPAND, new)

    def permute(self, order: Any, *args: Any) -> Self:
        """The axes in another order.

        >>> Tensor.zeros(2, 3, 4).permute(2, 0, 1).shape
        (4, 2, 3)
        """
        asked = argfix(order, *args)
        axes = tuple(self._axis(dim) for dim in asked)
        if sorted(axes) != list(range(self.ndim)):
            raise ShapeError(
                f"permute of {self.shape} with {asked}: each of its {self.ndim} axes must be there "
                "once"
            )
        return self if axes == tuple(range(self.ndim)) else self._mop(Ops.PERMUTE, axes)

    def flip(self, axis: Any, *args: Any) -> Self:
        """Axes in reverse.

        >>> Tensor([[1, 2], [3, 4]]).flip(0).tolist()
        [[3, 4], [1, 2]]
        """
        axes = [self._axis(dim) for dim in argfix(axis, *args)]
        if len(set(axes)) != len(axes):
            raise ArgumentError(f"flip of the axes {argfix(axis, *args)}: an axis is there twice")
        reverse = tuple(i in axes for i in range(self.ndim))
        return self._mop(Ops.FLIP, reverse) if any(reverse) else self

    def shrink(self, arg: Sequence[Any]) -> Self:
        """A box: (start, stop) per axis, None keeps one.

        >>> Tensor.arange(9).reshape(3, 3).shrink(((1, 3), None)).tolist()
        [[3, 4, 5], [6, 7, 8]]
        """
        if not _is_box(arg, self.ndim):
            raise ShapeError(
                f"shrink of {self.shape} needs one (start, stop) per axis, found {described(arg)}"
            )
        box = tuple(
            (0, size) if part is None else whole_numbers("(start, stop)", part)
            for part, size in zip(arg, self.shape, strict=True)
        )
        for (start, stop), size in zip(box, self.shape, strict=True):
            if is_int(start) and is_int(stop) and is_int(size) and not 0 <= start <= stop <= size:
                raise ShapeError(
                    f"shrink of {self.shape} to {tuple(arg)}: {start} to {stop} is not inside 0 to "
                    f"{size}"
                )
        whole = all(
            is_int(start) and start == 0 and same_size(stop, size)
            for (start, stop), size in zip(box, self.shape, strict=True)
        )
        return self if whole else self._mop(Ops.SHRINK, box)

    def _stride(self, steps: Sequence[int]) -> Self:
        """Every steps[i]-th element of axis i, from the first."""
        return self if all(step == 1 for step in steps) else self._mop(Ops.STRIDE, tuple(steps))

    def _pad_zeros(self, padding: Sequence[tuple[Any, Any]]) -> Self:
        """Zeros before and after each axis; never a view, whatever the amounts are."""
        return self._mop(Ops.PAD, tuple((before, after) for before, after in padding))

    # ------------------------------------------------------------ shapes
    @property
    def T(self) -> Self:
        """The transpose: all axes in reverse order.

        >>> Tensor.zeros(2, 3).T.shape
        (3, 2)
        """
        return self.permute(tuple(range(self.ndim))[::-1])

    def transpose(self, dim0: int = 1, dim1: int = 0) -> Self:
        """Two axes swapped.

        >>> Tensor.zeros(2, 3, 4).transpose(0, 2).shape
        (4, 3, 2)
        """
        order = list(range(self.ndim))
        first, second = self._axis(dim0), self._axis(dim1)
        if not order:
            # its only axis, as PyTorch counts, with itself
            return self
        order[first], order[second] = order[second], order[first]
        return self.permute(order)

    def squeeze(self, dim: int | Sequence[int] | None = None) -> Self:
        """Axes of size 1 taken away: all of them, or those of `dim`, one or several. Axes of other
        sizes stay, as in PyTorch.

        >>> Tensor.zeros(1, 3, 1).squeeze().shape
        (3,)
        >>> Tensor.zeros(1, 3, 1, 1).squeeze((0, 1, -1)).shape
        (3, 1)
        """
        if dim is None:
            return self.reshape(tuple(s for s in self.shape if not (is_int(s) and s == 1)))
        axes = [self._axis(axis) for axis in whole_numbers("the axes of squeeze", dim)]
        if len(set(axes)) != len(axes):
            raise IndexingError(f"squeeze of the axes {dim}: each may be there once")
        if self.ndim == 0:
            return self
        gone = {axis for axis in axes if same_size(self.shape[axis], 1)}
        kept = [size for axis, size in enumerate(self.shape) if axis not in gone]
        return self.reshape(tuple(kept)) if gone else self

    def unsqueeze(self, dim: int) -> Self:
        """A new axis of size 1.

        >>> Tensor.zeros(2, 3).unsqueeze(1).shape
        (2, 1, 3)
        """
        axis = self._axis(dim, extra=1)
        return self.reshape((*self.shape[:axis], 1, *self.shape[axis:]))

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """Axes start_dim to end_dim as one.

        >>> Tensor.zeros(2, 3, 4).flatten(1).shape
        (2, 12)
        """
        if self.ndim == 0:
            return self.reshape((1,))
        start, end = self._axis(start_dim), self._axis(end_dim)
        if start > end:
            raise ArgumentError(f"flatten from axis {start_dim} to {end_dim}: nothing between them")
        merged = prod(self.shape[start : end + 1])
        return self.reshape((*self.shape[:start], merged, *self.shape[end + 1 :]))

    def unflatten(self, dim: int, sizes: Sequence[Any]) -> Self:
        """One axis as several.

        >>> Tensor.zeros(2, 12).unflatten(1, (3, -1)).shape
        (2, 3, 4)
        """
        axis = self._axis(dim)
        sizes = whole_numbers("sizes", sizes)
        if self.ndim == 0:
            raise ShapeError("unflatten of a tensor of shape (): it has no axis to cut")
        known = prod(size for size in sizes if size != -1)
        filled = [self.shape[axis] // known if size == -1 else size for size in sizes]
        return self.reshape((*self.shape[:axis], *filled, *self.shape[axis + 1 :]))

    # ------------------------------------------------------------ repeating
    def repeat(self, repeats: Any, *args: Any) -> Self:
        """The whole tensor several times along each axis.

        >>> Tensor([1, 2]).repeat(2, 2).tolist()
        [[1, 2, 1, 2], [1, 2, 1, 2]]
        """
        times = whole_numbers("repeats", argfix(repeats, *args))
        if len(times) < self.ndim:
            raise ShapeError(f"repeat of {self.shape} by {times}: give a number for each axis")
        base = (1,) * (len(times) - self.ndim) + self.shape
        apart = tuple(part for size in base for part in (1, size))
        grown = tuple(part for pair in zip(times, base, strict=True) for part in pair)
        final = tuple(time * size for time, size in zip(times, base, strict=True))
        return self.reshape(apart).expand(grown).reshape(final)

    def repeat_interleave(self, repeats: int, dim: int | None = None) -> Self:
        """Each element several times, one beside the other.

        >>> Tensor([1, 2]).repeat_interleave(2).tolist()
        [1, 1, 2, 2]
        """
        source, axis = (self.flatten(), 0) if dim is None else (self, self._axis(dim))
        repeats = whole_number("repeats", repeats, least=0)
        before, size, after = source.shape[:axis], source.shape[axis], source.shape[axis + 1 :]
        apart = source.reshape((*before, size, 1, *after)).expand((*before, size, repeats, *after))
        return apart.reshape((*before, size * repeats, *after))

    # ------------------------------------------------------------ joining and splitting
    def cat(self, *args: Self, dim: int = 0) -> Self:
        """Tensors one after another along an axis.

        >>> Tensor([1, 2]).cat(Tensor([3]), Tensor([4, 5])).tolist()
        [1, 2, 3, 4, 5]
        >>> Tensor.cat(Tensor([1]), Tensor([2])).tolist()
        [1, 2]
        """
        items = argfix(self, *args)
        tensors("each part of cat", items)
        if not items:
            raise ArgumentError("cat takes at least one Tensor, found none")
        first, *others = items
        axis = first._axis(dim)
        for other in others:
            fits = len(other.shape) == len(first.shape) and all(
                i == axis or same_size(a, b)
                for i, (a, b) in enumerate(zip(first.shape, other.shape, strict=True))
            )
            if not fits or first.ndim == 0:
                raise ShapeError(
                    f"cat along axis {dim} of shapes {first.shape} and {other.shape}: all other "
                    "axes must be equal, and there must be one to join"
                )
        result: Self = first._cat(others, axis)
        return result

    def stack(self, *args: Self, dim: int = 0) -> Self:
        """Tensors of one shape along a new axis.

        >>> Tensor([1, 2]).stack(Tensor([3, 4])).tolist()
        [[1, 2], [3, 4]]
        >>> Tensor.stack([Tensor(1), Tensor(2)]).shape
        (2,)
        """
        items = argfix(self, *args)
        tensors("each part of stack", items)
        if not items:
            raise ShapeError("stack takes at least one Tensor, found none")
        shapes = list(dict.fromkeys(item.shape for item in items))
        if not all(same_shape(shapes[0], shape) for shape in shapes[1:]):
            named = " and ".join(str(shape) for shape in shapes)
            raise ShapeError(f"stack needs tensors of one shape, found {named}")
        first, *others = [item.unsqueeze(dim) for item in items]
        result: Self = first.cat(*others, dim=items[0]._axis(dim, extra=1))
        return result

    def split(self, sizes: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Parts of the given size(s) along an axis, as views.

        >>> [part.tolist() for part in Tensor.arange(5).split(2)]
        [[0, 1], [2, 3], [4]]
        """
        axis = self._axis(dim)
        if self.ndim == 0:
            raise ShapeError("split of a tensor of shape (): it has no axis to cut")
        total = self.shape[axis]
        asked = whole_numbers("sizes", sizes)
        if isinstance(sizes, (tuple, list)):
            sizes = list(asked)
        else:
            size = whole_number("the size of a part", asked[0], least=1)
            self._refuse_symbolic("split", axis, "give the size of each part")
            sizes = [min(size, total - start) for start in range(0, max(1, total), size)]
        if any(is_int(size) and size < 0 for size in sizes) or not same_size(sum(sizes), total):
            raise ShapeError(
                f"split of axis {dim} of {self.shape} into {list(sizes)}: the sum must be {total}"
            )
        parts: list[Self] = []
        start = 0
        for size in sizes:
            box = [None] * axis + [(start, start + size)] + [None] * (self.ndim - axis - 1)
            parts.append(self.shrink(box))
            start += size
        return tuple(parts)

    def _refuse_symbolic(self, what: str, axis: int, instead: str) -> None:
        """Where the number of results would depend on a size that is known at run time only."""
        if not is_int(self.shape[axis]):
            raise ShapeError(
                f"{what} of axis {axis} of {self.shape}: its size is a variable, so how many parts "
                f"there are is not known; {instead}"
            )

    def chunk(self, chunks: int, dim: int = 0) -> list[Self]:
        """At most `chunks` parts of equal size along an axis, the last one smaller.

        >>> [part.tolist() for part in Tensor.arange(5).chunk(2)]
        [[0, 1, 2], [3, 4]]
        """
        chunks = whole_number("chunks", chunks, least=1)
        axis = self._axis(dim)
        if self.ndim == 0:
            raise ShapeError("chunk of a tensor of shape (): it has no axis to cut")
        self._refuse_symbolic("chunk", axis, "split takes the size of each part")
        size = ceildiv(self.shape[axis], chunks)
        return list(self.split(size, axis) if size else self.split([0] * chunks, axis))

    def roll(self, shifts: Any, dims: Any = None) -> Self:
        """Elements moved along axes; what leaves at one end comes back at the other.

        >>> Tensor([1, 2, 3, 4]).roll(1).tolist()
        [4, 1, 2, 3]
        """
        if dims is None:
            return self.flatten().roll(shifts, 0).reshape(self.shape)
        amounts = whole_numbers("shifts", shifts)
        axes = whole_numbers("dims", dims)
        if len(amounts) != len(axes):
            raise ArgumentError(f"roll by {shifts} along {dims}: give one shift for each axis")
        rolled = self
        for amount, dim in zip(amounts, axes, strict=True):
            axis = rolled._axis(dim)
            size = rolled.shape[axis]
            cut = -amount % size if size else 0
            if cut:
                head, tail = rolled.split([cut, size - cut], axis)
                rolled = tail.cat(head, dim=axis)
        return rolled

    def meshgrid(self, *args: Self, indexing: str = "ij") -> tuple[Self, ...]:
        """A grid of coordinates from one-dimensional tensors.

        >>> x, y = Tensor([1, 2]).meshgrid(Tensor([3, 4]))
        >>> x.tolist(), y.tolist()
        ([[1, 1], [2, 2]], [[3, 4], [3, 4]])
        """
        if indexing not in ("ij", "xy"):
            raise ArgumentError(f'meshgrid has indexing "ij" or "xy", found {indexing!r}')
        items = argfix(self, *args)
        tensors("each part of meshgrid", items)
        if any(item.ndim > 1 for item in items):
            raise ShapeError(f"meshgrid takes vectors, found {[item.shape for item in items]}")
        order = list(range(len(items)))
        if indexing == "xy" and len(items) > 1:
            order[0], order[1] = 1, 0
        sizes = tuple(items[i].numel() for i in order)
        grids: list[Self] = []
        for i, item in enumerate(items):
            apart = [1] * len(items)
            apart[order[i]] = item.numel()
            grids.append(item.reshape(apart).expand(sizes))
        return tuple(grids)


def _is_box(arg: Any, rank: int) -> bool:
    """Whether it is a sequence of pairs, or None, for each axis."""
    if not isinstance(arg, (tuple, list)) or len(arg) != rank:
        return False
    return all(part is None or (isinstance(part, (tuple, list)) and len(part) == 2) for part in arg)
