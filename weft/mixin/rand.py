"""Random numbers: counter based, so a seed gives the same numbers on every device.

In: a seed and shapes. Out: rand, randn, randint and the initialisers of neural nets.
Sits above the engine, one of the Tensor families.
Invariant: the bits are Threefry-2x32-20 of (counter, key). Words of a key are those of JAX's
`random.bits` in its original layout: the counters 0..n-1 are cut in two halves, which are the two
words of a block (an odd n is filled up with a 0); the first words of all results come first, then
the second ones. Each draw has a key of its own, so that it has the layout of a first draw: the
block that the words drawn before it, as a counter, give under the key of the seed. Draws take an
even number of words and leave the last one where they need it not. This, and which bits become
which float, is what tinygrad does: a seed gives its numbers.
"""

from __future__ import annotations

import math
import secrets
import threading
import weakref
from typing import Any, ClassVar, Self

from weft.device import Device
from weft.dtype import DType, dtypes, python_number, to_dtype
from weft.engine import record
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.helpers import ceildiv, prod
from weft.mixin.check import real_number, tensors, whole_number
from weft.mixin.creation import Devices, checked_shape
from weft.mixin.sort import SortMixin
from weft.uop.evaluate import threefry
from weft.uop.node import UOp
from weft.uop.opset import Ops

_WORD = (1 << 32) - 1

# The other word of a seed's key: the last 32 bits of SHA-256 of four zero bytes. Any number would
# do; this one gives tinygrad's sequences.
_SEED_KEY = 0x14B81119


class RandomState:
    """The seed, how many words were drawn, and the run-time variables that carry keys to kernels.

    Keys are variables, not constants: one compiled kernel serves every draw. Draws that are pending
    at the same time need variables of different names: each takes the lowest free slot, which is
    free again when the draw's expression is gone. Without a seed each process has its own sequence.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.seed = secrets.randbits(32)
        self.counter = 0
        self.slots: list[list[weakref.ref[UOp]]] = []

    def reset(self, seed: int) -> None:
        recorder = record.active()
        if recorder is not None:
            recorder.seeded(seed)
        with self.lock:
            self.seed = seed
            self.counter = 0

    def draw(self, words: int) -> tuple[UOp, UOp]:
        """The two words of the key for this many random words."""
        key = self.advance(words)
        recorder = record.active()
        # while a recorder listens, names are counted from the start: equal runs have equal names
        slots = self.slots if recorder is None else recorder.random_slots
        prefix = "rng" if recorder is None else "rngj"
        with self.lock:
            slot = _free_slot(slots)
            low, high = (
                UOp.variable(f"{prefix}{slot}_{name}", 0, _WORD).bind(value)
                for name, value in zip(("key0", "key1"), key, strict=True)
            )
            slots[slot] = [weakref.ref(low), weakref.ref(high)]
        if recorder is not None:
            recorder.drew(slot, words, key)
        return low, high

    def advance(self, words: int) -> tuple[int, int]:
        """Takes this many words of the sequence: the two words of their key."""
        with self.lock:
            start = self.counter
            self.counter += words
            # a seed that fits one word, with or without sign, is that word alone
            high = 0 if abs(self.seed) <= _WORD else self.seed >> 32
            seed_key = ((_SEED_KEY ^ high) & _WORD) | ((self.seed & _WORD) << 32)
        key = threefry(start & ((1 << 64) - 1), seed_key)
        return key & _WORD, key >> 32


def _free_slot(slots: list[list[weakref.ref[UOp]]]) -> int:
    for slot, references in enumerate(slots):
        if all(reference() is None for reference in references):
            return slot
    slots.append([])
    return len(slots) - 1


# Choices among a few are made with the mantissa bits of a float32: with so many at most, none is
# more likely than another by more than one in 128.
_SHORT_BITS = 23
_SHORT_RANGE = 1 << 16

# up to so many comparisons, draws look at every weight; beyond, they search
_COUNTED_DRAWS = 1 << 16


class RandMixin(SortMixin):
    """Constructors of random tensors."""

    __slots__ = ()
    _random: ClassVar[RandomState] = RandomState()

    @classmethod
    def manual_seed(cls, seed: int = 0) -> None:
        """Start the sequence of random numbers again, at a seed.

        >>> Tensor.manual_seed(7)
        >>> a = Tensor.rand(3).tolist()
        >>> Tensor.manual_seed(7)
        >>> a == Tensor.rand(3).tolist()
        True
        """
        seed = python_number(seed)
        if not isinstance(seed, int):
            raise ArgumentError(f"a seed is an int, found {seed!r}")
        cls._random.reset(seed)

    def threefry(self, seed: Any) -> Self:
        """Threefry-2x32-20 of these counters (uint64) with a key (uint64).

        >>> counter = Tensor([0], dtype=dtypes.uint64)
        >>> hex(counter.threefry(Tensor([0], dtype=dtypes.uint64)).item())
        '0x99ba4efe6b200159'
        """
        key = self._operand(seed).cast(dtypes.uint64)
        return self.cast(dtypes.uint64).alu(Ops.THREEFRY, key)

    @classmethod
    def random_bits(cls, key: Any, counter: Any, num: int) -> Self:
        """`num` random uint32 for a key of two words, from a counter of one word on.

        With a counter of two words they have a key of their own: that counter's block.

        >>> key = Tensor([0, 0], dtype=dtypes.uint32)
        >>> hex(Tensor.random_bits(key, Tensor([0], dtype=dtypes.uint32), 1).item())
        '0x6b200159'
        """
        tensors("each of key and counter", (key, counter))
        if key.shape != (2,) or counter.shape not in ((1,), (2,)):
            raise ShapeError(
                f"random_bits takes a key of shape (2,) and a counter of shape (1,) or (2,), found "
                f"{key.shape} and {counter.shape}"
            )
        count = whole_number("num", num, least=0)
        if counter.shape == (1,):
            return cls._words(key[0], key[1], counter[0], count)
        block = cls._block(counter[0], counter[1], key[0], key[1])
        key0, key1 = block & _WORD, block >> 32
        return cls._words(key0, key1, None, count + count % 2)._slice(0, 0, count)

    @classmethod
    def _block(cls, low: Self, high: Self, key0: Self, key1: Self) -> Self:
        """Threefry of a counter and a key in two words each."""
        counter = low.cast(dtypes.uint64) | (high.cast(dtypes.uint64) << 32)
        return counter.threefry(key0.cast(dtypes.uint64) | (key1.cast(dtypes.uint64) << 32))

    @classmethod
    def _words(cls, key0: Self, key1: Self, start: Self | None, count: Any) -> Self:
        """`count` random uint32 in JAX's order, the first counter being `start`."""
        half = ceildiv(count, 2)
        first = cls._from_uop(UOp(Ops.IOTA, dtypes.uint32, (), half))
        second = first + half
        if count % 2:
            second = second.lt(count).where(second, 0)
        if start is not None:
            word = start.cast(dtypes.uint32)
            first, second = first + word, second + word
        block = cls._block(first, second, key0, key1)
        words = (block & _WORD).cast(dtypes.uint32)
        words = words.cat((block >> 32).cast(dtypes.uint32))
        return words._slice(0, 0, count)

    @classmethod
    def _bits(cls, count: int, width: int = 32) -> Self:
        """Random unsigned ints of this many bits, of the next words of the sequence.

        A word holds several narrow ones, the lowest bits first; two words hold a wide one.
        """
        words = ceildiv(count * width, 32)
        key0, key1 = (cls(node) for node in cls._random.draw(words))
        bits = cls._words(key0, key1, None, words + words % 2)
        if width == 64:
            low, high = (
                part.squeeze(1).cast(dtypes.uint64) for part in bits.reshape(-1, 2).split(1, 1)
            )
            return low | (high << 32)
        if width < 32:
            starts = cls.arange(0, 32, width).cast(dtypes.uint32)
            bits = ((bits.unsqueeze(1) >> starts) & ((1 << width) - 1)).flatten()
        return bits._slice(0, 0, count)

    @classmethod
    def rand(
        cls,
        *shape: Any,
        device: Devices = None,
        dtype: DType | str | None = None,
        contiguous: bool = True,
        requires_grad: bool | None = None,
    ) -> Self:
        """Random numbers from 0 to before 1, all equally likely.

        >>> Tensor.rand(2, 3).shape
        (2, 3)
        """
        sizes = checked_shape(*shape)
        if not all(isinstance(size, int) for size in sizes):
            raise ShapeError(f"rand takes sizes that are known numbers, found {sizes}")
        chosen = dtypes.default_float if dtype is None else to_dtype(dtype)
        if not dtypes.is_float(chosen):
            raise DTypeError(f"rand gives floats, found dtype {chosen}; see randint")
        numbers = cls._unit_floats(prod(sizes), chosen).reshape(sizes)
        return numbers._drawn_on(device, contiguous, requires_grad)

    def _drawn_on(
        self, device: Devices, contiguous: bool = True, requires_grad: bool | None = None
    ) -> Self:
        """Pinned to a device and stored once: random numbers are costly to compute again."""
        place = Device.canonicalize(device)
        drawn = self.to(place)
        drawn = drawn.contiguous() if contiguous else drawn
        drawn.requires_grad_(requires_grad)
        return drawn

    @classmethod
    def _unit_floats(cls, count: int, dtype: DType) -> Self:
        """Random mantissa bits under the exponent of 1, less 1: every step is exact."""
        mantissa = dtypes.finfo(dtype)[1]
        if dtype is dtypes.float64:
            bits = (cls._bits(count, 64) >> 12) | 0x3FF0000000000000
            return bits.bitcast(dtypes.float64) - 1
        if dtype.bitsize < 32:
            # The same number, as a whole one divided by how many there are. Types of 8 bits take
            # one more, which they hold below 1: the mean of four or eight is far below 1/2.
            kept = mantissa if dtype.bitsize == 16 else mantissa + 1
            whole = cls._bits(count, dtype.bitsize) >> (dtype.bitsize - kept)
            return (whole.cast(dtypes.float32) * 2.0**-kept).cast(dtype)
        bits = (cls._bits(count) >> 9) | 0x3F800000
        return bits.bitcast(dtypes.float32) - 1

    def rand_like(self, **kwargs: Any) -> Self:
        """`rand` in this shape, dtype and device.

        >>> Tensor.zeros(2, 3).rand_like().shape
        (2, 3)
        """
        made = self.rand(*self.shape, **{"device": self.device, "dtype": self.dtype, **kwargs})
        return made if "device" in kwargs else self._cut_alike(made)

    @classmethod
    def randn(
        cls,
        *shape: Any,
        dtype: DType | str | None = None,
        device: Devices = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Random numbers of the normal distribution with mean 0 and standard deviation 1.

        Of a dtype that is no float they are cast to it at the end.

        >>> Tensor.randn(2, 3).shape
        (2, 3)
        """
        sizes = checked_shape(*shape)
        chosen = dtypes.default_float if dtype is None else to_dtype(dtype)
        wide = dtypes.float64 if chosen is dtypes.float64 else dtypes.float32
        count = prod(sizes)
        # Box and Muller: a random angle and a random radius
        angle, radius = cls._unit_floats(2 * count, wide).split([count, count])
        numbers = (angle * (2 * math.pi)).cos() * ((1 - radius).log() * -2).sqrt()
        return numbers.cast(chosen).reshape(sizes)._drawn_on(device, True, requires_grad)

    def randn_like(self, dtype: DType | str | None = None, **kwargs: Any) -> Self:
        """`randn` in this shape, dtype and device.

        >>> Tensor.zeros(2, 3).randn_like().shape
        (2, 3)
        """
        given = {"device": self.device, **kwargs}
        return self.randn(*self.shape, dtype=self.dtype if dtype is None else dtype, **given)

    @classmethod
    def randint(
        cls,
        *shape: Any,
        low: int = 0,
        high: int = 10,
        dtype: DType | str = dtypes.int32,
        device: Devices = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Random ints from low to before high.

        >>> Tensor.randint(4, low=3, high=4).tolist()
        [3, 3, 3, 3]
        """
        chosen = to_dtype(dtype)
        low, high = python_number(low), python_number(high)
        if not isinstance(low, int) or not isinstance(high, int) or low >= high:
            raise ArgumentError(f"randint needs ints low < high, found {low!r} and {high!r}")
        if not dtypes.is_int(chosen):
            raise DTypeError(f"randint gives ints, found dtype {chosen}")
        sizes = checked_shape(*shape)
        if high - low > 1 << 32:
            raise ArgumentError(f"randint covers at most 2**32 numbers, found {low} to {high}")
        bits = cls._bits(prod(sizes))
        # as many bits as a float32 has where those suffice, which gives tinygrad's numbers
        width = _SHORT_BITS if high - low <= _SHORT_RANGE else 32
        wide = (bits >> (32 - width)).cast(dtypes.uint64)
        numbers = ((wide * (high - low)) >> width).cast(dtypes.int64) + low
        return numbers.cast(chosen).reshape(sizes)._drawn_on(device, True, requires_grad)

    @classmethod
    def uniform(
        cls,
        *shape: Any,
        low: float = 0.0,
        high: float = 1.0,
        dtype: DType | str | None = None,
        requires_grad: bool | None = None,
        **kwargs: Any,
    ) -> Self:
        """Random numbers from low to high, all equally likely; ints are below high.

        >>> Tensor.uniform(2, 3, low=-1, high=1).shape
        (2, 3)
        """
        low, high = real_number("low", low), real_number("high", high)
        chosen = dtypes.default_float if dtype is None else to_dtype(dtype)
        # narrow floats are rounded once, at the end
        computed = dtypes.float64 if chosen is dtypes.float64 else dtypes.float32
        unit = cls.rand(*shape, dtype=computed, **kwargs)
        # with one rounding, so that no device may choose between one and two
        span, start = unit._constant(high - low), unit._constant(low)
        numbers = unit.alu(Ops.MULACC, span, start)
        # ints below and above 0 are equally likely: cutting off would give 0 twice as often
        numbers = (numbers.floor() if dtypes.is_int(chosen) else numbers).cast(chosen)
        numbers.requires_grad_(requires_grad)
        return numbers

    @classmethod
    def normal(
        cls,
        *shape: Any,
        mean: float = 0.0,
        std: float = 1.0,
        requires_grad: bool | None = None,
        **kwargs: Any,
    ) -> Self:
        """Random numbers of a normal distribution.

        >>> Tensor.normal(2, 3, mean=5.0).shape
        (2, 3)
        """
        mean, std = real_number("mean", mean), real_number("std", std)
        numbers = cls.randn(*shape, **kwargs) * std + mean
        numbers.requires_grad_(requires_grad)
        return numbers

    # ------------------------------------------------------------ initial weights
    @classmethod
    def scaled_uniform(cls, *shape: Any, **kwargs: Any) -> Self:
        """Uniform between -1 and 1, divided by the root of the number of elements.

        >>> Tensor.scaled_uniform(2, 3).shape
        (2, 3)
        """
        bound = max(1, prod(checked_shape(*shape))) ** -0.5
        return cls.uniform(*shape, low=-bound, high=bound, **kwargs)

    @classmethod
    def _weight_shape(cls, name: str, shape: Any) -> tuple[Any, ...]:
        """The shape of weights: (out, in, ...)."""
        sizes = checked_shape(*shape)
        if not sizes:
            raise ShapeError(f"{name} takes the shape (out, in, ...) of weights, found ()")
        return sizes

    @classmethod
    def glorot_uniform(cls, *shape: Any, **kwargs: Any) -> Self:
        """Uniform as Glorot and Bengio (2010) have it.

        >>> Tensor.glorot_uniform(2, 3).shape
        (2, 3)
        """
        sizes = cls._weight_shape("glorot_uniform", shape)
        bound = (6 / max(1, sizes[0] + prod(sizes[1:]))) ** 0.5
        return cls.uniform(*shape, low=-bound, high=bound, **kwargs)

    @classmethod
    def kaiming_uniform(cls, *shape: Any, a: float = 0.01, **kwargs: Any) -> Self:
        """Uniform as He and others (2015) have it.

        >>> Tensor.kaiming_uniform(2, 3).shape
        (2, 3)
        """
        slope = real_number("a", a)
        inputs = prod(cls._weight_shape("kaiming_uniform", shape)[1:])
        bound = math.sqrt(6 / (1 + slope * slope) / max(1, inputs))
        return cls.uniform(*shape, low=-bound, high=bound, **kwargs)

    @classmethod
    def kaiming_normal(cls, *shape: Any, a: float = 0.01, **kwargs: Any) -> Self:
        """Normal as He and others (2015) have it.

        >>> Tensor.kaiming_normal(2, 3).shape
        (2, 3)
        """
        slope = real_number("a", a)
        inputs = prod(cls._weight_shape("kaiming_normal", shape)[1:])
        std = math.sqrt(2 / (1 + slope * slope) / max(1, inputs))
        return cls.normal(*shape, std=std, **kwargs)

    # ------------------------------------------------------------ choices
    @classmethod
    def randperm(
        cls, n: int, device: Devices = None, dtype: DType | str = dtypes.int32, **kwargs: Any
    ) -> Self:
        """The numbers 0 to n-1 in random order.

        >>> sorted(Tensor.randperm(4).tolist())
        [0, 1, 2, 3]
        """
        count = whole_number("n", n, least=0)
        # few keys are equal among short ones, and equal ones keep their order
        keys = cls._bits(count) >> (32 - (_SHORT_BITS if count <= _SHORT_RANGE else 32))
        keys = keys._drawn_on(device)
        made = keys.argsort().cast(to_dtype(dtype))
        made.requires_grad_(kwargs.get("requires_grad"))
        return made

    def _count_up_to(self, points: Self) -> Self:
        """How many numbers of each ascending row are not greater than each point of the row."""
        rows, count = self.shape
        if points.shape[1] * count <= _COUNTED_DRAWS:
            return points.unsqueeze(2).ge(self.unsqueeze(1)).sum(2)
        row = self._iota(rows).unsqueeze(1)
        found = self._iota(1).reshape((1, 1)).expand(points.shape)
        step = 1 << (count.bit_length() - 1)
        while step:
            probe = found + step
            reached = self._take({0: row, 1: (probe - 1).minimum(count - 1)})
            found = (probe.le(count) & points.ge(reached)).where(probe, found).contiguous()
            step //= 2
        return found

    def multinomial(self, num_samples: int = 1, replacement: bool = False) -> Self:
        """Places drawn with these weights along the last axis.

        >>> Tensor([0.0, 1.0]).multinomial(2, replacement=True).tolist()
        [1, 1]
        """
        num_samples = whole_number("num_samples", num_samples)
        if self.ndim not in (1, 2) or num_samples < 1:
            raise ArgumentError(
                f"multinomial takes weights of 1 or 2 axes and at least 1 sample, found shape "
                f"{self.shape} and {num_samples}"
            )
        if not replacement and num_samples > self.shape[-1]:
            raise ArgumentError(
                f"multinomial of {num_samples} samples without replacement from {self.shape[-1]}"
            )
        weights = (self.unsqueeze(0) if self.ndim == 1 else self).cast(dtypes.float32)
        if replacement or num_samples == 1:
            reached = weights.cumsum(1)
            total = reached._slice(1, weights.shape[1] - 1, weights.shape[1])
            size = (weights.shape[0], num_samples)
            point = self.rand(*size, device=self.device, dtype=dtypes.float32) * total
            places = reached.contiguous()._count_up_to(point)
            places = places.minimum(weights.shape[1] - 1)
        else:
            # the greatest of log(u) / w are a draw without replacement (Efraimidis and Spirakis)
            # where u is 0 it is less than any other, not a place that cannot be drawn
            drawn = self.rand(*weights.shape, device=self.device, dtype=dtypes.float32)
            lot = drawn.maximum(2.0**-24).log() / weights
            lot = weights.gt(0).where(lot, -math.inf)
            places = lot.topk(num_samples, 1)[1]
        chosen = places.cast(dtypes.int32)
        return chosen.squeeze(0) if self.ndim == 1 else chosen
