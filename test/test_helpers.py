"""Helpers, the progress bar, and what is kept on disk."""

from __future__ import annotations

import ctypes
import gc
import gzip
import hashlib
import io
import os
import pickle
import subprocess
import sys
from contextlib import redirect_stderr
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest

from weft import Variable, helpers
from weft.errors import ArgumentError, DataError
from weft.helpers import (
    GlobalCounters,
    Profiling,
    Timing,
    all_same,
    ansistrip,
    argfix,
    argsort,
    cdiv,
    ceildiv,
    cmod,
    colored,
    count,
    dedup,
    disable_gc,
    diskcache,
    diskcache_clear,
    diskcache_get,
    diskcache_put,
    fetch,
    flatten,
    from_mv,
    fully_flatten,
    get_shape,
    get_single_element,
    getbits,
    merge_dicts,
    mv_address,
    partition,
    polyN,
    prod,
    round_up,
    strip_parens,
    temp,
    time_to_str,
    to_mv,
    tqdm,
    trange,
    unwrap,
    word_wrap,
)
from weft.knobs import Context

ROOT = Path(__file__).resolve().parent.parent
SURFACE = """
getenv Context ContextVar DEBUG prod dedup flatten argfix argsort all_same round_up ceildiv colored
ansistrip Timing Profiling tqdm trange fetch temp diskcache diskcache_get diskcache_put
GlobalCounters to_mv from_mv mv_address merge_dicts partition unwrap fully_flatten get_shape getbits
time_to_str word_wrap cdiv cmod count disable_gc get_single_element polyN strip_parens
diskcache_clear OSX WIN JIT WINO
""".split()


@pytest.mark.parametrize("name", SURFACE)
def test_every_public_helper_is_there(name: str) -> None:
    assert hasattr(helpers, name)
    assert name in helpers.__all__


def test_importing_loads_no_third_party_library() -> None:
    code = "import sys, weft, weft.helpers, weft.dtype; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert not {"numpy", "llvmlite", "urllib.request"} & set(done.stdout.split())


class TestNumbers:
    def test_prod(self) -> None:
        assert prod([]) == 1 and prod([3]) == 3 and prod((2, 3, 0)) == 0
        assert prod([1, 1.5]) == 1.5

    def test_rounding_up(self) -> None:
        assert [ceildiv(n, 4) for n in (0, 1, 4, 5, -5)] == [0, 1, 1, 2, -1]
        assert [round_up(n, 4) for n in (0, 1, 4, 5)] == [0, 4, 4, 8]

    def test_division_as_c_does_it(self) -> None:
        for number in range(-9, 10):
            for divisor in range(-4, 5):
                if divisor == 0:
                    assert cdiv(number, 0) == cmod(number, 0) == 0
                    continue
                assert cdiv(number, divisor) == int(number / divisor)
                assert cdiv(number, divisor) * divisor + cmod(number, divisor) == number
        assert cdiv(10**30 + 1, -1) == -(10**30) - 1

    def test_bits_and_polynomials(self) -> None:
        assert getbits(0xABCD, 4, 11) == 0xBC and getbits(1, 0, 0) == 1
        assert polyN(3.0, [2.0, 1.0]) == 7.0 and polyN(3.0, []) == 0.0


class TestSequences:
    def test_flatten_and_dedup(self) -> None:
        assert dedup([3, 1, 3, 2, 1]) == [3, 1, 2]
        assert flatten([[1], (2, 3), []]) == [1, 2, 3]
        assert fully_flatten((1, [2, (3, [[4]])], [])) == [1, 2, 3, 4]
        assert fully_flatten(5) == [5]

    def test_deep_nesting_needs_no_recursion(self) -> None:
        nested: list[object] = []
        for _ in range(100_000):
            nested = [nested]
        assert fully_flatten(nested) == []
        assert len(get_shape(nested)) == 100_001

    def test_get_shape(self) -> None:
        assert get_shape(1) == () and get_shape([]) == (0,) and get_shape([[], []]) == (2, 0)
        assert get_shape([[[1], [2]]]) == (1, 2, 1) and get_shape(((1, 2), [3, 4])) == (2, 2)

    @pytest.mark.parametrize("ragged", [[[1], [2, 3]], [1, [2]], [[[1]], [1]], [[], [1]]])
    def test_ragged_data_is_reported(self, ragged: object) -> None:
        with pytest.raises(DataError, match="ragged"):
            get_shape(ragged)

    def test_argfix(self) -> None:
        assert argfix() == () and argfix(1, 2) == (1, 2) == argfix([1, 2]) == argfix((1, 2))
        with pytest.raises(ArgumentError, match="one sequence or separate values"):
            argfix((1, 2), 3)

    def test_argsort_inverts_a_permutation(self) -> None:
        order = (2, 0, 3, 1)
        inverse = argsort(order)
        assert tuple(order[i] for i in inverse) == (0, 1, 2, 3)
        assert argsort([2, 1]) == [1, 0]

    def test_small_ones(self) -> None:
        assert all_same([]) and all_same([1, 1]) and not all_same([1, 2])
        assert partition(range(5), lambda x: x % 2) == ([1, 3], [0, 2, 4])
        assert get_single_element({7}) == 7 and unwrap(0) == 0
        assert merge_dicts([{"a": 1}, {"b": 2, "a": 1}]) == {"a": 1, "b": 2}
        with pytest.raises(ArgumentError, match="a is given as 1 and as 2"):
            merge_dicts([{"a": 1}, {"a": 2}])
        with pytest.raises(ArgumentError, match="there are 2"):
            get_single_element([1, 2])
        with pytest.raises(ArgumentError, match="None"):
            unwrap(None)

    def test_count_pickles_where_it_stands(self) -> None:
        counter = count(5, 2)
        assert next(counter) == 5
        assert next(pickle.loads(pickle.dumps(counter))) == 7
        assert next(iter(counter)) == 7


class TestText:
    def test_colour_is_for_terminals_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.delenv("FORCE_COLOR", raising=False)
        monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
        assert colored("x", "red") == "x"
        monkeypatch.setenv("FORCE_COLOR", "1")
        assert colored("x", "red") == "\x1b[31mx\x1b[0m"
        assert colored("x", "RED") == "\x1b[91mx\x1b[0m"
        assert colored("x", "red", background=True) == "\x1b[41mx\x1b[0m"
        assert colored("x", None) == "x" and ansistrip(colored("x", "red")) == "x"
        monkeypatch.setenv("NO_COLOR", "1")
        assert colored("x", "red") == "x"

    def test_strip_parens(self) -> None:
        for text, expected in [
            ("(a)", "a"),
            ("((a)+(b))", "(a)+(b)"),
            ("(a)+(b)", "(a)+(b)"),
            ("a", "a"),
            ("", ""),
        ]:
            assert strip_parens(text) == expected

    def test_word_wrap(self) -> None:
        assert word_wrap("abcdef\ngh", 4) == "abcd\nef\ngh"
        assert word_wrap("", 4) == ""
        text = "\x1b[31mabcdef\x1b[0m" * 3
        wrapped = word_wrap(text, 5)
        assert [len(ansistrip(line)) for line in wrapped.split("\n")] == [5, 5, 5, 3]
        assert wrapped.replace("\n", "") == text

    def test_time_to_str(self) -> None:
        for seconds, expected in [(2e-6, "2.00us"), (0.02, "20.00ms"), (12, "12.00s")]:
            assert time_to_str(seconds).strip() == expected
            assert len(time_to_str(seconds, w=12)) == 14

    def test_temp(self) -> None:
        assert Path(temp("weft-file")).name == "weft-file"


class TestMemory:
    def test_views_of_memory(self) -> None:
        data = bytearray(b"weft")
        view = memoryview(data)
        again = to_mv(mv_address(view), 4)
        again[0] = ord("W")
        assert data == b"Weft"
        assert from_mv(view, ctypes.c_uint8)[1] == ord("e")
        assert mv_address(memoryview(bytearray())) == 0


class TestWatching:
    def test_reset_leaves_memory_in_use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("global_ops", "global_mem", "kernel_count", "mem_used", "time_sum_s"):
            monkeypatch.setattr(GlobalCounters, name, 5)
        GlobalCounters.reset()
        assert GlobalCounters.global_ops == GlobalCounters.global_mem == 0
        assert GlobalCounters.kernel_count == GlobalCounters.time_sum_s == 0
        assert GlobalCounters.mem_used == 5

    def test_timing_prints(self, capsys: pytest.CaptureFixture[str]) -> None:
        with Timing("sum: ", on_exit=lambda ns: " done") as timing:
            sum(range(10))
        assert timing.et > 0
        line = capsys.readouterr().out
        assert line.startswith("sum: ") and line.endswith(" ms done\n")
        with Timing(enabled=False):
            pass
        assert capsys.readouterr().out == ""

    def test_profiling_prints(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        with Profiling(fn=str(tmp_path / "profile")):
            sorted(range(100))
        assert "function calls" in capsys.readouterr().out
        assert (tmp_path / "profile").stat().st_size > 0
        with Profiling(enabled=False):
            pass
        assert capsys.readouterr().out == ""

    def test_disable_gc(self) -> None:
        assert gc.isenabled()
        with disable_gc():
            assert not gc.isenabled()
        assert gc.isenabled()

    def test_progress_bar(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert list(tqdm([1, 2, 3], desc="load")) == [1, 2, 3]
        line = capsys.readouterr().err
        assert line.startswith("load: 100%") and "3/3" in line and line.count("\n") == 1
        assert list(trange(4, disable=True)) == [0, 1, 2, 3]
        assert capsys.readouterr().err == ""
        with tqdm(total=2048, unit="B", unit_scale=True) as bar:
            bar.update(1024)
            bar.set_description("half")
        assert "half:  50%" in (line := capsys.readouterr().err) and "1.02k/2.05k" in line
        assert list(tqdm(iter("ab"))) == ["a", "b"]
        assert "2it" in capsys.readouterr().err
        with pytest.raises(TypeError, match="no iterable"):
            list(tqdm(total=3))


def entries(cache: Path) -> list[Path]:
    files = [path for path in cache.rglob("*") if path.is_file()]
    # beside them stands the count of what was written
    return [path for path in files if not path.name.startswith(".")]


class TestDiskCache:
    def test_put_and_get(self, cache: Path) -> None:
        assert diskcache_get("table", "key") is None
        for value in (b"", b"\x00\xff", {"a": [1, 2.5, None]}, "text", 0):
            assert diskcache_put("table", ["key", 1], value) == value
            assert diskcache_get("table", ["key", 1]) == value
        assert diskcache_get("other", ["key", 1]) is None
        assert len(entries(cache)) == 1
        assert cache.stat().st_mode & 0o077 == 0
        diskcache_clear()
        assert diskcache_get("table", ["key", 1]) is None

    @pytest.mark.parametrize("damage", [b"", b"x", b"weft cache 2\n", None])
    def test_a_damaged_entry_is_no_entry(self, cache: Path, damage: bytes | None) -> None:
        diskcache_put("table", "key", b"value")
        (path,) = entries(cache)
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + b"?" if damage is None else damage)
        with pytest.warns(RuntimeWarning, match="damaged"):
            assert diskcache_get("table", "key") is None
        diskcache_put("table", "key", b"value")
        assert diskcache_get("table", "key") == b"value"

    def test_pickles_are_never_loaded(self, cache: Path) -> None:
        diskcache_put("table", "key", b"value")
        (path,) = entries(cache)
        path.write_bytes(pickle.dumps({"a": 1}))
        with pytest.warns(RuntimeWarning, match="damaged"):
            assert diskcache_get("table", "key") is None
        with pytest.raises(ArgumentError, match="bytes or JSON"):
            diskcache_put("table", "key", object())
        with pytest.raises(ArgumentError, match="bytes or JSON"):
            diskcache_get("table", object())

    def test_a_folder_that_others_write_to_is_not_used(self, cache: Path) -> None:
        cache.mkdir()
        cache.chmod(0o777)
        with pytest.warns(RuntimeWarning, match="not used"):
            assert diskcache_put("table", "key", b"value") == b"value"
        assert entries(cache) == []

    def test_a_cache_that_cannot_be_written_is_a_warning(self, cache: Path) -> None:
        cache.write_text("a file where the folder should be")
        with pytest.warns(RuntimeWarning, match="not used"):
            assert diskcache_put("table", "key", b"value") == b"value"
        assert diskcache_get("table", "key") is None

    def test_switched_off(self, cache: Path) -> None:
        with Context(CACHELEVEL=0):
            diskcache_put("table", "key", b"value")
            assert diskcache_get("table", "key") is None
        assert not cache.exists()

    def test_a_table_cannot_leave_the_folder(self, cache: Path) -> None:
        for table in ("../x", "a/b", "..", ""):
            diskcache_put(table, "it's \" a key", [table])
            assert diskcache_get(table, "it's \" a key") == [table]
            assert diskcache_get(f"{table}/", "it's \" a key") is None
        assert len(entries(cache)) == 4
        for table in (None, 3):
            with pytest.raises(ArgumentError, match="a cache table is named"):
                diskcache_put(table, "key", b"value")

    def test_a_value_comes_back_as_it_was(self, cache: Path) -> None:
        values = [(1, 2), {"a": (3, None)}, {1: {2.5, True}}, "text", [1, "é"], b"bytes", -0.5]
        for number, value in enumerate(values):
            diskcache_put("table", number, value)
        assert [diskcache_get("table", number) for number in range(len(values))] == values

    def test_decorator(self, cache: Path) -> None:
        calls: list[tuple[int, int]] = []

        @diskcache
        def add(left: int, right: int = 0) -> int | None:
            calls.append((left, right))
            return left + right if right else None

        assert add(1, right=2) == 3 and add(1, right=2) == 3
        assert add(5) is None and add(5) is None
        assert calls == [(1, 2), (5, 0)]


class TestFetch:
    def test_downloads_once_and_checks(self, cache: Path, tmp_path: Path) -> None:
        source = tmp_path / "source.bin"
        source.write_bytes(b"payload")
        digest = hashlib.sha256(b"payload").hexdigest()
        path = fetch(source.as_uri(), sha256=digest)
        assert path.read_bytes() == b"payload" and cache in path.parents
        source.write_bytes(b"changed")
        assert fetch(source.as_uri()).read_bytes() == b"payload"
        assert fetch(source.as_uri(), allow_caching=False).read_bytes() == b"changed"
        with pytest.raises(DataError, match="expected to have sha256"):
            fetch(source.as_uri(), sha256=digest)
        named = fetch(source.as_uri(), name="weights.bin", subdir="models")
        assert named == cache / "downloads" / "models" / "weights.bin"

    def test_unpacks(self, cache: Path, tmp_path: Path) -> None:
        source = tmp_path / "source.gz"
        source.write_bytes(gzip.compress(b"payload"))
        assert fetch(source.as_uri(), gunzip=True).read_bytes() == b"payload"
        assert fetch(source.as_uri()).read_bytes() == source.read_bytes()

    def test_a_local_path_is_itself(self, cache: Path, tmp_path: Path) -> None:
        (tmp_path / "here").write_bytes(b"1")
        assert fetch(str(tmp_path / "here")) == tmp_path / "here"
        with pytest.raises(DataError, match="no file here"):
            fetch(str(tmp_path / "not-here"))

    def test_what_cannot_be_fetched_is_said(self, cache: Path, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="could not fetch .*offline"):
            fetch((tmp_path / "missing").as_uri())
        with pytest.raises(DataError, match="could not fetch http://127.0.0.1:9/x"):
            fetch("http://127.0.0.1:9/x")
        assert entries(cache) == []


class TestNamesOfTinygrad:
    def test_numbers(self) -> None:
        a = Variable("a", 0, 8)
        assert ceildiv(a, 4).render() == "((a+3)//4)" and helpers.ceildiv(7.5, 2) == 4
        assert helpers.round_down(7, 4) == 4 and helpers.next_power2(5) == 8
        assert (helpers.floordiv(-7, 2), helpers.floormod(-7, 2), helpers.floordiv(7, 0)) == (
            -4,
            1,
            0,
        )
        assert helpers.data64(2**40 + 5) == (256, 5) and helpers.data64_le(2**40 + 5) == (5, 256)
        assert helpers.i2u(8, -1) == 255 and helpers.to_be32(1) == 1 << 24
        assert helpers.all_int((1, 2)) and not helpers.all_int((1, a))

    def test_sequences_and_objects(self) -> None:
        assert helpers.make_tuple(3, 2) == (3, 3) and helpers.make_tuple([1, 2], 3) == (1, 2)
        assert helpers.to_tuple(3) == (3,) and helpers.to_tuple((3, 4)) == (3, 4)
        model = SimpleNamespace(layers=[SimpleNamespace(weight=5)], table={"0": {"key": 7}})
        assert helpers.get_child(model, "layers.0.weight") == 5
        assert helpers.get_child(model, "table.0.key") == 7
        assert fully_flatten([[1, np.array([2, 3])], np.array(4)]) == [1, 2, 3, 4]
        assert helpers.get_shape(np.ones((2, 3))) == (2, 3)
        assert helpers.flat_to_grouped((1, 2, 3, 4)) == ((3, 4), (1, 2))
        assert helpers.resolve_pool_pads((1, 2), 2) == [2, 2, 1, 1]
        assert helpers.strides_for_shape((2, 1, 4)) == (4, 0, 1)

    def test_text(self) -> None:
        assert helpers.to_function_name("a b*c") == "a20b2Ac"
        assert helpers.pluralize("cat", 2) == "2 cats" and helpers.size_to_str(10**7) == "9.54 MB"
        assert helpers.ansipad("\x1b[31mxy\x1b[0m", 5) == "\x1b[31mxy\x1b[0m   "
        assert helpers.pad_bytes(b"abc", 4) == b"abc\0" and helpers.system("echo hi") == "hi"
        assert str(helpers.Metadata("relu", True)) == "relu bw"

    def test_targets(self) -> None:
        target = helpers.Target.parse("PCI+AMD:1:llvm:gfx1100")
        assert target == helpers.Target("AMD", "LLVM", "gfx1100", "PCI", "1")
        assert str(target) == "PCI+AMD:1:LLVM:gfx1100" and str(helpers.Target("CPU")) == "CPU"
        assert helpers.Target("CPU").replacedefault(renderer="LLVM", device="X").renderer == "LLVM"

    def test_profile_marker(self) -> None:
        before = len(helpers.cpu_events)
        with helpers.cpu_profile("a block") as event:
            helpers.profile_marker("here")
        assert event.en >= event.st and len(helpers.cpu_events) == before + 2
        del helpers.cpu_events[before:]

    def test_a_progress_bar_reads_as_tqdms(self) -> None:
        bar = helpers.tqdm(range(10), desc="x", total=25)
        bar.n = 10
        with patch("shutil.get_terminal_size", return_value=os.terminal_size((80, 24))):
            line = bar.text(bar._start + 0.12)
            assert line == f"x:  40%|{'█' * 16}{' ' * 24}| 10/25 [00:00<00:00, 83.33it/s]"
            slow = bar.text(bar._start + 20)
            assert slow.endswith("| 10/25 [00:20<00:30, 2.00s/it]")
            bar.unit_scale, bar.n, bar.total = True, 2500, 10000
            scaled = bar.text(bar._start + 1)
        assert scaled == f"x:  25%|{'█' * 8}▌{' ' * 25}| 2.50k/10.0k [00:01<00:03, 2.50kit/s]"

    def test_a_progress_bar_moved_by_hand(self) -> None:
        written = io.StringIO()
        with redirect_stderr(written):
            bar = helpers.tqdm(total=4, desc="d", rate=10**9)
            for _ in range(2):
                bar.update(1)
            bar.update(close=True)
        lines = written.getvalue().split("\r")
        assert [line.split("%")[0] for line in lines[1:]] == ["d:  25", "d:  50", "d:  50"]
        assert lines[-1].endswith("\n")
