"""A model out of a file or folder.

In: a path. Out: a `Loaded` model: the transformer, and the values that its tokens are read from.
Above `model` and `huggingface`. Invariant: weights stay as they are in the file, lazy and packed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.dtype import DType, dtypes
from weft.errors import DataError
from weft.llm.config import TransformerConfig, config_from_gguf
from weft.llm.huggingface import read_folder
from weft.llm.model import Transformer
from weft.nn.state import gguf_load


@dataclass(frozen=True)
class Loaded:
    """A model and where it came from."""

    model: Transformer
    config: TransformerConfig
    values: dict[str, Any]  # of a GGUF file; empty for a folder
    path: Path


def load(
    path: str | Path,
    max_context: int | None = None,
    cache_dtype: DType = dtypes.float16,
    texts: int = 1,
) -> Loaded:
    """Opens a GGUF file or a Hugging Face folder; the cache has room for `texts` at once."""
    path = Path(path)
    if path.is_dir():
        config, tensors = read_folder(path)
        values: dict[str, Any] = {}
    elif path.exists():
        values, tensors = gguf_load(path)
        config = config_from_gguf(values, str(path))
    else:
        raise DataError(f"there is no file {path}")
    if max_context is not None:
        config = config.with_context(max_context)
    return Loaded(Transformer(config, tensors, cache_dtype, texts), config, values, path)
