"""The worker of the search: requests are data, and a bad one is answered with why."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from weft import Device
from weft.engine.search_worker import Requests, serve


def answers(*requests: dict[str, Any]) -> list[dict[str, Any]]:
    given = "".join(json.dumps({"limit": 60.0, **request}) + "\n" for request in requests)
    out = io.StringIO()
    serve(io.StringIO(given), out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_the_target_of_a_device() -> None:
    (answer,) = answers({"ask": "target", "with": {"device": Device.DEFAULT}})
    assert answer == {"target": repr(Device[Device.DEFAULT].renderer.target)}


def test_what_python_can_refuse_is_answered() -> None:
    nothing, damaged = answers(
        {"ask": "measure", "with": {"candidate": [], "best": 1.0}},
        {"ask": "kernel", "with": {"rows": "no rows", "device": Device.DEFAULT, "knobs": {}}},
    )
    assert "refused" in nothing and "refused" in damaged


def test_requests_begin_without_a_kernel() -> None:
    with pytest.raises(AssertionError, match="brings it"):
        _ = Requests().trial
