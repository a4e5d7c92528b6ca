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
    gating: str = "softmax"  # of experts: before the choice; "softmax_chosen": after; "sigmoid"
    normalised_experts: bool = True  # weights of the chosen experts are made to add up to 1


ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture(halves=False),
    "mistral": Architecture(halves=False),
    "mixtral": Architecture(halves=False),
    "granite": Architecture(halves=False),
    "granitemoe": Architecture(halves=False, gating="softmax_chosen"),
    "smollm3": Architecture(halves=False),
    "qwen2": Architecture(),
    "qwen2moe": Architecture(normalised_experts=False),
    "qwen3": Architecture(),
    "qwen3moe": Architecture(),
    "gemma": Architecture(activation="gelu", scaled_embedding=True),
    "gemma2": Architecture(activation="gelu", scaled_embedding=True, window_period=2),
    "gemma3": Architecture(
        activation="gelu", scaled_embedding=True, window_period=6, local_theta=10000.0
    ),
    "phi3": Architecture(),
    "olmo2": Architecture(),
    "olmoe": Architecture(normalised_experts=False),
    "glm4": Architecture(halves=False),
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
    dim = take.whole("embedding_length")
    n_heads = take.whole("attention.head_count")
    if not n_heads or not dim:
        raise DataError(f"{where} has {n_heads} heads of attention and a width of {dim}")
    head_dim = take.whole("attention.key_length", dim // n_heads)
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
        rope_scaling=_gguf_scaling(take),
        form=form,
        window=take.whole("attention.sliding_window", 0, MOST_CONTEXT),
        attention_scale=take.real("attention.scale", 0.0),
        attention_softcap=take.real("attn_logit_softcapping", 0.0),
        logit_softcap=take.real("final_logit_softcapping", 0.0),
        logit_scale=take.real("logit_scale", 1.0),
        embedding_scale=take.real("embedding_scale", 1.0),
        residual_scale=take.real("residual_scale", 1.0),
        experts=_gguf_experts(take, form),
    )


_GATINGS = {1: "softmax", 2: "sigmoid", 3: "softmax_chosen"}


def _gguf_experts(take: _Values, form: Architecture) -> ExpertGating | None:
    count = take.whole("expert_count", 0)
    if not count:
        return None
    used = take.whole("expert_used_count")
    if not 1 <= used <= count:
        raise DataError(f"{take.where} uses {used} of {count} experts")
    return ExpertGating(
        count,
        used,
        _GATINGS.get(take.whole("expert_gating_func", 0), form.gating),
        bool(take.get("expert_weights_norm", form.normalised_experts)),
        take.real("expert_weights_scale", 1.0) or 1.0,
    )


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
