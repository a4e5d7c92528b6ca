"""Expressions of tinygrad's API give what tinygrad gives, but for those where weft means to differ.

What tinygrad gave is written down (`python -m test.programs.expressions --record`).
"""

from __future__ import annotations

import pytest

from test.programs import expressions

WANTED = expressions.recorded()

# Where weft means to differ: docs/migrating.md says it in words.
MEANT: dict[str, tuple[str, ...]] = {
    "a result of data has a dtype that data can have": (
        *(
            f"i.{name}()"
            for name in "acos asin celu gelu hardsigmoid hardswish leaky_relu logsigmoid mish "
            "quick_gelu round sigmoid silu softplus swish tanh".split()
        ),
        "b.where(1, 0)",
        "b.where(1.0, 0)",
        "b.where(i, 0.5)",
        "i.one_hot(3)",
        "Tensor([0, 2, 1]).one_hot(3)",
        "Tensor([0, 4, -1]).one_hot(3)",
        "u8.lerp(u8, 0.5)",
        "i.pow(0.5)",
        "i.pad((1, 1), value=1.5)",
    ),
    "a reduced constant is a constant": (
        *(f"Tensor(3.0).{name}()" for name in "sum prod max min logsumexp".split()),
        "Tensor(2.0).cumsum()",
    ),
    "nan, inf and -0.0 as in NumPy and PyTorch": (
        *(
            f"edges.{name}()"
            for name in "asinh atan elu hardsigmoid hardswish logsigmoid mish relu relu6 sign "
            "softplus argmax argmin".split()
        ),
        "edges.pow(0.5)",
        "edges.sort()[0]",
    ),
    "bools count as 0 and 1, and have no difference": (
        *("b.sub(b)", "b.div(b)", "b.mod(b)", "b.fmod(b)", "b.pow(b)"),
        *("b - b", "b / b", "b // b", "b % b", "b ** b", "b << b", "b >> b"),
        *("b.prod()", "b.var()", "b.std()", "b.logsumexp()"),
    ),
    "ints are ints: to the bit, and any shift or power": (
        *("u8.pow(u8)", "i.pow(j)", "2 ** j", "i ** j", "2 << j", "2 >> j", "i.pow(-1)"),
        *("i.var(0)", "u8.var()", "i.std(0)", "u8.std()", "u8.prod()", "Tensor([2**40])"),
    ),
    "an error for what has no meaning": (
        "Tensor.zeros(0, 3).argmax(0)",
        "Tensor.zeros(0, 3).argmin(0)",
        "img.flatten(2, 1)",
        "x.meshgrid(v)",
        "list(Tensor(3))",
        'Tensor(b"abc").keccak("no")',
    ),
    "what tinygrad refuses": (
        "x.logsumexp((0, 1))",
        'x.scatter(1, index, y, reduce="add")',
        'x.scatter(1, index, y, reduce="multiply")',
        "x.where(x, y)",
        "i.where(x, y)",
        'img.interpolate((4, 4), mode="cubic")',
        "x.normalize(p=math.inf)",
        "Tensor(np.float32(2))",
        "x.assign(i)",
        "int(Tensor([3]))",
        "float(Tensor([3]))",
        # an error there too, of another kind
        "float(x)",
        "x.keccak()",
    ),
    "gradients as in PyTorch": (
        # a whole number has no slope
        "slope(lambda t: t.int().float(), q)",
        # of halves it is a sum in float32, rounded once
        "slope(lambda t: t.cast(dtypes.half).square(), q)",
    ),
    "a truth value": ("x.allclose(x)",),
    "layers start as PyTorch's: each group of channels by its own number of inputs": (
        "seeded(lambda: nn.Conv2d(2, 4, 3, groups=2, bias=False)(img))",
    ),
    "powers of Adam's betas in float64: 3e-5 of a step apart": (
        "trained(lambda p: nn.optim.Adam(p, lr=0.1))",
        "trained(lambda p: nn.optim.AdamW(p, lr=0.1, weight_decay=0.1))",
    ),
}
DIFFERENT = {expression for group in MEANT.values() for expression in group}


@pytest.mark.parametrize("expression", WANTED)
def test_expression_gives_what_tinygrad_gave(expression: str) -> None:
    found = expressions.outcome(expression, "weft")
    agrees = expressions.same(found, WANTED[expression])
    if expression in DIFFERENT:
        assert not agrees, "no longer different: take it out of the list"
    else:
        assert agrees, f"tinygrad: {WANTED[expression]}\nweft: {found}"


def test_every_expression_is_recorded() -> None:
    assert list(WANTED) == list(dict.fromkeys(expressions.table()))
    assert set(WANTED) >= DIFFERENT
