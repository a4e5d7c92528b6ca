"""Answers in pieces: stop words, thoughts, calls of tools, however the pieces are cut."""

from __future__ import annotations

import json
import random

from weft.llm.answer import Parts, Said, StopWords


def pieces(text: str, seed: int) -> list[str]:
    pick = random.Random(seed)
    found = []
    while text:
        count = pick.randint(1, 6)
        found.append(text[:count])
        text = text[count:]
    return found


def said(text: str, seed: int, tools: bool = True, thinks: bool = False) -> Said:
    parts, whole = Parts(tools, thinks), Said()
    for piece in [*pieces(text, seed), None]:
        one = parts.finish() if piece is None else parts.feed(piece)
        whole.content += one.content
        whole.reasoning += one.reasoning
        whole.calls += one.calls
    return whole


def test_stop_words_however_they_are_cut() -> None:
    for seed in range(30):
        words = StopWords(["</end>", "<stop>"])
        text = ""
        for piece in pieces("a < b </en and <stop> more", seed):
            found, is_stopped = words.feed(piece)
            text += found
            if is_stopped:
                break
        assert text == "a < b </en and " and is_stopped


def test_thoughts_and_calls_however_they_are_cut() -> None:
    call = '{"name": "f", "arguments": {"x": "<think>"}}'
    for seed in range(30):
        found = said("<think>\nhm <b</think>\n\nSo: 1 < 2", seed)
        assert (found.reasoning, found.content) == ("\nhm <b", "So: 1 < 2")
        assert said("I am</think>done", seed, thinks=True).reasoning == "I am"
        found = said(
            f"Well.\n<tool_call>\n{call}\n</tool_call>\n<tool_call>{call}</tool_call>", seed
        )
        assert found.content == "Well.\n" and [c["index"] for c in found.calls] == [0, 1]
        assert json.loads(found.calls[0]["function"]["arguments"]) == {"x": "<think>"}
        assert len(said(f"[TOOL_CALLS] [{call}]", seed).calls) == 1
        assert len(said(call.replace("arguments", "parameters"), seed).calls) == 1
        # JSON that calls nothing is text, and so is all without tools
        assert said('{"a": 1}', seed).content == '{"a": 1}'
        assert said(call, seed, tools=False).content == call
