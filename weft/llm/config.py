"""What a language model is made of, read from the values of its file.

In: the values of a GGUF file, or the `config.json` of a Hugging Face folder. Out: a
`TransformerConfig`. First of the package. Invariant: what differs between architectures is a row of
ARCHITECTURES or a number of the file; nothing further on asks for an architecture's name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from weft.errors import DataError

MOST_LAYERS = 1 << 12
MOST_WIDTH = 1 << 20
MOST_CONTEXT = 1 << 24


@dataclass(frozen=True)
class Architecture:
    """What the values of a file do not say about a family of models."""

    halves: bool = True  # rotary pairs are (i, i + n/2); else neighbours (2i, 2i + 1)
    norm: str = "rms"  # or "layer", with means and biases
    activation: str = "silu"  # or "gelu" (the tanh form)
    gated: bool = True  # a product of two projections inside of the feed-forward part
    scaled_embedding: bool = False  # by the square root of the width
    parallel: bool = False  # attention and feed-forward read the same input
    window_period: int = 0  # of so many layers the last sees everything; 0: all layers are alike
    local_theta: float | None = None  # rotary base of layers with a window, where it is another
    # of experts: before the choice; "softmax_chosen": after; "sigmoid"; "sigmoid_input": of what
    # goes into an expert
    gating: str = "softmax"
    normalised_experts: bool = True  # weights of the chosen experts are made to add up to 1
    latent: bool = False  # keys and values are projections of one short vector a token
    norm_offset: float = 0.0  # of the weights of norms, as Hugging Face's folders have them
    gated_attention: bool = False  # rows of queries are followed by those of a gate, head by head


ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture(halves=False),
    "llama4": Architecture(halves=False, gating="sigmoid_input"),
    "mistral": Architecture(halves=False),
    "mixtral": Architecture(halves=False),
    "granite": Architecture(halves=False),
    "granitemoe": Architecture(halves=False, gating="softmax_chosen"),
    "smollm3": Architecture(halves=False),
    "qwen2": Architecture(),
    "qwen2moe": Architecture(normalised_experts=False),
    "qwen3": Architecture(),
    "qwen3moe": Architecture(),
    "qwen3next": Architecture(norm_offset=1.0, gated_attention=True),
    "gemma": Architecture(activation="gelu", scaled_embedding=True, norm_offset=1.0),
    "gemma2": Architecture(
        activation="gelu", scaled_embedding=True, norm_offset=1.0, window_period=2
    ),
    "gemma3": Architecture(
        activation="gelu",
        scaled_embedding=True,
        norm_offset=1.0,
        window_period=6,
        local_theta=10000.0,
    ),
    "mamba": Architecture(),
    "phi3": Architecture(),
    "olmo2": Architecture(),
    "olmoe": Architecture(normalised_experts=False),
    "glm4": Architecture(halves=False),
    "deepseek2": Architecture(halves=False, normalised_experts=False, latent=True),
    "starcoder2": Architecture(norm="layer", activation="gelu", gated=False),
    "stablelm": Architecture(norm="layer"),
    "phi2": Architecture(norm="layer", activation="gelu", gated=False, parallel=True),
    "gptneox": Architecture(norm="layer", activation="gelu", gated=False, parallel=True),
}


@dataclass(frozen=True)
class RopeScaling:
    """How rotary frequencies are stretched for contexts longer than those of the training.

    "linear" divides all of them by `factor`; "llama3" the slow ones, smoothly; "yarn" likewise, by
    the number of turns in the old context, and makes attention sharper; "longrope" has a factor
    for each pair in the file.
    """

    kind: str = "none"
    factor: float = 1.0
    original_context: int = 0
    low_factor: float = 1.0  # llama3
    high_factor: float = 4.0
    fast_turns: float = 32.0  # yarn
    slow_turns: float = 1.0
    attention_factor: float | None = None


@dataclass(frozen=True)
class ExpertGating:
    """A feed-forward part of which each token uses a few experts."""

    count: int
    used: int
    gating: str = "softmax"
    normalised: bool = True
    scale: float = 1.0
    groups: int = 1  # experts are chosen from some of the groups only
    groups_used: int = 1


@dataclass(frozen=True)
class LatentSizes:
    """Attention whose keys and values are projections of one short vector a token."""

    q_rank: int  # of queries, likewise; 0: they are projected at once
    kv_rank: int
    plain: int  # of each head's key: not rotated, rotated
    rotated: int
    value: int


@dataclass(frozen=True)
class SSMConfig:
    """Layers that carry a state: Mamba's, or heads of a gated delta net."""

    kind: str  # "mamba" or "delta"
    conv_kernel: int
    inner_size: int  # width of the layer, all heads together
    state_size: int  # numbers a channel carries; of a head, the width of keys
    time_step_rank: int = 0  # Mamba's
    key_heads: int = 0  # of a delta net
    value_heads: int = 0

    @property
    def value_size(self) -> int:
        """The width of a head's values."""
        return self.inner_size // max(self.value_heads, 1)


@dataclass(frozen=True)
class TransformerConfig:
    """The sizes and forms of one model."""

    architecture: str
    dim: int
    num_blocks: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    value_dim: int
    hidden_dim: int
    vocab_size: int
    max_context: int
    norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    rope_dim: int = 0
    rope_scaling: RopeScaling = field(default_factory=RopeScaling)
    form: Architecture = field(default_factory=Architecture)
    window: int = 0
    attention_scale: float = 0.0
    attention_softcap: float = 0.0
    logit_softcap: float = 0.0
    logit_scale: float = 1.0
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    experts: ExpertGating | None = None
    latent: LatentSizes | None = None
    chunk: int = 0  # tokens of a chunk outside of which nothing is seen; 0: there are none
    unrotated: tuple[int, ...] = ()  # layers without rotary positions, which see everything
    unit_heads: bool = False  # queries and keys that are rotated are then made of length 1
    sharpening: float = 0.0  # of attention without rotary positions, every so many tokens
    sharpening_length: int = 1
    ssm: SSMConfig | None = None
    ssm_layers: tuple[int, ...] = ()  # those that carry a state

    def window_of(self, layer: int) -> int:
        """How many tokens a layer sees, itself included; 0: all."""
        period = self.form.window_period
        return self.window if period and (layer + 1) % period else 0

    def theta_of(self, layer: int) -> float:
        """The rotary base of a layer."""
        local = self.form.local_theta
        return local if local is not None and self.window_of(layer) else self.rope_theta

    def with_context(self, length: int) -> TransformerConfig:
        """The same with a cache of at most so many tokens."""
        return replace(self, max_context=min(self.max_context, length))


class _Values:
    """Values of a file, checked as they are taken."""

    def __init__(self, values: Mapping[str, Any], prefix: str, where: str) -> None:
        self.values = values
        self.prefix = prefix
        self.where = where

    def get(self, name: str, default: Any = None) -> Any:
        return self.values.get(self.prefix + name, default)

    def whole(self, name: str, default: int | None = None, most: int = MOST_WIDTH) -> int:
        value = self.get(name, default)
        if isinstance(value, list):
            # one for each layer: those that have none are passed over
            distinct = {v for v in value if v}
            if len(distinct) > 1:
                raise DataError(
                    f"{self.where}: {name} differs between layers ({sorted(distinct)[:4]}), which "
                    "no architecture here has"
                )
            value = distinct.pop() if distinct else 0
        if value is None:
            raise DataError(f"{self.where} says nothing about {self.prefix}{name}")
        if type(value) is not int or not 0 <= value <= most:
            raise DataError(
                f"{self.where}: {name} is {value!r}; a number from 0 to {most} is wanted"
            )
        return value

    def real(self, name: str, default: float) -> float:
        value = self.get(name, default)
        if type(value) not in (int, float) or not math.isfinite(value):
            raise DataError(f"{self.where}: {name} is {value!r}, which is no number")
        return float(value)


def architecture_of(name: Any, where: str) -> Architecture:
    """The row of an architecture, or an error that says which there are."""
    form = ARCHITECTURES.get(name) if isinstance(name, str) else None
    if form is None:
        raise DataError(
            f"{where} is of the architecture {str(name)[:80]!r}; there are: "
            f"{' '.join(sorted(ARCHITECTURES))}"
        )
    return form


def config_from_gguf(values: Mapping[str, Any], where: str = "the file") -> TransformerConfig:
    """What the values of a GGUF file say."""
    name = values.get("general.architecture")
    form = architecture_of(name, where)
    take = _Values(values, f"{name}.", where)
    if name == "mamba":
        return _gguf_mamba(values, take, form)
    if name in ("qwen3next", "llama4"):
        raise DataError(
            f"{where}: GGUF files of {name} do not say all that is needed; the model's Hugging "
            "Face folder can be read"
        )
    dim = take.whole("embedding_length")
    n_heads = take.whole("attention.head_count")
    if not n_heads or not dim:
        raise DataError(f"{where} has {n_heads} heads of attention and a width of {dim}")
    head_dim = take.whole("attention.key_length", dim // n_heads)
    latent = _gguf_latent(take) if form.latent else None
    scaling = _gguf_scaling(take)
    scale = take.real("attention.scale", 0.0)
    if latent is not None:
        scale = latent_scale(
            latent, scaling.factor, take.real("rope.scaling.yarn_log_multiplier", 0.0)
        )
        scaling = replace(scaling, attention_factor=even_factor(scaling))
    rms = "attention.layer_norm_rms_epsilon"
    epsilon = rms if form.norm == "rms" else "attention.layer_norm_epsilon"
    tokens = values.get("tokenizer.ggml.tokens", ())
    return TransformerConfig(
        architecture=str(name),
        dim=dim,
        num_blocks=take.whole("block_count", most=MOST_LAYERS),
        n_heads=n_heads,
        n_kv_heads=take.whole("attention.head_count_kv", n_heads),
        head_dim=head_dim,
        value_dim=take.whole("attention.value_length", head_dim),
        hidden_dim=take.whole("feed_forward_length", 0),
        vocab_size=take.whole("vocab_size", len(tokens)),
        max_context=take.whole("context_length", 2048, MOST_CONTEXT),
        norm_eps=take.real(epsilon, 1e-5),
        rope_theta=take.real("rope.freq_base", 10000.0),
        rope_dim=take.whole("rope.dimension_count", head_dim),
        rope_scaling=scaling,
        form=form,
        window=take.whole("attention.sliding_window", 0, MOST_CONTEXT),
        attention_scale=scale,
        attention_softcap=take.real("attn_logit_softcapping", 0.0),
        logit_softcap=take.real("final_logit_softcapping", 0.0),
        logit_scale=take.real("logit_scale", 1.0),
        embedding_scale=take.real("embedding_scale", 1.0),
        residual_scale=take.real("residual_scale", 1.0),
        experts=_gguf_experts(take, form),
        latent=latent,
    )


def _gguf_mamba(values: Mapping[str, Any], take: _Values, form: Architecture) -> TransformerConfig:
    sizes = SSMConfig(
        "mamba",
        take.whole("ssm.conv_kernel"),
        take.whole("ssm.inner_size"),
        take.whole("ssm.state_size"),
        take.whole("ssm.time_step_rank"),
    )
    if take.get("ssm.dt_b_c_rms"):
        raise DataError(f"{take.where} has norms inside of its state spaces, which is not read")
    return without_attention(
        sizes,
        form,
        dim=take.whole("embedding_length"),
        num_blocks=take.whole("block_count", most=MOST_LAYERS),
        vocab_size=take.whole("vocab_size", len(values.get("tokenizer.ggml.tokens", ()))),
        max_context=take.whole("context_length", 2048, MOST_CONTEXT),
        norm_eps=take.real("attention.layer_norm_rms_epsilon", 1e-5),
    )


def without_attention(sizes: SSMConfig, form: Architecture, **known: Any) -> TransformerConfig:
    """A model all of whose layers carry a state."""
    if sizes.conv_kernel < 2 or not (
        sizes.inner_size and sizes.state_size and sizes.time_step_rank
    ):
        raise DataError(f"a state space of these sizes does not come out: {sizes}")
    return TransformerConfig(
        architecture="mamba",
        n_heads=0,
        n_kv_heads=0,
        head_dim=0,
        value_dim=0,
        hidden_dim=0,
        form=form,
        ssm=sizes,
        ssm_layers=tuple(range(known["num_blocks"])),
        **known,
    )


def _gguf_latent(take: _Values) -> LatentSizes:
    key = take.whole("attention.key_length_mla", 0) or take.whole("attention.key_length")
    rotated = take.whole("rope.dimension_count")
    value = take.whole("attention.value_length_mla", 0) or take.whole("attention.value_length")
    rank = take.whole("attention.kv_lora_rank")
    if not (rank and value and 0 < rotated <= key):
        raise DataError(f"{take.where}: keys of {key} with {rotated} rotated, values of {value}")
    return LatentSizes(take.whole("attention.q_lora_rank", 0), rank, key - rotated, rotated, value)


def latent_scale(sizes: LatentSizes, factor: float, multiplier: float) -> float:
    """Of scores: frequencies that are stretched make them larger, where a model says so."""
    sharper = multiplier * math.log(factor) + 1.0 if factor > 1 else 1.0
    return (sizes.plain + sizes.rotated) ** -0.5 * sharper**2


def even_factor(scaling: RopeScaling) -> float | None:
    """What takes back the factor that yarn has for cosines and sines: scores have it already."""
    if scaling.kind != "yarn" or scaling.factor <= 1:
        return scaling.attention_factor
    return 1.0 / (0.1 * math.log(scaling.factor) + 1.0)


_GATINGS = {1: "softmax", 2: "sigmoid", 3: "softmax_chosen"}


def _gguf_experts(take: _Values, form: Architecture) -> ExpertGating | None:
    count = take.whole("expert_count", 0)
    if not count:
        return None
    used = take.whole("expert_used_count")
    if not 1 <= used <= count:
        raise DataError(f"{take.where} uses {used} of {count} experts")
    gating = ExpertGating(
        count,
        used,
        _GATINGS.get(take.whole("expert_gating_func", 0), form.gating),
        bool(take.get("expert_weights_norm", form.normalised_experts)),
        take.real("expert_weights_scale", 1.0) or 1.0,
    )
    return grouped(
        gating, take.whole("expert_group_count", 1), take.whole("expert_group_used_count", 1), take
    )


def grouped(gating: ExpertGating, groups: int, used: int, take: _Values) -> ExpertGating:
    """Experts that are chosen from some of the groups."""
    if groups <= 1:
        return gating
    each = gating.count // groups
    if gating.count % groups or not 1 <= used <= groups or gating.used > used * each or each < 2:
        raise DataError(
            f"{take.where} uses {gating.used} of {gating.count} experts from {used} of {groups} "
            "groups, which does not come out"
        )
    return replace(gating, groups=groups, groups_used=used)


def _gguf_scaling(take: _Values) -> RopeScaling:
    kind = take.get("rope.scaling.type", "none")
    if kind not in ("none", "linear", "yarn", "longrope"):
        raise DataError(f"{take.where} stretches rotary frequencies by {kind!r}, which is unknown")
    attention = take.get("rope.scaling.attn_factor")
    return RopeScaling(
        kind,
        take.real("rope.scaling.factor", 1.0) or 1.0,
        take.whole("rope.scaling.original_context_length", 0, MOST_CONTEXT),
        fast_turns=take.real("rope.scaling.yarn_beta_fast", 32.0),
        slow_turns=take.real("rope.scaling.yarn_beta_slow", 1.0),
        attention_factor=None if attention is None else float(attention),
    )
