"""Hugging Face folders: `config.json` and safetensors, in the terms of GGUF files.

In: a folder. Out: a `TransformerConfig` and tensors by GGUF's names. Between `config` and `load`.
Invariant: files are data; nothing in a folder is imported or run, and only names that its index
holds, inside of the folder, are opened.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.errors import DataError
from weft.llm.config import (
    ARCHITECTURES,
    MOST_CONTEXT,
    MOST_LAYERS,
    ExpertGating,
    RopeScaling,
    TransformerConfig,
    _Values,
    architecture_of,
)
from weft.nn.state import safe_load
from weft.tensor import Tensor

# model_type -> the architecture's row; one that is not here goes by its own name
_KINDS = {
    "qwen2_moe": "qwen2moe",
    "qwen3_moe": "qwen3moe",
    "gemma3_text": "gemma3",
    "granitemoe": "granitemoe",
    "gpt_neox": "gptneox",
}
_PLAIN = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
_OF_LAYERS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "block_sparse_moe.gate": "ffn_gate_inp",
}
# where there are norms behind both parts, the one in front of the second has another name
_NORMS_AROUND = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_EXPERT = {
    "gate_proj": "ffn_gate_exps",
    "up_proj": "ffn_up_exps",
    "down_proj": "ffn_down_exps",
    "w1": "ffn_gate_exps",
    "w3": "ffn_up_exps",
    "w2": "ffn_down_exps",
}
_LAYER = re.compile(r"model\.layers\.(\d{1,5})\.(.+)\.(weight|bias)")
_ONE_EXPERT = re.compile(r"(?:mlp|block_sparse_moe)\.experts\.(\d{1,5})\.(\w+)")


def read_folder(folder: Path) -> tuple[TransformerConfig, dict[str, Tensor]]:
    """The config and the tensors of a folder."""
    values = read_json(folder / "config.json")
    # models that also see pictures keep the text's part inside
    inner = values.get("text_config")
    config = config_from_json(inner if isinstance(inner, dict) else values, str(folder))
    return config, gguf_names(_weights(folder), config)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file with one object."""
    try:
        values = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path} is missing; a model's folder has one") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is no JSON: {error}") from None
    if not isinstance(values, dict):
        raise DataError(f"{path} holds no object, but {type(values).__name__}")
    return values


def _weights(folder: Path) -> dict[str, Tensor]:
    index = folder / "model.safetensors.index.json"
    names = {"model.safetensors"}
    if index.exists():
        places = read_json(index).get("weight_map")
        if not isinstance(places, dict) or not all(isinstance(v, str) for v in places.values()):
            raise DataError(f"{index} has no weight_map from names to files")
        names = set(places.values())
    tensors: dict[str, Tensor] = {}
    for name in sorted(names):
        path = (folder / name).resolve()
        if folder.resolve() not in path.parents:
            raise DataError(f"{index} names {name!r}, which is outside of the folder")
        if not path.exists():
            raise DataError(f"{folder / name} is missing; the model is not complete")
        # read into memory when they are first used, and kept
        loaded = safe_load(path)
        tensors.update({key: value.to(None).contiguous() for key, value in loaded.items()})
    return tensors


def config_from_json(values: Mapping[str, Any], where: str = "the folder") -> TransformerConfig:
    """What a `config.json` says."""
    kind = values.get("model_type")
    name = _KINDS.get(kind, kind) if isinstance(kind, str) else kind
    # rotary pairs are halves there, for all
    form = replace(architecture_of(name, where), halves=True)
    take = _Values(values, "", where)
    dim, n_heads = take.whole("hidden_size"), take.whole("num_attention_heads")
    if not dim or not n_heads:
        raise DataError(f"{where} has {n_heads} heads of attention and a width of {dim}")
    head_dim = take.whole("head_dim", dim // n_heads) if values.get("head_dim") else dim // n_heads
    rope = values.get("rope_parameters") or values.get("rope_scaling") or {}
    # one set for all layers, or one for each kind of layer
    local = rope.get("sliding_attention") if isinstance(rope, dict) else None
    rope = rope.get("full_attention", rope) if isinstance(rope, dict) else {}
    theta = rope.get("rope_theta", values.get("rope_theta", 10000.0))
    if isinstance(local, dict) and form.local_theta is not None:
        form = replace(form, local_theta=float(local.get("rope_theta", form.local_theta)))
    if form.window_period:
        period = _period(values.get("layer_types"))
        form = form if period is None else replace(form, window_period=period)
    share = float(rope.get("partial_rotary_factor") or values.get("partial_rotary_factor") or 1.0)
    scale = values.get("query_pre_attn_scalar")
    context = take.whole("max_position_embeddings", 2048, MOST_CONTEXT)
    return TransformerConfig(
        architecture=str(name),
        dim=dim,
        num_blocks=take.whole("num_hidden_layers", most=MOST_LAYERS),
        n_heads=n_heads,
        n_kv_heads=take.whole("num_key_value_heads", n_heads),
        head_dim=head_dim,
        value_dim=head_dim,
        hidden_dim=take.whole("intermediate_size", 0),
        vocab_size=take.whole("vocab_size"),
        max_context=context,
        norm_eps=take.real("rms_norm_eps" if form.norm == "rms" else "norm_epsilon", 1e-5),
        rope_theta=float(theta),
        rope_dim=int(head_dim * share),
        rope_scaling=_scaling(rope, values, context, where),
        form=form,
        window=take.whole("sliding_window", 0, MOST_CONTEXT) if values.get("sliding_window") else 0,
        attention_scale=float(scale) ** -0.5 if scale else take.real("attention_multiplier", 0.0),
        attention_softcap=_number(values.get("attn_logit_softcapping")),
        logit_softcap=_number(values.get("final_logit_softcapping")),
        logit_scale=take.real("logits_scaling", 1.0),
        embedding_scale=take.real("embedding_multiplier", 1.0),
        residual_scale=take.real("residual_multiplier", 1.0),
        experts=_experts(values, str(name), where),
    )


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _period(kinds: Any) -> int | None:
    """After how many layers one sees everything."""
    if not isinstance(kinds, list) or "full_attention" not in kinds:
        return None
    return kinds.index("full_attention") + 1


def _experts(values: Mapping[str, Any], name: str, where: str) -> ExpertGating | None:
    take = _Values(values, "", where)
    count = take.whole("num_local_experts", 0) or take.whole("num_experts", 0)
    if not count:
        return None
    form = ARCHITECTURES[name]
    is_normalised = values.get("norm_topk_prob", form.normalised_experts)
    return ExpertGating(count, take.whole("num_experts_per_tok"), form.gating, bool(is_normalised))


def _scaling(
    rope: dict[str, Any], values: Mapping[str, Any], context: int, where: str
) -> RopeScaling:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return RopeScaling()
    if kind not in ("linear", "llama3", "yarn", "longrope"):
        raise DataError(f"{where} stretches rotary frequencies by {kind!r}, which is unknown")
    original = rope.get(
        "original_max_position_embeddings", values.get("original_max_position_embeddings", context)
    )
    attention = rope.get("attention_factor")
    factor = float(rope.get("factor") or 1.0)
    if kind == "yarn" and attention is not None:
        raise DataError(f"{where} gives yarn an attention_factor of its own, which is not read")
    return RopeScaling(
        kind,
        factor,
        int(original),
        float(rope.get("low_freq_factor", 1.0)),
        float(rope.get("high_freq_factor", 4.0)),
        float(rope.get("beta_fast") or 32.0),
        float(rope.get("beta_slow") or 1.0),
        None if attention is None else float(attention),
    )


def gguf_names(tensors: Mapping[str, Tensor], config: TransformerConfig) -> dict[str, Tensor]:
    """The tensors under GGUF's names; experts are stacked, norms around zero are moved to one."""
    around = any(name.endswith("post_feedforward_layernorm.weight") for name in tensors)
    layers = {**_OF_LAYERS, **_NORMS_AROUND} if around else _OF_LAYERS
    found: dict[str, Tensor] = {}
    experts: dict[str, dict[int, Tensor]] = {}
    for name, tensor in tensors.items():
        stem, _, kind = name.removeprefix("language_model.").rpartition(".")
        match = _LAYER.fullmatch(f"{stem}.{kind}")
        if match is None:
            if stem in _PLAIN:
                found[f"{_PLAIN[stem]}.{kind}"] = tensor
            continue
        layer, part = match[1], match[2]
        one = _ONE_EXPERT.fullmatch(part)
        if one is not None and one[2] in _EXPERT:
            experts.setdefault(f"blk.{layer}.{_EXPERT[one[2]]}.weight", {})[int(one[1])] = tensor
        elif part in layers:
            found[f"blk.{layer}.{layers[part]}.{kind}"] = tensor
    for name, parts in experts.items():
        if sorted(parts) != list(range(len(parts))):
            raise DataError(f"{name} has experts {sorted(parts)[:8]}, and some are missing")
        found[name] = Tensor.stack(*[parts[i] for i in range(len(parts))])
    if config.form.scaled_embedding:
        # these norms multiply by 1 + weight
        found = {
            name: tensor.float() + 1 if "norm" in name and name.endswith(".weight") else tensor
            for name, tensor in found.items()
        }
    return found
