"""The program: `python -m weft.llm`, also `python -m weft.apps.llm`.

In: a model's file and prompts. Out: answers on standard output, all else on standard error. On top
of the package. Invariant: a mistake of the user is one line on standard error and exit code 1;
with input from a pipe, standard output holds answers and nothing else.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from weft.errors import ArgumentError, DataError, WeftError
from weft.llm.batch import Guesser, ModelGuesser, NgramGuesser
from weft.llm.generate import Generator, Sampling
from weft.llm.load import Loaded, load
from weft.llm.lora import load_adapter
from weft.llm.names import resolve
from weft.llm.serve import LLMServer, ServerOptions
from weft.llm.speaker import Speaker
from weft.llm.template import FallbackTemplate
from weft.llm.tokens import SimpleTokenizer

__all__ = ["Chat", "FallbackTemplate", "SimpleTokenizer", "main"]

COMMANDS = """/system TEXT   begin anew with this system prompt
/clear         begin anew
/set NAME X    temperature, top_k, top_p, min_p, repetition_penalty, seed
/help          this
/bye           leave (also Ctrl-D)"""


class Chat:
    """A conversation with a model."""

    def __init__(
        self, loaded: Loaded, system: str | None = None, guesser: Guesser | None = None
    ) -> None:
        self.loaded = loaded
        self.speaker = Speaker(loaded)
        self.tokenizer = self.speaker.tokenizer
        self.generator = Generator(loaded.model, guesser)
        self.messages: list[dict[str, str]] = []
        self.clear(system)

    def clear(self, system: str | None = None) -> None:
        """Begins anew."""
        self.messages = [{"role": "system", "content": system}] if system else []

    def answer(self, text: str, sampling: Sampling, longest: int | None = None) -> Iterator[str]:
        """Pieces of the answer to a message; both are remembered."""
        self.messages.append({"role": "user", "content": text})
        prompt, _ = self.speaker.chat(self.messages)
        said = ""
        try:
            for piece in self.continued(prompt, sampling, longest):
                said += piece
                yield piece
        finally:
            self.messages.append({"role": "assistant", "content": said})

    def continued(
        self, prompt: list[int], sampling: Sampling, longest: int | None = None
    ) -> Iterator[str]:
        """Pieces of the text that follows a prompt, one for each token."""
        stream = self.tokenizer.stream()
        for token, _ in self.generator.generate(prompt, self.tokenizer.eos, sampling, longest):
            yield stream.feed(token)
        yield stream.finish()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    parser.add_argument(
        "--model", required=True, help="a GGUF file, a Hugging Face folder, or a name"
    )
    parser.add_argument("--adapter", help="the folder of a LoRA adapter, as peft writes it")
    parser.add_argument("--system", help="what the model is told first")
    parser.add_argument(
        "--max_context", type=int, help="tokens of the cache (default: 4096 or less)"
    )
    parser.add_argument("--max_tokens", type=int, help="tokens of an answer at most")
    parser.add_argument("--temperature", type=float, help="0 is greedy (default; of a server: 1)")
    parser.add_argument("--top_k", type=int, default=0)
    parser.add_argument("--top_p", type=float, default=1.0)
    parser.add_argument("--min_p", type=float, default=0.0)
    parser.add_argument("--repetition_penalty", type=float, default=1.0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--raw", action="store_true", help="continue the text, without a template")
    parser.add_argument(
        "--speculate",
        nargs="?",
        const="",
        metavar="DRAFT",
        help="guess tokens by a smaller model, or without one by what the text said before",
    )
    serving = parser.add_argument_group("server")
    serving.add_argument(
        "--serve", type=int, nargs="?", const=8080, metavar="PORT", help="answer over HTTP"
    )
    serving.add_argument("--host", default="127.0.0.1", help="default: this machine only")
    serving.add_argument("--api_key", help="answer only those who send it")
    serving.add_argument(
        "--texts", type=int, default=4, help="whole contexts that the cache has room for"
    )
    parser.add_argument("--warmup", action="store_true", help="compile all steps before the first")
    parser.add_argument(
        "--benchmark", type=int, nargs="?", const=64, metavar="N", help="time N tokens and leave"
    )


def main(arguments: list[str] | None = None) -> int:
    """Runs the program; the exit code."""
    parser = argparse.ArgumentParser(
        prog="weft.llm",
        description="Answers prompts: one a line on standard input, or a chat on a terminal.",
    )
    add_arguments(parser)
    try:
        return answer_all(parser.parse_args(arguments))
    except WeftError as error:
        print(f"weft.llm: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130


def answer_all(args: argparse.Namespace) -> int:
    """Loads the model and answers what comes in."""
    greedy = 0.0 if args.serve is None else 1.0
    sampling = Sampling(
        greedy if args.temperature is None else args.temperature,
        args.top_k,
        args.top_p,
        args.min_p,
        args.repetition_penalty,
        seed=args.seed,
    )
    began = time.perf_counter()
    texts = 1 if args.serve is None else args.texts
    if not 1 <= texts <= 1024:
        raise ArgumentError(f"--texts is {texts}; 1 to 1024 is accepted")
    loaded = load(resolve(args.model), args.max_context or 4096, texts=texts)
    if args.adapter:
        load_adapter(loaded.model, args.adapter)
    guesser = _guesser(args.speculate, loaded)
    if args.serve is not None:
        return _serve(loaded, sampling, guesser, args)
    chat = Chat(loaded, args.system, guesser)
    if args.warmup or args.benchmark:
        chat.generator.warm_up()
    if sys.stderr.isatty():
        config = loaded.config
        print(
            f"{loaded.path.name}: {config.architecture}, {config.num_blocks} layers, context "
            f"{config.max_context}, {time.perf_counter() - began:.1f} s",
            file=sys.stderr,
        )
    if args.benchmark:
        return _benchmark(chat, args.benchmark)
    if sys.stdin.isatty():
        return _converse(chat, sampling, args)
    for line in sys.stdin:
        prompt = line.rstrip("\n")
        if not prompt.strip():
            continue
        pieces = (
            chat.continued(chat.tokenizer.prompt(prompt), sampling, args.max_tokens)
            if args.raw
            else chat.answer(prompt, sampling, args.max_tokens)
        )
        _print(pieces)
        chat.clear(args.system)
    return 0


def _guesser(draft: str | None, loaded: Loaded) -> Guesser | None:
    if not draft:
        return None if draft is None else NgramGuesser()
    other = load(resolve(draft), loaded.config.max_context)
    sizes = [each.model.token_embd.weight.shape[0] for each in (loaded, other)]
    if sizes[0] != sizes[1]:
        raise ArgumentError(
            f"the draft {draft} has {sizes[1]} tokens, the model {sizes[0]}; they must be the same"
        )
    return ModelGuesser(other.model)


def _serve(
    loaded: Loaded, sampling: Sampling, guesser: Guesser | None, args: argparse.Namespace
) -> int:
    """Answers over HTTP until Ctrl-C."""
    options = ServerOptions(args.host, args.serve, args.api_key, sampling)
    server = LLMServer(Speaker(loaded), options, guesser)
    port = server.listen()
    if args.warmup:
        server.engine.batcher.warm_up()
    host = f"[{args.host}]" if ":" in args.host else args.host
    print(f"http://{host}:{port}/ answers for {loaded.path.name}", file=sys.stderr, flush=True)
    if not options.is_local and args.api_key is None:
        print("who can reach this machine can use it: --api_key asks for a key", file=sys.stderr)
    server.run()
    return 0


def _print(pieces: Iterator[str]) -> int:
    """Prints pieces as they come; how many there were."""
    count = 0
    for piece in pieces:
        count += 1
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")
    sys.stdout.flush()
    return count


def _converse(chat: Chat, sampling: Sampling, args: argparse.Namespace) -> int:
    """A chat on a terminal: Ctrl-C ends an answer, Ctrl-D the program."""
    print("/help lists commands", file=sys.stderr)
    while True:
        try:
            text = input(">>> ").strip()
        except EOFError:
            print(file=sys.stderr)
            return 0
        except KeyboardInterrupt:
            print(file=sys.stderr)
            continue
        if not text:
            continue
        try:
            if text.startswith("/"):
                if text == "/bye":
                    return 0
                sampling = _command(chat, text, sampling)
                continue
            began = time.perf_counter()
            count = _print(chat.answer(text, sampling, args.max_tokens))
            seconds = time.perf_counter() - began
            print(f"[{count} tokens, {count / seconds:.1f} a second]", file=sys.stderr)
        except KeyboardInterrupt:
            print(" [stopped]", file=sys.stderr)
        except WeftError as error:
            print(error, file=sys.stderr)


def _command(chat: Chat, text: str, sampling: Sampling) -> Sampling:
    name, _, rest = text.partition(" ")
    if name == "/clear":
        chat.clear()
    elif name == "/system":
        chat.clear(rest)
    elif name == "/set":
        return _changed(sampling, rest)
    elif name == "/help":
        print(COMMANDS, file=sys.stderr)
    else:
        raise ArgumentError(f"{name} is no command; /help lists them")
    return sampling


_SETTINGS: dict[str, Callable[[str], Any]] = {
    "temperature": float,
    "top_k": int,
    "top_p": float,
    "min_p": float,
    "repetition_penalty": float,
    "seed": int,
}


def _changed(sampling: Sampling, text: str) -> Sampling:
    name, _, value = text.partition(" ")
    if name not in _SETTINGS:
        raise ArgumentError(f"{name!r} cannot be set; {', '.join(_SETTINGS)} can")
    try:
        return dataclasses.replace(sampling, **{name: _SETTINGS[name](value)})
    except ValueError:
        raise DataError(f"{name} takes a number, not {value!r}") from None


def _benchmark(chat: Chat, count: int) -> int:
    """Tokens a second of prompts and answers."""
    generator = chat.generator
    prompt = [chat.tokenizer.bos or 0] * min(512, chat.loaded.model.max_context - count - 1)
    if len(prompt) < 1:
        raise ArgumentError(
            f"{count} tokens do not fit a context of {chat.loaded.model.max_context}"
        )
    generator.batcher.pages.forget_idle()
    began = time.perf_counter()
    generator.logits(prompt)
    read = time.perf_counter()
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(np.argmax(generator.logits([*tokens, 1]))))
    done = time.perf_counter()
    print(f"prompt {len(prompt) / (read - began):.1f} tokens/s")
    print(f"decode {count / (done - read):.1f} tokens/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
