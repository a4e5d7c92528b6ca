"""rearrange: axes named in a formula, as in einops; shared by `UOp` and `Tensor`.

In: a formula such as "b (h w) c -> b c h w". Out: the reshape, permute, reshape it stands for.
Sits below both users; imports no UOp.
Invariant: it is movement only, so the result is a view.
"""

from __future__ import annotations

import re
from typing import Any, Self

from weft.errors import ArgumentError, ShapeError
from weft.helpers import prod
from weft.mixin.check import some_text
from weft.mixin.padding import PaddingMixin

_TOKEN = re.compile(r"\s*(\.\.\.|\w+|[()])")


class RearrangeMixin(PaddingMixin):
    """The method `rearrange`."""

    __slots__ = ()

    def rearrange(self, formula: str, **sizes: int) -> Self:
        """Axes split, moved and merged as a formula says; sizes that cannot be seen are given.

        >>> Tensor.zeros(2, 6).rearrange("a (b c) -> c (a b)", b=3).shape
        (2, 6)
        """
        left, arrow, right = some_text("the formula", formula).partition("->")
        if not arrow:
            raise ArgumentError(f"rearrange takes a formula with ->, found {formula!r}")
        before, after = _groups(left, formula), _groups(right, formula)
        named = {name for group in before for name in group}
        if unknown := [name for name in sizes if name not in named]:
            raise ArgumentError(f"rearrange {formula!r}: no axis is called {', '.join(unknown)}")
        if "..." not in named and any("..." in group for group in after):
            raise ArgumentError(f"rearrange {formula!r}: ... stands on the right only")
        hidden = self.ndim - (len(before) - 1)
        if ["..."] not in before:
            hidden = 0
            if len(before) != self.ndim:
                raise ShapeError(
                    f"rearrange {formula!r} of shape {self.shape}: the left side names "
                    f"{len(before)} axes, it has {self.ndim}"
                )
        elif hidden < 0:
            raise ShapeError(f"rearrange {formula!r} of shape {self.shape}: it has too few axes")
        rest = [f"...{i}" for i in range(hidden)]
        before, after = _filled(before, rest), _filled(after, rest)
        known = self._name_sizes(formula, before, dict(sizes))
        names = [name for group in before for name in group]
        target = [name for group in after for name in group]
        if sorted(n for n in target if n != "1") != sorted(n for n in names if n != "1"):
            raise ArgumentError(
                f"rearrange {formula!r}: both sides must have the same axes, each once"
            )
        real = [name for name in names if name != "1"]
        moved = self.reshape([known[name] for name in real])
        moved = moved.permute([real.index(name) for name in target if name != "1"])
        return moved.reshape(
            [prod(known[name] for name in group if name != "1") for group in after]
        )

    def _name_sizes(
        self, formula: str, groups: list[list[str]], known: dict[str, Any]
    ) -> dict[str, Any]:
        """The size of each name; one unknown of a group follows from the others."""
        for group, size in zip(groups, self.shape, strict=True):
            unknown = [name for name in group if name not in known and name != "1"]
            if len(unknown) > 1:
                raise ArgumentError(
                    f"rearrange {formula!r}: give the sizes of all but one of {unknown}"
                )
            part = prod(known[name] for name in group if name in known)
            if size % part or (not unknown and size != part):
                raise ShapeError(
                    f"rearrange {formula!r}: an axis of size {size} is no ({' '.join(group)}) with "
                    f"{ {name: known[name] for name in group if name in known} }"
                )
            if unknown:
                known[unknown[0]] = size // part
        return known


def _groups(side: str, formula: str) -> list[list[str]]:
    """One list of names per axis: "b (h w)" is [["b"], ["h", "w"]]."""
    groups: list[list[str]] = []
    opened: list[str] | None = None
    position = 0
    while position < len(side.rstrip()):
        found = _TOKEN.match(side, position)
        if found is None:
            raise ArgumentError(f"rearrange {formula!r}: cannot read {side[position:]!r}")
        token, position = found.group(1), found.end()
        if token == "(" and opened is None:
            opened = []
        elif token == ")" and opened is not None:
            groups.append(opened)
            opened = None
        elif token in "()":
            raise ArgumentError(f"rearrange {formula!r}: the parentheses do not match")
        elif opened is not None:
            opened.append(token)
        else:
            groups.append([token] if token != "1" else [])
    if opened is not None:
        raise ArgumentError(f"rearrange {formula!r}: the parentheses do not match")
    return groups


def _filled(groups: list[list[str]], rest: list[str]) -> list[list[str]]:
    """The ellipsis replaced by names for the axes it stands for."""
    result: list[list[str]] = []
    for group in groups:
        if group == ["..."]:
            result.extend([name] for name in rest)
        else:
            result.append([n for name in group for n in (rest if name == "..." else [name])])
    return result
