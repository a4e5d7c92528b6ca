"""Every method can be found: on the class, on an instance, and with an example that runs (M4)."""

from __future__ import annotations

import doctest
from typing import Any

import pytest

from weft import Device, Tensor, dtypes

PUBLIC = [name for name in dir(Tensor) if not name.startswith("_")]
DATA = ("grad", "requires_grad")


def _documented(name: str) -> Any:
    for owner in Tensor.__mro__:
        if name in vars(owner):
            found = vars(owner)[name]
            return getattr(found, "__func__", found)
    raise AssertionError(name)


@pytest.mark.parametrize("name", [name for name in PUBLIC if name not in DATA])
def test_example_runs(name: str) -> None:
    text = _documented(name).__doc__
    assert text, f"{name} has no docstring"
    names = {"Tensor": Tensor, "dtypes": dtypes, "Device": Device}
    test = doctest.DocTestParser().get_doctest(text, names, name, None, 0)
    assert test.examples, f"{name} has no example"
    report: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)


def test_methods_are_on_class_and_instance() -> None:
    instance = Tensor([1.0])
    for name in PUBLIC:
        assert hasattr(instance, name), name


def test_list_methods_from_class_and_instance() -> None:
    a, b = Tensor([1]), Tensor([2])
    for joined in (Tensor.stack([a, b]), Tensor.stack(a, b), a.stack(b)):
        assert joined.tolist() == [[1], [2]]
    for joined in (Tensor.cat([a, b]), Tensor.cat(a, b), a.cat(b)):
        assert joined.tolist() == [1, 2]
    assert Tensor.unsqueeze(a, 0).shape == a.unsqueeze(0).shape == (1, 1)
    assert a.zeros(2).tolist() == Tensor.zeros(2).tolist()
