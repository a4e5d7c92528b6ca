"""Special cases of the standard: its sentences as values that meet them and what must come out.

In: sentences. Out: for each the operands that meet its condition, and a check of a result.
A condition is a conjunction of facts about the operands (x_i, or x1_i and x2_i, or the parts a and
b of a complex number): every combination of the values below that meets all facts is one example.
"""

from __future__ import annotations

import cmath
import itertools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from test.array_api.standard import Sentence

NAN, INF = math.nan, math.inf
VALUES = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 7.25, -7.25, 1e4]
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?$")

Fact = Callable[[dict[str, float]], bool]


def _negative(x: float) -> bool:
    return math.copysign(1.0, x) < 0


def _is(value: float, text: str) -> bool:
    """Whether a value is what a phrase says."""
    text = text.strip().removeprefix("either ").replace("already ", "")
    finite, whole = math.isfinite(value), math.isfinite(value) and value == int(value)
    plain: dict[str, bool] = {
        "NaN": math.isnan(value),
        "not NaN": not math.isnan(value),
        "+infinity": value == INF,
        "-infinity": value == -INF,
        "+0": value == 0 and not _negative(value),
        "-0": value == 0 and _negative(value),
        "a finite number": finite,
        "a nonzero finite number": finite and value != 0,
        "a nonzero number": value != 0 and not math.isnan(value),
        "a positive finite number": finite and value > 0,
        "a positive (i.e., greater than 0) finite number": finite and value > 0,
        "a negative (i.e., less than 0) finite number": finite and value < 0,
        "integer-valued": whole,
        "an odd integer value": whole and value % 2 == 1,
        "not an odd integer value": not (whole and value % 2 == 1),
        "not an integer value": not whole,
        "any value": True,
        "any value (including NaN)": True,
    }
    if text in plain:
        return plain[text]
    if _NUMBER.match(text):
        return value == float(text)
    for words, test in (
        ("greater than ", lambda n: value > n),
        ("less than ", lambda n: value < n),
        ("not equal to ", lambda n: not value == n),
    ):
        if text.startswith(words):
            return bool(test(float(text.removeprefix(words))))
    if " or " in text:
        return any(_is(value, part) for part in text.split(" or "))
    raise ValueError(f"no meaning of {text!r}")


def _facts(condition: str) -> list[Fact]:
    """The facts that a condition joins."""
    text = condition.replace("any value, including NaN", "any value (including NaN)")
    text = text.replace("a -infinity and", "a is -infinity and")
    if text == "two integers are equally close to x_i":
        return [lambda v: math.isfinite(v["x_i"]) and v["x_i"] % 1 == 0.5]
    match = re.match(r"(?:either )?(\w+) (?:is NaN )?or (\w+) is NaN$", text)
    if match:
        first, second = match.groups()
        return [lambda v: math.isnan(v[first]) or math.isnan(v[second])]
    if text in ("a, b, c, and d are all NaN", "a, b, c, or d is NaN"):
        return [lambda v: all(math.isnan(x) for x in v.values())]
    if "mathematical sign" in text:
        return _sign_facts(text)
    facts: list[Fact] = []
    # ", and" and "," join as "and" does, but not inside of brackets
    for part in re.split(r",? and (?=\w+(?:\(\w+\))? |the sign)|, (?=x\d?_i)", text):
        facts.append(_fact(part.strip()))
    return facts


def _sign_facts(text: str) -> list[Fact]:
    same = "the same" in text
    facts: list[Fact] = [lambda v: (_negative(v["x1_i"]) == _negative(v["x2_i"])) is same]
    facts.append(lambda v: not any(math.isnan(x) for x in v.values()))
    if "nonzero finite" in text:
        facts.append(lambda v: all(math.isfinite(x) and x != 0 for x in v.values()))
    return facts


def _fact(text: str) -> Fact:
    match = re.match(r"the sign bit of (\w+) is ([01])$", text)
    if match:
        name, bit = match.group(1), match.group(2) == "1"
        return lambda v: _negative(v[name]) is bit
    match = re.match(r"(\w+) (equals|does not equal) (\w+)$", text)
    if match:
        left, how, right = match.groups()
        return lambda v: (v[left] == v[right]) is (how == "equals")
    match = re.match(r"abs\((\w+)\) is (.*)$", text)
    if match:
        name, rest = match.groups()
        return lambda v: _is(abs(v[name]), rest)
    match = re.match(r"(\w+) is (-?)(x\d_i)$", text)
    if match:
        left, minus, right = match.groups()
        return lambda v: v[left] == (-v[right] if minus else v[right])
    match = re.match(r"(\w+) is (.*)$", text)
    if match:
        name, rest = match.groups()
        return lambda v: _is(v[name], rest)
    raise ValueError(f"no meaning of {text!r}")


# ------------------------------------------------------------ results
def _pi(text: str) -> float | None:
    match = re.match(r"([+-]?)(\d?)π(?:/(\d))?$", text)
    if not match:
        return None
    sign, times, over = match.groups()
    return (-1 if sign == "-" else 1) * int(times or 1) * math.pi / int(over or 1)


def _expected(text: str, operands: dict[str, float]) -> float | bool | None:
    """The number that a phrase stands for."""
    text = text.replace("an implementation-dependent approximation to ", "")
    text = re.sub(r"^(equivalent|equal) to abs\((\w+)\)$", r"|\2|", text)
    constants: dict[str, Any] = {
        "NaN": NAN, "infinity": INF, "+infinity": INF, "-infinity": -INF, "True": True,
        "False": False, "-0": -0.0,
    }  # fmt: skip
    if text in constants:
        return constants[text]
    if _NUMBER.match(text):
        return float(text)
    if _pi(text) is not None:
        return _pi(text)
    match = re.match(r"(-?)\|?(\w+?)\|?$", text)
    if match and match.group(2) in operands:
        value = operands[match.group(2)]
        value = abs(value) if "|" in text else value
        return -value if match.group(1) else value
    return None


def _agrees(found: Any, wanted: Any, any_sign: bool) -> bool:
    if isinstance(wanted, bool):
        return bool(found) is wanted
    if math.isnan(wanted):
        return math.isnan(found)
    if any_sign:
        found, wanted = abs(found), abs(wanted)
    if wanted == 0 or math.isinf(wanted):
        same_sign = any_sign or _negative(found) == _negative(wanted)
        return bool(found == wanted and same_sign)
    return math.isclose(found, wanted, rel_tol=1e-5)


def _check_real(result: str, found: Any, operands: dict[str, float]) -> bool:
    text = re.sub(r"\.? \(\*\*note.*$|, even if .*$", "", result)
    if text.startswith("has a "):
        return math.isnan(found) or _negative(found) is ("negative" in text)
    if text.startswith("a signed infinity"):
        signs = [_negative(value) for value in operands.values()]
        return math.isinf(found) and _negative(found) is (signs[0] != signs[1])
    if text.startswith("NaN with a sign bit of"):
        return math.isnan(found) and _negative(found) is text.endswith("1")
    if text.startswith("the even integer closest"):
        return float(found) == float(round(operands["x_i"]))
    wanted = _expected(text, operands)
    if wanted is None:
        raise ValueError(f"no meaning of the result {result!r}")
    return _agrees(found, wanted, any_sign=text == "0")


def _parts(text: str) -> tuple[str, str, str]:
    """`NaN - infinity j` -> the phrases of both parts and the sign between."""
    match = re.match(r"(±?[+-]?[\w/]+) ([+±-]) (.*)$", text)
    if not match:
        raise ValueError(f"no meaning of the result {text!r}")
    real, sign, imaginary = match.groups()
    imaginary = imaginary.replace(" j", "").replace("j", "")
    return real, sign, imaginary


def _check_complex(result: str, found: complex, operands: dict[str, float]) -> bool:
    text = re.sub(r" \(.*$", "", result)
    free_real = "real and imag" in result or "real component" in result
    free_imaginary = "imaginary component" in result
    match = re.match(r"([+-]?)(0|infinity) \* cis\(b\)( - 1.0)?$", text)
    if match:
        length, turn = (0.0 if match.group(2) == "0" else INF), cmath.exp(1j * operands["b"])
        less = 1.0 if match.group(3) else 0.0
        wanted = [length * turn.real - less, length * turn.imag]
        if operands["b"] == 0:
            wanted[1] = operands["b"]
        return all(
            _agrees(*pair, any_sign=False)
            for pair in zip((found.real, found.imag), wanted, strict=True)
        )
    real, sign, imaginary = _parts(text)
    wanted_real = _expected(real.replace("±", ""), operands)
    wanted_imaginary = _expected(imaginary, operands)
    assert wanted_real is not None and wanted_imaginary is not None, result
    if sign == "-":
        wanted_imaginary = -wanted_imaginary
    return _agrees(found.real, wanted_real, free_real or "±" in real or real == "0") and _agrees(
        found.imag, wanted_imaginary, free_imaginary or sign == "±"
    )


# ------------------------------------------------------------ cases
@dataclass(frozen=True)
class Case:
    """A sentence with all examples of it: operands, as many as the function takes."""

    sentence: Sentence
    examples: tuple[tuple[Any, ...], ...]

    @property
    def name(self) -> str:
        """For reports."""
        kind = " of complex" if self.sentence.is_complex else ""
        return f"{self.sentence.function}{kind}: {self.sentence.condition}"

    def is_met(self, number: int, found: Any) -> bool:
        """Whether this is what must come out of an example."""
        values = self.examples[number]
        if self.sentence.is_complex and isinstance(found, complex):
            return _check_complex(self.sentence.result, found, _named(values, True))
        return _check_real(self.sentence.result, found, _named(values, self.sentence.is_complex))


def _named(values: tuple[Any, ...], is_complex: bool) -> dict[str, float]:
    if is_complex:
        letters = [letter for value in values for letter in (value.real, value.imag)]
        return dict(zip("abcd", letters, strict=False))
    return {"x_i": values[0]} if len(values) == 1 else {"x1_i": values[0], "x2_i": values[1]}


def case_of(sentence: Sentence, operands: int) -> Case:
    """A sentence about a function of so many operands, as values that meet it."""
    is_complex = sentence.is_complex and "x_i" not in sentence.condition
    if is_complex != sentence.is_complex:
        sentence = Sentence(sentence.function, False, sentence.condition, sentence.result)
    facts = _facts(sentence.condition)
    signed_nan = "sign bit" in sentence.condition or "sign bit" in sentence.result
    pool = [*VALUES, -NAN] if signed_nan else VALUES
    if is_complex:
        pairs = [complex(a, b) for a in VALUES for b in VALUES]
        choices = (
            [(pair,) for pair in pairs]
            if operands == 1
            else [(complex(NAN, NAN), complex(NAN, NAN))]
        )
    else:
        choices = list(itertools.product(pool, repeat=operands))
    met = [values for values in choices if all(fact(_named(values, is_complex)) for fact in facts)]
    if not met:
        raise ValueError(f"nothing meets {sentence.condition!r}")
    return Case(sentence, tuple(met))
