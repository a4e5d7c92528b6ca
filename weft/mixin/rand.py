"""Random numbers: counter based, so a seed gives the same numbers on every device.

In: a seed and shapes. Out: rand, randn, randint and the initialisers of neural nets.
Sits above the engine, one of the Tensor families.
Invariant: the bits are Threefry-2x32-20 of (counter, key). With the key (0, seed) the first call
after `manual_seed(seed)` gives the bits of JAX's `random.bits(PRNGKey(seed))`, in its original
layout: the counters 0..n-1 are cut in two halves, which are the two words of a block (an odd n is
filled up with a 0); the first words of all results come first, then the second ones.
"""

from __future__ import annotations

import math
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
from weft.uop.node import UOp
from weft.uop.opset import Ops

_WORD = (1 << 32) - 1


class RandomState:
    """The seed, how many numbers were drawn, and the run-time variables that carry both to kernels.

    Key and counter are variables, not constants: one compiled kernel serves every draw. Draws that
    are pending at the same time need variables of different names: each takes the lowest free slot,
    which is free again when the draw's expression is gone.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.seed = 0
        self.counter = 0
        self.slots: list[list[weakref.ref[UOp]]] = []

    def reset(self, seed: int) -> None:
        recorder = record.active()
        if recorder is not None:
            recorder.seeded(seed)
        with self.lock:
            self.seed = seed & ((1 << 64) - 1)
            self.counter = 0

    def draw(self, words: int) -> tuple[UOp, UOp, UOp]:
        """(first word of the key, second word, first counter) for this many 32-bit words."""
        values = self.advance(words)
        recorder = record.active()
        # while a recorder listens, names are counted from the start: equal runs have equal names
        slots = self.slots if recorder is None else recorder.random_slots
        prefix = "rng" if recorder is None else "rngj"
        with self.lock:
            slot = _free_slot(slots)
            names = ("key0", "key1", "counter")
            bound = tuple(
                UOp.variable(f"{prefix}{slot}_{name}", 0, _WORD).bind(value)
                for name, value in zip(names, values, strict=True)
            )
            slots[slot] = [weakref.ref(node) for node in bound]
        if recorder is not None:
            recorder.drew(slot, words, values)
        return bound[0], bound[1], bound[2]

    def advance(self, words: int) -> tuple[int, int, int]:
        """Takes this many words of the sequence: their key (two words) and first counter."""
        with self.lock:
            start = self.counter
            self.counter += words
            # beyond 2**32 words the key moves on, so that no block repeats
            high = ((self.seed >> 32) + (start >> 32)) & _WORD
            return high, self.seed & _WORD, start & _WORD


def _free_slot(slots: list[list[weakref.ref[UOp]]]) -> int:
    for slot, references in enumerate(slots):
        if all(reference() is None for reference in references):
            return slot
    slots.append([])
    return len(slots) - 1


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

        >>> key = Tensor([0, 0], dtype=dtypes.uint32)
        >>> hex(Tensor.random_bits(key, Tensor([0], dtype=dtypes.uint32), 1).item())
        '0x6b200159'
        """
        tensors("each of key and counter", (key, counter))
        if key.ndim != 1 or counter.ndim != 1:
            raise ShapeError(
                f"random_bits takes a key of shape (2,) and a counter of shape (1,), found "
                f"{key.shape} and {counter.shape}"
            )
        return cls._words(key[0], key[1], counter[0], whole_number("num", num, least=0))

    @classmethod
    def _words(cls, key0: Self, key1: Self, start: Self, count: Any) -> Self:
        """`count` random uint32 in JAX's order."""
        half = ceildiv(count, 2)
        first = cls._from_uop(UOp(Ops.IOTA, dtypes.uint32, (), half))
        second = first + half
        if count % 2:
            second = second.lt(count).where(second, 0)
        word = start.cast(dtypes.uint32)
        low, high = (first + word).cast(dtypes.uint64), (second + word).cast(dtypes.uint64)
        key = key0.cast(dtypes.uint64) | (key1.cast(dtypes.uint64) << 32)
        block = (low | (high << 32)).threefry(key)
        words = (block & _WORD).cast(dtypes.uint32)
        words = words.cat((block >> 32).cast(dtypes.uint32))
        return words._slice(0, 0, count)

    @classmethod
    def _bits(cls, count: int, words: int = 1) -> Self:
        """Random uint32, or with `words=2` uint64, of the next counters."""
        key0, key1, start = (cls(node) for node in cls._random.draw(count * words))
        bits = cls._words(key0, key1, start, count * words)
        if words == 1:
            return bits
        high, low = (part.cast(dtypes.uint64) for part in bits.split([count, count]))
        return (high << 32) | low

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
        if dtype is dtypes.float64:
            bits = (cls._bits(count, words=2) >> 12) | 0x3FF0000000000000
            return bits.bitcast(dtypes.float64) - 1
        if dtype in (dtypes.float16, dtypes.bfloat16) or dtype in dtypes.fp8s:
            # as many bits as the dtype holds below 1, as a whole number divided by their count
            width = dtypes.finfo(dtype)[1] + 1
            whole = (cls._bits(count) >> (32 - width)).cast(dtypes.float32)
            return (whole * 2.0**-width).cast(dtype)
        bits = (cls._bits(count) >> 9) | 0x3F800000
        return (bits.bitcast(dtypes.float32) - 1).cast(dtype)

    def rand_like(self, **kwargs: Any) -> Self:
        """`rand` in this shape, dtype and device.

        >>> Tensor.zeros(2, 3).rand_like().shape
        (2, 3)
        """
        return self.rand(*self.shape, **{"device": self.device, "dtype": self.dtype, **kwargs})

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
        bits = cls._bits(prod(sizes)).cast(dtypes.uint64)
        numbers = ((bits * (high - low)) >> 32).cast(dtypes.int64) + low
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
        """Random numbers from low to before high, all equally likely.

        >>> Tensor.uniform(2, 3, low=-1, high=1).shape
        (2, 3)
        """
        low, high = real_number("low", low), real_number("high", high)
        chosen = dtypes.default_float if dtype is None else to_dtype(dtype)
        computed = chosen if dtypes.is_float(chosen) else dtypes.float32
        unit = cls.rand(*shape, dtype=computed, **kwargs)
        # with one rounding, so that no device may choose between one and two
        span, start = unit._constant(high - low), unit._constant(low)
        numbers = unit.alu(Ops.MULACC, span, start).cast(chosen)
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
        keys = cls._bits(whole_number("n", n, least=0))._drawn_on(device)
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
            point = self.rand(weights.shape[0], num_samples, device=self.device) * total
            places = reached.contiguous()._count_up_to(point)
            places = places.minimum(weights.shape[1] - 1)
        else:
            # the greatest of log(u) / w are a draw without replacement (Efraimidis and Spirakis)
            lot = (1 - self.rand(*weights.shape, device=self.device)).log() / weights
            lot = weights.gt(0).where(lot, -math.inf)
            places = lot.topk(num_samples, 1)[1]
        chosen = places.cast(dtypes.int32)
        return chosen.squeeze(0) if self.ndim == 1 else chosen
