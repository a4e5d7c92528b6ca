"""Texts together are continued as alone; pages, prefixes, guesses, and nothing is compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.llm.made import make
from weft import dtypes
from weft.engine.jit import tinyjit
from weft.llm.batch import Batcher, ModelGuesser, NgramGuesser, Text
from weft.llm.generate import Generator, Sampling
from weft.llm.load import load
from weft.llm.model import PAGE, Transformer
from weft.llm.pages import Pages

RANDOM = np.random.default_rng(2)
PROMPTS = [RANDOM.integers(3, 100, n).tolist() for n in (5, 33, 1, 40, 70, 12, 64, 9, 3, 20)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    make("llama", max_position_embeddings=512).save_pretrained(path)
    return path


def model_of(folder: Path, texts: int = 2, **options: Any) -> Transformer:
    return load(folder, cache_dtype=dtypes.float32, texts=texts, **options).model


@pytest.fixture(scope="module")
def generator(folder: Path) -> Generator:
    """One whose steps are captured once for all tests."""
    return Generator(model_of(folder))


@pytest.fixture
def batcher(generator: Generator) -> Batcher:
    generator.batcher.pages.forget_idle()
    return generator.batcher


def ignore(token: int, logits: Any) -> bool:
    return False


def run(batcher: Batcher, texts: list[Text]) -> list[list[int]]:
    for text in texts:
        batcher.add(text)
    for _ in range(10_000):
        if not batcher.step():
            break
    assert all(text.reason for text in texts)
    return [text.tokens for text in texts]


def alone(generator: Generator, settings: list[Sampling], added: int) -> list[list[int]]:
    return [
        [*prompt, *(t for t, _ in generator.generate(prompt, sampling=s, longest=added))]
        for prompt, s in zip(PROMPTS, settings, strict=True)
    ]


def asked(settings: list[Sampling], added: int) -> list[Text]:
    return [
        Text(list(prompt), ignore, s, longest=len(prompt) + added)
        for prompt, s in zip(PROMPTS, settings, strict=True)
    ]


def test_texts_together_are_continued_as_alone(generator: Generator, batcher: Batcher) -> None:
    """More texts than a step holds, greedy and drawn, with room for all."""
    settings = [Sampling(temperature=i % 3 / 2, top_k=20, seed=i) for i in range(len(PROMPTS))]
    together = run(batcher, asked(settings, 12))
    assert together == alone(generator, settings, 12)


def test_texts_that_do_not_fit_together_take_turns(folder: Path, generator: Generator) -> None:
    """Pages for one context only: texts wait, or give theirs up and are read again."""
    settings = [Sampling()] * len(PROMPTS)
    batcher = Batcher(model_of(folder, 1, max_context=128))
    together = run(batcher, asked(settings, 30))
    assert together == alone(generator, settings, 30)
    assert batcher.pages.free == batcher.pages.count


def test_a_prefix_is_read_once(generator: Generator, batcher: Batcher) -> None:
    first, second = (Text(PROMPTS[4] + [i], ignore, longest=80) for i in (5, 6))
    run(batcher, [first])
    steps = batcher.steps
    run(batcher, [second])
    assert first.reused == 0 and second.reused == len(PROMPTS[4]) // PAGE * PAGE
    assert batcher.steps - steps <= steps
    batcher.pages.forget_idle()
    expected = [t for t, _ in generator.generate(second.tokens[: second.prompt], longest=9)]
    assert second.tokens[second.prompt :] == expected


def test_nothing_is_compiled_or_scheduled_after_the_warm_up(
    generator: Generator, batcher: Batcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    batcher.warm_up()

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("something was not replayed")

    monkeypatch.setattr(tinyjit, "run_recorded", fail)
    settings = [Sampling()] * len(PROMPTS)
    together = run(batcher, asked(settings, 5))
    long = RANDOM.integers(3, 100, 300).tolist()
    run(batcher, [Text(long, ignore, longest=310)])
    monkeypatch.undo()
    assert together == alone(generator, settings, 5)


def test_a_cancelled_text_gives_its_pages_back(batcher: Batcher) -> None:
    text = batcher.add(Text(list(PROMPTS[4]), ignore))
    batcher.step()
    batcher.step()
    batcher.cancel(text)
    assert text.reason == "cancelled" and not batcher.step()
    assert batcher.pages.free == batcher.pages.count
    batcher.cancel(text)


def test_guesses_change_nothing_but_the_number_of_steps(
    folder: Path, generator: Generator, batcher: Batcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = [7, 8, 9, 10, 11, 12] * 6
    same = ModelGuesser(model_of(folder))
    for settings in (Sampling(), Sampling(temperature=0.8, seed=3)):
        plain = [t for t, _ in generator.generate(prompt, sampling=settings, longest=40)]
        for guesser in (NgramGuesser(), same):
            monkeypatch.setattr(batcher, "guesser", guesser)
            found = generator.generate(prompt, sampling=settings, longest=40)
            assert [t for t, _ in found] == plain
        monkeypatch.undo()
    # the same model guesses all that is greedy
    monkeypatch.setattr(batcher, "guesser", same)
    steps, guesses, guessed = batcher.steps, batcher.guesses, batcher.guessed
    list(generator.generate(prompt, longest=40))
    assert batcher.guessed - guessed == batcher.guesses - guesses > 30
    assert batcher.steps - steps < 12


def test_pages_are_shared_kept_and_given_out_again() -> None:
    pages = Pages(4)
    tokens = list(range(2 * PAGE))
    mine = [pages.take(), pages.take()]
    assert None not in mine
    own = [page for page in mine if page is not None]
    pages.remember(own[:1], tokens)
    pages.remember(own, tokens)
    assert pages.known(tokens) == own
    pages.give_back(own)
    pages.give_back(own)
    assert pages.free == 3 and pages.known([*tokens[:PAGE], 1, 2]) == own[:1]
    # the second one is forgotten when it is needed for something else
    assert len({pages.take(), pages.take()}) == 2 and pages.take() is None
    pages.give_back(own[:1])
    assert pages.known(tokens) == own[:1]
