"""Fine-tuning by low-rank adapters (Hu et al., "LoRA", 2021) on weights that stay as they are.

In: a `Transformer`, perhaps of quantised weights, and texts as tokens. Out: an adapter, in the form
that the `peft` package reads. Above `model`. Invariant: only the two thin matrices of each adapted
projection are trained; the packed weights are read by forward and backward and never written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weft.dtype import dtypes
from weft.errors import ArgumentError, DataError
from weft.llm.huggingface import read_json
from weft.llm.model import Attention, FeedForward, Part, Places, Transformer
from weft.nn.state import safe_load, safe_save
from weft.tensor import Tensor
from weft.uop.node import UOp

# projections by transformers' names: the part of the block that has them, and where in it
TARGETS: dict[str, tuple[str, int | str]] = {
    "q_proj": ("self_attn", 0),
    "k_proj": ("self_attn", 1),
    "v_proj": ("self_attn", 2),
    "o_proj": ("self_attn", "output"),
    "gate_proj": ("mlp", "gate"),
    "up_proj": ("mlp", "up"),
    "down_proj": ("mlp", "down"),
}


class AdaptedPart(Part):
    """A projection plus the product of two thin ones."""

    def __init__(self, part: Part, down: Tensor, up: Tensor, scale: float) -> None:
        self.part = part
        self.weight, self.bias = part.weight, part.bias
        self.down, self.up, self.scale = down, up, scale

    def __call__(self, x: Tensor) -> Tensor:
        added = (x @ self.down.transpose(0, 1)) @ self.up.transpose(0, 1) * self.scale
        return self.part(x) + added


class Lora:
    """The adapters of a model, one for each chosen projection of each layer."""

    def __init__(
        self,
        model: Transformer,
        rank: int = 8,
        alpha: float = 16.0,
        targets: Iterable[str] = ("q_proj", "v_proj"),
        seed: int = 0,
    ) -> None:
        self.model, self.rank, self.alpha = model, rank, alpha
        self.targets = tuple(targets)
        if rank < 1 or not self.targets or any(name not in TARGETS for name in self.targets):
            raise ArgumentError(
                f"adapters of rank {rank} for {self.targets}; ranks begin at 1, targets are "
                f"{' '.join(TARGETS)}"
            )
        random = np.random.default_rng(seed)
        self.parts: dict[str, AdaptedPart] = {}
        for layer in range(len(model.blk)):
            for name in self.targets:
                part = self._part(layer, name)
                rows, columns = part.weight.shape
                bound = 1 / math.sqrt(columns)
                down = random.uniform(-bound, bound, (rank, columns)).astype(np.float32)
                # nothing is added before the first step
                up = np.zeros((rows, rank), np.float32)
                adapted = AdaptedPart(
                    part, Tensor(down).realize(), Tensor(up).realize(), alpha / rank
                )
                self._set(layer, name, adapted)
                group = TARGETS[name][0]
                self.parts[f"model.layers.{layer}.{group}.{name}"] = adapted

    def _holder(self, layer: int, name: str) -> Attention | FeedForward:
        block = self.model.blk[layer]
        holder = block.attention if TARGETS[name][0] == "self_attn" else block.feed_forward
        fused = isinstance(holder, Attention) and len(holder.parts) == 1 and name != "o_proj"
        is_plain = isinstance(holder, (Attention, FeedForward)) and not fused
        if not is_plain or (name == "gate_proj" and getattr(holder, "gate", None) is None):
            raise ArgumentError(f"this model has no projection {name} of its own to adapt")
        assert isinstance(holder, (Attention, FeedForward))
        return holder

    def _part(self, layer: int, name: str) -> Part:
        holder, place = self._holder(layer, name), TARGETS[name][1]
        if isinstance(place, int):
            assert isinstance(holder, Attention)
            return holder.parts[place]
        part: Part = getattr(holder, place)
        return part

    def _set(self, layer: int, name: str, part: Part) -> None:
        holder, place = self._holder(layer, name), TARGETS[name][1]
        if isinstance(place, int):
            assert isinstance(holder, Attention)
            holder.parts[place] = part
        else:
            setattr(holder, place, part)

    @property
    def parameters(self) -> list[Tensor]:
        """What is trained."""
        return [tensor for part in self.parts.values() for tensor in (part.down, part.up)]

    def loss(self, tokens: Tensor, counts: Tensor | None = None) -> Tensor:
        """How badly the model guesses each next token of texts (batch, length), on average.

        `counts` (batch, length) says which tokens count; those that pad a text do not.
        """
        logits = logits_of(self.model, tokens)[:, :-1]
        each = logits.sparse_categorical_crossentropy(tokens[:, 1:], reduction="none")
        if counts is None:
            return each.mean()
        weights = counts[:, 1:].cast(dtypes.float32)
        return (each * weights).sum() / weights.sum()

    def step(self, optimiser: Any, tokens: Tensor, counts: Tensor | None = None) -> Tensor:
        """One step of an optimiser of `parameters`; the loss before it."""
        loss = self.loss(tokens, counts)
        # of these only: the gradient of a packed weight would be as large as the weight unpacked
        parameters = self.parameters
        for parameter, gradient in zip(parameters, loss.gradient(*parameters), strict=True):
            parameter.grad = gradient
        optimiser.step()
        return loss.realize()

    # -------------------------------------------------------- files
    def save(self, folder: str | Path, base: str = "") -> None:
        """Writes `adapter_config.json` and `adapter_model.safetensors`, as `peft` does."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {}
        for name, part in self.parts.items():
            up = self._rows(name, part.up.numpy(), to_file=True)
            tensors[f"base_model.model.{name}.lora_A.weight"] = part.down
            tensors[f"base_model.model.{name}.lora_B.weight"] = Tensor(up)
        safe_save(tensors, str(folder / "adapter_model.safetensors"))
        config = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": base,
            "r": self.rank,
            "lora_alpha": self.alpha,
            "lora_dropout": 0.0,
            "bias": "none",
            "target_modules": list(self.targets),
            "inference_mode": True,
        }
        text = json.dumps(config, indent=2) + "\n"
        (folder / "adapter_config.json").write_text(text, "utf-8")

    def _rows(self, name: str, up: Any, to_file: bool) -> Any:
        """Rows of queries and keys in the order of transformers' files, or of this model's.

        GGUF's files of Llama's kin have rotary pairs beside each other, transformers' as halves.
        """
        config = self.model.config
        target = name.rpartition(".")[2]
        if config.form.halves or target not in ("q_proj", "k_proj"):
            return up
        heads = config.n_heads if target == "q_proj" else config.n_kv_heads
        half = up.shape[0] // heads // 2
        sizes = (heads, half, 2, -1) if to_file else (heads, 2, half, -1)
        return np.ascontiguousarray(up.reshape(sizes).swapaxes(1, 2)).reshape(up.shape)


def load_adapter(model: Transformer, folder: str | Path) -> Lora:
    """Adds the adapter of a folder to a model."""
    folder = Path(folder)
    config = read_json(folder / "adapter_config.json")
    if config.get("peft_type") != "LORA" or config.get("bias", "none") != "none":
        raise DataError(f"{folder} holds no plain LoRA adapter")
    for name in ("use_dora", "use_rslora", "rank_pattern", "alpha_pattern", "modules_to_save"):
        if config.get(name):
            raise DataError(f"{folder} is an adapter with {name}, which is not read")
    rank: Any = config.get("r")
    alpha: Any = config.get("lora_alpha")
    targets: Any = config.get("target_modules")
    if type(rank) is not int or type(alpha) not in (int, float) or not isinstance(targets, list):
        raise DataError(f"{folder} has an adapter of rank {rank!r}, alpha {alpha!r}: {targets!r}")
    lora = Lora(model, rank, alpha, targets)
    tensors = safe_load(folder / "adapter_model.safetensors")
    for name, part in lora.parts.items():
        for which, mine in (("A", part.down), ("B", part.up)):
            found = tensors.get(f"base_model.model.{name}.lora_{which}.weight")
            if found is None or found.shape != mine.shape:
                shape = None if found is None else found.shape
                raise DataError(f"{folder}: {name} has a matrix of {shape}, not {mine.shape}")
            values = found.to(None).cast(dtypes.float32).numpy()
            values = lora._rows(name, values, to_file=False) if which == "B" else values
            mine.assign(Tensor(values)).realize()
    return lora


# ------------------------------------------------------------ whole texts, without a cache
@dataclass(frozen=True)
class WholeTexts(Places):
    """All tokens of some texts at once: their keys are those of the step itself."""

    @property
    def count(self) -> int | UOp:
        length: int | UOp = self.positions.shape[1]
        return length

    @property
    def columns(self) -> Tensor:
        return self.positions.unsqueeze(1)


class NoCache:
    """Keeps nothing, so gradients flow through keys and values."""

    def extended(self, new: Sequence[Tensor], places: Places) -> list[Tensor]:
        """The new ones are all there are."""
        return list(new)


def logits_of(model: Transformer, tokens: Tensor) -> Tensor:
    """The logits behind every token of texts (batch, length)."""
    batch, length = tokens.shape
    positions = Tensor.arange(length).reshape(1, length).expand(batch, length)
    places = WholeTexts(positions, positions, positions, 1)
    caches: Sequence[Any] = [NoCache() for _ in model.blk]
    return model.logits(model.hidden(tokens, places, caches))
