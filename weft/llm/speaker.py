"""A model that talks: the transformer with its tokens and its chat template.

In: a `Loaded` model. Out: prompts as tokens. Above `load`, `tokens` and `template`. Invariant: the
command line and the server make the same tokens of the same chat.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.llm.huggingface import read_json
from weft.llm.load import Loaded
from weft.llm.template import ChatTemplate, FallbackTemplate, Message, template_of
from weft.llm.tokens import tokenizer_from_folder, tokenizer_from_gguf


class Speaker:
    """Tokens of texts and chats for one model."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.name = loaded.path.name.removesuffix(".gguf")
        self.template: ChatTemplate | FallbackTemplate
        if loaded.values:
            self.tokenizer = tokenizer_from_gguf(loaded.values, str(loaded.path))
            self.template = template_of(loaded.values, loaded.values["tokenizer.ggml.tokens"])
        else:
            self.tokenizer = tokenizer_from_folder(loaded.path)
            self.template = _template_of_folder(loaded.path)

    def chat(self, messages: Sequence[Message], **values: Any) -> tuple[list[int], str]:
        """The tokens that an answer follows, and their text."""
        text = self.template.render(messages, **values)
        return self.tokenizer.prompt(text), text


def _template_of_folder(folder: Path) -> ChatTemplate | FallbackTemplate:
    beside = folder / "chat_template.jinja"
    settings: dict[str, Any] = {}
    if (folder / "tokenizer_config.json").exists():
        settings = read_json(folder / "tokenizer_config.json")
    source = beside.read_text("utf-8") if beside.exists() else settings.get("chat_template")
    if not isinstance(source, str):
        return FallbackTemplate()
    names = {}
    for name in ("bos_token", "eos_token"):
        value = settings.get(name)
        names[name] = value.get("content", "") if isinstance(value, dict) else value or ""
    return ChatTemplate(source, names)
