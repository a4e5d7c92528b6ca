"""Damaged plans, weights, modules and calls by the thousand: errors, never faults.

usage: python -m test.export.mutations [COUNT] [--net NET] [--seed N] [--only KIND]
In: a net with a size, a state and weights. Out: a line for each kind with what came of it, exit
code 1 where anything but an error (or a right answer) did. test_mutations.py does a share.

plans     changed and sealed again: ExportError, or a plan that is whole; some of the latter are
          built and run under the sanitizers
weights   the .bin beside a C file: refused by their code, under the sanitizers
calls     C with pointers, sizes and lengths at random, under the sanitizers
modules   the bytes of a .wasm through its loader in node: an error or an answer, in a worker that
          is ended where the code that came out never does
inputs    `run` of the loader with values at random
"""

from __future__ import annotations

import argparse
import base64
import dataclasses
import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from test.children import Child
from test.export.building import WARNINGS, compile_c
from test.export.nets import CASES, Case, seeded
from test.optional import need_program
from weft import Tensor, Variable, export
from weft.errors import ExportError
from weft.export.build import build_plan
from weft.export.capture import capture
from weft.export.export import PORTABLE
from weft.export.plan import Plan, seal, verify
from weft.export.write_c import COptions, write_c

SANITIZE = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
# of plans that are whole so many are built and run
MOST_BUILT = 12


class Tiny:
    """A row of a table by a token, and what was seen, by a position."""

    def __init__(self) -> None:
        self.table = Tensor(seeded(31).standard_normal((6, 4), np.float32)).realize()
        self.seen = Tensor.ones(8, 4).contiguous().realize()

    def step(self, token: Tensor, position: Any) -> Tensor:
        """The sum of all rows so far."""
        self.seen[position : position + 1].assign(self.table[token])
        return self.seen[: position + 1].sum(0)


def tiny() -> Case:
    """Small enough to be built under sanitizers in a second."""
    net = Tiny()
    calls = [((np.array([n], np.int32),), (n,)) for n in range(3)]
    return Case(net.step, calls, [Variable("position", 0, 7)])


# ------------------------------------------------------------ plans
def mutated(value: Any, rng: random.Random) -> Any:
    """Another value of about the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice([value + 1, value - 1, -value, value * 2 + 256, 1 << 50, 0, None, "x"])
    if isinstance(value, str):
        return rng.choice(["", "a b", value + "x", "*/", "scratch", 3])
    if isinstance(value, bytes):
        return rng.choice([value[:-1], value + b"0", None, bytes(reversed(value))])
    if isinstance(value, tuple) and value:
        position = rng.randrange(len(value))
        kind = rng.randrange(4)
        if kind == 0:
            return value[:position] + value[position + 1 :]
        if kind == 1:
            return (*value, value[position])
        if kind == 2:
            other = rng.randrange(len(value))
            swapped = list(value)
            swapped[position], swapped[other] = value[other], value[position]
            return tuple(swapped)
        return (*value[:position], mutated(value[position], rng), *value[position + 1 :])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # claims over sizes cannot be proven again from a plan: its digest stands for them
        fields = [f for f in dataclasses.fields(value) if f.name not in ("claims", "digest")]
        field = rng.choice(fields)
        return dataclasses.replace(value, **{field.name: mutated(getattr(value, field.name), rng)})
    return None


def try_plans(case: Case, count: int, seed: int, folder: Path) -> Counter[str]:
    """Changed plans: refused, or printed; some of those are run."""
    rng = random.Random(seed)
    plan = build_plan(capture(case.function, case.given(), "model"), PORTABLE)
    found: Counter[str] = Counter()
    for number in range(count):
        changed = mutated(plan, rng)
        if changed == plan:
            continue
        try:
            verify(changed)
            found["WRONG: a plan without its digest was taken"] += 1
        except ExportError:
            pass
        try:
            changed = seal(changed)
        except (AttributeError, TypeError, ValueError, LookupError):
            found["no plan at all"] += 1
            continue
        try:
            verify(changed)
        except ExportError:
            found["refused"] += 1
            continue
        except Exception as error:  # noqa: BLE001
            found[f"WRONG: {type(error).__name__} at {number}: {error}"] += 1
            continue
        found["whole"] += 1
        if found["run"] < MOST_BUILT and rng.random() < 0.2:
            found["run"] += 1
            said = _run_plan(changed, folder)
            if said:
                found[f"WRONG: {said[:300]} at {number}"] += 1
    return found


def _run_plan(plan: Plan, folder: Path) -> str:
    """What sanitizers say of a call of a plan; nothing where it ends with a code."""
    files = write_c(plan, COptions(PORTABLE), "changed")
    (folder / "changed.c").write_text(files.source)
    (folder / "changed.h").write_text(files.header)
    program = folder / "changed"
    compile_c(
        "cc",
        ["-std=c11", "-w", *SANITIZE, str(folder / "changed.c"), "-o", str(program), "-lm"],
    )
    words = []
    for number, value in enumerate(plan.inputs):
        path = folder / f"changed{number}.in"
        path.write_bytes(bytes(plan.memories[value.memory].nbytes))
        words.append(str(path))
    words += [str(size.high) for size in plan.sizes]
    out = folder / "changed.out"
    command = [str(program), *words]
    with out.open("wb") as file, Child(command, stdout=file, stderr=subprocess.PIPE) as child:
        _, said = child.communicate()
    return said if "Sanitizer" in said or "runtime error" in said or child.returncode < 0 else ""


# ------------------------------------------------------------ C
# weights: files named on standard input, each loaded and, if taken, run. calls: at random.
DRIVER = r"""
#include "model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state;
static uint64_t draw(uint64_t below) {
  state ^= state << 13; state ^= state >> 7; state ^= state << 17;
  return (state >> 11) % below;
}

static void *block(size_t bytes) {
  unsigned char *made = malloc(bytes + 1);
  for (size_t i = 0; i < bytes; i++) made[i] = (unsigned char)draw(256);
  return made;
}

static int64_t number(void) {
  static const int64_t ends[] = {0, 1, -1, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
  return draw(3) ? (int64_t)draw(20) - 2 : ends[draw(7)];
}

int main(int count, char **words) {
  model *self = NULL;
  long codes[16] = {0};
  if (count == 2) {
    char path[4096];
    while (fgets(path, sizeof path, stdin)) {
      path[strcspn(path, "\n")] = 0;
      int code = model_load(path, &self);
      if (code == MODEL_OK) model_destroy(self);
      codes[code & 15]++;
    }
  } else {
    if (model_load(words[1], &self) != MODEL_OK) return 1;
    state = strtoull(words[3], NULL, 10) * 2654435761u + 88172645463325252ull;
    for (long i = strtol(words[2], NULL, 10); i > 0; i--) {
      size_t in = draw(4) ? IN_BYTES : draw(2 * IN_BYTES);
      size_t out = draw(4) ? OUT_BYTES : draw(2 * OUT_BYTES);
      unsigned char *given = block(in), *made = block(out);
      const void *inputs[1] = {draw(9) ? given : NULL};
      void *outputs[1] = {draw(9) ? made : NULL};
      int64_t sizes[1] = {number()};
      int code;
      if (draw(3)) {
        /* lengths are said as they are */
        if (!draw(9) && in > 0) inputs[0] = given + 1;
        code = model_run_checked(draw(9) ? self : NULL, draw(9) ? inputs : NULL,
          draw(9) ? &in : NULL, draw(9) ? 1 : draw(3), draw(9) ? sizes : NULL,
          draw(9) ? 1 : draw(3), draw(9) ? outputs : NULL, draw(9) ? &out : NULL,
          draw(9) ? 1 : draw(3));
      } else {
        /* nobody says lengths: arrays have them, but may overlap, or begin anywhere */
        unsigned char *both = block(IN_BYTES + OUT_BYTES + 16);
        const void *x = both + draw(17);
        void *y = both + draw(IN_BYTES + 17);
        code = model_run(self, x, sizes[0], y);
        free(both);
      }
      if (!draw(50)) model_reset(self);
      codes[code & 15]++;
      free(given);
      free(made);
    }
    model_destroy(self);
  }
  for (int code = 0; code < 16; code++)
    if (codes[code]) printf("%s: %ld\n", model_error(code), codes[code]);
  return 0;
}
"""


@dataclasses.dataclass(frozen=True)
class Built:
    """A C model with weights in a file, under the sanitizers, with the driver."""

    folder: Path
    program: Path
    weights: Path


def build(case: Case, folder: Path) -> Built:
    """The program of `DRIVER`."""
    source, _, weights = export.c(
        case.function, case.given(), folder / "model.c", weights="file", main=False
    )
    (folder / "driver.c").write_text(DRIVER)
    [token], _ = case.calls[0]
    output = case.expected()[0][0]
    counts = [f"-DIN_BYTES={token.nbytes}", f"-DOUT_BYTES={output.nbytes}"]
    program = folder / "driver"
    files = [str(folder / "driver.c"), str(source), "-o", str(program), "-lm"]
    compile_c("cc", [*WARNINGS, *SANITIZE, *counts, *files])
    return Built(folder, program, weights)


def _drive(built: Built, words: list[str], given: str = "") -> Counter[str]:
    """What the driver counted; what a sanitizer says is wrong."""
    command = [str(built.program), *words]
    with Child(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        out, said = child.communicate(given)
    if child.returncode:
        return Counter({f"WRONG: exit {child.returncode}: {said[:2000]}": 1})
    lines = [line.rpartition(": ") for line in out.splitlines()]
    return Counter({name: int(number) for name, _, number in lines})


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Bytes changed, lost, doubled or added."""
    found = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        at = rng.randrange(max(1, len(found)))
        kind = rng.randrange(6)
        if kind <= 2 and found:
            found[at] ^= 1 << rng.randrange(8)
        elif kind == 3:
            del found[at : at + rng.choice([1, 8, 64, 1 << 20])]
        elif kind == 4:
            found[at:at] = found[at : at + rng.choice([1, 8, 64])]
        else:
            found[at : at + 4] = rng.choice([b"\xff" * 4, b"\0" * 4, b"\x80\0\0\0"])
    return bytes(found)


def try_weights(built: Built, count: int, seed: int) -> Counter[str]:
    """Damaged files of weights: all of them refused."""
    rng = random.Random(seed)
    whole = built.weights.read_bytes()
    found: Counter[str] = Counter()
    while count > 0:
        paths = []
        for number in range(min(count, 500)):
            data = damaged(whole, rng)
            if data != whole:
                path = built.folder / f"damaged{number}.bin"
                path.write_bytes(data)
                paths.append(str(path))
        count -= 500
        found += _drive(built, ["-"], "\n".join([*paths, str(built.folder), "/nowhere", ""]))
    if found["no error"]:
        found[f"WRONG: {found.pop('no error')} damaged files were taken"] += 1
    return found


def try_calls(built: Built, count: int, seed: int) -> Counter[str]:
    """Calls at random: a code, or an answer."""
    return _drive(built, [str(built.weights), str(count), str(seed)])


# ------------------------------------------------------------ WebAssembly
NODE = r"""
import { load } from "./model.js";
import { readFileSync } from "node:fs";
import { Worker, isMainThread, parentPort, workerData } from "node:worker_threads";

let state = BigInt(process.argv[3] ?? 1) * 2654435761n + 88172645463325252n;
const draw = (below) => {
  state = BigInt.asUintN(64, state ^ (state << 13n));
  state ^= state >> 7n;
  state = BigInt.asUintN(64, state ^ (state << 17n));
  return Number((state >> 11n) % BigInt(below));
};
const right = () => ({ token: new Int32Array([1]), position: 2 });

async function oneModule(bytes) {
  try {
    const model = await load(bytes);
    model.run(right());
    model.reset();
    return "an answer";
  } catch (error) {
    return error instanceof Error ? error.constructor.name : `WRONG: ${error} was thrown`;
  }
}

if (!isMainThread) {
  parentPort.on("message", async (bytes) => parentPort.postMessage(await oneModule(bytes)));
} else if (process.argv[2] === "modules") {
  const files = JSON.parse(readFileSync("modules.json"));
  const counts = {};
  let worker = null;
  for (const file of files) {
    worker ??= new Worker(new URL(import.meta.url));
    const said = await new Promise((done) => {
      const late = setTimeout(() => done("never ends"), 10000);
      const end = (word) => { clearTimeout(late); done(word); };
      worker.removeAllListeners();
      worker.once("message", end);
      worker.once("error", (error) => end(`WRONG: ${error}`));
      worker.postMessage(Buffer.from(file, "base64"));
    });
    if (said === "never ends") { await worker.terminate(); worker = null; }
    counts[said] = (counts[said] ?? 0) + 1;
  }
  await worker?.terminate();
  console.log(JSON.stringify(counts));
} else {
  const model = await load("./model.wasm");
  const before = model.run(right()).output.join();
  const values = [undefined, null, 0, -1, 7, 8, 1.5, NaN, Infinity, "1", 1n, true, [], {}, [1],
    new Int32Array(0), new Int32Array(1), new Int32Array(2), new Float32Array(1),
    new Int32Array([-2147483648]), new Int32Array([2147483647]), new Uint8Array(4), () => 1,
    Symbol("x"), { length: 1 }, new ArrayBuffer(4), new DataView(new ArrayBuffer(4)),
    Object.create(Int32Array.prototype), new Proxy(new Int32Array(1), {})];
  const counts = {};
  for (let i = Number(process.argv[4]); i > 0; i--) {
    const given = right();
    for (const name of ["token", "position", "other"]) {
      if (draw(2)) given[name] = values[draw(values.length)];
      else if (name === "other" || !draw(9)) delete given[name];
    }
    let said;
    try {
      const { output } = model.run(draw(30) ? given : values[draw(values.length)]);
      said = output instanceof Float32Array ? "an answer" : "WRONG: no array";
    } catch (error) {
      said = error instanceof Error ? error.constructor.name : `WRONG: ${String(error)}`;
    }
    counts[said] = (counts[said] ?? 0) + 1;
  }
  model.reset();
  if (model.run(right()).output.join() !== before) counts["WRONG: other results afterwards"] = 1;
  console.log(JSON.stringify(counts));
}
"""


def _node(folder: Path, *words: str) -> Counter[str]:
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "try.mjs").write_text(NODE)
    command = [need_program("node"), "try.mjs", *words]
    with Child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder) as child:
        out, said = child.communicate()
    if child.returncode:
        return Counter({f"WRONG: node exits with {child.returncode}: {said[:2000]}": 1})
    return Counter(json.loads(out))


def try_modules(case: Case, count: int, seed: int, folder: Path) -> Counter[str]:
    """Damaged modules, half of them in what they say of themselves."""
    rng = random.Random(seed)
    module = export.wasm(case.function, case.given(), folder / "model.wasm")[0].read_bytes()
    start = module.rindex(b'{"name"')
    found: Counter[str] = Counter()
    while count > 0:
        files = []
        for _ in range(min(count, 1000)):
            data = damaged(module, rng)
            if rng.random() < 0.5:
                # the section has a length, which has to stay
                about = bytearray(module[start:])
                for _ in range(rng.choice([1, 1, 2, 4])):
                    about[rng.randrange(len(about))] = rng.choice(b'0123456789-,:[]{}"etx ')
                data = module[:start] + bytes(about)
            files.append(base64.b64encode(data).decode())
        count -= 1000
        (folder / "modules.json").write_text(json.dumps(files))
        found += _node(folder, "modules", str(seed))
    return found


def try_inputs(case: Case, count: int, seed: int, folder: Path) -> Counter[str]:
    """Values at random for `run` of the loader."""
    export.wasm(case.function, case.given(), folder / "model.wasm")
    return _node(folder, "inputs", str(seed), str(count))


def wrong(found: Counter[str]) -> list[str]:
    """What should not have come of it."""
    return [name for name in found if name.startswith("WRONG")]


KINDS = ("plans", "weights", "calls", "modules", "inputs")


def main() -> int:
    """All kinds, and what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=10_000)
    parser.add_argument("--net", choices=("tiny", "gpt"), default="tiny")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=KINDS)
    options = parser.parse_args()
    case = tiny() if options.net == "tiny" else CASES["gpt"]()
    count, seed = options.count, options.seed
    failed = False
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        ways: dict[str, Callable[[], Counter[str]]] = {
            "plans": lambda: try_plans(case, count, seed, folder),
            "weights": lambda: try_weights(build(case, folder), count, seed),
            "calls": lambda: try_calls(build(case, folder), count, seed),
            "modules": lambda: try_modules(case, count, seed, folder),
            "inputs": lambda: try_inputs(case, count, seed, folder),
        }
        for kind in [options.only] if options.only else KINDS:
            found = ways[kind]()
            failed = failed or bool(wrong(found))
            print(f"{kind}: {dict(found)}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
