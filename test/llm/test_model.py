"""Logits agree with transformers on the same weights: architectures, formats, steps of prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.llm.made import MODELS, logits_of, make, write_gguf
from weft import Tensor, Variable, dtypes
from weft.errors import DataError
from weft.llm.generate import Generator, Sampling
from weft.llm.load import load
from weft.llm.model import pairwise_topk

TOKENS = np.random.default_rng(1).integers(3, 100, 60).tolist()


def close(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    """To the rounding of sums in float32, through all layers."""
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", MODELS)
def test_an_architecture_agrees_with_transformers(name: str, tmp_path: Path) -> None:
    model = make(name)
    model.save_pretrained(tmp_path)
    mine = load(tmp_path, cache_dtype=dtypes.float32).model
    expected = logits_of(model, TOKENS[:20])
    found = mine(Tensor([TOKENS[:16]], dtype=dtypes.int32), 0, 15).numpy()
    close(found, expected[15])
    start = Variable("start", 0, 127)
    for i in (16, 17):
        token = Tensor([[TOKENS[i]]], dtype=dtypes.int32)
        close(mine(token, start.bind(i), 0).numpy(), expected[i])


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_a_gguf_file_agrees_with_its_dequantised_weights(kind: str, tmp_path: Path) -> None:
    model = make("llama")
    write_gguf(tmp_path / "x.gguf", model, kind)
    mine = load(tmp_path / "x.gguf", cache_dtype=dtypes.float32).model
    expected = logits_of(model, TOKENS[:16])
    close(mine(Tensor([TOKENS[:16]], dtype=dtypes.int32), 0, 15).numpy(), expected[15])


def test_greedy_tokens_and_prompts_of_any_length(tmp_path: Path) -> None:
    """Steps are padded, and what the caches hold is used again: all that changes nothing."""
    model = make("llama")
    model.save_pretrained(tmp_path)
    generator = Generator(load(tmp_path, cache_dtype=dtypes.float32).model)
    for length in (1, 2, 31, 32, 33, 50):
        tokens = list(TOKENS[:length])
        close(generator.logits(tokens), logits_of(model, tokens)[-1])
    tokens = list(TOKENS[:7])
    for token, _ in generator.generate(TOKENS[:7], sampling=Sampling()):
        assert token == int(logits_of(model, tokens)[-1].argmax())
        tokens.append(token)
        if len(tokens) == 15:
            break


def test_a_context_that_is_full_ends_and_a_longer_prompt_is_refused(tmp_path: Path) -> None:
    make("llama").save_pretrained(tmp_path)
    generator = Generator(load(tmp_path, max_context=8).model)
    assert len(list(generator.generate(TOKENS[:6]))) == 3
    with pytest.raises(ValueError, match="a text of 9 tokens: this context takes 1 to 8"):
        generator.logits(TOKENS[:9])


def test_drawing_follows_the_seed_and_the_settings(tmp_path: Path) -> None:
    make("llama").save_pretrained(tmp_path)
    generator = Generator(load(tmp_path).model)

    def drawn(**settings: Any) -> list[int]:
        found = generator.generate(TOKENS[:5], sampling=Sampling(**settings))
        return [token for token, _ in zip(found, range(6), strict=False) for token in [token[0]]]

    greedy = drawn()
    assert drawn(temperature=1.5, seed=3) == drawn(temperature=1.5, seed=3) != greedy
    assert drawn(temperature=1.5, top_k=1, seed=4) == greedy
    assert drawn(temperature=1.5, top_p=0.0, seed=5) == greedy
    assert drawn(temperature=1.5, min_p=1.0, seed=6) == greedy
    with pytest.raises(ValueError, match="top_p is 1.5; 0.0 to 1.0 is accepted"):
        Sampling(top_p=1.5)


def test_pairwise_topk_is_that_of_numpy() -> None:
    values = np.random.default_rng(0).integers(0, 5, (7, 9)).astype(np.float32)
    found, index = pairwise_topk(Tensor(values), 4)
    order = np.argsort(-values, axis=-1, kind="stable")[:, :4]
    assert index.tolist() == order.tolist()
    assert found.tolist() == np.take_along_axis(values, order, -1).tolist()


def test_a_file_that_lacks_tensors_or_is_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    model = make("llama")
    model.save_pretrained(tmp_path)
    config = tmp_path / "config.json"
    text = config.read_text()
    config.write_text(text.replace('"num_hidden_layers": 2', '"num_hidden_layers": 3'))
    with pytest.raises(DataError, match="there is no tensor blk.2.attn_q.weight"):
        load(tmp_path)
    config.write_text(text.replace('"intermediate_size": 96', '"intermediate_size": 97'))
    load(tmp_path)
    config.write_text(text.replace('"model_type": "llama"', '"model_type": "parrot"'))
    with pytest.raises(DataError, match="of the architecture 'parrot'; there are: .* llama "):
        load(tmp_path)
    config.write_text(text.replace('"hidden_size": 64', '"hidden_size": "x"'))
    with pytest.raises(DataError, match="hidden_size is 'x'"):
        load(tmp_path)
