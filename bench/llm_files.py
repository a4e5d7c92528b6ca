"""GGUF files of a language model of any size with random weights, for `bench.llm`.

In: a shape and a quantisation. Out: a file that llama.cpp and weft load. Blocks are random bytes
whose scales are sane: nobody reads the answers, and all formats cost what they cost.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Shape:
    """The sizes of a Llama."""

    dim: int = 2048
    layers: int = 16
    heads: int = 32
    kv_heads: int = 8
    hidden: int = 8192
    vocabulary: int = 128256
    context: int = 4096

    @property
    def parameters(self) -> int:
        head = self.dim // self.heads
        layer = self.dim * (2 * self.dim + 2 * self.kv_heads * head + 3 * self.hidden)
        return self.layers * layer + self.vocabulary * self.dim


ONE_B = Shape()
SMALL = Shape(layers=4, vocabulary=32000)

_TEXT, _UINT32, _FLOAT32, _ARRAY, _INT32 = 8, 4, 6, 9, 5
# name -> ggml's number, values and bytes of a block, and where halves stand that are scales
KINDS: dict[str, tuple[int, int, int, tuple[int, ...]]] = {
    "F32": (0, 1, 4, ()),
    "F16": (1, 1, 2, ()),
    "Q4_0": (2, 32, 18, (0,)),
    "Q8_0": (8, 32, 34, (0,)),
    "Q4_K": (12, 256, 144, (0, 2)),
    "Q6_K": (14, 256, 210, (208,)),
}


def blocks(kind: str, count: int, random: np.random.Generator) -> Array:
    """Bytes of so many random values, of a deviation of about 0.02."""
    _, values, size, scales = KINDS[kind]
    if kind in ("F32", "F16"):
        data = random.standard_normal(count, np.float32) * 0.02
        return data.astype(np.float16 if kind == "F16" else np.float32).view(np.uint8)
    data = random.integers(0, 256, (count // values, size), np.uint8)
    step = {"Q4_0": 4e-3, "Q8_0": 3e-4, "Q4_K": 1e-4, "Q6_K": 3e-5}[kind]
    for place in scales:
        half = np.full(len(data), step, np.float16).view(np.uint8).reshape(-1, 2)
        data[:, place : place + 2] = half
    return data.reshape(-1)


def tensors(shape: Shape, kind: str) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Names, shapes and kinds; the output matrix of Q4_K files is Q6_K, as theirs are."""
    head = shape.dim // shape.heads
    yield "token_embd.weight", (shape.vocabulary, shape.dim), "Q6_K" if kind == "Q4_K" else kind
    yield "output_norm.weight", (shape.dim,), "F32"
    for layer in range(shape.layers):
        for name, rows, columns in (
            ("attn_q", shape.dim, shape.dim),
            ("attn_k", shape.kv_heads * head, shape.dim),
            ("attn_v", shape.kv_heads * head, shape.dim),
            ("attn_output", shape.dim, shape.dim),
            ("ffn_gate", shape.hidden, shape.dim),
            ("ffn_up", shape.hidden, shape.dim),
            ("ffn_down", shape.dim, shape.hidden),
        ):
            yield f"blk.{layer}.{name}.weight", (rows, columns), kind
        for name in ("attn_norm", "ffn_norm"):
            yield f"blk.{layer}.{name}.weight", (shape.dim,), "F32"


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _values(shape: Shape) -> dict[str, tuple[int, Any]]:
    letters = [chr(b) for b in range(ord("!"), ord("~") + 1)]
    letters += [chr(b) for b in (*range(0xA1, 0xAD), *range(0xAE, 0x100))]
    letters += [chr(256 + i) for i in range(256 - len(letters))]
    names = letters + [f"token{i}" for i in range(shape.vocabulary - 256)]
    numbers = {
        "context_length": shape.context,
        "embedding_length": shape.dim,
        "block_count": shape.layers,
        "feed_forward_length": shape.hidden,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "rope.dimension_count": shape.dim // shape.heads,
        "vocab_size": shape.vocabulary,
    }
    return {
        "general.architecture": (_TEXT, "llama"),
        **{f"llama.{k}": (_UINT32, v) for k, v in numbers.items()},
        "llama.attention.layer_norm_rms_epsilon": (_FLOAT32, 1e-5),
        "llama.rope.freq_base": (_FLOAT32, 500000.0),
        "tokenizer.ggml.model": (_TEXT, "gpt2"),
        "tokenizer.ggml.pre": (_TEXT, "gpt-2"),
        "tokenizer.ggml.tokens": (_ARRAY, (_TEXT, names)),
        "tokenizer.ggml.token_type": (_ARRAY, (_INT32, [1] * shape.vocabulary)),
        "tokenizer.ggml.merges": (_ARRAY, (_TEXT, ["a b"])),
        "tokenizer.ggml.bos_token_id": (_UINT32, 0),
        "tokenizer.ggml.eos_token_id": (_UINT32, 1),
    }


def _packed(kind: int, value: Any) -> bytes:
    if kind == _TEXT:
        return _string(value)
    if kind == _ARRAY:
        inner, items = value
        head = struct.pack("<IQ", inner, len(items))
        return head + b"".join(_packed(inner, item) for item in items)
    return struct.pack({_UINT32: "<I", _INT32: "<i", _FLOAT32: "<f"}[kind], value)


def write(path: Path, shape: Shape, kind: str, seed: int = 0) -> None:
    """The file."""
    values, infos = _values(shape), list(tensors(shape, kind))
    merges = values["tokenizer.ggml.merges"]
    values["tokenizer.ggml.merges"] = merges
    head = struct.pack("<IIQQ", 0x46554747, 3, len(infos), len(values))
    for name, (form, value) in values.items():
        head += _string(name) + struct.pack("<I", form) + _packed(form, value)
    offset, places = 0, []
    for name, sizes, form in infos:
        number, count, size, _ = KINDS[form]
        head += _string(name) + struct.pack("<I", len(sizes))
        head += struct.pack(f"<{len(sizes)}Q", *reversed(sizes)) + struct.pack(
            "<IQ", number, offset
        )
        nbytes = int(np.prod(sizes)) // count * size
        places.append(nbytes)
        offset += -(-nbytes // 32) * 32
    random = np.random.default_rng(seed)
    with path.open("wb") as file:
        file.write(head + b"\0" * (-len(head) % 32))
        for (name, sizes, form), nbytes in zip(infos, places, strict=True):
            is_norm = name.endswith("norm.weight")
            data = (
                np.ones(sizes, np.float32).view(np.uint8)
                if is_norm
                else blocks(form, int(np.prod(sizes)), random)
            )
            assert data.nbytes == nbytes
            file.write(data.tobytes() + b"\0" * (-nbytes % 32))
