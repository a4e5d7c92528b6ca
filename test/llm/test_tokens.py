"""Tokens agree with `tokenizers` and `sentencepiece`; text comes back byte for byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from test.llm.vocabularies import TEXTS, byte_pair_values, scored_values
from test.optional import need
from weft.errors import DataError
from weft.llm.tokens import PATTERNS, tokenizer_from_folder, tokenizer_from_gguf


def strings(count: int) -> list[str]:
    """Random texts out of all scripts, lone odd letters included."""
    random = np.random.default_rng(0)
    letters = sorted(
        set("".join(TEXTS)) | set("\u0301\u200d\x00\x7f\ufeff\U0010ffff\n\t 0123456789")
    )
    return ["".join(random.choice(letters, random.integers(0, 40))) for _ in range(count)]


@pytest.mark.parametrize("pre", sorted(PATTERNS))
def test_byte_pairs_agree_with_the_package(pre: str) -> None:
    values, engine = byte_pair_values(pre)
    mine = tokenizer_from_gguf(values)
    for text in [*TEXTS, *strings(300)]:
        expected = engine.encode(text).ids
        # this kind takes whole words that are in the vocabulary before it merges
        if pre not in ("llama-bpe", "llama3"):
            assert mine.encode(text) == expected
        assert mine.decode(mine.encode(text)) == text


def test_sentencepiece_agrees_with_the_package(tmp_path: Path) -> None:
    values, processor = scored_values(tmp_path)
    mine = tokenizer_from_gguf(values)
    for text in [*TEXTS, *strings(300)]:
        if "\x00" in text or not text:
            continue
        assert mine.encode(text) == processor.encode(text), text
        assert mine.decode(mine.encode(text)) == processor.decode(processor.encode(text))


def test_a_folder_gives_what_its_file_defines(tmp_path: Path) -> None:
    values, engine = byte_pair_values("qwen2")
    engine.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
    mine = tokenizer_from_folder(tmp_path)
    same = tokenizer_from_gguf(values)
    assert mine.eos == same.eos
    for text in TEXTS:
        assert mine.encode(text) == same.encode(text) == engine.encode(text).ids
        assert mine.decode(mine.encode(text)) == text


def test_letters_are_never_broken_in_a_stream() -> None:
    values, _ = byte_pair_values("gpt-2")
    mine = tokenizer_from_gguf(values)
    for text in strings(200):
        stream = mine.stream()
        pieces = [stream.feed(token) for token in mine.encode(text)]
        assert "".join(pieces) + stream.finish() == text
        assert all("\ufffd" not in piece for piece in pieces)


def test_special_tokens_are_read_only_where_they_are_meant() -> None:
    values, _ = byte_pair_values("llama-bpe")
    mine = tokenizer_from_gguf(values)
    assert mine.encode("<|im_start|>") == [mine.special["<|im_start|>"]]
    assert mine.special["<|im_start|>"] not in mine.encode("<|im_start|>", special=False)
    assert mine.decode(mine.encode("<|im_start|>hi<|im_end|>")) == "hi"
    assert mine.prompt("hi")[0] == mine.bos and mine.prompt("<|begin|>hi").count(mine.bos or 0) == 1


def test_damaged_vocabularies_are_refused() -> None:
    need("tokenizers")
    values, _ = byte_pair_values("qwen2")
    for name, value, message in (
        ("tokens", None, "no vocabulary"),
        ("tokens", [1, 2], "no vocabulary"),
        ("token_type", [1], "not as many kinds"),
        ("merges", None, "no list of merges"),
        ("merges", ["a b", "c"], "no list of merges"),
        ("merges", ["qqq www"], "do not fit"),
        ("pre", "parrot", "cuts text by 'parrot'"),
        ("model", "t5", "of the kind 't5'"),
        ("bos_token_id", 1 << 40, "bos token"),
    ):
        with pytest.raises(DataError, match=message):
            tokenizer_from_gguf({**values, f"tokenizer.ggml.{name}": value})
