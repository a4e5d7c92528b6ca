"""Small vocabularies, trained here, in the form of GGUF's values."""

from __future__ import annotations

import json
from typing import Any

from test.optional import need
from weft.llm.tokens import PATTERNS, byte_letters

TEXTS = [
    "The quick brown fox jumps over the lazy dog. 1234567 times, isn't it?",
    "def f(x):\n    return x ** 2  # squares\n\n\n",
    "Grüße aus Köln — ça va? naïve façade, €99.50",
    "日本語のテキスト、中文文本，한국어 텍스트",
    "Привет, мир! Γειά σου Κόσμε! שלום עולם مرحبا بالعالم",
    "😀😃 family: 👨‍👩‍👧‍👦 flags: 🇩🇪🇫🇷 \u200b zero width",
    "I'll you've they're WE'RE don't O'Neill's\r\n\ttabs\t\tand   spaces   ",
    "",
    " leading",
    "trailing ",
]
SPECIAL = ["<|begin|>", "<|im_start|>", "<|im_end|>"]


def byte_pair_values(pre: str) -> tuple[dict[str, Any], Any]:
    """A trained vocabulary of GPT-2's kind, and the tokenizer of `tokenizers` that it came from."""
    tokenizers = need("tokenizers")
    engine = tokenizers.Tokenizer(tokenizers.models.BPE())
    splits = [
        tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), behavior="isolated")
        for pattern in PATTERNS[pre]
    ]
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    engine.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([*splits, byte_level])
    engine.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, initial_alphabet=list(byte_letters())
    )
    engine.train_from_iterator(TEXTS * 4, trainer)
    description = json.loads(engine.to_str())
    vocabulary = description["model"]["vocab"]
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    values = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if t in SPECIAL else 1 for t in tokens],
        "tokenizer.ggml.merges": [" ".join(m) for m in description["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": vocabulary["<|begin|>"],
        "tokenizer.ggml.eos_token_id": vocabulary["<|im_end|>"],
        "tokenizer.ggml.add_bos_token": True,
    }
    return values, engine


def scored_values(folder: Any) -> tuple[dict[str, Any], Any]:
    """A trained vocabulary of SentencePiece, and its processor."""
    sentencepiece = need("sentencepiece")
    path = folder / "corpus.txt"
    path.write_text("\n".join(TEXTS * 20), "utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(path),
        model_prefix=str(folder / "spm"),
        vocab_size=400,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        character_coverage=0.98,
        minloglevel=2,
        hard_vocab_limit=False,
    )
    processor = sentencepiece.SentencePieceProcessor(str(folder / "spm.model"))
    count = processor.get_piece_size()
    kinds = [
        2
        if processor.is_unknown(i)
        else 3
        if processor.is_control(i)
        else 6
        if processor.is_byte(i)
        else 1
        for i in range(count)
    ]
    values = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [processor.id_to_piece(i) for i in range(count)],
        "tokenizer.ggml.scores": [processor.get_score(i) for i in range(count)],
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.bos_token_id": processor.bos_id(),
        "tokenizer.ggml.eos_token_id": processor.eos_id(),
        "tokenizer.ggml.unknown_token_id": processor.unk_id(),
    }
    return values, processor
