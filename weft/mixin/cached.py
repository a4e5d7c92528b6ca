"""The methods of Tensor whose calls are looked up before they are run, see engine/forms.py.

In: nothing. Out: `CACHED`, their names. Sits above the families that define them, under Tensor.
Invariant: each of them is a function of its arguments and the knobs: it draws no random numbers,
computes nothing, writes to nothing, and does not look at what a tensor is beyond its graph.
"""

from __future__ import annotations

_OPERATORS = """
__add__ __and__ __eq__ __floordiv__ __ge__ __getitem__ __gt__ __invert__ __le__ __lshift__ __lt__
__matmul__ __mod__ __mul__ __ne__ __neg__ __or__ __pow__ __radd__ __rand__ __rfloordiv__ __rmatmul__
__rlshift__ __rmod__ __rmul__ __ror__ __rpow__ __rrshift__ __rshift__ __rsub__ __rtruediv__ __rxor__
__sub__ __truediv__ __xor__
"""
_ELEMENTWISE = """
abs acos acosh add asin asinh atan atanh bitwise_and bitwise_not bitwise_or bitwise_xor ceil celu
clamp clip copysign cos cosh div elu eq erf exp exp2 fdiv floor fmod ge gelu gt hardsigmoid
hardswish hardtanh idiv isclose isfinite isinf isnan le leaky_relu lerp log log10 log2 logaddexp
logical_not logsigmoid lshift lt masked_fill maximum minimum mish mod mul ne neg pow quick_gelu
reciprocal relu relu6 round rshift rsqrt selu sigmoid sign silu sin sinh softplus softsign sqrt
square sub swish tan tanh trunc where
"""
_TYPES = "bfloat16 bitcast bool cast double float half int long short"
_MOVEMENT = """
cat contiguous expand flatten flip pad permute repeat reshape roll shrink squeeze stack transpose
tril triu unflatten unsqueeze view
"""
_REDUCTIONS = """
all any argmax argmin cumsum log_softmax logsumexp max mean min normalize prod softmax std sum var
"""
_LAYERS = """
avg_pool2d batchnorm binary_crossentropy binary_crossentropy_logits conv2d cross_entropy dot gather
layernorm linear matmul max_pool2d nll_loss one_hot sparse_categorical_crossentropy
"""
CACHED = tuple(
    " ".join((_OPERATORS, _ELEMENTWISE, _TYPES, _MOVEMENT, _REDUCTIONS, _LAYERS)).split()
)
