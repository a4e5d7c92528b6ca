"""Layers that carry a state: alone against NumPy, in models against transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.llm.made import logits_of, make
from test.optional import need
from weft import Tensor, dtypes
from weft.llm.batch import Batcher, Text
from weft.llm.load import load
from weft.llm.recurrent import delta_rule, inverse_below, scan

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(5)


def one_by_one(q: Array, k: Array, v: Array, beta: Array, decay: Array, state: Array) -> Any:
    """The delta rule as its definition has it, of one head, in float64."""
    found = []
    for t in range(q.shape[0]):
        state = state * np.exp(decay[t])
        state = state + np.outer(k[t], beta[t] * (v[t] - state.T @ k[t]))
        found.append(state.T @ q[t] * q.shape[1] ** -0.5)
    return np.array(found), state


@pytest.mark.parametrize("length", [1, 5, 32, 70])
@pytest.mark.parametrize("spread", [1.0, 0.05])  # of keys: small ones are nearly alike
def test_the_delta_rule_in_chunks_is_that_of_one_token_after_another(
    length: int, spread: float
) -> None:
    q, v = RANDOM.normal(size=(2, length, 6))
    k = 1 + spread * RANDOM.normal(size=(length, 6))
    k /= np.linalg.norm(k, axis=1, keepdims=True)
    beta, decay = RANDOM.uniform(0, 1, length), -RANDOM.exponential(0.3, length)
    state = RANDOM.normal(size=(6, 6))
    expected, last = one_by_one(q, k, v, beta, decay, state)
    given = [Tensor(x.astype(np.float32)[None, None]) for x in (q, k, v, beta, decay, state)]
    found, carried = delta_rule(*given)  # type: ignore[arg-type]
    largest = np.abs(expected).max()
    np.testing.assert_allclose(found.numpy()[0, 0], expected, rtol=0, atol=3e-6 * largest)
    np.testing.assert_allclose(carried.numpy()[0, 0], last, rtol=0, atol=3e-6 * np.abs(last).max())


def test_a_triangle_is_inverted_as_by_substitution() -> None:
    below = np.tril(RANDOM.uniform(0.5, 1, (32, 32)), -1)
    found = inverse_below(Tensor(below.astype(np.float32))).numpy()
    np.testing.assert_allclose(found, np.linalg.inv(np.eye(32) + below), rtol=0, atol=2e-6)


def test_a_scan_is_a_loop() -> None:
    decays, inputs = RANDOM.uniform(0, 1, (2, 2, 37, 3)).astype(np.float32)
    state = first = RANDOM.normal(size=(2, 3)).astype(np.float32)
    expected = []
    for t in range(37):
        state = state * decays[:, t] + inputs[:, t]
        expected.append(state)
    found = scan(Tensor(decays), Tensor(inputs), Tensor(first)).numpy()
    np.testing.assert_allclose(found, np.stack(expected, 1), rtol=1e-5, atol=1e-6)


class Parrot:
    """Guesses the same token again and again."""

    def guess(self, tokens: Any, count: int) -> list[int]:
        return [tokens[-1]] * count


@pytest.mark.parametrize("name", ["mamba", "qwen3.5"])
def test_texts_together_are_continued_as_alone(name: str, tmp_path: Path) -> None:
    """More of them than there are slots, pieces of prompts of every size, and steps that pad."""
    model = make(name, max_position_embeddings=512)
    model.save_pretrained(tmp_path)
    batcher = Batcher(load(tmp_path, cache_dtype=dtypes.float32, max_context=512).model)
    prompts = [RANDOM.integers(3, 100, n).tolist() for n in (5, 33, 1, 40, 300, 12, 64, 9, 3, 20)]
    logits: list[list[Array]] = [[] for _ in prompts]

    def listener(kept: list[Array]) -> Any:
        return lambda token, found: kept.append(np.array(found))

    texts = [
        Text(list(prompt), listener(kept), longest=len(prompt) + 4)
        for prompt, kept in zip(prompts, logits, strict=True)
    ]
    for text in texts:
        batcher.add(text)
    while batcher.step():
        pass
    for prompt, text, kept in zip(prompts, texts, logits, strict=True):
        expected = logits_of(model, text.tokens)
        for i, found in enumerate(kept):
            here = expected[len(prompt) - 1 + i]
            np.testing.assert_allclose(found, here, rtol=1e-4, atol=1e-5 * np.abs(here).max())
    # the same text again begins with an empty state; what is guessed could not be taken back
    batcher.guesser = Parrot()
    again = Text(list(prompts[1]), lambda token, found: False, longest=len(prompts[1]) + 3)
    batcher.add(again)
    while batcher.step():
        pass
    assert again.tokens == texts[1].tokens[: len(again.tokens)] and again.reused == 0
    assert batcher.guesses == 0


def test_a_gguf_file_of_mamba_agrees_with_transformers(tmp_path: Path) -> None:
    """As llama.cpp's converter writes it: rates for their logarithms, taps as a matrix."""
    gguf = need("gguf")
    model = make("mamba")
    config = model.config
    writer = gguf.GGUFWriter(str(tmp_path / "x.gguf"), "mamba")
    writer.add_context_length(128)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_vocab_size(config.vocab_size)
    writer.add_layer_norm_rms_eps(config.layer_norm_epsilon)
    writer.add_ssm_conv_kernel(config.conv_kernel)
    writer.add_ssm_inner_size(config.intermediate_size)
    writer.add_ssm_state_size(config.state_size)
    writer.add_ssm_time_step_rank(config.time_step_rank)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MAMBA, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        array = tensor.numpy()
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        array = -np.exp(array) if name.endswith("A_log") else array.squeeze()
        writer.add_tensor(target, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    mine = load(tmp_path / "x.gguf").model
    tokens = RANDOM.integers(3, 100, 16).tolist()
    expected = logits_of(model, tokens)[-1]
    found = mine(Tensor([tokens], dtype=dtypes.int32), 0, 15).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
