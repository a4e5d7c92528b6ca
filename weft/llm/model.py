"""The transformer: blocks of attention and feed-forward parts over a cache of keys and values.

In: a config and the tensors of a file by GGUF's names. Out: logits of the tokens that follow.
Above `config` and `rope`. Invariant: one block serves all architectures; what a file has no tensor
for (a bias, a norm, a gate) is not there, and is not computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.dtype import DType, dtypes
from weft.errors import DataError
from weft.llm.config import ExpertGating, TransformerConfig
from weft.llm.rope import apply_rope, precompute_freqs_cis
from weft.tensor import Tensor
from weft.uop.node import UOp

Tensors = Mapping[str, Tensor]


class Part:
    """The tensors of one name: a weight and perhaps a bias."""

    def __init__(self, tensors: Tensors, name: str, shape: tuple[int, ...]) -> None:
        if f"{name}.weight" not in tensors:
            raise DataError(f"there is no tensor {name}.weight, which should be of shape {shape}")
        self.weight = tensors[f"{name}.weight"]
        self.bias = tensors.get(f"{name}.bias")
        if self.weight.shape != shape:
            raise DataError(
                f"the tensor {name}.weight is of shape {self.weight.shape}, not {shape} as the "
                "sizes of the model have it"
            )

    def __call__(self, x: Tensor) -> Tensor:
        product = x @ self.weight.transpose(-1, -2)
        return product if self.bias is None else product + self.bias


class Norm(Part):
    """Root mean square, or mean and deviation; in float32."""

    def __init__(self, tensors: Tensors, name: str, width: int, config: TransformerConfig) -> None:
        super().__init__(tensors, name, (width,))
        self.centred = config.form.norm == "layer"
        self.eps = config.norm_eps

    def __call__(self, x: Tensor) -> Tensor:
        wide = x.cast(dtypes.float32)
        if self.centred:
            wide = wide - wide.mean(-1, keepdim=True)
        normal = wide * (wide.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.weight
        result = normal if self.bias is None else normal + self.bias
        return result.cast(x.dtype)


def pairwise_topk(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k greatest of the last axis and their places, by comparing all pairs: for short axes.

    >>> [t.tolist() for t in pairwise_topk(Tensor([3.0, 9.0, 1.0, 9.0]), 2)]
    [[9.0, 9.0], [1, 3]]
    """
    count = x.shape[-1]
    first, second = x.unsqueeze(-1), x.unsqueeze(-2)
    places = Tensor.arange(count)
    earlier = places.unsqueeze(0) < places.unsqueeze(1)
    # how many come before each: greater ones, and equal ones further in front
    rank = ((second > first) | ((second == first) & earlier)).sum(-1)
    chosen = rank.unsqueeze(-2) == Tensor.arange(k).unsqueeze(-1)
    index = (chosen * places).sum(-1).cast(dtypes.int32)
    return chosen.where(x.unsqueeze(-2), 0).sum(-1), index


class FeedForward:
    """Two or three projections around an activation."""

    def __init__(
        self, tensors: Tensors, prefix: str, config: TransformerConfig, suffix: str = ""
    ) -> None:
        up = tensors.get(f"{prefix}ffn_up{suffix}.weight")
        rows = up.shape[0] if up is not None and up.ndim == 2 else config.hidden_dim
        self.gate: Part | None = None
        self.fused = False
        hidden = rows
        if f"{prefix}ffn_gate{suffix}.weight" in tensors:
            self.gate = Part(tensors, f"{prefix}ffn_gate{suffix}", (rows, config.dim))
        elif config.form.gated:
            # gate and up are one tensor
            self.fused, hidden = True, rows // 2
        self.up = Part(tensors, f"{prefix}ffn_up{suffix}", (rows, config.dim))
        self.down = Part(tensors, f"{prefix}ffn_down{suffix}", (config.dim, hidden))
        self.activation = config.form.activation

    def __call__(self, x: Tensor) -> Tensor:
        up = self.up(x)
        if self.fused:
            gate, up = up.chunk(2, dim=-1)
            return self.down(activate(gate, self.activation) * up)
        if self.gate is None:
            return self.down(activate(up, self.activation))
        return self.down(activate(self.gate(x), self.activation) * up)


def activate(x: Tensor, name: str) -> Tensor:
    """The activation of a feed-forward part."""
    return x.silu() if name == "silu" else x.gelu()


class Experts:
    """A feed-forward part of which each token uses a few experts, and all the shared one."""

    def __init__(
        self, tensors: Tensors, prefix: str, config: TransformerConfig, gating: ExpertGating
    ) -> None:
        count, dim = gating.count, config.dim
        self.gating = gating
        self.choose = Part(tensors, f"{prefix}ffn_gate_inp", (count, dim))
        self.offset = tensors.get(f"{prefix}exp_probs_b.bias")
        gate = tensors.get(f"{prefix}ffn_gate_exps.weight")
        hidden = gate.shape[1] if gate is not None and gate.ndim == 3 else config.hidden_dim
        self.gate = Part(tensors, f"{prefix}ffn_gate_exps", (count, hidden, dim))
        self.up = Part(tensors, f"{prefix}ffn_up_exps", (count, hidden, dim))
        self.down = Part(tensors, f"{prefix}ffn_down_exps", (count, dim, hidden))
        self.activation = config.form.activation
        self.shared: FeedForward | None = None
        self.shared_gate = tensors.get(f"{prefix}ffn_gate_inp_shexp.weight")
        if f"{prefix}ffn_up_shexp.weight" in tensors:
            self.shared = FeedForward(tensors, prefix, config, "_shexp")

    def weights(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The weights of the chosen experts and which they are: (batch, length, used) each."""
        scores = self.choose(x.cast(dtypes.float32))
        kind = self.gating.gating
        if kind == "softmax_chosen":
            values, index = pairwise_topk(scores, self.gating.used)
            return values.softmax(-1), index
        odds = scores.sigmoid() if kind == "sigmoid" else scores.softmax(-1)
        _, index = pairwise_topk(
            odds if self.offset is None else odds + self.offset, self.gating.used
        )
        values = odds.gather(-1, index)
        if self.gating.normalised:
            values = values / values.sum(-1, keepdim=True)
        return values * self.gating.scale, index

    def __call__(self, x: Tensor) -> Tensor:
        weights, index = self.weights(x)
        rows = x.unsqueeze(-2).unsqueeze(-2)
        gate, up = (
            (rows @ part.weight[index].transpose(-1, -2)).squeeze(-2)
            for part in (self.gate, self.up)
        )
        inner = (activate(gate, self.activation) * up).unsqueeze(-2)
        outer = (inner @ self.down.weight[index].transpose(-1, -2)).squeeze(-2)
        result = (outer * weights.unsqueeze(-1)).sum(-2).cast(x.dtype)
        if self.shared is None:
            return result
        shared = self.shared(x)
        if self.shared_gate is not None:
            shared = shared * (x @ self.shared_gate.reshape(-1, 1)).sigmoid()
        return result + shared


class Attention:
    """Grouped heads over a cache; rotary positions, windows, soft caps, norms as the file has."""

    def __init__(
        self, tensors: Tensors, prefix: str, layer: int, config: TransformerConfig
    ) -> None:
        self.config = config
        self.window = config.window_of(layer)
        self.theta = config.theta_of(layer)
        dim, head = config.dim, config.head_dim
        rows = (
            config.n_heads * head,
            config.n_kv_heads * head,
            config.n_kv_heads * config.value_dim,
        )
        self.sizes = rows
        if f"{prefix}attn_qkv.weight" in tensors:
            self.parts = [Part(tensors, f"{prefix}attn_qkv", (sum(rows), dim))]
        else:
            names = ("attn_q", "attn_k", "attn_v")
            self.parts = [
                Part(tensors, prefix + n, (r, dim)) for n, r in zip(names, rows, strict=True)
            ]
        self.output = Part(
            tensors, f"{prefix}attn_output", (dim, config.n_heads * config.value_dim)
        )
        self.q_norm, self.k_norm = (
            self._norm(tensors, f"{prefix}attn_{which}_norm", whole)
            for which, whole in (("q", rows[0]), ("k", rows[1]))
        )
        self.scale = config.attention_scale or head**-0.5

    def _norm(self, tensors: Tensors, name: str, whole: int) -> Norm | None:
        """Of each head, or of all heads together; its width says which."""
        found = tensors.get(f"{name}.weight")
        if found is None:
            return None
        width = whole if found.shape == (whole,) else self.config.head_dim
        return Norm(tensors, name, width, self.config)

    def _projected(self, x: Tensor) -> list[Tensor]:
        """Queries, keys and values: (batch, heads, length, width)."""
        found = [part(x) for part in self.parts]
        if len(found) == 1:
            found = list(found[0].split(list(self.sizes), dim=-1))
        config = self.config
        widths = (config.head_dim, config.head_dim, config.value_dim)
        result = []
        for value, norm, width in zip(found, (self.q_norm, self.k_norm, None), widths, strict=True):
            if norm is not None and norm.weight.shape[0] != width:
                value, norm = norm(value), None
            heads = value.reshape(*value.shape[:-1], -1, width)
            result.append((heads if norm is None else norm(heads)).transpose(1, 2))
        return result

    def __call__(self, x: Tensor, cache: Cache, angles: Tensor, places: Places) -> Tensor:
        q, k, v = self._projected(x)
        halves = self.config.form.halves
        q, k = apply_rope(q, angles, halves), apply_rope(k, angles, halves)
        keys, values = cache.extended(k, v, places)
        mixed = self._mixed(q, keys, values, places).cast(x.dtype)
        batch, length = x.shape[:2]
        return self.output(mixed.transpose(1, 2).reshape(batch, length, -1))

    def _mixed(self, q: Tensor, keys: Tensor, values: Tensor, places: Places) -> Tensor:
        """Values by the odds of their keys: (batch, heads, length, width), in float32."""
        config = self.config
        batch, _, length, width = q.shape
        columns = places.columns
        seen = columns <= places.positions.unsqueeze(-1)
        if self.window:
            seen = seen & (columns > places.positions.unsqueeze(-1) - self.window)
        groups = config.n_heads // config.n_kv_heads
        # heads of a group read the same keys
        grouped = (q * self.scale).reshape(batch, config.n_kv_heads, groups * length, width)
        scores = (
            grouped.cast(dtypes.float32) @ keys.transpose(-1, -2).cast(dtypes.float32)
        ).reshape(batch, config.n_kv_heads, groups, length, places.count)
        if config.attention_softcap:
            scores = (scores / config.attention_softcap).tanh() * config.attention_softcap
        seen = seen.reshape(batch, 1, 1, length, places.count)
        odds = seen.where(scores, -math.inf).softmax(-1)
        odds = odds.reshape(batch, config.n_kv_heads, groups * length, places.count)
        mixed = odds @ values.cast(dtypes.float32)
        return mixed.reshape(batch, config.n_heads, length, values.shape[-1])


# tokens of a page of the cache
PAGE = 32


@dataclass(frozen=True)
class Places:
    """Where the tokens of a step stand in their texts, and where the cache has these texts.

    A text's keys and values lie in pages, in any order; `table` lists them. Page 0 belongs to no
    text: what pads a step is written there.
    """

    positions: Tensor  # (batch, length): in their texts
    rows: Tensor  # (batch, length): of the cache, where their keys and values are written
    table: Tensor  # (batch, pages at most)
    pages: int | UOp  # so many pages of each text are read

    @property
    def count(self) -> int | UOp:
        """Keys that are read."""
        return self.pages * PAGE

    @property
    def columns(self) -> Tensor:
        """The positions of the keys that are read: (1, 1, count)."""
        most = self.table.shape[1] * PAGE
        columns = Tensor.arange(most).reshape(1, 1, most)
        return columns.shrink(((0, 1), (0, 1), (0, self.count)))


class Cache:
    """Keys and values of the texts so far, of one layer: rows of pages."""

    def __init__(self, config: TransformerConfig, pages: int, dtype: DType) -> None:
        shape = (config.n_kv_heads, pages * PAGE)
        self.keys = Tensor.zeros(*shape, config.head_dim, dtype=dtype).contiguous().realize()
        self.values = Tensor.zeros(*shape, config.value_dim, dtype=dtype).contiguous().realize()

    def extended(self, k: Tensor, v: Tensor, places: Places) -> tuple[Tensor, Tensor]:
        """All keys and values (batch, heads, count, width); the new ones are written first."""
        rows = places.rows.reshape(-1)
        for memory, new in ((self.keys, k), (self.values, v)):
            heads, _, width = memory.shape
            flat = new.transpose(0, 1).reshape(heads, rows.shape[0], width)
            memory[:, rows] = flat.cast(memory.dtype)
        Tensor.realize(self.keys, self.values)
        return self._read(self.keys, places), self._read(self.values, places)

    @staticmethod
    def _read(memory: Tensor, places: Places) -> Tensor:
        heads, rows, width = memory.shape
        batch = places.table.shape[0]
        pages = memory.reshape(heads, rows // PAGE, PAGE, width)
        found = pages[:, places.table[:, : places.pages]].transpose(0, 1)
        return found.reshape(batch, heads, places.count, width)


class TransformerBlock:
    """Attention and a feed-forward part, each added to what comes in."""

    def __init__(self, tensors: Tensors, layer: int, config: TransformerConfig) -> None:
        prefix = f"blk.{layer}."
        self.config = config
        self.attention = Attention(tensors, prefix, layer, config)
        self.attn_norm, self.ffn_norm, self.attn_post, self.ffn_post = (
            Norm(tensors, prefix + name, config.dim, config)
            if f"{prefix}{name}.weight" in tensors
            else None
            for name in ("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm")
        )
        experts = config.experts
        self.feed_forward: Experts | FeedForward = (
            Experts(tensors, prefix, config, experts)
            if experts is not None and f"{prefix}ffn_gate_inp.weight" in tensors
            else FeedForward(tensors, prefix, config)
        )

    def __call__(self, x: Tensor, cache: Cache, angles: Tensor, places: Places) -> Tensor:
        scale = self.config.residual_scale
        seen = _maybe(self.attn_norm, x)
        mixed = _maybe(self.attn_post, self.attention(seen, cache, angles, places))
        if self.config.form.parallel:
            inner = _maybe(self.ffn_norm, x) if self.ffn_norm is not None else seen
            return (x + mixed + self.feed_forward(inner)).contiguous()
        x = x + (mixed if scale == 1 else mixed * scale)
        fed = _maybe(self.ffn_post, self.feed_forward(_maybe(self.ffn_norm, x)))
        return (x + (fed if scale == 1 else fed * scale)).contiguous()


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
        self.blk = [TransformerBlock(tensors, i, config) for i in range(config.num_blocks)]
        self.output_norm = Norm(tensors, "output_norm", dim, config)
        self.output = self.token_embd
        if "output.weight" in tensors:
            self.output = Part(tensors, "output", (vocabulary, dim))
        self.pages_of_text = -(-config.max_context // PAGE)
        self.pages = texts * self.pages_of_text + 1
        self.caches = [Cache(config, self.pages, cache_dtype) for _ in self.blk]
        factors = _rope_factors(tensors, config)
        self.angles = {
            theta: precompute_freqs_cis(
                config.rope_dim,
                self.pages_of_text * PAGE,
                theta,
                config.rope_scaling,
                factors if theta == config.rope_theta else None,
            ).realize()
            for theta in {config.theta_of(i) for i in range(config.num_blocks)}
        }

    def hidden(
        self, tokens: Tensor, places: Places, caches: Sequence[Cache] | None = None
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
            x = block(x, cache, angles[block.attention.theta], places)
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
        x = self.hidden(tokens, Places(positions, positions + PAGE, table, pages))
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
