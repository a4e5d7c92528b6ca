"""Attention over a cache: grouped heads, or heads over one compressed key and value.

In: what comes into a block, (batch, length, width). Out: what attention adds to it.
Between `cache` and `model`. Invariant: scores and odds are float32, whatever the cache holds.
"""

from __future__ import annotations

import math

from weft.dtype import dtypes
from weft.llm.cache import Cache, Places
from weft.llm.config import TransformerConfig
from weft.llm.parts import Norm, Part, Tensors
from weft.llm.rope import apply_rope
from weft.tensor import Tensor


class Attention:
    """Grouped heads over a cache; rotary positions, windows, soft caps, norms as the file has."""

    def __init__(
        self, tensors: Tensors, prefix: str, layer: int, config: TransformerConfig
    ) -> None:
        self.config = config
        self.window = config.window_of(layer)
        is_plain = layer in config.unrotated
        self.chunk = 0 if is_plain else config.chunk
        self.theta = None if is_plain else config.theta_of(layer)
        dim, head = config.dim, config.head_dim
        rows = (
            config.n_heads * head * (1 + config.form.gated_attention),
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
            for which, whole in (("q", config.n_heads * head), ("k", rows[1]))
        )
        self.scale = config.attention_scale or head**-0.5

    def _norm(self, tensors: Tensors, name: str, whole: int) -> Norm | None:
        """Of each head, or of all heads together; its width says which."""
        found = tensors.get(f"{name}.weight")
        if found is None:
            return None
        width = whole if found.shape == (whole,) else self.config.head_dim
        return Norm(tensors, name, width, self.config)

    def _projected(self, x: Tensor) -> tuple[list[Tensor], Tensor | None]:
        """Queries, keys and values: (batch, heads, length, width); the gate, where there is one."""
        found = [part(x) for part in self.parts]
        if len(found) == 1:
            found = list(found[0].split(list(self.sizes), dim=-1))
        config = self.config
        gate = None
        if config.form.gated_attention:
            both = found[0].reshape(*x.shape[:-1], config.n_heads, 2 * config.head_dim)
            found[0], gate = (part.flatten(-2) for part in both.chunk(2, dim=-1))
        widths = (config.head_dim, config.head_dim, config.value_dim)
        result = []
        for value, norm, width in zip(found, (self.q_norm, self.k_norm, None), widths, strict=True):
            if norm is not None and norm.weight.shape[0] != width:
                value, norm = norm(value), None
            heads = value.reshape(*value.shape[:-1], -1, width)
            result.append((heads if norm is None else norm(heads)).transpose(1, 2))
        return result, gate

    def __call__(self, x: Tensor, cache: Cache, angles: Tensor | None, places: Places) -> Tensor:
        (q, k, v), gate = self._projected(x)
        q, k = self._placed(q, k, angles, places)
        keys, values = cache.extended((k, v), places)
        seen = places.seen(self.window, self.chunk)
        found = mixed(q * self.scale, keys, values, seen, self.config)
        batch, length = x.shape[:2]
        found = found.cast(x.dtype).transpose(1, 2).reshape(batch, length, -1)
        return self.output(found if gate is None else found * gate.sigmoid())

    def _placed(
        self, q: Tensor, k: Tensor, angles: Tensor | None, places: Places
    ) -> tuple[Tensor, Tensor]:
        """Queries and keys with what their positions do to them."""
        config = self.config
        if angles is not None:
            q, k = (apply_rope(t, angles, config.form.halves) for t in (q, k))
            if config.unit_heads:
                q, k = (
                    t * (t.square().mean(-1, keepdim=True) + config.norm_eps).rsqrt()
                    for t in (q, k)
                )
        elif config.sharpening:
            # attention over long texts is made sharper, step by step
            steps = ((places.positions + 1) / config.sharpening_length).floor()
            q = q * ((steps + 1).log() * config.sharpening + 1).reshape(q.shape[0], 1, -1, 1)
        return q, k


def mixed(
    q: Tensor, keys: Tensor, values: Tensor, seen: Tensor, config: TransformerConfig
) -> Tensor:
    """Values by the odds of their keys: (batch, heads, length, width), in float32."""
    batch, heads, length, width = q.shape
    kv_heads, count = keys.shape[1:3]
    groups = heads // kv_heads
    # heads of a group read the same keys
    grouped = q.reshape(batch, kv_heads, groups * length, width)
    scores = (grouped.cast(dtypes.float32) @ keys.transpose(-1, -2).cast(dtypes.float32)).reshape(
        batch, kv_heads, groups, length, count
    )
    if config.attention_softcap:
        scores = (scores / config.attention_softcap).tanh() * config.attention_softcap
    seen = seen.reshape(batch, 1, 1, length, count)
    odds = seen.where(scores, -math.inf).softmax(-1)
    odds = odds.reshape(batch, kv_heads, groups * length, count)
    return (odds @ values.cast(dtypes.float32)).reshape(batch, heads, length, values.shape[-1])


class LatentAttention:
    """Heads whose keys and values are projections of one short vector a token, which is cached.

    The projections are moved to the other side: a query is projected instead of all keys, and what
    a head mixed instead of all values. So all heads read one key, [vector, rotated part], and one
    value, the vector (DeepSeek-AI, "DeepSeek-V2", 2024, section 2.1).
    """

    def __init__(
        self, tensors: Tensors, prefix: str, layer: int, config: TransformerConfig
    ) -> None:
        sizes = config.latent
        assert sizes is not None
        self.config, self.sizes = config, sizes
        self.theta = config.theta_of(layer)
        heads, dim, rank = config.n_heads, config.dim, sizes.kv_rank
        rows = heads * (sizes.plain + sizes.rotated)
        self.q_first: Part | None = None
        if f"{prefix}attn_q_a.weight" in tensors:
            self.q_first = Part(tensors, f"{prefix}attn_q_a", (sizes.q_rank, dim))
            self.q_norm = Norm(tensors, f"{prefix}attn_q_a_norm", sizes.q_rank, config)
            self.q = Part(tensors, f"{prefix}attn_q_b", (rows, sizes.q_rank))
        else:
            self.q = Part(tensors, f"{prefix}attn_q", (rows, dim))
        self.kv = Part(tensors, f"{prefix}attn_kv_a_mqa", (rank + sizes.rotated, dim))
        self.kv_norm = Norm(tensors, f"{prefix}attn_kv_a_norm", rank, config)
        # (heads, rank, plain) and (heads, value, rank); older files have both as rows of one matrix
        if f"{prefix}attn_k_b.weight" in tensors:
            self.k_out = Part(tensors, f"{prefix}attn_k_b", (heads, rank, sizes.plain)).weight
            self.v_out = Part(tensors, f"{prefix}attn_v_b", (heads, sizes.value, rank)).weight
        else:
            both = Part(
                tensors, f"{prefix}attn_kv_b", (heads * (sizes.plain + sizes.value), rank)
            ).weight.reshape(heads, sizes.plain + sizes.value, rank)
            self.k_out = both[:, : sizes.plain].transpose(-1, -2)
            self.v_out = both[:, sizes.plain :]
        self.output = Part(tensors, f"{prefix}attn_output", (dim, heads * sizes.value))
        self.scale = config.attention_scale or (sizes.plain + sizes.rotated) ** -0.5

    def __call__(self, x: Tensor, cache: Cache, angles: Tensor, places: Places) -> Tensor:
        sizes, halves = self.sizes, self.config.form.halves
        batch, length = x.shape[:2]
        q = self.q(x if self.q_first is None else self.q_norm(self.q_first(x)))
        q = q.reshape(batch, length, self.config.n_heads, -1).transpose(1, 2)
        plain, turned = q.split([sizes.plain, sizes.rotated], dim=-1)
        absorbed = plain @ self.k_out.transpose(-1, -2)
        q = absorbed.cat(apply_rope(turned, angles, halves), dim=-1)
        short, k = self.kv(x).split([sizes.kv_rank, sizes.rotated], dim=-1)
        k = apply_rope(k.unsqueeze(1), angles, halves)
        (keys,) = cache.extended((self.kv_norm(short).unsqueeze(1).cat(k, dim=-1),), places)
        values = keys[..., : sizes.kv_rank]
        found = mixed(q * self.scale, keys, values, places.seen(), self.config)
        heads = (found @ self.v_out.transpose(-1, -2)).cast(x.dtype)
        return self.output(heads.transpose(1, 2).reshape(batch, length, -1))
