"""Every promised method is there, on class and instance, with the promised arguments."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import pytest

from test.methods.surface import SURFACE
from weft import Tensor, dtypes

PROMISED = SURFACE.replace("\n    ", " ").split("\n")[1:-1]


def _promised(line: str) -> tuple[str, list[tuple[str, Any]]]:
    """A signature's name and its (parameter, default); no default is `inspect.Parameter.empty`."""
    if "(" not in line:
        return line, []
    function = ast.parse(f"def {line}: ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    names = [each.arg for each in function.args.args] + [a.arg for a in function.args.kwonlyargs]
    found: dict[str, Any] = dict.fromkeys(names, inspect.Parameter.empty)
    for each, default in zip(
        reversed(function.args.args), reversed(function.args.defaults), strict=False
    ):
        found[each.arg] = _value(default)
    for each, given in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        found[each.arg] = inspect.Parameter.empty if given is None else _value(given)
    return function.name, list(found.items())


def _value(node: ast.expr) -> Any:
    text = ast.unparse(node)
    return dtypes.int32 if text == "dtypes.int" else ast.literal_eval(text)


@pytest.mark.parametrize("line", PROMISED)
def test_promised_method(line: str) -> None:
    name, parameters = _promised(line)
    assert hasattr(Tensor, name), f"Tensor has no {name}"
    assert hasattr(Tensor([1.0]), name), f"an instance of Tensor has no {name}"
    if "(" not in line:
        return
    signature = inspect.signature(getattr(Tensor, name))
    accepts_more = any(
        p.kind is inspect.Parameter.VAR_KEYWORD for p in signature.parameters.values()
    )
    for parameter, default in parameters:
        if parameter not in signature.parameters:
            assert accepts_more, f"{name} has no argument {parameter}: {signature}"
            continue
        if default is inspect.Parameter.empty:
            continue
        found = signature.parameters[parameter].default
        assert found == default, f"{name}: {parameter} is {found!r} by default, not {default!r}"


@pytest.mark.parametrize("line", [line for line in PROMISED if "(" in line])
def test_promised_order(line: str) -> None:
    name, parameters = _promised(line)
    if not hasattr(Tensor, name):
        pytest.fail(f"Tensor has no {name}")
    actual = list(inspect.signature(getattr(Tensor, name)).parameters)
    wanted = [parameter for parameter, _ in parameters if parameter in actual]
    assert [p for p in actual if p in wanted] == wanted, f"{name} is {actual}, not {wanted}"
