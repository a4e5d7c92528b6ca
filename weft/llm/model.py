"""The transformer: blocks of attention and feed-forward parts over a cache of keys and values.

In: a config and the tensors of a file by GGUF's names. Out: logits of the tokens that follow.
Above `attention` and `recurrent`. Invariant: one block serves all architectures; what a file has no
tensor for (a bias, a norm, a gate) is not there, and is not computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.dtype import DType, dtypes
from weft.errors import DataError
from weft.llm.attention import Attention, LatentAttention
from weft.llm.cache import PAGE, Cache, Places
from weft.llm.config import ExpertGating, SSMConfig, TransformerConfig
from weft.llm.parts import Experts, FeedForward, Norm, Part, Tensors, pairwise_topk
from weft.llm.recurrent import GatedDeltaNet, Mamba, State
from weft.llm.rope import apply_rope, precompute_freqs_cis
from weft.tensor import Tensor
from weft.uop.node import UOp

# names that users of tinygrad's `llm.model` know are here too
__all__ = [
    "PAGE",
    "Attention",
    "Cache",
    "ExpertGating",
    "FeedForward",
    "GatedDeltaNetBlock",
    "LatentAttention",
    "MLATransformerBlock",
    "Part",
    "Places",
    "SSMConfig",
    "Transformer",
    "TransformerBlock",
    "TransformerConfig",
    "apply_rope",
    "pairwise_topk",
    "precompute_freqs_cis",
]


# texts that models with states can continue at once, at least
LEAST_SLOTS = 8

Mixer = Attention | LatentAttention | Mamba | GatedDeltaNet


class TransformerBlock:
    """A part that reads other tokens and a feed-forward part, each added to what comes in."""

    def __init__(self, tensors: Tensors, layer: int, config: TransformerConfig) -> None:
        prefix = f"blk.{layer}."
        self.config = config
        self.attention: Any = self.mixer(tensors, prefix, layer)
        self.attn_norm, self.ffn_norm, self.attn_post, self.ffn_post = (
            Norm(tensors, prefix + name, config.dim, config)
            if f"{prefix}{name}.weight" in tensors
            else None
            for name in ("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm")
        )
        self.feed_forward = self.second(tensors, prefix)

    def mixer(self, tensors: Tensors, prefix: str, layer: int) -> Mixer:
        """The part that reads other tokens."""
        return Attention(tensors, prefix, layer, self.config)

    def second(self, tensors: Tensors, prefix: str) -> Experts | FeedForward | None:
        """The part behind it."""
        experts = self.config.experts
        if experts is not None and f"{prefix}ffn_gate_inp.weight" in tensors:
            return Experts(tensors, prefix, self.config, experts)
        return FeedForward(tensors, prefix, self.config)

    def new_cache(self, pages: int, slots: int, dtype: DType) -> Cache | State:
        """Room for so many pages, or texts."""
        config = self.config
        return Cache(config.n_kv_heads, config.head_dim, config.value_dim, pages, dtype)

    def __call__(
        self, x: Tensor, cache: Cache | State, angles: Tensor | None, places: Places
    ) -> Tensor:
        scale = self.config.residual_scale
        seen = _maybe(self.attn_norm, x)
        mixed = _maybe(self.attn_post, self.attention(seen, cache, angles, places))
        if self.config.form.parallel and self.feed_forward is not None:
            inner = _maybe(self.ffn_norm, x) if self.ffn_norm is not None else seen
            return (x + mixed + self.feed_forward(inner)).contiguous()
        x = x + (mixed if scale == 1 else mixed * scale)
        if self.feed_forward is None:
            return x.contiguous()
        fed = _maybe(self.ffn_post, self.feed_forward(_maybe(self.ffn_norm, x)))
        return (x + (fed if scale == 1 else fed * scale)).contiguous()


class MLATransformerBlock(TransformerBlock):
    """A block whose keys and values are projections of one short vector a token."""

    def mixer(self, tensors: Tensors, prefix: str, layer: int) -> LatentAttention:
        return LatentAttention(tensors, prefix, layer, self.config)

    def new_cache(self, pages: int, slots: int, dtype: DType) -> Cache:
        sizes = self.config.latent
        assert sizes is not None
        return Cache(1, sizes.kv_rank + sizes.rotated, 0, pages, dtype)


class GatedDeltaNetBlock(TransformerBlock):
    """A block that carries a matrix a head from token to token."""

    def mixer(self, tensors: Tensors, prefix: str, layer: int) -> GatedDeltaNet | Mamba:
        return GatedDeltaNet(tensors, prefix, layer, self.config)

    def new_cache(self, pages: int, slots: int, dtype: DType) -> State:
        return State(slots, self.attention.shapes)


class MambaBlock(GatedDeltaNetBlock):
    """A state space, and nothing behind it."""

    def mixer(self, tensors: Tensors, prefix: str, layer: int) -> Mamba:
        return Mamba(tensors, prefix, layer, self.config)

    def second(self, tensors: Tensors, prefix: str) -> None:
        return None


def block_of(tensors: Tensors, layer: int, config: TransformerConfig) -> TransformerBlock:
    """The block of a layer."""
    kind = TransformerBlock if config.latent is None else MLATransformerBlock
    if config.ssm is not None and layer in config.ssm_layers:
        kind = MambaBlock if config.ssm.kind == "mamba" else GatedDeltaNetBlock
    return kind(tensors, layer, config)


def _maybe(norm: Norm | None, x: Tensor) -> Tensor:
    return x if norm is None else norm(x)


class Transformer:
    """A language model over a cache in pages: tokens and their places -> what follows them."""

    def __init__(
        self,
        config: TransformerConfig,
        tensors: Tensors,
        cache_dtype: DType = dtypes.float16,
        texts: int = 1,
    ) -> None:
        """The cache has room for so many `texts` of the whole context."""
        self.config = config
        self.max_context = config.max_context
        vocabulary, dim = config.vocab_size, config.dim
        table = tensors.get("token_embd.weight")
        if not vocabulary and table is not None:
            vocabulary = table.shape[0]
        self.token_embd = Part(tensors, "token_embd", (vocabulary, dim))
        self.blk = [block_of(tensors, i, config) for i in range(config.num_blocks)]
        self.output_norm = Norm(tensors, "output_norm", dim, config)
        self.output = self.token_embd
        if "output.weight" in tensors:
            self.output = Part(tensors, "output", (vocabulary, dim))
        self.pages_of_text = -(-config.max_context // PAGE)
        self.pages = texts * self.pages_of_text + 1
        # texts that can be continued at once, where each has a state; slot 0 belongs to none
        self.slots = max(texts, LEAST_SLOTS) + 1 if config.ssm_layers else 0
        self.caches = [b.new_cache(self.pages, self.slots, cache_dtype) for b in self.blk]
        factors = _rope_factors(tensors, config)
        self.angles = {
            theta: precompute_freqs_cis(
                config.rope_dim,
                self.pages_of_text * PAGE,
                theta,
                config.rope_scaling,
                factors if theta == config.rope_theta else None,
            ).realize()
            for theta in {block.attention.theta for block in self.blk} - {None}
        }

    def hidden(
        self, tokens: Tensor, places: Places, caches: Sequence[Cache | State] | None = None
    ) -> Tensor:
        """What the last block gives for tokens (batch, length): (batch, length, width)."""
        config = self.config
        x = self.token_embd.weight[tokens].cast(dtypes.float32)
        scale = config.embedding_scale * (
            math.sqrt(config.dim) if config.form.scaled_embedding else 1
        )
        x = (x if scale == 1 else x * scale).contiguous()
        # beside the heads, (batch, 1, length, rotated)
        angles = {k: table[places.positions].unsqueeze(1) for k, table in self.angles.items()}
        for block, cache in zip(self.blk, caches or self.caches, strict=True):
            x = block(x, cache, angles.get(block.attention.theta), places)
        return x

    def logits(self, x: Tensor) -> Tensor:
        """Of what `hidden` gave: (..., vocabulary)."""
        config = self.config
        logits = self.output(self.output_norm(x)).cast(dtypes.float32)
        logits = logits if config.logit_scale == 1 else logits / config.logit_scale
        cap = config.logit_softcap
        return (logits / cap).tanh() * cap if cap else logits

    def forward(self, tokens: Tensor, start: int | UOp, last: int | UOp) -> Tensor:
        """The logits (vocabulary,) behind token number `last` of `tokens` (1, length).

        The text is the only one, and stands in the first pages.
        """
        length = tokens.shape[1]
        positions = Tensor.arange(length).reshape(1, length) + start
        table = Tensor.arange(self.pages_of_text).reshape(1, -1) + 1
        pages = (start + length + PAGE - 1) // PAGE
        slots = Tensor([1], dtype=dtypes.int32) if self.slots else None
        x = self.hidden(tokens, Places(positions, positions + PAGE, table, pages, slots))
        # the others' logits are not asked for
        return self.logits(x[:, last : last + 1]).reshape(-1)

    __call__ = forward


def _rope_factors(tensors: Tensors, config: TransformerConfig) -> Any:
    """The factors of frequencies that a file has as tensors."""
    name = "rope_freqs.weight"
    if config.rope_scaling.kind == "longrope":
        is_long = config.max_context > config.rope_scaling.original_context
        name = f"rope_factors_{'long' if is_long else 'short'}.weight"
    found = tensors.get(name)
    if found is None:
        return None
    factors: np.ndarray[Any, Any] = found.numpy()
    if factors.shape != (config.rope_dim // 2,) or not (np.isfinite(factors) & (factors > 0)).all():
        raise DataError(
            f"{name} has {factors.shape} values, not {config.rope_dim // 2} positive ones"
        )
    return factors
