"""A small share of `python -m test.llm.stress`."""

from __future__ import annotations

from test.llm import stress
from test.optional import need


def test_many_clients_of_all_kinds() -> None:
    for name in ("uvicorn", "starlette", "pydantic", "tokenizers"):
        need(name)
    assert stress.main(["--requests", "60", "--streams", "16"]) == 0
