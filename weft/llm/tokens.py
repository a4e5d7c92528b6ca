"""Text to tokens and back, as the model's file defines them.

In: the values of a GGUF file, or a folder with `tokenizer.json`. Out: a `SimpleTokenizer`. Beside
`model`. Invariant: `tokenizers` (extra `llm`) splits text; what a token stands for is bytes, so a
letter whose bytes come in two tokens is never broken.
"""

from __future__ import annotations

import codecs
import importlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.errors import DataError

_NORMAL, _CONTROL, _USER, _BYTE = 1, 3, 4, 6
_WORDS = r" ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d|" + _WORDS
_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_LINES = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _ENDINGS + r"\p{N}{1,3}" + _LINES
_QWEN2 = _ENDINGS + r"\p{N}" + _LINES
# how text is cut before pairs are merged, by GGUF's name: patterns, one after another
PATTERNS: dict[str, tuple[str, ...]] = {
    "gpt-2": (_GPT2,),
    "default": (_GPT2,),
    "olmo": (_GPT2,),
    "phi-2": (_GPT2,),
    "mpt": (_GPT2,),
    "llama-bpe": (_LLAMA3,),
    "llama3": (_LLAMA3,),
    "dbrx": (_LLAMA3,),
    "smaug-bpe": (_LLAMA3,),
    "glm4": (_LLAMA3,),
    "chatglm-bpe": (_LLAMA3,),
    "qwen2": (_QWEN2,),
    "deepseek-r1-qwen": (_QWEN2,),
    "stablelm2": (_QWEN2,),
    "smollm": (r"\p{N}", _GPT2),
    "starcoder": (r"\p{N}", _GPT2),
    "refact": (r"\p{N}", _GPT2),
    "command-r": (r"\p{N}", _GPT2),
}


def package(name: str) -> Any:
    """A package that only language models need."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise DataError(
            f"language models need the package {name}: pip install 'weft[llm]'"
        ) from None


def byte_letters() -> dict[str, int]:
    """The letters that stand for bytes in the vocabularies of GPT-2's kind.

    Printable bytes stand for themselves, the others for letters from 256 on.
    """
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}


class SimpleTokenizer:
    """Text <-> tokens of one model."""

    def __init__(
        self,
        engine: Any,
        pieces: Sequence[bytes],
        special: Mapping[str, int],
        bos: int | None,
        eos: Iterable[int],
        add_bos: bool,
        strips_space: bool = False,
    ) -> None:
        self._engine = engine
        self.pieces = pieces
        self.special = dict(special)
        self.bos = bos
        self.eos = frozenset(eos)
        self.add_bos = add_bos and bos is not None
        self._special_ids = frozenset(special.values())
        self._strips_space = strips_space

    def encode(self, text: str, special: bool = True) -> list[int]:
        """The tokens of a text; names of special tokens in it are those tokens if `special`."""
        self._engine.encode_special_tokens = not special
        return list(self._engine.encode(text, add_special_tokens=False).ids)

    def prompt(self, text: str) -> list[int]:
        """The tokens of a text that a model begins with."""
        tokens = self.encode(text)
        begins = bool(tokens) and tokens[0] == self.bos
        return (
            [self.bos, *tokens] if self.add_bos and not begins and self.bos is not None else tokens
        )

    def bytes_of(self, token: int) -> bytes:
        """What a token stands for; nothing for special ones."""
        if token in self._special_ids or token >= len(self.pieces):
            return b""
        return self.pieces[token]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens, without special ones."""
        data = b"".join(self.bytes_of(token) for token in tokens)
        text = data.decode("utf-8", "replace")
        return text.removeprefix(" ") if self._strips_space else text

    def stream(self) -> TextStream:
        """Turns tokens into text one by one."""
        return TextStream(self)


class TextStream:
    """The text of tokens as they come: letters are held back until all of their bytes are there."""

    def __init__(self, tokenizer: SimpleTokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token: int) -> str:
        return self._decoder.decode(self._tokenizer.bytes_of(token))

    def finish(self) -> str:
        return self._decoder.decode(b"", True)


# ------------------------------------------------------------ GGUF
def tokenizer_from_gguf(values: Mapping[str, Any], where: str = "the file") -> SimpleTokenizer:
    """What the values of a GGUF file define."""
    tokens, kinds = _vocabulary(values, where)
    model = values.get("tokenizer.ggml.model")
    special = {t: i for i, t in enumerate(tokens) if kinds[i] in (_CONTROL, _USER)}
    if model == "gpt2":
        engine, pieces = _byte_pairs(values, tokens, where)
    elif model == "llama":
        engine, pieces = _scored_pairs(values, tokens, kinds, where)
    else:
        raise DataError(
            f"{where} has tokens of the kind {str(model)[:40]!r}; read are gpt2 and llama"
        )
    _add_special(engine, special, {t for t, i in special.items() if kinds[i] == _CONTROL})
    pieces = [
        t.encode() if kinds[i] == _USER else p
        for i, (t, p) in enumerate(zip(tokens, pieces, strict=True))
    ]
    control = {t: i for t, i in special.items() if kinds[i] == _CONTROL}
    return SimpleTokenizer(
        engine,
        pieces,
        control,
        _token(values, "bos", len(tokens), where),
        _ends(values, control, len(tokens), where),
        bool(values.get("tokenizer.ggml.add_bos_token", model == "llama")),
        strips_space=model == "llama" and bool(values.get("tokenizer.ggml.add_space_prefix", True)),
    )


def _vocabulary(values: Mapping[str, Any], where: str) -> tuple[list[str], list[int]]:
    tokens = values.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens or not all(isinstance(t, str) for t in tokens):
        raise DataError(f"{where} has no vocabulary (tokenizer.ggml.tokens)")
    kinds = values.get("tokenizer.ggml.token_type", [_NORMAL] * len(tokens))
    if not isinstance(kinds, list) or len(kinds) != len(tokens):
        raise DataError(f"{where} has {len(tokens)} tokens, and not as many kinds of them")
    return tokens, kinds


def _token(values: Mapping[str, Any], name: str, count: int, where: str) -> int | None:
    token = values.get(f"tokenizer.ggml.{name}_token_id")
    if token is None:
        return None
    if type(token) is not int or not 0 <= token < count:
        raise DataError(f"{where} has {name} token {token!r} and {count} tokens")
    return token


# what ends a turn in chats, where the file names only what ends a text
_ENDS = ("<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<|end|>", "<|endoftext|>", "<|eom_id|>")


def _ends(
    values: Mapping[str, Any], control: Mapping[str, int], count: int, where: str
) -> set[int]:
    named = {_token(values, name, count, where) for name in ("eos", "eot", "eom")}
    return {t for t in named if t is not None} | {control[t] for t in _ENDS if t in control}


def _byte_pairs(
    values: Mapping[str, Any], tokens: list[str], where: str
) -> tuple[Any, list[bytes]]:
    tokenizers = package("tokenizers")
    kind = values.get("tokenizer.ggml.pre", "default")
    if kind not in PATTERNS:
        raise DataError(
            f"{where} cuts text by {str(kind)[:40]!r}; known are {' '.join(sorted(PATTERNS))}"
        )
    merges = values.get("tokenizer.ggml.merges")
    if not isinstance(merges, list) or not all(isinstance(m, str) and " " in m for m in merges):
        raise DataError(f"{where} has no list of merges (tokenizer.ggml.merges)")
    letters = byte_letters()
    vocabulary = {token: i for i, token in enumerate(tokens)}
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    try:
        model = tokenizers.models.BPE(
            vocab=vocabulary, merges=pairs, ignore_merges=kind in ("llama-bpe", "llama3")
        )
    except Exception as error:
        raise DataError(f"{where} has merges that do not fit its vocabulary: {error}") from None
    engine = tokenizers.Tokenizer(model)
    splits = [
        tokenizers.pre_tokenizers.Split(tokenizers.Regex(p), behavior="isolated")
        for p in PATTERNS[kind]
    ]
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    engine.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([*splits, byte_level])
    return engine, [_spelled(token, letters) for token in tokens]


def _spelled(token: str, letters: Mapping[str, int]) -> bytes:
    """The bytes that the letters of a token stand for."""
    if all(letter in letters for letter in token):
        return bytes(letters[letter] for letter in token)
    return token.encode()


def _scored_pairs(
    values: Mapping[str, Any], tokens: list[str], kinds: list[int], where: str
) -> tuple[Any, list[bytes]]:
    """SentencePiece's BPE: of two neighbours the pair with the best score is merged first."""
    tokenizers = package("tokenizers")
    scores = values.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise DataError(f"{where} has {len(tokens)} tokens, and not as many scores of them")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    merges = []
    for i, token in enumerate(tokens):
        if kinds[i] != _NORMAL:
            continue
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in vocabulary and right in vocabulary:
                merges.append((-scores[i], vocabulary[left], vocabulary[right], left, right))
    merges.sort()
    unknown = values.get("tokenizer.ggml.unknown_token_id", 0)
    model = tokenizers.models.BPE(
        vocab=vocabulary,
        merges=[(left, right) for *_, left, right in merges],
        byte_fallback=True,
        fuse_unk=True,
        unk_token=tokens[unknown] if type(unknown) is int and 0 <= unknown < len(tokens) else None,
    )
    engine = tokenizers.Tokenizer(model)
    steps = [tokenizers.normalizers.Replace(" ", "▁")]
    if values.get("tokenizer.ggml.add_space_prefix", True):
        steps.insert(0, tokenizers.normalizers.Prepend(" "))
    engine.normalizer = tokenizers.normalizers.Sequence(steps)
    pieces = [
        bytes([int(token[3:5], 16)])
        if kinds[i] == _BYTE and len(token) == 6
        else token.replace("▁", " ").encode()
        for i, token in enumerate(tokens)
    ]
    return engine, pieces


def _add_special(engine: Any, special: Mapping[str, int], control: set[str]) -> None:
    tokenizers = package("tokenizers")
    for names, is_special in ((control, True), (set(special) - control, False)):
        added = [
            tokenizers.AddedToken(name, special=is_special, normalized=False)
            for name in sorted(names, key=lambda name: special[name])
        ]
        engine.add_special_tokens(added) if is_special else engine.add_tokens(added)


# ------------------------------------------------------------ Hugging Face
def tokenizer_from_folder(folder: Path) -> SimpleTokenizer:
    """What `tokenizer.json` of a folder defines; `tokenizer_config.json` names special tokens."""
    tokenizers = package("tokenizers")
    path = folder / "tokenizer.json"
    try:
        text = path.read_text("utf-8")
        engine = tokenizers.Tokenizer.from_str(text)
        description = json.loads(text)
    except FileNotFoundError:
        raise DataError(f"{path} is missing; a model's folder has one") from None
    except Exception as error:
        raise DataError(f"{path} is no description of tokens: {str(error)[:200]}") from None
    settings: dict[str, Any] = {}
    for name in ("tokenizer_config.json", "generation_config.json", "config.json"):
        beside = folder / name
        if beside.exists():
            try:
                settings = {**json.loads(beside.read_text("utf-8")), **settings}
            except ValueError as error:
                raise DataError(f"{beside} is no JSON: {error}") from None
    is_byte_level = "ByteLevel" in json.dumps(description.get("decoder"))
    letters = byte_letters()
    count = engine.get_vocab_size(with_added_tokens=True)
    added = {t["id"]: t for t in description.get("added_tokens", ())}
    pieces = []
    for i in range(count):
        token = engine.id_to_token(i) or ""
        if i in added:
            pieces.append(token.encode())
        elif is_byte_level:
            pieces.append(_spelled(token, letters))
        elif len(token) == 6 and token.startswith("<0x"):
            pieces.append(bytes([int(token[3:5], 16)]))
        else:
            pieces.append(token.replace("▁", " ").encode())
    special = {t["content"]: i for i, t in added.items() if t.get("special")}
    ends = settings.get("eos_token_id")
    named = settings.get("eos_token")
    named = named.get("content") if isinstance(named, dict) else named
    eos = {*(ends if isinstance(ends, list) else [ends]), special.get(str(named))}
    eos |= {special[t] for t in _ENDS if t in special}
    first = settings.get("bos_token")
    first = first.get("content") if isinstance(first, dict) else first
    bos = special.get(str(first), settings.get("bos_token_id"))
    return SimpleTokenizer(
        engine,
        pieces,
        special,
        bos if type(bos) is int and 0 <= bos < count else None,
        {t for t in eos if type(t) is int},
        bool(settings.get("add_bos_token", False)),
        strips_space=not is_byte_level,
    )
