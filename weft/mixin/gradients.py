"""Training: gradients of tensors, and which of them are asked for.

In: a tensor that was computed from others. Out: `.grad` of those, or their gradients.
Sits above the other families, directly under Tensor.
Invariant: whether values were looked at or realized meanwhile makes no difference to a gradient.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

from weft.dtype import dtypes, strong_dtype
from weft.engine import gradients, host
from weft.engine.cell import Cell
from weft.engine.live import LiveSet
from weft.engine.operands import Move, cast_value
from weft.errors import ArgumentError, DTypeError
from weft.gradient import with_identity
from weft.knobs import TRAINING, Context
from weft.mixin.compat import CompatMixin
from weft.uop.node import UOp


class GradientsMixin(CompatMixin):
    """Methods over `_cell`, `_moves` and the live tensors, which Tensor provides."""

    __slots__ = ()
    _live: ClassVar[LiveSet[Any]]
    _requires_grad: bool | None

    def _ask(self, value: bool | None) -> None:
        """Sets whether the gradient is asked for. Provided by the class."""
        raise NotImplementedError

    def _become(self, cell: Cell, moves: tuple[Move, ...]) -> None:
        """From now on another storage, and a view of it. Provided by the class."""
        raise NotImplementedError

    # ------------------------------------------------------------ training
    @property
    def training(self) -> bool:
        """Whether layers such as dropout train; set it on the class.

        >>> Tensor.training
        False
        """
        return bool(TRAINING)

    @staticmethod
    def train(mode: bool = True) -> Context:
        """Training inside a `with` block or a decorated function.

        >>> with Tensor.train():
        ...     Tensor.training
        True
        """
        return Context(TRAINING=int(mode))

    # ------------------------------------------------------------ gradients
    def backward(self, gradient: Any = None) -> Self:
        """Fill `.grad` of the live float Tensors that this one was computed from.

        Of those with `requires_grad=True` if there are any (an optimiser sets it on what it
        trains), else of all but those with `requires_grad=False`; pure constants have none. It is
        added to the `.grad` that is there already. Whether values were looked at or realized
        meanwhile makes no difference.

        >>> x = Tensor([1.0, 2.0])
        >>> loss = (x * x).sum().backward()
        >>> x.grad.tolist()
        [2.0, 4.0]
        """
        known = gradients.form_gradients(self, self._live) if gradient is None else None
        if known is not None:
            for tensor, new in known:
                tensor._add_gradient(new)
            return self
        seed = gradients.seed_of("backward", self, gradient)
        gradients.check_knows("backward", self)
        graph = gradients.TensorGraph(self.uop)
        found = [
            (tensor, nodes)
            for tensor in self._live
            if tensor.requires_grad is not False
            and (nodes := graph.nodes_of(tensor))
            and dtypes.is_float(tensor.dtype)
        ]
        # the gradient of data costs as much as that of weights, and nobody reads it
        asked = [target for target in found if target[0].requires_grad]
        targets = asked or found
        slopes = graph.gradients(seed, [nodes for _, nodes in targets])
        if graph.cuts:
            maybe = [t for t in self._live if t.requires_grad or t.requires_grad is None]
            hidden = [t for t in maybe if t.requires_grad] if asked else maybe
            graph.check_cuts("backward", hidden)
        for (tensor, _), node in zip(targets, slopes, strict=True):
            tensor._add_gradient(tensor._gradient_tensor(node))
        return self

    def _add_gradient(self, new: Any) -> None:
        self.grad = new if self.grad is None else self.grad + new
        self.grad.requires_grad = False

    def gradient(self, *targets: Any, gradient: Any = None) -> list[Self]:
        """The gradients of this with respect to the targets; zeros for what it does not depend on.

        >>> x = Tensor([1.0, 2.0])
        >>> [g.tolist() for g in (x * x).sum().gradient(x)]
        [[2.0, 4.0]]
        """
        seed = gradients.seed_of("gradient", self, gradient)
        for target in targets:
            if not isinstance(target, GradientsMixin):
                raise ArgumentError(
                    f"gradient takes Tensors as targets, found a {type(target).__name__}"
                )
            gradients.check_target(target)
        graph = gradients.TensorGraph(self.uop)
        nodes = [graph.nodes_of(target) for target in targets]
        if not any(nodes):
            gradients.check_knows("gradient", self)
        found = graph.gradients(seed, nodes)
        graph.check_cuts("gradient", targets)
        return [x._gradient_tensor(node) for x, node in zip(targets, found, strict=True)]

    def _gradient_tensor(self, node: UOp | None) -> Self:
        """A gradient of this tensor, on its device; nothing is zeros."""
        if node is None:
            return self.zeros_like()
        if node.device is None and self.device is not None:
            node = host.pin(node, self.device)
        return self._from_uop(node)

    def requires_grad_(self, requires_grad: bool | None = True) -> Self:
        """Set whether `backward` fills `.grad` of this; a number with one is a storage of its own.

        >>> x = Tensor(3.0).requires_grad_()
        >>> loss = (x * x).backward()
        >>> x.grad.item()
        6.0
        """
        if requires_grad and not dtypes.is_float(self.dtype):
            raise DTypeError(
                f"requires_grad_() of a Tensor of {self.dtype}: only floats have gradients; cast "
                "it first: x.float()"
            )
        if requires_grad and self._cell.pure:
            value = cast_value(self.uop, strong_dtype(self.dtype))
            self._become(Cell(with_identity(value)), ())
        self.requires_grad = requires_grad
        return self

    @property
    def requires_grad(self) -> bool | None:
        """Whether `backward` fills `.grad` of this; None: if nothing in the graph has True.

        >>> Tensor([1.0]).requires_grad is None
        True
        """
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool | None) -> None:
        self._ask(value)

    @property
    def is_param(self) -> bool:
        """Whether an optimiser that is given this trains it: unless `requires_grad` is False.

        >>> Tensor([1.0]).is_param, Tensor([1.0], requires_grad=False).is_param
        (True, False)
        """
        return self.requires_grad is not False

    @is_param.setter
    def is_param(self, value: bool) -> None:
        if not value:
            self.requires_grad = False
        elif self.requires_grad is False:
            self.requires_grad = None

    def is_param_(self, is_param: bool = True) -> Self:
        """Set whether an optimiser trains this, or only keeps it as one of its buffers.

        >>> Tensor.zeros(3).is_param_(False).is_param
        False
        """
        self.is_param = is_param
        return self

    @staticmethod
    def no_grad() -> Context:
        """Inside a `with` block or a decorated function: no gradient passes what is computed there.

        >>> x = Tensor([1.0, 2.0])
        >>> with Tensor.no_grad():
        ...     y = x * 2
        >>> (x * y).sum().gradient(x)[0].tolist()
        [2.0, 4.0]
        """
        return Context(NO_GRAD=1)
