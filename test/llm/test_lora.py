"""Adapters on quantised weights: they learn, and `peft` reads what they learnt."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from test.llm.made import logits_of, make, write_gguf
from test.optional import found
from weft import Tensor, dtypes, nn
from weft.errors import ArgumentError, DataError
from weft.llm import lora
from weft.llm.load import load

TOKENS = np.random.default_rng(1).integers(3, 100, (2, 12)).astype(np.int32)


def test_an_adapter_learns_on_quantised_weights_and_is_read_by_peft(tmp_path: Path) -> None:
    model = make("llama")
    write_gguf(tmp_path / "x.gguf", model, "Q8_0")
    mine = load(tmp_path / "x.gguf", cache_dtype=dtypes.float32).model
    tokens = Tensor(TOKENS).realize()
    expected = np.stack([logits_of(model, row.tolist()) for row in TOKENS])
    np.testing.assert_allclose(lora.logits_of(mine, tokens).numpy(), expected, rtol=1e-3, atol=1e-5)
    adapter = lora.Lora(mine, rank=4, alpha=32, targets=("q_proj", "v_proj", "down_proj"))
    optimiser = nn.optim.AdamW(adapter.parameters, lr=0.05)
    with Tensor.train():
        losses = [adapter.step(optimiser, tokens).item() for _ in range(6)]
    # random norms keep logits small: there is not more to be learnt in six steps
    assert all(b < a for a, b in itertools.pairwise(losses)) and losses[-1] < losses[0] - 0.05
    adapter.save(tmp_path / "adapter")
    trained = lora.logits_of(mine, tokens).numpy()
    again = load(tmp_path / "x.gguf", cache_dtype=dtypes.float32).model
    lora.load_adapter(again, tmp_path / "adapter")
    np.testing.assert_allclose(lora.logits_of(again, tokens).numpy(), trained, rtol=1e-4, atol=1e-4)
    # a step over the cache adapts as well
    last = again(Tensor(TOKENS[:1]), 0, 11).numpy()
    np.testing.assert_allclose(last, trained[0, -1], rtol=1e-3, atol=1e-4)
    peft = found("peft")
    if peft is not None:
        theirs = peft.PeftModel.from_pretrained(model, str(tmp_path / "adapter")).eval()
        expected = np.stack([logits_of(theirs, row.tolist()) for row in TOKENS])
        np.testing.assert_allclose(trained, expected, rtol=1e-3, atol=1e-4)


def test_what_cannot_be_adapted_is_refused(tmp_path: Path) -> None:
    make("phi3").save_pretrained(tmp_path)
    model = load(tmp_path).model
    with pytest.raises(ArgumentError, match="no projection q_proj of its own"):
        lora.Lora(model)
    with pytest.raises(ArgumentError, match="targets are q_proj"):
        lora.Lora(model, targets=("lm_head",))
    with pytest.raises(DataError, match="adapter_config.json is missing"):
        lora.load_adapter(model, tmp_path)
