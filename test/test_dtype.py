"""Types: identity, limits, promotion of all pairs and triples, casts against NumPy, ml_dtypes."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
import struct
import threading
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from test.optional import need, optional
from weft import dtype as names
from weft.dtype import (
    FORMATS,
    ConstFloat,
    DType,
    bitcast_value,
    bits_of,
    can_lossless_cast,
    convert,
    dtypes,
    float_to_bf16,
    float_to_fp8,
    float_to_fp16,
    fp8_to_float,
    from_numpy_dtype,
    least_upper_dtype,
    least_upper_float,
    strong_dtype,
    to_dtype,
    to_numpy_dtype,
    truncate,
    value_of_bits,
    weak_dtype,
)
from weft.errors import ArgumentError, DTypeError
from weft.knobs import Context

ml_dtypes = optional("ml_dtypes")
hypothesis = need("hypothesis")
given = hypothesis.given
st = hypothesis.strategies

LATTICE = (*dtypes.all, *dtypes.weaks)
NUMPY = {
    dtypes.bfloat16: np.dtype(ml_dtypes.bfloat16),
    dtypes.fp8e4m3: np.dtype(ml_dtypes.float8_e4m3fn),
    dtypes.fp8e5m2: np.dtype(ml_dtypes.float8_e5m2),
    dtypes.fp8e4m3fnuz: np.dtype(ml_dtypes.float8_e4m3fnuz),
    dtypes.fp8e5m2fnuz: np.dtype(ml_dtypes.float8_e5m2fnuz),
    **{
        dtype: np.dtype(dtype.name)
        for dtype in dtypes.all
        if dtype is not dtypes.bfloat16 and dtype not in dtypes.fp8s
    },
}
NARROW_FLOATS = (*dtypes.fp8s, dtypes.float16, dtypes.bfloat16)
NARROW = (*NARROW_FLOATS, *(dtype for dtype in dtypes.ints if dtype.itemsize <= 2))


def same(found: float, expected: float) -> bool:
    """Equal to the sign of zero; all NaNs are one."""
    return ConstFloat(found) == ConstFloat(expected)


def nearest(value: int | float, dtype: DType) -> float:
    """The stored value by definition: the closest of all values of the format, ties to even bits.

    Only for formats small enough to list; independent of how weft rounds.
    """
    if value != value:
        return math.nan
    if not VALUES.get(dtype):
        layout = FORMATS[dtype]
        listed = [(value_of_bits(bits, dtype), bits) for bits in range(layout.largest_bits + 1)]
        # Where the next number would be, if the exponent had no end: beyond it, values overflow.
        listed.append((2 * listed[-1][0] - listed[-2][0], layout.largest_bits + 1))
        VALUES[dtype] = ([Fraction(number) for number, _ in listed], listed)
    exact, listed = VALUES[dtype]
    negative = math.copysign(1.0, value) < 0 if isinstance(value, float) else value < 0
    layout = FORMATS[dtype]
    if math.isinf(value):
        found = math.inf
    else:
        magnitude = Fraction(abs(value))
        low = 0
        high = len(exact) - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if exact[middle] <= magnitude else (low, middle)
        below = magnitude - exact[low]
        above = exact[high] - magnitude
        pick = high if above < below or (above == below and listed[low][1] % 2) else low
        largest = listed[-2][0] if layout.saturates else math.inf
        found = listed[pick][0] if pick < len(exact) - 1 else largest
    if math.isinf(found) and layout.finite_only:
        return math.nan
    if found == 0 and layout.single_nan:
        return 0.0
    return -found if negative else found


VALUES: dict[DType, Any] = {}


class TestDType:
    def test_is_interned_through_pickle_copy_and_threads(self) -> None:
        every = [*dtypes.all, *dtypes.weaks, dtypes.void, dtypes.float32.vec(4)]
        for dtype in every:
            assert pickle.loads(pickle.dumps(dtype)) is dtype
            assert copy.copy(dtype) is dtype and copy.deepcopy(dtype) is dtype
            assert hash(dtype) == hash(pickle.loads(pickle.dumps(dtype)))
        made: list[DType] = []
        threads = [
            threading.Thread(target=lambda: made.append(dtypes.int16.vec(37))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
        assert all(dtype is made[0] for dtype in made)

    def test_cannot_be_changed(self) -> None:
        with pytest.raises(AttributeError):
            dtypes.float32.itemsize = 8  # type: ignore[misc]
        with pytest.raises(ArgumentError, match="dtypes.float32 cannot be assigned"):
            dtypes.float32 = dtypes.float64

    @pytest.mark.parametrize("dtype", dtypes.all, ids=str)
    def test_sizes_are_numpys(self, dtype: DType) -> None:
        assert dtype.itemsize == NUMPY[dtype].itemsize
        assert dtype.bitsize == (1 if dtype is dtypes.bool else 8 * dtype.itemsize)
        if dtype.fmt is not None:
            assert struct.calcsize(dtype.fmt) == dtype.itemsize
            assert np.dtype(dtype.fmt) == NUMPY[dtype]

    def test_vectors(self) -> None:
        vector = dtypes.float16.vec(4)
        assert vector is dtypes.float16.vec(4) and vector is not dtypes.float16
        assert vector.scalar() is dtypes.float16 and dtypes.float16.scalar() is dtypes.float16
        assert (vector.count, vector.vcount, vector.itemsize, vector.bitsize) == (4, 4, 8, 64)
        assert vector.vec(1) is dtypes.float16 and vector.vec(2).count == 2
        assert dtypes.is_float(vector) and repr(vector) == "dtypes.half.vec(4)"
        assert vector.const((1, 2.5, 0, True)) == (1.0, 2.5, 0.0, 1.0)
        with pytest.raises(DTypeError, match="no vector of 0 float16"):
            dtypes.float16.vec(0)
        with pytest.raises(DTypeError, match="3 values given for the 4 lanes"):
            vector.const((1, 2, 3))

    def test_names_aliases_and_groups(self) -> None:
        pairs = "int8 char uint8 uchar int16 short uint16 ushort int32 int uint32 uint int64 long"
        pairs += " uint64 ulong float16 half float32 float float64 double"
        words = pairs.split()
        for name, alias in zip(words[::2], words[1::2], strict=True):
            assert getattr(dtypes, name) is getattr(dtypes, alias) is to_dtype(alias)
            assert to_dtype(name.upper()).name == name
        assert set(dtypes.ints) == set(dtypes.sints) | set(dtypes.uints)
        assert set(dtypes.fp8s) < set(dtypes.floats) < set(dtypes.all)
        assert not set(dtypes.weaks) & set(dtypes.all)
        assert set(dtypes.fields().values()) == {*dtypes.all, *dtypes.weaks, dtypes.void}
        with pytest.raises(DTypeError, match="'float33' names no dtype; there are .*float32"):
            to_dtype("float33")

    @pytest.mark.parametrize("dtype", LATTICE, ids=str)
    def test_kinds(self, dtype: DType) -> None:
        kinds = [dtypes.is_float(dtype), dtypes.is_int(dtype), dtypes.is_bool(dtype)]
        assert kinds.count(True) == 1
        assert dtypes.is_float(dtype) == (dtype in dtypes.floats or dtype is dtypes.weakfloat)
        assert dtypes.is_unsigned(dtype) == (dtype in dtypes.uints)
        assert dtypes.is_weak(dtype) == (dtype in dtypes.weaks)

    def test_limits(self) -> None:
        for dtype in dtypes.ints:
            assert (dtype.min, dtype.max) == (
                np.iinfo(NUMPY[dtype]).min,
                np.iinfo(NUMPY[dtype]).max,
            )
        assert (dtypes.bool.min, dtypes.bool.max) == (False, True)
        assert (dtypes.weakint.min, dtypes.weakint.max) == (dtypes.int64.min, dtypes.int64.max)
        assert (dtypes.float16.min, dtypes.float16.max) == (-math.inf, math.inf)
        assert dtypes.fp8e5m2.max == math.inf
        assert (dtypes.fp8e4m3.min, dtypes.fp8e4m3.max) == (-448.0, 448.0)
        assert dtypes.fp8e4m3fnuz.max == 240.0 and dtypes.fp8e5m2fnuz.max == 57344.0
        for dtype in LATTICE:
            assert same(dtype.const(dtype.min), dtype.min) and same(
                dtype.const(dtype.max), dtype.max
            )
        with pytest.raises(DTypeError, match="void"):
            _ = dtypes.void.min

    @pytest.mark.parametrize("dtype", dtypes.floats, ids=str)
    def test_finfo(self, dtype: DType) -> None:
        info = ml_dtypes.finfo(NUMPY[dtype])
        assert dtypes.finfo(dtype) == (info.bits - 1 - info.nmant, info.nmant)
        assert FORMATS[dtype].largest == float(info.max)
        with pytest.raises(DTypeError, match=r"dtypes\.int,"):
            dtypes.finfo(dtypes.int32)


class TestDefaults:
    def test_are_assignable_and_follow_the_knobs(self) -> None:
        with Context(DEFAULT_FLOAT="HALF", DEFAULT_INT="int64"):
            assert dtypes.default_float is dtypes.float16
            assert dtypes.default_int is dtypes.int64
            dtypes.default_float = dtypes.bfloat16
            assert dtypes.default_float is dtypes.bfloat16
            assert least_upper_dtype(dtypes.int8, dtypes.weakfloat) is dtypes.bfloat16
        dtypes.default_float = dtypes.float64
        assert least_upper_dtype(dtypes.int8, dtypes.weakfloat) is dtypes.float64

    def test_refuse_the_wrong_kind(self) -> None:
        with pytest.raises(ArgumentError, match="default float.*dtypes.char.*float16"):
            dtypes.default_float = dtypes.int8
        with pytest.raises(ArgumentError, match="default int.*dtypes.weakint"):
            dtypes.default_int = dtypes.weakint
        with Context(DEFAULT_FLOAT="nonsense"), pytest.raises(ArgumentError, match="nonsense"):
            _ = dtypes.default_float

    def test_from_py_is_the_type_of_data(self) -> None:
        with Context(DEFAULT_FLOAT="float32", DEFAULT_INT="int32"):
            cases: list[tuple[Any, DType]] = [
                (True, dtypes.bool),
                (2, dtypes.int32),
                (2**31, dtypes.int64),
                (-(2**31), dtypes.int32),
                (2**63, dtypes.uint64),
                (3.0, dtypes.float32),
                ([], dtypes.float32),
                ([[], []], dtypes.float32),
                ([True, False], dtypes.bool),
                ([True, 2], dtypes.int32),
                (((1,), [2**40]), dtypes.int64),
                ([[1], [2.0, True]], dtypes.float32),
                ([2**70, 1.0], dtypes.float32),
            ]
            for value, expected in cases:
                assert dtypes.from_py(value) is expected, value
        for wrong in (None, "text", [1, None], object()):
            with pytest.raises(DTypeError, match="cannot infer a dtype"):
                dtypes.from_py(wrong)
        for too_wide in (2**64, -(2**63) - 1, [-1, 2**63]):
            with pytest.raises(DTypeError, match="fit no dtype"):
                dtypes.from_py(too_wide)

    def test_strong_and_weak(self) -> None:
        assert strong_dtype(dtypes.weakint) is dtypes.default_int
        assert strong_dtype(dtypes.weakfloat.vec(2)) is dtypes.default_float.vec(2)
        assert all(strong_dtype(dtype) is dtype for dtype in dtypes.all)
        assert weak_dtype(True) is dtypes.bool
        assert weak_dtype(1) is dtypes.weakint
        assert weak_dtype(1.0) is dtypes.weakfloat


class TestPromotion:
    def test_known_pairs(self) -> None:
        d = dtypes
        for left, right, expected in [
            (d.uint8, d.int8, d.int16),
            (d.uint32, d.int32, d.int64),
            (d.uint32, d.int64, d.int64),
            (d.uint64, d.int64, d.default_float),
            (d.uint64, d.int8, d.default_float),
            (d.int32, d.weakfloat, d.default_float),
            (d.int64, d.float16, d.float16),
            (d.float16, d.weakfloat, d.float16),
            (d.float16, d.weakint, d.float16),
            (d.int8, d.weakint, d.int8),
            (d.uint8, d.weakint, d.uint8),
            (d.weakint, d.weakfloat, d.weakfloat),
            (d.bool, d.weakint, d.weakint),
            (d.bool, d.weakfloat, d.weakfloat),
            (d.bool, d.int8, d.int8),
            (d.float16, d.bfloat16, d.float32),
            (d.fp8e4m3, d.fp8e5m2, d.float16),
            (d.fp8e4m3, d.bfloat16, d.bfloat16),
            (d.fp8e4m3, d.weakfloat, d.fp8e4m3),
            (d.float32, d.float64, d.float64),
        ]:
            assert least_upper_dtype(left, right) is expected, (left, right)

    def test_never_an_unasked_upcast(self) -> None:
        for dtype in dtypes.all:
            if dtype is not dtypes.bool:
                assert least_upper_dtype(dtype, dtypes.weakint) is dtype
            if dtype in dtypes.floats:
                assert least_upper_dtype(dtype, dtypes.weakfloat) is dtype
                for integer in dtypes.ints:
                    assert least_upper_dtype(dtype, integer) is dtype

    def test_data_is_never_weak(self) -> None:
        strong = set(dtypes.all) - {dtypes.bool}
        for pair in itertools.product(LATTICE, repeat=2):
            if strong & set(pair):
                assert least_upper_dtype(*pair) not in dtypes.weaks

    def test_idempotent_and_commutative(self) -> None:
        for left, right in itertools.product(LATTICE, repeat=2):
            assert least_upper_dtype(left, right) is least_upper_dtype(right, left)
        assert all(least_upper_dtype(dtype, dtype) is dtype for dtype in LATTICE)
        assert all(least_upper_dtype(dtype) is dtype for dtype in LATTICE)

    def test_result_holds_every_integer_and_bool_operand(self) -> None:
        for left, right in itertools.product((*dtypes.ints, dtypes.bool), repeat=2):
            found = least_upper_dtype(left, right)
            if dtypes.is_float(found):
                assert dtypes.uint64 in (left, right)
            else:
                assert can_lossless_cast(left, found) and can_lossless_cast(right, found)

    def test_order_of_three_does_not_matter(self) -> None:
        for triple in itertools.combinations_with_replacement(LATTICE, 3):
            found = {least_upper_dtype(*order) for order in itertools.permutations(triple)}
            assert len(found) == 1

    def test_associative_but_where_documented(self) -> None:
        """Pairwise equals all at once, but for a bound that was replaced by a type to store."""

        def replaced(left: DType, right: DType) -> bool:
            found = least_upper_dtype(left, right)
            two_fp8s = left is not right and left in dtypes.fp8s and right in dtypes.fp8s
            became_float = found in dtypes.floats and not {left, right} & set(dtypes.floats)
            return two_fp8s or became_float

        checked = 0
        for a, b, c in itertools.product(LATTICE, repeat=3):
            if replaced(a, b) or replaced(b, c):
                continue
            checked += 1
            together = least_upper_dtype(a, b, c)
            assert least_upper_dtype(least_upper_dtype(a, b), c) is together
            assert least_upper_dtype(a, least_upper_dtype(b, c)) is together
        assert checked > len(LATTICE) ** 3 * 0.7

    def test_vectors_promote_lane_by_lane(self) -> None:
        found = least_upper_dtype(dtypes.int8.vec(4), dtypes.uint8.vec(4))
        assert found is dtypes.int16.vec(4)
        found = least_upper_dtype(dtypes.int8.vec(4), dtypes.weakfloat.vec(4))
        assert found is dtypes.default_float.vec(4)

    def test_what_has_no_common_type(self) -> None:
        with pytest.raises(DTypeError, match="dtypes.void and dtypes.char have no common dtype"):
            least_upper_dtype(dtypes.int8, dtypes.void)
        with pytest.raises(DTypeError, match="equal lanes"):
            least_upper_dtype(dtypes.int8, dtypes.int8.vec(2))
        with pytest.raises(ArgumentError, match="no dtype"):
            least_upper_dtype()

    def test_least_upper_float(self) -> None:
        assert least_upper_float(dtypes.fp8e4m3) is dtypes.fp8e4m3
        assert least_upper_float(dtypes.weakfloat) is dtypes.weakfloat
        assert least_upper_float(dtypes.weakint) is dtypes.weakfloat
        assert least_upper_float(dtypes.bool) is dtypes.default_float
        assert least_upper_float(dtypes.int64.vec(2)) is dtypes.default_float.vec(2)


class TestLosslessCast:
    @pytest.mark.parametrize("source", [dtypes.bool, *NARROW], ids=str)
    def test_is_what_the_values_say(self, source: DType) -> None:
        """For every narrow type: lossless if and only if each value comes back from the cast."""
        codes = range(2) if source is dtypes.bool else range(1 << source.bitsize)
        values = [value_of_bits(code, source) for code in codes]
        for target in dtypes.all:
            kept = all(same(float(convert(v, source, target)), float(v)) for v in values)
            assert can_lossless_cast(source, target) == kept, target

    def test_wide_types(self) -> None:
        assert can_lossless_cast(dtypes.int32, dtypes.float64)
        assert can_lossless_cast(dtypes.uint32, dtypes.int64)
        assert not can_lossless_cast(dtypes.int32, dtypes.float32)
        assert not can_lossless_cast(dtypes.int64, dtypes.float64)
        assert not can_lossless_cast(dtypes.int64, dtypes.uint64)
        assert not can_lossless_cast(dtypes.float64, dtypes.float32)
        assert not can_lossless_cast(dtypes.float32, dtypes.float32.vec(2))


class TestConvert:
    @pytest.mark.parametrize("dtype", NARROW_FLOATS, ids=str)
    def test_every_code_means_what_ml_dtypes_says(self, dtype: DType) -> None:
        unsigned = np.dtype(f"uint{dtype.bitsize}")
        codes = np.arange(1 << dtype.bitsize, dtype=unsigned)
        with np.errstate(all="ignore"):
            numbers = codes.view(NUMPY[dtype]).astype(np.float64).tolist()
        for code, expected in enumerate(numbers):
            found = value_of_bits(code, dtype)
            assert same(found, expected), hex(code)
            if found == found:
                assert bits_of(found, dtype) == code

    @pytest.mark.parametrize("target", NARROW_FLOATS, ids=str)
    @pytest.mark.parametrize("source", [dtypes.float16, dtypes.bfloat16], ids=str)
    def test_every_half_to_every_narrow_float(self, source: DType, target: DType) -> None:
        values = np.arange(1 << 16, dtype=np.uint16).view(NUMPY[source])
        with np.errstate(all="ignore"):
            # Through float32 is exact for 16-bit sources and rounds once.
            wide = values.astype(np.float32)
            if FORMATS[target].saturates:
                largest = FORMATS[target].largest
                wide = np.where(np.isinf(wide), wide, wide.clip(-largest, largest))
            expected = wide.astype(NUMPY[target]).astype(np.float64).tolist()
            numbers = values.astype(np.float64).tolist()
        for value, stored in zip(numbers, expected, strict=True):
            assert same(convert(value, source, target), stored), value

    @pytest.mark.parametrize("target", NARROW_FLOATS, ids=str)
    def test_every_16_bit_integer_to_every_narrow_float(self, target: DType) -> None:
        for value in range(-(1 << 15), 1 << 16):
            assert same(convert(value, dtypes.int32, target), nearest(value, target)), value

    @pytest.mark.parametrize("target", dtypes.ints, ids=str)
    @pytest.mark.parametrize("source", NARROW_FLOATS, ids=str)
    def test_every_narrow_float_to_every_integer_saturates(
        self, source: DType, target: DType
    ) -> None:
        for code in range(1 << source.bitsize):
            value = value_of_bits(code, source)
            found = convert(value, source, target)
            assert type(found) is int
            if value != value:
                assert found == 0
            else:
                clipped = min(max(value, float(target.min)), float(target.max))
                assert found == min(max(int(clipped), target.min), target.max)

    @pytest.mark.parametrize("target", dtypes.ints, ids=str)
    @pytest.mark.parametrize("source", [d for d in dtypes.ints if d.itemsize <= 2], ids=str)
    def test_every_narrow_integer_to_every_integer_wraps(
        self, source: DType, target: DType
    ) -> None:
        codes = np.arange(1 << source.bitsize, dtype=f"uint{source.bitsize}")
        values = codes.view(NUMPY[source])
        expected = values.astype(NUMPY[target]).tolist()
        assert [convert(value, source, target) for value in values.tolist()] == expected

    @pytest.mark.parametrize("source", NARROW, ids=str)
    def test_to_bool_is_whether_it_is_not_zero(self, source: DType) -> None:
        for code in range(1 << source.bitsize):
            value = value_of_bits(code, source)
            assert convert(value, source, dtypes.bool) is (value != 0)
        assert convert(ConstFloat(-0.0), dtypes.float32, dtypes.bool) is False
        assert convert(math.nan, dtypes.float32, dtypes.bool) is True

    @pytest.mark.parametrize("target", LATTICE, ids=str)
    def test_from_bool(self, target: DType) -> None:
        assert [convert(b, dtypes.bool, target) for b in (False, True)] == [0, 1]

    @given(st.integers(-(2**64), 2**64))
    def test_integers_round_once(self, value: int) -> None:
        for target in NARROW_FLOATS:
            assert same(convert(value, dtypes.int64, target), nearest(value, target))
        if dtypes.int64.min <= value <= dtypes.int64.max:
            assert convert(value, dtypes.int64, dtypes.float32) == np.int64(value).astype(
                np.float32
            )
            assert convert(value, dtypes.int64, dtypes.float64) == np.int64(value).astype(
                np.float64
            )
        elif value > 0:
            expected = np.uint64(value & (2**64 - 1)).astype(np.float32)
            if value < 2**64:
                assert convert(value, dtypes.uint64, dtypes.float32) == expected

    @given(st.floats())
    def test_floats_round_once(self, value: float) -> None:
        for target in NARROW_FLOATS:
            assert same(convert(value, dtypes.float64, target), nearest(value, target))
        with np.errstate(all="ignore"):
            expected = float(np.float64(value).astype(np.float32))
        assert same(convert(value, dtypes.float64, dtypes.float32), expected)

    def test_no_double_rounding(self) -> None:
        """Just above a tie of the narrow type, by less than float32 can see."""
        for target in NARROW_FLOATS:
            mantissa_bits = dtypes.finfo(target)[1]
            tie = 1 + 2.0 ** -(mantissa_bits + 1)
            above = tie + 2.0**-45
            assert float(np.float32(above)) == tie
            assert convert(tie, dtypes.float64, target) == 1.0
            assert convert(above, dtypes.float64, target) == 1 + 2.0**-mantissa_bits
        odd = 2**60 + 2**36 + 1
        assert convert(odd, dtypes.int64, dtypes.float32) == 2.0**60 + 2.0**37
        assert convert(odd - 1, dtypes.int64, dtypes.float32) == 2.0**60

    @pytest.mark.parametrize("target", (*dtypes.ints, dtypes.weakint), ids=str)
    def test_wide_floats_saturate_at_the_ends(self, target: DType) -> None:
        for value, expected in [
            (math.inf, target.max),
            (-math.inf, target.min),
            (math.nan, 0),
            (1e300, target.max),
            (-1e300, target.min),
            (float(target.max) * 2, target.max),
            (-0.9, 0),
            (1.9, 1),
            (-1.9, max(-1, int(target.min))),
        ]:
            assert convert(value, dtypes.float64, target) == expected
        below = math.nextafter(2.0 ** (target.bitsize - (target.kind == "int")), 0)
        assert convert(below, dtypes.float64, target) == int(below)

    def test_integers_beyond_all_floats(self) -> None:
        for target in dtypes.floats:
            expected = math.nan if FORMATS[target].finite_only else math.inf
            assert same(convert(10**400, dtypes.weakint, target), expected)
            assert same(convert(-(10**400), dtypes.weakint, target), -expected)

    def test_void_is_refused(self) -> None:
        with pytest.raises(DTypeError, match="void"):
            convert(1, dtypes.void, dtypes.int8)
        with pytest.raises(DTypeError, match="void"):
            dtypes.void.const(1)


class TestBits:
    @given(st.integers(0, 2**64 - 1))
    def test_bitcast_there_and_back(self, code: int) -> None:
        for dtype in dtypes.all:
            if dtype is dtypes.bool:
                continue
            unsigned = getattr(dtypes, f"uint{dtype.bitsize}")
            bits = code & unsigned.max
            value = bitcast_value(bits, unsigned, dtype)
            expected = np.array([bits], dtype=f"uint{dtype.bitsize}").view(NUMPY[dtype])
            assert same(value, float(expected.astype(np.float64)[0]))
            if value == value:
                assert bitcast_value(value, dtype, unsigned) == bits

    @given(st.floats())
    def test_wide_floats_have_numpys_bits(self, value: float) -> None:
        if value == value:
            assert bits_of(value, dtypes.float64) == int(np.float64(value).view(np.uint64))
            with np.errstate(all="ignore"):
                expected = int(np.float64(value).astype(np.float32).view(np.uint32))
            assert bits_of(value, dtypes.float32) == expected
        else:
            assert bits_of(value, dtypes.float32) == 0x7FC00000

    def test_unequal_sizes_are_refused(self) -> None:
        with pytest.raises(DTypeError, match=r"float \(4 bytes\).*short \(2 bytes\)"):
            bitcast_value(1.0, dtypes.float32, dtypes.int16)

    def test_the_named_conversions(self) -> None:
        assert float_to_fp16(65504.0) == 65504.0
        assert float_to_fp16(65519.99) == 65504.0 and float_to_fp16(65520.0) == math.inf
        assert float_to_fp16(-1e300) == -math.inf
        assert float_to_bf16(1.00390625) == 1.0 and float_to_bf16(1.01171875) == 1.015625
        assert float_to_fp8(464.0, dtypes.fp8e4m3) == 0x7E
        # as the machines that have them convert: the largest number stands for greater ones
        assert float_to_fp8(465.0, dtypes.fp8e4m3) == 0x7E
        assert float_to_fp8(1e30, dtypes.fp8e5m2) == 0x7B
        assert float_to_fp8(math.inf, dtypes.fp8e4m3) == 0x7F
        assert float_to_fp8(math.inf, dtypes.fp8e5m2) == 0x7C
        assert float_to_fp8(-0.0, dtypes.fp8e5m2) == 0x80
        assert float_to_fp8(-0.0, dtypes.fp8e4m3fnuz) == 0x00
        assert float_to_fp8(math.nan, dtypes.fp8e5m2fnuz) == 0x80
        assert fp8_to_float(0x38, dtypes.fp8e4m3) == 1.0
        with pytest.raises(DTypeError, match="half"):
            float_to_fp8(1.0, dtypes.float16)
        with pytest.raises(DTypeError, match="half"):
            fp8_to_float(0, dtypes.float16)
        with pytest.raises(ArgumentError, match="0x100"):
            fp8_to_float(256, dtypes.fp8e4m3)


class TestConst:
    def test_values_are_canonical(self) -> None:
        assert dtypes.int8.const(200) == -56 and dtypes.uint8.const(-1) == 255
        assert dtypes.int32.const(True) == 1 and type(dtypes.int32.const(True)) is int
        assert dtypes.int32.const(2.9) == 2 and dtypes.int8.const(math.nan) == 0
        assert dtypes.bool.const(0.5) is True and dtypes.bool.const(-0.0) is False
        assert type(dtypes.float32.const(1)) is ConstFloat
        assert dtypes.float32.const(0.1) == struct.unpack("f", struct.pack("f", 0.1))[0]
        assert dtypes.weakfloat.const(0.1) == 0.1
        assert dtypes.weakint.const(2**63) == -(2**63)
        assert dtypes.uint64.const(dtypes.weakint.const(2**63)) == 2**63
        assert dtypes.int32.const(2**70 + 5) == 5
        for wrong in ("1", None, 1j):
            with pytest.raises(DTypeError, match="a constant is a bool, int or float"):
                dtypes.int32.const(wrong)  # type: ignore[arg-type]

    @given(st.floats() | st.integers() | st.booleans())
    def test_const_of_a_const_is_itself(self, value: float) -> None:
        for dtype in LATTICE:
            once = dtype.const(value)
            assert dtype.const(once) == once
            assert type(dtype.const(once)) is type(once)

    @given(st.integers())
    def test_truncate_wraps_integers(self, value: int) -> None:
        for dtype in dtypes.ints:
            found = truncate[dtype](value)
            assert dtype.min <= found <= dtype.max
            assert (found - value) % (1 << dtype.bitsize) == 0

    def test_truncate_covers_all_types(self) -> None:
        assert set(truncate) == set(LATTICE)


class TestConstFloat:
    def test_negative_zero_and_nan(self) -> None:
        assert ConstFloat(-0.0) != ConstFloat(0.0)
        assert not ConstFloat(-0.0) == 0.0 and not 0 == ConstFloat(-0.0)
        assert ConstFloat(0.0) == 0 and ConstFloat(-0.0) == -0.0
        negative_nan = struct.unpack("d", struct.pack("Q", 0xFFF8000000000001))[0]
        assert ConstFloat(math.nan) == ConstFloat(negative_nan) == math.nan
        assert hash(ConstFloat(math.nan)) == hash(ConstFloat(negative_nan))
        assert ConstFloat(math.nan) != 1.0 and ConstFloat(1.0) != math.nan
        assert len({ConstFloat(v) for v in (0.0, -0.0, math.nan, negative_nan, -math.nan)}) == 3

    @given(st.floats(), st.floats() | st.integers())
    def test_else_it_is_the_float(self, value: float, other: float) -> None:
        constant = ConstFloat(value)
        assert same(pickle.loads(pickle.dumps(constant)), value)
        assert type(pickle.loads(pickle.dumps(constant))) is ConstFloat
        assert repr(constant) == repr(value)
        assert type(constant + 1.0) is float and type(-constant) is float
        if value == value and value != 0:
            assert (constant == other) == (value == other) and (constant != other) == (
                value != other
            )
            assert hash(constant) == hash(value)
        assert (constant < other) == (value < other)

    def test_other_types_are_never_equal(self) -> None:
        assert ConstFloat(1.0) != "1.0" and ConstFloat(1.0) != None  # noqa: E711


class TestNumpy:
    @pytest.mark.parametrize("dtype", dtypes.all, ids=str)
    def test_there_and_back(self, dtype: DType) -> None:
        stored = to_numpy_dtype(dtype)
        assert stored.itemsize == dtype.itemsize
        assert from_numpy_dtype(NUMPY[dtype]) is dtype
        if dtype in NUMPY and dtype not in dtypes.fp8s and dtype is not dtypes.bfloat16:
            assert from_numpy_dtype(stored) is dtype
            assert from_numpy_dtype(stored.newbyteorder()) is dtype

    def test_what_has_no_counterpart(self) -> None:
        for dtype in (dtypes.void, dtypes.weakint, dtypes.float32.vec(4)):
            with pytest.raises(DTypeError, match="NumPy has no dtype"):
                to_numpy_dtype(dtype)
        for wrong in ("complex64", "datetime64[s]", "U3", object):
            with pytest.raises(DTypeError, match="has no dtype here"):
                from_numpy_dtype(wrong)


def test_names_that_tinygrads_programs_import() -> None:
    assert names.DTYPES_DICT["half"] is dtypes.half and names.DTYPES_DICT["int32"] is dtypes.int
    assert names._to_np_dtype(dtypes.bfloat16) is np.float32
    assert names._to_np_dtype(dtypes.half) is np.float16
    assert names._to_np_dtype(dtypes.void) is None
    assert names._from_np_dtype(np.dtype(">i4")) is dtypes.int
    assert names.sum_acc_dtype(dtypes.uint8) is dtypes.uint
    assert names.bitcast(1.0, dtypes.float, dtypes.int) == 0x3F800000
    assert names.to_storage_scalar(1.0, dtypes.bfloat16) == 0x3F80
    assert names.from_storage_scalar(0x3F80, dtypes.bfloat16) == 1.0
    assert names.storage_fmt_for_dtype(dtypes.bfloat16) == "H"
    assert dtypes.fp8_ocp + dtypes.fp8_fnuz == dtypes.fp8s and dtypes.half in names.FORMATS


def test_types_of_pytorch() -> None:
    torch = need("torch")
    for ours in (dtypes.float, dtypes.bfloat16, dtypes.bool, dtypes.int64, dtypes.half):
        assert names._from_torch_dtype(names._to_torch_dtype(ours)) is ours
    assert names._from_torch_dtype(torch.float8_e5m2) is dtypes.fp8e5m2
    with pytest.raises(TypeError, match="complex64"):
        names._from_torch_dtype(torch.complex64)
