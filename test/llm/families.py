"""GGUF files of ten families of models in five formats, against transformers on the same weights.

usage: python -m test.llm.families [FAMILY ...] [--kinds F16 Q8_0 ...]
In: models of transformers with random weights. Out: for each file the largest difference of logits
beside the largest logit, and whether greedy tokens are the same. The suite runs a few.

Files are written as llama.cpp's converter writes them: its names (the `gguf` package has them),
rows of queries and keys with rotary pairs beside each other for Llama's kin, Gemma's norms plus
one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from test.llm.made import EXPERTS, GRANITE, logits_of, make, neighbours
from test.optional import need
from weft import Tensor, dtypes
from weft.llm.generate import Generator
from weft.llm.load import load

Array = np.ndarray[Any, Any]

KINDS = ("F16", "Q8_0", "Q4_0", "Q4_K", "Q6_K")
# rows of 256, which the formats of that block take
SIZES = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
# a model of `made` -> GGUF's architecture, and values of its file
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "mistral": ("llama", {}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {}),
    "qwen3-moe": ("qwen3moe", {"expert_count": 4, "expert_used_count": 2}),
    "gemma2": (
        "gemma2",
        {
            "attention.sliding_window": 8,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
        },
    ),
    "gemma3": ("gemma3", {"attention.sliding_window": 8, "rope.freq_base": 1e6}),
    "phi3": ("phi3", {}),
    "olmo2": ("olmo2", {}),
    "granite": (
        "granite",
        {
            "attention.scale": GRANITE["attention_multiplier"],
            "embedding_scale": GRANITE["embedding_multiplier"],
            "residual_scale": GRANITE["residual_multiplier"],
            "logit_scale": GRANITE["logits_scaling"],
        },
    ),
    "starcoder2": ("starcoder2", {}),
    "deepseek-v3": (
        "deepseek2",
        {
            "attention.q_lora_rank": 256,
            "attention.kv_lora_rank": 256,
            "attention.key_length": 96,
            "attention.value_length": 64,
            "rope.dimension_count": 32,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 32,
            "rope.scaling.yarn_log_multiplier": 0.1,
            "leading_dense_block_count": 1,
            "expert_count": 8,
            "expert_used_count": 3,
            "expert_gating_func": 2,
            "expert_weights_norm": True,
            "expert_weights_scale": 2.5,
            "expert_group_count": 4,
            "expert_group_used_count": 2,
        },
    ),
}
_LIKE_LLAMA = ("llama", "granite")
_PLUS_ONE = ("gemma2", "gemma3")


def model_of(family: str) -> Any:
    """The model, of sizes that all formats take."""
    more: dict[str, Any] = {}
    if family in ("qwen3", "qwen3-moe", "gemma2", "gemma3"):
        more["head_dim"] = 64
    if family == "gemma2":
        more["query_pre_attn_scalar"] = 64
    if family == "gemma3":
        more["query_pre_attn_scalar"] = 64
        more["num_hidden_layers"] = 6
    if family == "qwen3-moe":
        more["moe_intermediate_size"] = 256
        assert EXPERTS["num_experts"] == 4
    if family == "deepseek-v3":
        more = {"num_key_value_heads": 4, "moe_intermediate_size": 256, "v_head_dim": 64}
        more |= {"q_lora_rank": 256, "kv_lora_rank": 256}
        more |= {"qk_nope_head_dim": 64, "qk_rope_head_dim": 32}
    return make(family, **{**SIZES, **more})


def blocks(kind: str, values: Array, seed: int) -> Array:
    """Blocks of a format: of these values where the `gguf` package can, else random ones."""
    gguf = need("gguf")
    number = gguf.GGMLQuantizationType[kind]
    if kind not in ("Q4_K", "Q6_K"):
        found: Array = gguf.quants.quantize(values, number)
        return found
    random = np.random.default_rng(seed)
    size, places, step = {"Q4_K": (144, (0, 2), 2e-3), "Q6_K": (210, (208,), 3e-4)}[kind]
    data = random.integers(0, 256, (values.size // 256, size), np.uint8)
    for place in places:
        data[:, place : place + 2] = np.frombuffer(np.float16(step * 0.5).tobytes(), np.uint8)
    return data.reshape(*values.shape[:-1], -1)


def write(path: Path, family: str, model: Any, kind: str) -> None:
    """The file; the model gets the values that it holds."""
    gguf, torch, safetensors = need("gguf"), need("torch"), need("safetensors.torch")
    architecture, more = FAMILIES[family]
    config = model.config
    writer = gguf.GGUFWriter(str(path), architecture)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    values: dict[str, Any] = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": head,
        "attention.value_length": head,
        "rope.dimension_count": head,
        "vocab_size": config.vocab_size,
    }
    epsilon = getattr(config, "rms_norm_eps", None)
    norm = "layer_norm_rms_epsilon" if epsilon is not None else "layer_norm_epsilon"
    values[f"attention.{norm}"] = epsilon if epsilon is not None else config.norm_epsilon
    rope = config.rope_parameters
    values["rope.freq_base"] = float(rope.get("rope_theta", 10000.0)) if rope else 10000.0
    for name, value in {**values, **more}.items():
        kinds = {float: "float32", bool: "bool", str: "string"}
        add = getattr(writer, f"add_{kinds.get(type(value), 'uint32')}")
        add(f"{architecture}.{name}", value)
    names = gguf.get_tensor_name_map(
        {v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[architecture], config.num_hidden_layers
    )
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        weights = {}
        for part in sorted(Path(folder).glob("*.safetensors")):
            weights.update(safetensors.load_file(str(part)))
        kept = _add_tensors(writer, names, weights, kind, architecture, config)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        for part in Path(folder).glob("*.safetensors"):
            part.unlink()
        safetensors.save_file(kept, f"{folder}/model.safetensors", metadata={"format": "pt"})
        (Path(folder) / "model.safetensors.index.json").unlink(missing_ok=True)
        loaded = type(model).from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        )
    model.load_state_dict(loaded.state_dict())


def _add_tensors(
    writer: Any, names: Any, weights: dict[str, Any], kind: str, architecture: str, config: Any
) -> dict[str, Any]:
    """Adds all tensors to a file; what it holds of them, by transformers' names."""
    gguf, torch = need("gguf"), need("torch")
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    kept: dict[str, Any] = {}
    experts: dict[str, dict[int, Array]] = {}
    for seed, (name, tensor) in enumerate(weights.items()):
        array: Array = tensor.float().numpy()
        form = kind if array.ndim == 2 and "mlp.gate." not in name else "F32"
        number = gguf.GGMLQuantizationType[form]
        raw = blocks(form, array, seed)
        array = gguf.quants.dequantize(raw, number).reshape(array.shape).astype(np.float32)
        kept[name] = torch.tensor(array)
        if ".experts." in name:
            front, _, back = name.partition(".experts.")
            place, _, part = back.partition(".")
            experts.setdefault(f"{front}.experts.{part}", {})[int(place)] = raw
            continue
        if name.endswith("e_score_correction_bias"):
            name = name.replace("_bias", ".bias")
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        stem = target.split(".")[-2]
        if stem == "attn_kv_b" and kind == "F16":
            # as newer files have it: keys' part turned, beside that of the values
            both = raw.reshape(config.num_attention_heads, -1, raw.shape[-1])
            cut = config.qk_nope_head_dim
            turned = np.ascontiguousarray(both[:, :cut].swapaxes(1, 2))
            writer.add_tensor(target.replace("kv_b", "k_b"), turned, raw_dtype=number)
            rest = np.ascontiguousarray(both[:, cut:])
            writer.add_tensor(target.replace("kv_b", "v_b"), rest, raw_dtype=number)
            continue
        if architecture in _LIKE_LLAMA and stem in heads:
            # rows are whole blocks, so they move as they are
            raw = neighbours(raw.reshape(array.shape[0], -1), heads[stem])
        if architecture in _PLUS_ONE and stem.endswith("norm"):
            raw = array + 1
        writer.add_tensor(target, raw, raw_dtype=number)
    for name, parts in experts.items():
        target = names.get_name(name, try_suffixes=(".weight",))
        stacked = np.stack([parts[i] for i in range(len(parts))])
        writer.add_tensor(target, stacked, raw_dtype=gguf.GGMLQuantizationType[kind])
    return kept


def compare(family: str, kind: str, folder: Path) -> tuple[float, float, bool]:
    """The largest difference of logits, the largest logit, and whether greedy tokens agree."""
    path = folder / f"{family}-{kind}.gguf"
    model = model_of(family)
    write(path, family, model, kind)
    mine = load(path, cache_dtype=dtypes.float32).model
    tokens = np.random.default_rng(3).integers(3, 100, 14).tolist()
    expected = logits_of(model, tokens)[-1]
    found = mine(Tensor([tokens], dtype=dtypes.int32), 0, len(tokens) - 1).numpy()
    following = []
    for token, _ in Generator(mine).generate(tokens, longest=4):
        following.append(token)
    text = list(tokens)
    agrees = True
    for token in following:
        logits = logits_of(model, text)[-1]
        # ties are broken by rounding
        agrees &= float(logits.max() - logits[token]) <= 1e-4 * float(np.abs(logits).max())
        text.append(token)
    path.unlink()
    return float(np.abs(found - expected).max()), float(np.abs(expected).max()), agrees


def is_close(difference: float, largest: float, agrees: bool) -> bool:
    """To the rounding of sums in float32, through all layers."""
    return agrees and difference <= 2e-4 * largest


def main() -> int:
    """All that are asked for; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m test.llm.families", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--kinds", nargs="+", default=list(KINDS))
    options = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for family in options.families:
            for kind in options.kinds:
                found = compare(family, kind, Path(folder))
                wrong += not is_close(*found)
                mark = "" if is_close(*found) else "  WRONG"
                print(f"{family:12} {kind:5} {found[0]:.2e} of {found[1]:.2f}{mark}", flush=True)
    print(f"{wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
