"""Exported C: right to the last digits, clean under every warning and sanitizer, never a fault."""

from __future__ import annotations

import copy
import ctypes
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.children import Child
from test.export.building import WARNINGS, CModel, compile_c
from test.export.nets import CASES, seeded
from test.optional import need_program
from weft import Tensor, Variable, export
from weft.errors import ArgumentError

# of the largest output: other vectors add up in another order
TOLERANCE = 1e-5
SANITIZE = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def assert_near(found: np.ndarray, expected: np.ndarray) -> None:
    """Within the tolerance of this page."""
    assert found.shape == expected.shape and found.dtype == expected.dtype
    largest = np.abs(expected.astype(np.float64)).max(initial=1e-6)
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE * largest)


def run_program(command: list[str]) -> tuple[int, bytes, str]:
    """Exit code, standard output, standard error."""
    out = Path(command[0]).with_suffix(".out")
    with out.open("wb") as file, Child(command, stdout=file, stderr=subprocess.PIPE) as child:
        _, said = child.communicate()
    return child.returncode, out.read_bytes(), said


@pytest.mark.parametrize("name", ["digits", "gpt"])
def test_a_net_gives_what_weft_gives(name: str, tmp_path: Path) -> None:
    case = CASES[name]()
    expected = case.expected()
    source, *_ = export.c(case.function, case.given(), tmp_path / f"{name}.c")
    model = CModel(source, [], expected[0], flags=("-O1",))
    assert model.code == 0
    for (arrays, sizes), outputs in zip(case.calls, expected, strict=True):
        for found, output in zip(model.run(arrays, sizes), outputs, strict=True):
            assert_near(found, output)
    # from the beginning again
    assert model.call("reset", model.context) == 0
    assert_near(model.run(*case.calls[0])[0], expected[0][0])
    model.close()


@pytest.mark.parametrize("compiler", ["gcc", "clang", "tcc"])
def test_every_compiler_builds_it(compiler: str, tmp_path: Path) -> None:
    case = CASES["lstm"]()
    expected = case.expected()
    source, *_ = export.c(case.function, case.given(), tmp_path / "lstm.c")
    model = CModel(source, [], expected[0], compiler, ("-O1",) if compiler != "tcc" else ())
    for (arrays, sizes), outputs in zip(case.calls, expected, strict=True):
        assert_near(model.run(arrays, sizes)[0], outputs[0])
    model.close()


def test_plain_loops_and_files_give_the_same(tmp_path: Path) -> None:
    case = CASES["lstm"]()
    expected = case.expected()
    for number, (options, flags) in enumerate(
        [
            ({}, ("-O1", "-DWEFT_PLAIN")),
            ({"weights": "file"}, ("-O1",)),
        ]
    ):
        source, _, *more = export.c(
            case.function, case.given(), tmp_path / f"lstm{number}.c", **options
        )
        model = CModel(source, [], expected[0], flags=flags, weights=more[0] if more else None)
        assert model.code == 0
        for (arrays, sizes), outputs in zip(case.calls, expected, strict=True):
            assert_near(model.run(arrays, sizes)[0], outputs[0])
        model.close()


@pytest.mark.parametrize("flags", [("-O1",), ("-O1", "-DWEFT_PLAIN")], ids=["vectors", "plain"])
def test_threads_share_kernels(flags: tuple[str, ...], tmp_path: Path) -> None:
    random = seeded(8)
    weight = Tensor(random.standard_normal((200, 300), np.float32)).realize()
    x = random.standard_normal((150, 200), np.float32)

    def product(x: Tensor) -> Tensor:
        return (x @ weight).relu()

    source, *_ = export.c(product, (Tensor(x),), tmp_path / "product.c", threads=3)
    assert "pool_run" in source.read_text()
    expected = product(Tensor(x)).numpy()
    model = CModel(source, [], [expected], flags=(*flags, "-pthread"))
    for _ in range(20):
        assert_near(model.run([x])[0], expected)
    model.close()


RACES = r"""
#include "product.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static float x[150 * 200], outputs[2][150 * 300];

static void *many(void *given) {
  float *out = (float *)given;
  product *model = NULL;
  if (product_create(&model) != PRODUCT_OK) return given;
  for (int i = 0; i < 20; i++) if (product_run(model, x, out) != PRODUCT_OK) return given;
  product_destroy(model);
  return NULL;
}

int main(void) {
  pthread_t other;
  for (int i = 0; i < 150 * 200; i++) x[i] = (float)(i % 17) - 8.0f;
  if (pthread_create(&other, NULL, many, outputs[1])) return 1;
  void *wrong = NULL;
  int failed = many(outputs[0]) != NULL;
  pthread_join(other, &wrong);
  for (int i = 0; i < 150 * 300; i++) failed |= outputs[0][i] != outputs[1][i];
  printf("%.9g\n", (double)outputs[0][7]);
  return failed || wrong != NULL;
}
"""


def test_threads_do_not_race(tmp_path: Path) -> None:
    """Two contexts with threads of their own at the same time, under ThreadSanitizer."""
    weight = Tensor(seeded(8).standard_normal((200, 300), np.float32)).realize()

    def product(x: Tensor) -> Tensor:
        return (x @ weight).relu()

    given = (Tensor.zeros(150, 200),)
    source, *_ = export.c(product, given, tmp_path / "product.c", threads=3, main=False)
    (tmp_path / "races.c").write_text(RACES)
    program = tmp_path / "races"
    files = [str(tmp_path / "races.c"), str(source), "-o", str(program), "-lm", "-pthread"]
    compile_c("cc", [*WARNINGS, "-O1", "-g", "-fsanitize=thread", *files])
    code, out, said = run_program([str(program)])
    assert code == 0 and "ThreadSanitizer" not in said, said
    x = (np.arange(150 * 200) % 17 - 8).astype(np.float32).reshape(150, 200)
    assert_near(
        np.array(float(out)), product(Tensor(x)).numpy().astype(np.float64)[0, 7].reshape(())
    )


def test_native_vectors_give_the_same(tmp_path: Path) -> None:
    case = CASES["digits"]()
    expected = case.expected()
    source, *_ = export.c(case.function, case.given(), tmp_path / "digits.c", march="native")
    model = CModel(source, [], expected[0], flags=("-O1", "-march=native"))
    assert_near(model.run(*case.calls[0])[0], expected[0][0])
    model.close()


def test_random_numbers_are_those_of_weft(tmp_path: Path) -> None:
    seeded(7)

    def noisy(x: Tensor) -> Any:
        return x + Tensor.rand(5), Tensor.randn(3)

    source, *_ = export.c(noisy, (Tensor.zeros(5),), tmp_path / "noisy.c")
    x = np.zeros(5, np.float32)
    model = CModel(source, [], [np.zeros(5, np.float32), np.zeros(3, np.float32)], flags=("-O1",))
    for seed in (None, 11, -5, 1 << 40):
        if seed is not None:
            Tensor.manual_seed(seed)
            model.call("seed", model.context, ctypes.c_int64(seed))
        for _ in range(2):
            first, second = (t.numpy() for t in noisy(Tensor(x)))
            found = model.run([x])
            np.testing.assert_array_equal(found[0], first)
            assert_near(found[1], second)
    model.close()


def test_sizes_shapes_and_dtypes(tmp_path: Path) -> None:
    rows = Variable("rows", 1, 6)
    data = Tensor.zeros(6, 3).contiguous().realize()

    def mixed(x: Tensor, mask: Tensor, half: Tensor) -> Any:
        picked = mask.where(half.float(), x.sum(0))
        return {
            "total": (x * 2).transpose().contiguous(),
            "picked": picked.half(),
            "is": picked > 0,
        }

    given = (
        data[: rows.bind(4)],
        Tensor([True, False, True]),
        Tensor([1.5, 2.5, -3.5]).half(),
    )
    source, header = export.c(mixed, given, tmp_path / "mixed.c")
    assert "rows from 1 to 6" in header.read_text()
    outputs = [np.zeros(18, np.float32), np.zeros(3, np.float16), np.zeros(3, np.bool_)]
    model = CModel(source, [], outputs, flags=("-O1",))
    mask, half = np.array([True, False, True]), np.array([1.5, 2.5, -3.5], np.float16)
    for count in (1, 3, 6):
        x = np.zeros((6, 3), np.float32)
        x[:count] = np.arange(count * 3).reshape(count, 3)
        total, picked, is_more = model.run([x, mask, half], [count])
        np.testing.assert_array_equal(total[: count * 3].reshape(3, count), 2 * x[:count].T)
        expected = np.where(mask, half, x[:count].sum(0)).astype(np.float16)
        np.testing.assert_array_equal(picked, expected)
        np.testing.assert_array_equal(is_more, expected > 0)
    model.close()


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path, Path]:
    """The language model, exported once: the case, its file, and an object with sanitizers."""
    need_program("cc")
    case = CASES["gpt"]()
    folder = tmp_path_factory.mktemp("gpt")
    source, *_ = export.c(case.function, case.given(), folder / "gpt.c")
    return case, source, folder


@pytest.mark.xdist_group("export gpt")
def test_the_program_reads_and_writes_files_under_sanitizers(gpt: Any) -> None:
    case, source, tmp_path = gpt
    expected = case.expected()
    program = tmp_path / "gpt"
    compile_c("cc", [*WARNINGS, *SANITIZE, str(source), "-o", str(program), "-lm"])
    (tmp_path / "token.bin").write_bytes(case.calls[0][0][0].tobytes())
    token = str(tmp_path / "token.bin")
    code, out, said = run_program([str(program), token, "0"])
    assert (code, said) == (0, "")
    assert_near(np.frombuffer(out, np.float32).reshape(1, 32), expected[0][0])
    for words, code in (([], 2), ([token, "16"], 2), ([token, "-1"], 2), (["/nowhere", "0"], 7)):
        found, out, said = run_program([str(program), *words])
        assert found == code and out == b"" and "Sanitizer" not in said and said


DRIVER = r"""
#include "gpt.h"
#include <stdio.h>
#include <stdlib.h>
#define EXPECT(call, code) do { int got = (call); if (got != (code)) { \
  printf("%s gives %d\n", #call, got); return 1; } } while (0)

int main(void) {
  gpt *model = NULL, *second = NULL;
  int32_t token[2] = {1, 2};
  float scores[64];
  EXPECT(gpt_create(NULL), GPT_ERROR_NULL);
  EXPECT(gpt_create(&model), GPT_OK);
  EXPECT(gpt_run(NULL, token, 0, scores), GPT_ERROR_NULL);
  EXPECT(gpt_run(model, NULL, 0, scores), GPT_ERROR_NULL);
  EXPECT(gpt_run(model, token, 0, NULL), GPT_ERROR_NULL);
  EXPECT(gpt_run(model, token, 16, scores), GPT_ERROR_SIZE);
  EXPECT(gpt_run(model, token, -1, scores), GPT_ERROR_SIZE);
  EXPECT(gpt_run(model, token, INT64_MAX, scores), GPT_ERROR_SIZE);
  EXPECT(gpt_run(model, token, INT64_MIN, scores), GPT_ERROR_SIZE);
  EXPECT(gpt_run(model, (const int32_t *)((char *)token + 1), 0, scores), GPT_ERROR_ALIGNMENT);
  EXPECT(gpt_run(model, (const int32_t *)scores, 0, scores), GPT_ERROR_OVERLAP);
  const void *inputs[] = {token};
  void *outputs[] = {scores};
  const int64_t sizes[] = {0};
  size_t in = sizeof token, out = sizeof scores;
  EXPECT(gpt_run_checked(model, inputs, &in, 1, sizes, 1, outputs, &out, 1), GPT_OK);
  EXPECT(gpt_run_checked(model, inputs, &in, 2, sizes, 1, outputs, &out, 1), GPT_ERROR_BYTES);
  EXPECT(gpt_run_checked(model, NULL, &in, 1, sizes, 1, outputs, &out, 1), GPT_ERROR_NULL);
  EXPECT(gpt_run_checked(model, inputs, &in, 1, NULL, 1, outputs, &out, 1), GPT_ERROR_NULL);
  in = 3;
  EXPECT(gpt_run_checked(model, inputs, &in, 1, sizes, 1, outputs, &out, 1), GPT_ERROR_BYTES);
  /* a token that is none reads zeros */
  token[0] = 1 << 30;
  EXPECT(gpt_run(model, token, 0, scores), GPT_OK);
  token[0] = INT32_MIN;
  EXPECT(gpt_run(model, token, 15, scores), GPT_OK);
  char *memory = malloc(gpt_bytes() + 3);
  EXPECT(gpt_create_in(memory, gpt_bytes() - 1, &second), GPT_ERROR_BYTES);
  EXPECT(gpt_create_in(NULL, gpt_bytes(), &second), GPT_ERROR_NULL);
  EXPECT(gpt_create_in(memory + 3, gpt_bytes(), &second), GPT_OK);
  EXPECT(gpt_run(second, token, 3, scores), GPT_OK);
  EXPECT(gpt_reset(NULL), GPT_ERROR_NULL);
  gpt_destroy(second);
  gpt_destroy(NULL);
  gpt_destroy(model);
  free(memory);
  for (int code = -1; code < 9; code++) if (!gpt_error(code)[0]) return 1;
  return 0;
}
"""


@pytest.mark.xdist_group("export gpt")
def test_wrong_calls_are_error_codes_and_no_fault(gpt: Any) -> None:
    _, source, tmp_path = gpt
    driver, program = tmp_path / "driver.c", tmp_path / "driver"
    driver.write_text(DRIVER)
    files = [str(driver), str(source), "-DWEFT_NO_MAIN", "-o", str(program), "-lm"]
    compile_c("cc", [*WARNINGS, *SANITIZE, *files])
    code, out, said = run_program([str(program)])
    assert (code, out, said) == (0, b"", "")


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    case = CASES["digits"]()
    source, _, weights = export.c(
        case.function, case.given(), tmp_path / "digits.c", weights="file"
    )
    whole = weights.read_bytes()
    damaged = tmp_path / "damaged.bin"
    swapped = whole[:128] + whole[136:144] + whole[128:136] + whole[144:]
    cases = [whole[:-1], whole + b"0", b"", whole[:20] + b"\0" + whole[21:], swapped]
    for at in (64, 999, len(whole) - 1):
        cases.append(whole[:at] + bytes([whole[at] ^ 0x80]) + whole[at + 1 :])
    model = CModel(source, [], [np.zeros(10)], flags=("-O0",), weights=weights)
    assert model.code == 0
    model.close()
    for data in cases:
        damaged.write_bytes(data)
        context = ctypes.c_void_p()
        assert model.call("load", str(damaged).encode(), ctypes.byref(context)) == 6
        assert context.value is None


def test_states_that_begin_with_something(tmp_path: Path) -> None:
    """Beside weights in a file, and where there are no weights at all."""
    weight = Tensor([1.0, 2.0, 3.0]).realize()

    class Net:
        def __init__(self) -> None:
            self.total = Tensor([5.0, 6.0, 7.0]).contiguous().realize()

        def weighted(self, x: Tensor) -> Tensor:
            self.total.assign(self.total + x * weight)
            return self.total * 1

        def plain(self, x: Tensor) -> Tensor:
            self.total.assign(self.total + x)
            return self.total * 1

    ones = np.ones(3, np.float32)
    for name, options, step in (
        ("weighted", {"weights": "file"}, [1, 2, 3]),
        ("plain", {}, [1, 1, 1]),
    ):
        given = (Tensor(ones),)
        function = getattr(Net(), name)
        source, _, *more = export.c(function, given, tmp_path / f"{name}.c", **options)
        model = CModel(source, [], [ones], flags=("-O1",), weights=more[0] if more else None)
        for calls in (1, 2):
            expected = np.array([5, 6, 7]) + calls * np.array(step)
            np.testing.assert_array_equal(model.run([ones])[0], expected)
        model.close()


def test_each_kernel_has_its_line_above_it(tmp_path: Path) -> None:
    case = CASES["digits"]()
    source, *_ = export.c(case.function, case.given(), tmp_path / "digits.c")
    text = source.read_text()
    kernels = re.findall(r"^static void (\w+)\(", text, re.MULTILINE)
    assert "Digits_line" in kernels[0]
    above = re.findall(r"^/\* nets\.py:\d+  (.*) \*/\nstatic void", text, re.MULTILINE)
    assert any("self.conv1(image)" in line for line in above)
    assert "conv1_weight" in text and "const float *image" in text


def test_options_that_are_none_are_refused(tmp_path: Path) -> None:
    given = (lambda x: x, (Tensor.ones(3),))
    for options, says in (
        ({"march": "z80"}, "march is None"),
        ({"threads": 0}, "threads is a number"),
        ({"weights": "cloud"}, "weights are"),
    ):
        with pytest.raises(ArgumentError, match=says):
            export.c(*given, tmp_path / "x.c", **options)
    with pytest.raises(ArgumentError, match="ends in .c"):
        export.c(*given, tmp_path / "x.txt")
    with pytest.raises(ArgumentError, match="is not there"):
        export.c(*given, tmp_path / "nowhere" / "x.c")


def test_a_compiler_is_there_for_these() -> None:
    assert need_program("cc")


def test_contexts_of_several_threads_do_not_meet(tmp_path: Path) -> None:
    case = CASES["lstm"]()
    expected = case.expected()
    source, *_ = export.c(case.function, case.given(), tmp_path / "lstm.c")
    first = CModel(source, [], expected[0], flags=("-O1",))
    contexts = [ctypes.c_void_p() for _ in range(4)]
    for context in contexts:
        assert first.call("create", ctypes.byref(context)) == 0

    def many(context: ctypes.c_void_p) -> bool:
        model = copy.copy(first)
        model.context = context
        for _ in range(50):
            model.call("reset", context)
            for (arrays, sizes), outputs in zip(case.calls, expected, strict=True):
                assert_near(model.run(arrays, sizes)[0], outputs[0])
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(many, contexts, timeout=300))
