"""Chat templates: what transformers renders, and templates that mean harm."""

from __future__ import annotations

import pytest

from test.optional import need
from weft.errors import DataError
from weft.llm.template import ChatTemplate, FallbackTemplate

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] | trim + '<|im_end|>\\n' }}{% endfor %}\n"
    "{% if add_generation_prompt %}\n{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
MESSAGES = [{"role": "system", "content": "Be brief. "}, {"role": "user", "content": "Hi"}]


def render(source: str) -> str:
    need("jinja2")
    return ChatTemplate(source, {"bos_token": "<s>"}).render(MESSAGES)


def test_a_template_is_rendered() -> None:
    expected = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    assert render(CHATML) == expected + "<|im_start|>assistant\n"
    assert render("{{ bos_token }}{{ messages | tojson }}").startswith('<s>[{"role": "system"')
    assert (
        render("{%- for m in messages if m.role == 'user' %}{{ m.content }}{% break %}{% endfor %}")
        == "Hi"
    )


def test_without_a_template_it_is_chatml() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    assert FallbackTemplate().render(messages, prompt=False) == "<|im_start|>user\nHi<|im_end|>\n"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.popen('true').read() }}",
        "{{ messages.append(1) }}",
        "{{ 'a' * 10000000000 }}",
        "{{ 9 ** 9 ** 9 ** 9 }}",
        "{{ '%10000000000d' % 1 }}",
        "{{ '{:10000000000d}'.format(1) }}",
        "{{ 'a'.ljust(10000000000) }}",
        "{{ 'a' | center(10000000000) }}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
        "{% for a in range(10 ** 10) %}{% endfor %}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}{{ os }}",
        "{{ raise_exception('no system role') }}",
        "{{ undefined.attribute.of.it }}",
        "{% if %}",
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "x" * (1 << 20),
    ],
)
def test_a_template_that_means_harm_is_an_error(source: str) -> None:
    with pytest.raises(DataError):
        render(source)


def test_what_a_template_says_reaches_the_user() -> None:
    with pytest.raises(DataError, match="the chat template says: no system role"):
        render("{{ raise_exception('no system role') }}")
