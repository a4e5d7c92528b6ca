"""Language models: tokens a second of answers, prompts and eight texts together, and memory.

usage: python -m bench.llm [--kinds Q4_K Q8_0 F16] [--small] [--threads N] [--tokens N]
In: GGUF files of a 1B-shaped Llama with random weights (`bench/llm_files.py`), written once. Out: a
table: decode of one text and of eight, a prompt of 512, in CPU time and on the wall, the share of a
plain read of the file's bytes, and resident memory beside the file. llama.cpp is a row beside each
where `llama_cpp` is installed. Each runs in a process of its own.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.llm_files import ONE_B, SMALL, write

PROMPT = 512
TOGETHER = 8


def clocks() -> tuple[float, float]:
    """CPU seconds of this process, and the wall's."""
    return time.process_time(), time.perf_counter()


def rates(count: int, began: tuple[float, float]) -> dict[str, float]:
    """Tokens a second of both clocks."""
    cpu, wall = (now - then for now, then in zip(clocks(), began, strict=True))
    return {"cpu": count / cpu, "wall": count / wall}


def resident() -> int:
    """Bytes in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def in_weft(path: Path, tokens: int) -> dict[str, Any]:
    """The rows of weft."""
    from weft.llm.batch import Batcher, Text
    from weft.llm.load import load

    model = load(path, PROMPT + tokens + 64, texts=TOGETHER).model
    batcher = Batcher(model)
    sizes = [(1, 256, "next"), (1, 32, "next"), (1, 1, "next"), (TOGETHER, 1, "next")]
    batcher.warm_up(sizes)
    random = np.random.default_rng(0)

    def run(count: int, prompt: int, added: int) -> None:
        texts = [
            Text(
                random.integers(0, 1000, prompt).tolist(),
                lambda token, logits: False,
                longest=prompt + added,
            )
            for _ in range(count)
        ]
        for text in texts:
            batcher.add(text)
        while batcher.step():
            pass

    run(1, 8, 4)
    found: dict[str, Any] = {}
    for name, count, prompt, added in (
        ("decode", 1, 1, tokens),
        ("together", TOGETHER, 1, tokens),
        ("prompt", 1, PROMPT, 1),
    ):
        began = clocks()
        run(count, prompt, added)
        found[name] = rates(count * added if name != "prompt" else PROMPT, began)
    caches = sum(
        int(np.prod(each.shape)) * each.dtype.itemsize
        for cache in model.caches
        for each in cache.memories
    )
    found["memory"] = {"resident": resident(), "cache": caches}
    return found


def in_llama(path: Path, tokens: int, threads: int) -> dict[str, Any]:
    """The rows of llama.cpp."""
    import llama_cpp  # type: ignore[import-not-found]

    model = llama_cpp.Llama(
        str(path), n_ctx=PROMPT + tokens + 64, n_threads=threads, n_batch=PROMPT, verbose=False
    )
    random = np.random.default_rng(0)
    model.eval(random.integers(0, 1000, 8).tolist())
    model.reset()
    found: dict[str, Any] = {}
    began = clocks()
    for _ in range(tokens):
        model.eval([int(random.integers(0, 1000))])
    found["decode"] = rates(tokens, began)
    model.reset()
    began = clocks()
    model.eval(random.integers(0, 1000, PROMPT).tolist())
    found["prompt"] = rates(PROMPT, began)
    found["memory"] = {"resident": resident(), "cache": 0}
    return found


def measured(which: str, path: Path, options: Any) -> dict[str, Any]:
    """One program in a process of its own."""
    command = [sys.executable, "-m", "bench.llm", "--child", which, "--files", str(path)]
    command += ["--tokens", str(options.tokens), "--threads", str(options.threads)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """All kinds, a row for each program."""
    parser = argparse.ArgumentParser(prog="python -m bench.llm", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--kinds", nargs="+", default=["Q4_K", "Q8_0", "F16"])
    parser.add_argument("--small", action="store_true", help="4 layers, 32000 tokens")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--files", default=str(Path(tempfile.gettempdir()) / "weft-bench-llm"))
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    if options.child:
        path = Path(options.files)
        is_weft = options.child == "weft"
        found = (
            in_weft(path, options.tokens)
            if is_weft
            else in_llama(path, options.tokens, options.threads)
        )
        print(json.dumps(found))
        return
    folder = Path(options.files)
    folder.mkdir(parents=True, exist_ok=True)
    peers = ["weft"] + (["llama.cpp"] if importlib.util.find_spec("llama_cpp") else [])
    print("| file | program | decode | 8 texts | prompt of 512 | 8 to 1 | memory to file + cache |")
    print("|---|---|---|---|---|---|---|")
    for kind in options.kinds:
        shape = SMALL if options.small else ONE_B
        path = folder / f"{'small' if options.small else '1b'}-{kind}.gguf"
        if not path.exists():
            write(path, shape, kind)
        for which in peers:
            found = measured(which, path, options)
            cells = [
                f"{found[name]['wall']:.1f} ({found[name]['cpu']:.1f})" if name in found else "-"
                for name in ("decode", "together", "prompt")
            ]
            ratio = (
                f"{found['together']['cpu'] / found['decode']['cpu']:.2f}"
                if "together" in found
                else "-"
            )
            memory = found["memory"]
            share = memory["resident"] / (path.stat().st_size + memory["cache"])
            row = [f"{kind}, {path.stat().st_size / 1e9:.2f} GB", which, *cells, ratio]
            print("| " + " | ".join([*row, f"{share:.2f}"]) + " |", flush=True)
    print("\nTokens a second on the wall, in brackets those of a second of CPU time.")


if __name__ == "__main__":
    main()
