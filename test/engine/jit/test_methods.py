"""TinyJit: methods, instances, classes, and a jitted function inside another."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

from test.engine.jit.jitting import CALLS, Decorator, Net, same, vector
from weft import Tensor, TinyJit


def test_a_method_of_two_instances() -> None:
    nets = [Net(1.0), Net(5.0)]
    for i in range(CALLS):
        for net in nets:
            assert net.jitted(vector(i)).tolist() == net.forward(vector(i)).tolist()
    nets[0].layers[0].factor = 7.0
    nets[1].layers[0].weight = Tensor([3.0, 1.0, 4.0])
    for net in nets:
        assert net.jitted(vector(1)).tolist() == net.forward(vector(1)).tolist()


def test_an_instance_is_not_kept_alive() -> None:
    net = Net()
    for i in range(4):
        net.jitted(vector(i)).realize()
    gone = weakref.ref(net)
    del net
    gc.collect()
    assert gone() is None


def test_copies_of_a_jitted_object() -> None:
    net = Net()
    for i in range(4):
        net.jitted(vector(i)).realize()
    other = copy.deepcopy(net)
    other.layers[0].weight.assign(Tensor([9.0, 9.0, 9.0]))
    for i in range(4):
        assert net.jitted(vector(i)).tolist() == net.forward(vector(i)).tolist()
        assert other.jitted(vector(i)).tolist() == other.forward(vector(i)).tolist()


class Shared:
    __slots__ = ("own",)
    weight = Tensor([1.0, 2.0, 3.0])

    def __init__(self, own: Tensor) -> None:
        self.own = own

    @classmethod
    @TinyJit
    def of_class(cls, x: Tensor) -> Tensor:
        return x * cls.weight

    @staticmethod
    @TinyJit
    def static(x: Tensor) -> Tensor:
        return x + Shared.weight

    @TinyJit
    def method(self, x: Tensor) -> Tensor:
        return x * self.own


def test_methods_of_classes_and_of_slotted_instances() -> None:
    one, two = Shared(vector(1)), Shared(vector(2))
    for i in range(CALLS):
        assert Shared.of_class(vector(i)).tolist() == (vector(i) * Shared.weight).tolist()
        assert Shared.static(vector(i)).tolist() == (vector(i) + Shared.weight).tolist()
        assert one.method(vector(i)).tolist() == (vector(i) * one.own).tolist()
        assert two.method(vector(i)).tolist() == (vector(i) * two.own).tolist()
        if i == 3:
            Shared.weight = vector(5)
            one.own = vector(7)


def test_an_attribute_that_is_jitted() -> None:
    class Model:
        def __init__(self) -> None:
            self.weight = Tensor([1.0, 2.0, 3.0])
            self.call = TinyJit(self.forward)

        def forward(self, x: Tensor) -> Tensor:
            return x * self.weight

    model = Model()
    for i in range(CALLS):
        assert model.call(vector(i)).tolist() == model.forward(vector(i)).tolist()
        model.weight = model.weight + 1


def test_a_jitted_function_inside_another() -> None:
    def program(decorate: Decorator) -> Any:
        factor = 2.0
        inner = decorate(lambda x: x * factor)

        @decorate
        def outer(x: Tensor) -> Tensor:
            return inner(x) + inner(x + 1).realize()

        out = []
        for i in range(CALLS):
            out.append(outer(vector(i)))
            out.append(inner(vector(i)))
        factor = 3.0
        return [*out, outer(vector(1)), inner(vector(1))]

    same(program)
