"""Methods whose graphs are built once per shape and dtype: the decorator `built_once`.

In: a method of tensors that reads nothing of them but shape, dtype and device. Out: the same
method, which from its second call on fills in a template.
Sits above the engine, first of the Tensor families, for those whose graphs are long.
Invariant: the key of a template holds all that building looked at; where that cannot be said (sizes
that are symbolic, tensors without a device) the method is simply called.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from weft.dtype import dtypes
from weft.engine.cell import Cell
from weft.engine.operands import user_line
from weft.gradient import NO_GRAD
from weft.uop.template import Template, is_copyable, stand_in

Method = TypeVar("Method", bound=Callable[..., Any])

# how many templates are kept, those that were used last
_MOST = 512

# None: it has to be built anew each time
_Built = tuple[Template, list[Any], bool] | None
_templates: OrderedDict[tuple[Any, ...], _Built] = OrderedDict()
_ABSENT: Any = object()
_lock = threading.Lock()


def clear_templates() -> None:
    """Forget all graphs that were built."""
    with _lock:
        _templates.clear()


def built_once(method: Method) -> Method:
    """Makes a method build its graph once for all calls that look alike.

    Its arguments are tensors of the class and hashable values; it gives a tensor or a tuple of
    tensors. It must not compute anything, nor ask a tensor for more than shape, dtype and device.
    """

    @functools.wraps(method)
    def call(self: Any, *args: Any) -> Any:
        tensors = [self, *[arg for arg in args if isinstance(arg, type(self))]]
        described = [_described(tensor) for tensor in tensors]
        if None in described:
            return method(self, *args)
        static = tuple(
            [None if isinstance(arg, type(self)) else (type(arg), arg) for arg in args],
        )
        settings = (bool(NO_GRAD), dtypes.default_int, dtypes.default_float)
        key = (method, type(self), tuple(described), static, settings)
        with _lock:
            found = _templates.get(key, _ABSENT)
            if found is not _ABSENT:
                _templates.move_to_end(key)
        if found is _ABSENT:
            found = _built(method, type(self), described, args)
            with _lock:
                _templates[key] = found
                if len(_templates) > _MOST:
                    _templates.popitem(last=False)
        if found is None:
            return method(self, *args)
        template, views, several = found
        nodes = template.fill([tensor.uop for tensor in tensors], user_line())
        made = [self._view_of(Cell(node), moves) for node, moves in zip(nodes, views, strict=True)]
        return tuple(made) if several else made[0]

    return call  # type: ignore[return-value]


def _described(tensor: Any) -> tuple[Any, ...] | None:
    """What a method may know of a tensor; None if that does not decide its graph."""
    device, shape = tensor.device, tensor.shape
    if not isinstance(device, str) or not all([isinstance(size, int) for size in shape]):
        return None
    return shape, tensor.dtype, device


def _built(
    method: Callable[..., Any], cls: Any, described: list[Any], args: tuple[Any, ...]
) -> _Built:
    """The template of a method, the views that its results are of their storage, and whether it
    gives several; None if something in it has an identity, as parameters have."""
    holes = [stand_in(device, shape, dtype) for shape, dtype, device in described]
    first, *others = [cls._from_uop(node) for node in holes]
    given = iter(others)
    result = method(first, *[next(given) if isinstance(arg, cls) else arg for arg in args])
    several = isinstance(result, tuple)
    outputs = result if several else (result,)
    values = [tensor._cell.value for tensor in outputs]
    if not is_copyable(values):
        return None
    return Template(holes, values), [tensor._moves for tensor in outputs], several
