"""The program: answers on standard output, mistakes as one line on standard error."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from test.llm.made import chat_file
from weft.commands.main import main
from weft.llm import cli


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chat_file(tmp_path_factory.mktemp("model") / "tiny.gguf")


def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str, *arguments: str
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    code = cli.main(list(arguments))
    found = capsys.readouterr()
    return code, found.out, found.err


def test_each_line_is_a_prompt(
    model_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    common = ("--model", str(model_file), "--max_tokens", "4", "--max_context", "64")
    code, out, err = run(capsys, monkeypatch, "Hello\n\nHello\n", *common)
    assert code == 0 and err == ""
    answers = out.rstrip("\n")
    half = len(answers) // 2
    # both prompts are the same, each begins anew
    assert answers[:half] == answers[half + 1 :] and answers


def test_a_text_is_continued_up_to_its_limit(
    model_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    common = ("--model", str(model_file), "--raw", "--max_context", "64", "--max_tokens")
    _, short, _ = run(capsys, monkeypatch, "Hello\n", *common, "2")
    _, longer, _ = run(capsys, monkeypatch, "Hello\n", *common, "6")
    assert longer.startswith(short.rstrip("\n\ufffd")) and len(longer) > len(short)


def test_weft_chat_is_the_same_program(
    model_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    common = ("--model", str(model_file), "--max_tokens", "4", "--max_context", "64")
    _, expected, _ = run(capsys, monkeypatch, "Hello\n", *common)
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hello\n"))
    assert main(["chat", *common]) == 0
    assert capsys.readouterr().out == expected


def test_mistakes_are_one_line(
    model_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = str(tmp_path / "missing.gguf")
    code, out, err = run(capsys, monkeypatch, "", "--model", missing)
    assert code == 1 and out == "" and err.count("\n") == 1 and "no file or folder here" in err
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(model_file.read_bytes()[:1000])
    code, out, err = run(capsys, monkeypatch, "", "--model", str(damaged))
    assert code == 1 and out == "" and err.count("\n") == 1 and "damaged" in err
    code, out, err = run(capsys, monkeypatch, "", "--model", str(model_file), "--temperature", "-1")
    assert code == 1 and "temperature is -1.0" in err


def test_a_benchmark_prints_tokens_a_second(
    model_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = run(
        capsys,
        monkeypatch,
        "",
        "--model",
        str(model_file),
        "--benchmark",
        "3",
        "--max_context",
        "64",
    )
    assert code == 0 and out.startswith("prompt ") and "decode " in out
