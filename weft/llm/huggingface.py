"""Hugging Face folders: `config.json` and safetensors, in the terms of GGUF files.

In: a folder. Out: a `TransformerConfig` and tensors by GGUF's names. Between `config` and `load`.
Invariant: files are data; nothing in a folder is imported or run, and only names that its index
holds, inside of the folder, are opened.
"""

from __future__ import annotations

import json
import math
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
    Architecture,
    ExpertGating,
    LatentSizes,
    RopeScaling,
    SSMConfig,
    TransformerConfig,
    _Values,
    architecture_of,
    grouped,
    latent_scale,
    without_attention,
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
    "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2",
    "llama4_text": "llama4",
    "qwen3_next": "qwen3next",
    "qwen3_5_text": "qwen3next",
    "qwen3_5_moe_text": "qwen3next",
}
_PLAIN = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "backbone.embeddings": "token_embd",
    "backbone.norm_f": "output_norm",
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
    "mlp.router": "ffn_gate_inp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "block_sparse_moe.gate": "ffn_gate_inp",
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b",
    "mlp.gate.e_score_correction": "exp_probs_b",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_qkvz": "ssm_in",
    "linear_attn.in_proj_ba": "ssm_ba",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt_bias",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
    "norm": "attn_norm",
    "mixer.A_log": "ssm_a",
    "mixer.D": "ssm_d",
    "mixer.conv1d": "ssm_conv1d",
    "mixer.in_proj": "ssm_in",
    "mixer.x_proj": "ssm_x",
    "mixer.dt_proj": "ssm_dt",
    "mixer.out_proj": "ssm_out",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
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
_LAYER = re.compile(r"(?:model|backbone)\.layers\.(\d{1,5})\.(.+)\.(weight|bias)")
# parameters that are no weight and no bias of a part by their names
_BARE = re.compile(r"\.(A_log|D|dt_bias|gate_up_proj|experts\.down_proj)$")
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
    # rotary pairs are halves there, but for these two
    form = architecture_of(name, where)
    neighbours = name == "llama4" or (form.latent and values.get("rope_interleave", True))
    form = replace(form, halves=not neighbours)
    take = _Values(values, "", where)
    if name == "mamba":
        return _mamba(take, form)
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
    scale = float(scale) ** -0.5 if scale else take.real("attention_multiplier", 0.0)
    latent = _latent(take) if form.latent else None
    if latent is not None:
        all_of_it = float(rope.get("mscale_all_dim") or 0.0)
        scale = latent_scale(latent, float(rope.get("factor") or 1.0), 0.1 * all_of_it)
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
        rope_dim=int(head_dim * share) if latent is None else latent.rotated,
        rope_scaling=_scaling(rope, values, context, where),
        form=form,
        window=take.whole("sliding_window", 0, MOST_CONTEXT) if values.get("sliding_window") else 0,
        attention_scale=scale,
        attention_softcap=_number(values.get("attn_logit_softcapping")),
        logit_softcap=_number(values.get("final_logit_softcapping")),
        logit_scale=take.real("logits_scaling", 1.0),
        embedding_scale=take.real("embedding_multiplier", 1.0),
        residual_scale=take.real("residual_multiplier", 1.0),
        experts=_experts(values, str(name), where),
        latent=latent,
        **_states(take, form),
        **_chunks(take, str(name)),
    )


def _chunks(take: _Values, name: str) -> dict[str, Any]:
    """Llama 4's layers: most see a chunk, the others everything and no positions."""
    rotated = take.get("no_rope_layers")
    if name != "llama4" or not isinstance(rotated, list):
        return {}
    is_tuned = bool(take.get("attn_temperature_tuning", True))
    return {
        "chunk": take.whole("attention_chunk_size", 8192, MOST_CONTEXT),
        "unrotated": tuple(i for i, value in enumerate(rotated) if not value),
        "unit_heads": bool(take.get("use_qk_norm", True)),
        "sharpening": take.real("attn_scale", 0.1) if is_tuned else 0.0,
        "sharpening_length": max(take.whole("floor_scale", 8192, MOST_CONTEXT), 1),
    }


def _mamba(take: _Values, form: Architecture) -> TransformerConfig:
    dim = take.whole("hidden_size")
    sizes = SSMConfig(
        "mamba",
        take.whole("conv_kernel"),
        take.whole("intermediate_size", 2 * dim),
        take.whole("state_size"),
        take.whole("time_step_rank"),
    )
    return without_attention(
        sizes,
        form,
        dim=dim,
        num_blocks=take.whole("num_hidden_layers", most=MOST_LAYERS),
        vocab_size=take.whole("vocab_size"),
        max_context=take.whole("max_position_embeddings", 8192, MOST_CONTEXT),
        norm_eps=take.real("layer_norm_epsilon", 1e-5),
    )


def _states(take: _Values, form: Architecture) -> dict[str, Any]:
    """The layers of a gated delta net, where there are some."""
    kinds = take.get("layer_types")
    if not form.gated_attention or not isinstance(kinds, list):
        return {}
    heads = take.whole("linear_num_value_heads")
    sizes = SSMConfig(
        "delta",
        take.whole("linear_conv_kernel_dim"),
        heads * take.whole("linear_value_head_dim"),
        take.whole("linear_key_head_dim"),
        key_heads=take.whole("linear_num_key_heads"),
        value_heads=heads,
    )
    if sizes.conv_kernel < 2 or not sizes.key_heads or heads % sizes.key_heads or not heads:
        raise DataError(f"{take.where}: a delta net of these sizes does not come out: {sizes}")
    layers = tuple(i for i, kind in enumerate(kinds) if kind == "linear_attention")
    return {"ssm": sizes, "ssm_layers": layers}


def _latent(take: _Values) -> LatentSizes:
    return LatentSizes(
        take.whole("q_lora_rank") if take.get("q_lora_rank") else 0,
        take.whole("kv_lora_rank"),
        take.whole("qk_nope_head_dim"),
        take.whole("qk_rope_head_dim"),
        take.whole("v_head_dim"),
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
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    count = next((take.whole(n) for n in names if values.get(n)), 0)
    if not count:
        return None
    form = ARCHITECTURES[name]
    is_normalised = values.get("norm_topk_prob", form.normalised_experts)
    gating = ExpertGating(
        count,
        take.whole("num_experts_per_tok"),
        "sigmoid" if values.get("model_type") == "deepseek_v3" else form.gating,
        bool(is_normalised),
        take.real("routed_scaling_factor", 1.0),
    )
    if values.get("topk_method", "groups") == "greedy" or not values.get("n_group"):
        return gating
    return grouped(gating, take.whole("n_group"), take.whole("topk_group"), take)


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
    if kind == "yarn" and rope.get("mscale") and rope.get("mscale_all_dim") and factor > 1:
        one, both = (
            0.1 * float(rope[name]) * math.log(factor) + 1.0
            for name in ("mscale", "mscale_all_dim")
        )
        attention = one / both / (0.1 * math.log(factor) + 1.0)
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
        name = name.removeprefix("language_model.").replace("correction_bias", "correction.bias")
        name = _BARE.sub(r".\1.weight", name).replace(".feed_forward.", ".mlp.")
        stem, _, kind = name.rpartition(".")
        match = _LAYER.fullmatch(f"{stem}.{kind}")
        if match is None:
            if stem in _PLAIN:
                found[f"{_PLAIN[stem]}.{kind}"] = tensor
            continue
        layer, part = match[1], match[2]
        one = _ONE_EXPERT.fullmatch(part)
        if one is not None and one[2] in _EXPERT:
            experts.setdefault(f"blk.{layer}.{_EXPERT[one[2]]}.weight", {})[int(one[1])] = tensor
        elif part.startswith("mlp.experts.") and tensor.ndim == 3:
            found.update(_all_experts(tensor, f"blk.{layer}.", part, config))
        elif part in layers:
            found[f"blk.{layer}.{layers[part]}.{kind}"] = tensor
    for name, parts in experts.items():
        if sorted(parts) != list(range(len(parts))):
            raise DataError(f"{name} has experts {sorted(parts)[:8]}, and some are missing")
        found[name] = Tensor.stack(*[parts[i] for i in range(len(parts))])
    offset = config.form.norm_offset
    if offset:
        # these norms multiply by 1 + weight; the one of a state's output does not
        found = {
            name: tensor.float() + offset
            if "norm" in name and name.endswith(".weight") and "ssm_norm" not in name
            else tensor
            for name, tensor in found.items()
        }
    for layer in config.ssm_layers:
        found.update(_of_state(found, f"blk.{layer}.", config))
    return found


def _all_experts(
    tensor: Tensor, prefix: str, part: str, config: TransformerConfig
) -> dict[str, Tensor]:
    """Experts that are one tensor: (experts, rows, columns), or turned, as Llama 4 has them."""
    turned = tensor.transpose(1, 2) if config.architecture == "llama4" else tensor
    if part.endswith("down_proj"):
        return {f"{prefix}ffn_down_exps.weight": turned}
    gate, up = turned.chunk(2, dim=1)
    return {f"{prefix}ffn_gate_exps.weight": gate, f"{prefix}ffn_up_exps.weight": up}


def _of_state(
    tensors: Mapping[str, Tensor], prefix: str, config: TransformerConfig
) -> dict[str, Tensor]:
    """Tensors of a layer that carries a state, as GGUF files have them."""
    sizes = config.ssm
    assert sizes is not None
    found: dict[str, Tensor] = {}
    if (rates := tensors.get(f"{prefix}ssm_a.weight")) is not None:
        found[f"{prefix}ssm_a"] = -rates.float().exp()
    for name, bare in (("ssm_d.weight", "ssm_d"), ("ssm_dt_bias.weight", "ssm_dt.bias")):
        if prefix + name in tensors:
            found[prefix + bare] = tensors[prefix + name]
    if (taps := tensors.get(f"{prefix}ssm_conv1d.weight")) is not None and taps.ndim == 3:
        found[f"{prefix}ssm_conv1d.weight"] = taps.squeeze(1)
    both, pair = (tensors.get(f"{prefix}{name}.weight") for name in ("ssm_in", "ssm_ba"))
    if sizes.kind != "delta" or both is None or pair is None:
        return found
    # rows of each head of keys are together: its query, key, values and gates; then the others
    heads, each = sizes.key_heads, sizes.inner_size // sizes.key_heads
    if both.ndim != 2 or both.shape[0] != heads * 2 * (sizes.state_size + each):
        raise DataError(f"{prefix}ssm_in is of shape {both.shape}, which {sizes} do not give")
    parts = both.reshape(heads, -1, both.shape[1]).split(
        [sizes.state_size, sizes.state_size, each, each], dim=1
    )
    q, k, v, z = (part.reshape(-1, both.shape[1]) for part in parts)
    found[f"{prefix}attn_qkv.weight"] = q.cat(k, v, dim=0).contiguous()
    found[f"{prefix}attn_gate.weight"] = z.contiguous()
    b, a = pair.reshape(heads, -1, pair.shape[1]).chunk(2, dim=1)
    found[f"{prefix}ssm_beta.weight"] = b.reshape(-1, pair.shape[1]).contiguous()
    found[f"{prefix}ssm_alpha.weight"] = a.reshape(-1, pair.shape[1]).contiguous()
    return found
