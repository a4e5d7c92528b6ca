"""The judge of an array API namespace: checks made from the text of the standard, counted.

    python -m test.array_api.judge                      weft.array_api
    python -m test.array_api.judge array_api_strict     another namespace, by its module
    python -m test.array_api.judge --write              the table of docs/array_api.md, anew

In: a namespace. Out: how many checks of each kind pass, and which fail.
Five kinds: names and signatures; special cases; promotion; values, against NumPy; the array object.
`array-api-tests` itself is no package: this judge reads the same text that it reads.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from test.array_api import objects, promotion, special, standard, values

EXTENSIONS = {"Array": "", "Linalg": "linalg", "Fft": "fft"}


@dataclass(frozen=True)
class Check:
    """One check: it raises if the namespace does otherwise."""

    kind: str
    name: str
    run: Callable[[], None]


# ------------------------------------------------------------ names and signatures
def _owner(xp: Any, namespace: str) -> Any:
    return getattr(xp, EXTENSIONS[namespace]) if EXTENSIONS[namespace] else xp


def check_name(xp: Any, namespace: str, name: str) -> None:
    """It is there."""
    assert hasattr(_owner(xp, namespace), name), f"no {name}"


def check_signature(found: Any, wanted: list[standard.Parameter], name: str) -> None:
    """Whatever the standard allows to be given can be given."""
    parameters = dict(inspect.signature(found).parameters)
    parameters.pop("self", None)
    order = list(parameters)
    for number, parameter in enumerate(wanted):
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            kinds = [each.kind for each in parameters.values()]
            assert parameter.kind in kinds, f"{name} takes no *{parameter.name}"
            continue
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            assert len(order) > number, f"{name} takes no {parameter.name}"
            mine = parameters[order[number]]
            assert mine.kind is not inspect.Parameter.KEYWORD_ONLY, f"{name}: {parameter.name}"
        else:
            assert parameter.name in parameters, f"{name} takes no {parameter.name}"
            mine = parameters[parameter.name]
            if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
                assert order[number] == parameter.name, f"{name}: {parameter.name} moved"
            assert mine.kind is not inspect.Parameter.POSITIONAL_ONLY, f"{name}: {parameter.name}"
        if parameter.optional:
            assert mine.default is not inspect.Parameter.empty, f"{name} needs {parameter.name}"


def name_checks(xp: Any) -> Iterator[Check]:
    """Names, signatures, methods and attributes."""
    array = xp.asarray([1.0, 2.0])
    for namespace in EXTENSIONS:
        for name in standard.names(namespace):
            if name == "Device":
                continue
            label = f"{EXTENSIONS[namespace]}.{name}".lstrip(".")
            yield Check("names", f"name {label}", lambda s=namespace, n=name: check_name(xp, s, n))
            if name not in standard.functions(namespace):
                continue
            wanted = standard.signature(name)
            yield Check(
                "names",
                f"signature {label}",
                lambda s=namespace, n=name, w=wanted: check_signature(
                    getattr(_owner(xp, s), n), w, n
                ),
            )
    for name, wanted in standard.methods().items():
        yield Check(
            "names",
            f"method {name}",
            lambda n=name, w=wanted: check_signature(getattr(array, n), w, n),
        )
    for name in standard.properties():
        thing = xp.asarray([[1.0]]) if name in ("T", "mT") else array
        yield Check("names", f"attribute {name}", lambda n=name, t=thing: getattr(t, n))


# ------------------------------------------------------------ special cases
_OPERATORS = {
    "abs": "__abs__", "add": "__add__", "divide": "__truediv__", "equal": "__eq__",
    "floor_divide": "__floordiv__", "multiply": "__mul__", "not_equal": "__ne__",
    "pow": "__pow__", "remainder": "__mod__",
}  # fmt: skip
_WRITING = ("add", "divide", "floor_divide", "multiply", "pow", "remainder")


def check_special(xp: Any, case: special.Case, form: str, dtype: Any) -> None:
    """Every example of a sentence, in one call."""
    name = case.sentence.function
    columns = [xp.asarray(list(each), dtype=dtype) for each in zip(*case.examples, strict=True)]
    if form == "function":
        found = getattr(xp, name)(*columns)
    elif form == "operator":
        found = getattr(columns[0], _OPERATORS[name])(*columns[1:])
    else:
        found = getattr(columns[0], _OPERATORS[name].replace("__", "__i", 1))(columns[1])
    for number, example in enumerate(case.examples):
        one = found[number]
        kind = complex if xp.isdtype(one.dtype, "complex floating") else float
        value = bool(one) if one.dtype == xp.bool else kind(one)
        assert case.is_met(number, value), (
            f"{name}{example} is {value}; the result must be {case.sentence.result}"
        )


def special_checks(xp: Any) -> Iterator[Check]:
    """Each sentence as a function, an operator and an operator in place."""
    for sentence in standard.sentences():
        if sentence.function == "clip":
            continue
        case = special.case_of(sentence, len(standard.signature(sentence.function)))
        forms = ["function"]
        if sentence.function in _OPERATORS:
            forms.append("operator")
        if sentence.function in _WRITING and not case.sentence.is_complex:
            forms.append("in place")
        dtype = xp.complex128 if case.sentence.is_complex else xp.float64
        for form in forms:
            yield Check(
                "special cases",
                f"{case.name} ({form})",
                lambda c=case, f=form, d=dtype: check_special(xp, c, f, d),
            )


# ------------------------------------------------------------ all
def checks(xp: Any, seed: int = 0) -> Iterator[Check]:
    """All checks of a namespace."""
    yield from name_checks(xp)
    yield from special_checks(xp)
    for kind, found in (
        ("promotion", promotion.checks(xp)),
        ("values", values.checks(xp, np.random.default_rng(seed))),
        ("the array object", objects.checks(xp)),
    ):
        for name, run in found:
            yield Check(kind, name, run)


def judged(xp: Any, only: str = "", seed: int = 0) -> dict[str, list[tuple[str, str | None]]]:
    """Each kind's checks with what is wrong, or None."""
    results: dict[str, list[tuple[str, str | None]]] = {}
    for check in checks(xp, seed):
        if only not in f"{check.kind} {check.name}":
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check.run()
            problem = None
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        results.setdefault(check.kind, []).append((check.name, problem))
    return results


DOCS = Path(__file__).resolve().parents[2] / "docs" / "array_api.md"
PEERS = ("weft.array_api", "array_api_strict", "array_api_compat.numpy", "array_api_compat.torch")


def write_table() -> None:
    """Judges weft and its peers, and writes the table between its two marks."""
    found = {name: judged(importlib.import_module(name)) for name in PEERS}
    lines = [f"| kind | checks | {' | '.join(PEERS)} |", f"|---|---|{'---|' * len(PEERS)}"]
    totals = [0] * len(PEERS)
    checked = 0
    for kind, results in found[PEERS[0]].items():
        passed = [sum(problem is None for _, problem in found[name][kind]) for name in PEERS]
        totals = [sum(pair) for pair in zip(totals, passed, strict=True)]
        checked += len(results)
        lines.append(f"| {kind} | {len(results)} | {' | '.join(map(str, passed))} |")
    shares = [f"{total} = {100 * total / checked:.1f} %" for total in totals]
    lines.append(f"| all | {checked} | {' | '.join(shares)} |")
    text = DOCS.read_text(encoding="utf-8")
    head, mark, rest = text.partition("<!-- judged -->\n")
    _, end, tail = rest.partition("<!-- end -->")
    DOCS.write_text(head + mark + "\n".join(lines) + "\n" + end + tail, encoding="utf-8")


def main(arguments: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m test.array_api.judge", description=__doc__)
    parser.add_argument("namespace", nargs="?", default="weft.array_api")
    parser.add_argument("--only", default="", help="checks whose kind or name has this in it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="the table of docs/array_api.md")
    asked = parser.parse_args(arguments)
    if asked.write:
        write_table()
        return 0
    results = judged(importlib.import_module(asked.namespace), asked.only, asked.seed)
    passed = total = 0
    for kind, found in results.items():
        good = sum(problem is None for _, problem in found)
        passed, total = passed + good, total + len(found)
        print(f"{kind:20} {good:5} of {len(found):5}")
        for name, problem in found:
            if problem is not None:
                print(f"    {name}\n        {problem[:300]}")
    print(f"{asked.namespace:20} {passed:5} of {total:5} = {100 * passed / max(1, total):.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
