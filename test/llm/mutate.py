"""Files and templates of strangers: whatever was changed in them, an error of weft's or a result.

usage: python -m test.llm.mutate [--count 100000] [--seed N]
In: a small GGUF file and chat templates, changed at random. Out: how many were read and refused; an
exit code of 1 and the seed of what ended in any other way. The suite runs a small share.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import tempfile
from collections import Counter
from pathlib import Path

from test.llm.made import chat_file
from weft.errors import WeftError
from weft.llm.config import config_from_gguf
from weft.llm.model import Transformer
from weft.llm.template import ChatTemplate, template_of
from weft.llm.tokens import tokenizer_from_gguf
from weft.nn.state import gguf_load

MESSAGES = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}] * 2
TEMPLATES = [
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m['content'] | trim }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "{{ bos_token }}{% set ns = namespace(n=0) %}{% for m in messages[1:] %}"
    "{% set ns.n = ns.n + 1 %}{% if loop.first %}[{{ m.content.split('l')[-1] }}]"
    "{% elif m.role == 'tool' %}{{ raise_exception('no') }}{% else %}{{ m | tojson(indent=2) }}"
    "{% endif %}{% endfor %}{{ strftime_now('%d %b %Y') }}{{ 'x' * 3 ~ ns.n }}",
    "{%- macro say(x, n=2) -%}{% for i in range(n) %}{{ x ~ i }}{% endfor %}{%- endmacro -%}"
    "{{ say('a', 3) | upper | replace('A', 'b') }}{% for k, v in messages[0].items() %}{{ k }}"
    "{{ v | length }}{% endfor %}",
]
PIECES = [
    *("{{ ", " }}", "{% for x in range(999999999) %}", "{% endfor %}", ".__class__", "''"),
    *("| list", "* 99999", "** 99999", "['__globals__']", "().__init__", "cycler", "lipsum"),
    *("{% set x = x + x %}", "messages", "loop", "[::-1]", "~ messages ~", "{% if", "%}", "'"),
    *("joiner().__class__", "| map(attribute='x')", "| batch(3)", "| groupby('role')", "none"),
]


def changed_file(data: bytes, pick: random.Random) -> bytes:
    """Bytes of a file, with numbers, pieces or its end changed."""
    found = bytearray(data)
    # most of the meaning is in front
    most = len(found) if pick.random() < 0.1 else len(found) // 4
    for _ in range(pick.choice([1, 1, 2, 4, 16])):
        place = pick.randrange(min(most, len(found)))
        kind = pick.randrange(6)
        if kind < 2:
            found[place] = pick.randrange(256)
        elif kind == 2:
            number = pick.choice([0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, pick.getrandbits(64)])
            found[place : place + 8] = struct.pack("<Q", number)
        elif kind == 3:
            other = pick.randrange(most)
            found[place : place + 16] = found[other : other + 16]
        elif kind == 4:
            del found[place : place + pick.randrange(1, 9)]
        elif pick.random() < 0.1:
            del found[place:]
            most = max(place, 1)
            found += b"\0"
    return bytes(found)


def read_file(data: bytes, path: Path) -> None:
    """All that is done with a file before its first token."""
    path.write_bytes(data)
    values, tensors = gguf_load(path)
    config = config_from_gguf(values, "x").with_context(64)
    tokenizer = tokenizer_from_gguf(values, "x")
    tokenizer.decode(tokenizer.prompt("Hello wörld")[:100])
    template_of(values, values["tokenizer.ggml.tokens"]).render(MESSAGES)
    if config.num_blocks <= 4 and config.dim <= 256 and config.n_kv_heads * config.head_dim <= 4096:
        if config.value_dim <= 4096 and config.rope_dim <= 4096:
            Transformer(config, tensors)


def changed_template(pick: random.Random) -> str:
    """A template with letters and pieces changed."""
    text = pick.choice(TEMPLATES)
    for _ in range(pick.randrange(1, 5)):
        place = pick.randrange(len(text) + 1)
        kind = pick.randrange(4)
        if kind == 0:
            text = text[:place] + text[place + pick.randrange(1, 6) :]
        elif kind == 1:
            other = pick.randrange(len(text) + 1)
            text = text[:place] + text[other : other + pick.randrange(1, 30)] + text[place:]
        else:
            text = text[:place] + pick.choice(PIECES) + text[place:]
    return text


def run(count: int, seed: int, folder: Path) -> tuple[Counter[str], list[str]]:
    """So many files and templates; what came of them, and what went wrong."""
    data = chat_file(folder / "base.gguf").read_bytes()
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for number in range(seed, seed + count):
        pick = random.Random(number)
        is_file = pick.random() < 0.5
        kind = "file" if is_file else "template"
        try:
            if is_file:
                read_file(changed_file(data, pick), folder / "changed.gguf")
            else:
                ChatTemplate(changed_template(pick), {"bos_token": "<s>"}).render(MESSAGES)
            counts[f"{kind} read"] += 1
        except WeftError:
            counts[f"{kind} refused"] += 1
        except Exception as error:
            wrong.append(f"seed {number}, a {kind}: {type(error).__name__}: {str(error)[:200]}")
    return counts, wrong


def main() -> int:
    """As many as are asked for; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m test.llm.mutate", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counts, wrong = run(options.count, options.seed, Path(folder))
    for line in wrong[:20]:
        print(line)
    print(f"{dict(counts)}; {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
