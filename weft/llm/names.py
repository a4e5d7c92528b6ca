"""Models by name: `llama3.2:1b`, `hf.co/user/repo`.

In: what a user writes after `--model`. Out: a path. Beside `load`. Invariant: a file is downloaded
once, by `huggingface_hub`, which resumes, checks and keeps it where other programs find it too.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from weft.errors import DataError

# name -> repository and file
NAMES: dict[str, tuple[str, str]] = {
    "llama3.2:1b": ("bartowski/Llama-3.2-1B-Instruct-GGUF", "Llama-3.2-1B-Instruct-Q6_K.gguf"),
    "llama3.2:3b": ("bartowski/Llama-3.2-3B-Instruct-GGUF", "Llama-3.2-3B-Instruct-Q6_K.gguf"),
    "llama3.1:8b": (
        "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF",
        "Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf",
    ),
    "qwen2.5:0.5b": ("Qwen/Qwen2.5-0.5B-Instruct-GGUF", "qwen2.5-0.5b-instruct-q8_0.gguf"),
    "qwen2.5:1.5b": ("Qwen/Qwen2.5-1.5B-Instruct-GGUF", "qwen2.5-1.5b-instruct-q8_0.gguf"),
    "qwen3:0.6b": ("Qwen/Qwen3-0.6B-GGUF", "Qwen3-0.6B-Q8_0.gguf"),
    "qwen3:1.7b": ("Qwen/Qwen3-1.7B-GGUF", "Qwen3-1.7B-Q8_0.gguf"),
    "qwen3:8b": ("Qwen/Qwen3-8B-GGUF", "Qwen3-8B-Q4_K_M.gguf"),
    "gemma3:1b": ("ggml-org/gemma-3-1b-it-GGUF", "gemma-3-1b-it-Q8_0.gguf"),
}


def resolve(name: str) -> Path:
    """The path of a model; one that is known by name is downloaded if it is not there."""
    path = Path(name).expanduser()
    if path.exists():
        return path
    if name in NAMES:
        return _downloaded(*NAMES[name])
    if name.startswith("hf.co/"):
        return _downloaded_folder(name.removeprefix("hf.co/"))
    raise DataError(
        f"{name!r} is no file or folder here, and no known name; known are "
        f"{' '.join(sorted(NAMES))}, and hf.co/USER/REPOSITORY"
    )


def _downloaded(repository: str, file: str) -> Path:
    hub = _hub()
    try:
        return Path(hub.hf_hub_download(repository, file))
    except Exception as error:
        raise _offline(f"{repository}/{file}", error) from None


def _downloaded_folder(repository: str) -> Path:
    hub = _hub()
    try:
        patterns = ["*.json", "*.safetensors", "*.jinja"]
        return Path(hub.snapshot_download(repository, allow_patterns=patterns))
    except Exception as error:
        raise _offline(repository, error) from None


def _hub() -> Any:
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError:
        raise DataError(
            "downloading models needs the package huggingface_hub: pip install 'weft[llm]'; or "
            "give --model the path of a file"
        ) from None


def _offline(what: str, error: Exception) -> DataError:
    first = str(error).strip().splitlines()
    reason = first[0][:200] if first else type(error).__name__
    return DataError(
        f"{what} could not be downloaded ({type(error).__name__}: {reason}); where there is no "
        "network, copy the file here and give --model its path"
    )
