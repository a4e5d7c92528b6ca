"""Methods of Tensor that tinygrad's UOps have too: `uop.softmax()` is `Tensor(uop).softmax().uop`.

What comes in: a node, and nodes where the method takes tensors. What goes out: nodes.
Where it sits: above Tensor; the package gives them to UOp when it is imported.
The one invariant: nothing in weft itself needs these, and the node is the one that Tensor's method
makes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from weft.dtype import dtypes
from weft.tensor import Tensor
from weft.uop.node import UOp

NAMES = (
    "_broadcast_to _pool allclose arange argmax argmin argsort avg_pool2d batchnorm "
    "binary_crossentropy binary_crossentropy_logits celu clone contiguous contiguous_backward "
    "conv2d conv_transpose2d cross_entropy cummax cummin cumprod cumsum custom_kernel data detach "
    "dot dropout einsum elu empty empty_like eye full full_like gather gelu glorot_uniform "
    "gradient hardsigmoid hardswish hardtanh hash interpolate invalids isclose item "
    "kaiming_normal kaiming_uniform keccak layernorm leaky_relu linear linspace log_softmax "
    "logcumsumexp logsigmoid logsumexp masked_fill masked_select matmul max_pool2d max_unpool2d "
    "mish multinomial newton_schulz nll_loss nonzero normal normalize one_hot ones ones_like qr "
    "quick_gelu rand rand_like randint randn randn_like random_bits randperm relu relu6 "
    "scaled_dot_product_attention scaled_uniform scatter scatter_reduce selu sequential silu "
    "softmax softmin softplus softsign sort sparse_categorical_crossentropy std std_mean svd "
    "swish threefry topk tril triu uniform var var_mean zeros zeros_like __matmul__ __rmatmul__"
).split()


class _OfTensor:
    """The method of a name, as an attribute of UOp."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, node: UOp | None, owner: type[UOp]) -> Callable[..., Any]:
        method = getattr(Tensor if node is None else Tensor(node), self.name)

        @functools.wraps(method)
        def lowered(*args: Any, **kwargs: Any) -> Any:
            given = {name: _raised(value) for name, value in kwargs.items()}
            return _lowered(method(*[_raised(value) for value in args], **given))

        return lowered


def _raised(value: Any) -> Any:
    """A node as a Tensor, unless it is a size."""
    if isinstance(value, UOp):
        return value if value.dtype is dtypes.weakint and value.shape == () else Tensor(value)
    if isinstance(value, (tuple, list)):
        return type(value)([_raised(each) for each in value])
    return value


def _lowered(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.uop
    return (
        type(value)([_lowered(each) for each in value]) if type(value) in (tuple, list) else value
    )


def give_methods() -> None:
    """UOp has the methods from now on; one that it has of its own stays."""
    for name in NAMES:
        if name not in UOp.__dict__:
            setattr(UOp, name, _OfTensor(name))
