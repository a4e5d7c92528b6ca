"""Small models with random weights, as transformers makes them, in folders and GGUF files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from test.llm.vocabularies import byte_pair_values
from test.optional import need

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
GRANITE = {
    "attention_multiplier": 0.2,
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.5,
    "logits_scaling": 2.0,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
DEEPSEEK = {
    "num_hidden_layers": 3,
    "num_key_value_heads": 4,
    "moe_intermediate_size": 48,
    "first_k_dense_replace": 1,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "n_group": 4,
    "topk_group": 2,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
}
DELTA = {
    "num_hidden_layers": 4,
    "head_dim": 16,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
DEEPSEEK_YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "beta_fast": 32,
    "beta_slow": 1,
}
# name -> transformers' config class and what it is given besides SIZES
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "llama-3.1": ("LlamaConfig", {"rope_scaling": LLAMA3}),
    "llama-linear": ("LlamaConfig", {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    "llama-yarn": (
        "LlamaConfig",
        {
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 32,
            }
        },
    ),
    "mistral": ("MistralConfig", {"sliding_window": None}),
    "mixtral": (
        "MixtralConfig",
        {"sliding_window": None, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {"head_dim": 16}),
    "qwen3-moe": ("Qwen3MoeConfig", {"head_dim": 16, "norm_topk_prob": True, **EXPERTS}),
    "gemma": ("GemmaConfig", {"head_dim": 16}),
    "gemma2": (
        "Gemma2Config",
        {"head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 16},
    ),
    "gemma3": (
        "Gemma3TextConfig",
        {"head_dim": 16, "sliding_window": 8, "num_hidden_layers": 7},
    ),
    "phi3": ("Phi3Config", {}),
    "olmo2": ("Olmo2Config", {}),
    "granite": ("GraniteConfig", GRANITE),
    "deepseek-v2": ("DeepseekV2Config", {**DEEPSEEK, "q_lora_rank": None, "n_shared_experts": 2}),
    "deepseek-v2-groups": (
        "DeepseekV2Config",
        {**DEEPSEEK, "topk_method": "group_limited_greedy", "routed_scaling_factor": 2.0},
    ),
    "llama4": (
        "Llama4TextConfig",
        {
            "num_hidden_layers": 4,
            "head_dim": 16,
            "intermediate_size": 48,
            "intermediate_size_mlp": 96,
            "num_local_experts": 4,
            "num_experts_per_tok": 1,
            "interleave_moe_layer_step": 2,
            "attention_chunk_size": 8,
            "floor_scale": 4,
        },
    ),
    "mamba": ("MambaConfig", {"state_size": 8, "time_step_rank": 4, "num_key_value_heads": None}),
    "qwen3-next": ("Qwen3NextConfig", {**DELTA, **EXPERTS, "shared_expert_intermediate_size": 32}),
    "qwen3.5": ("Qwen3_5TextConfig", DELTA),
    "deepseek-v3": ("DeepseekV3Config", {**DEEPSEEK, "rope_scaling": DEEPSEEK_YARN}),
    "starcoder2": ("Starcoder2Config", {}),
}


def make(name: str, **sizes: Any) -> Any:
    """A model of transformers with random weights, in float32."""
    transformers, torch = need("transformers"), need("torch")
    kind, more = MODELS[name]
    torch.manual_seed(0)
    config = getattr(transformers, kind)(**{**SIZES, **more, **sizes})
    model = (
        transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        .float()
        .eval()
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.08)
    return model


def logits_of(model: Any, tokens: list[int]) -> np.ndarray[Any, Any]:
    """What transformers computes: (length, vocabulary).

    In float64, which mixtures of experts do not have: there are machines where PyTorch's products
    of float32 are off by 1e-4.
    """
    torch = need("torch")
    has_experts = hasattr(model.config, "num_experts_per_tok")
    with torch.no_grad():
        if not has_experts:
            model.double()
        logits = model(torch.tensor([tokens])).logits[0]
        model.float()
    result: np.ndarray[Any, Any] = logits.float().numpy()
    return result


NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def neighbours(weight: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Rows of queries and keys in the order of llama.cpp's files: rotary pairs are neighbours."""
    rows, columns = weight.shape
    halves = weight.reshape(heads, 2, rows // heads // 2, columns)
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows, columns)


def write_gguf(
    path: Path, model: Any, kind: str, values: dict[str, Any] | None = None
) -> dict[str, np.ndarray[Any, Any]]:
    """A Llama as a GGUF file whose matrices are of a kind; the matrices as transformers has them,
    with the values that the file gives them."""
    gguf, torch = need("gguf"), need("torch")
    config = model.config
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    for name, add in (values or {}).items():
        getattr(writer, f"add_{name}")(add)
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    found = {}
    for name, tensor in model.state_dict().items():
        array = tensor.numpy()
        stem = name.removesuffix(".weight")
        layer = ""
        if stem.startswith("model.layers."):
            number, _, stem = stem.removeprefix("model.layers.").partition(".")
            layer = f"blk.{number}."
        part = NAMES[stem]
        kept = gguf.GGMLQuantizationType[kind if array.ndim == 2 else "F32"]
        raw = gguf.quants.quantize(array, kept)
        found[name] = gguf.quants.dequantize(raw, kept).reshape(array.shape)
        if part in heads:
            raw = gguf.quants.quantize(neighbours(array, heads[part]), kept)
        writer.add_tensor(f"{layer}{part}.weight", raw, raw_dtype=kept)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with torch.no_grad():
        model.load_state_dict({k: torch.tensor(v) for k, v in found.items()})
    return found


def chat_file(path: Path, kind: str = "Q8_0", **sizes: Any) -> Path:
    """A small Llama with tokens of its own, as a GGUF file."""
    values, _ = byte_pair_values("qwen2")
    model = make("llama", vocab_size=len(values["tokenizer.ggml.tokens"]), **sizes)
    own = {
        "tokenizer_model": "gpt2",
        "tokenizer_pre": "qwen2",
        "token_list": values["tokenizer.ggml.tokens"],
        "token_types": values["tokenizer.ggml.token_type"],
        "token_merges": values["tokenizer.ggml.merges"],
        "eos_token_id": values["tokenizer.ggml.eos_token_id"],
    }
    write_gguf(path, model, kind, own)
    return path
