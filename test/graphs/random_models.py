"""Random models against ONNX Runtime: chains of operators over random shapes.

`python -m test.graphs.random_models 5000` runs that many; test_random_models.py runs a share.
Every model runs three times at its first size (the last one is a replay), and then at two others
of its free axis.
"""

from __future__ import annotations

import argparse
import random
from typing import Any

import numpy as np

from test.graphs.models import Graph, model, node, tensor
from test.optional import need
from weft.nn.onnx import OnnxRunner

UNARY = (
    "Abs Neg Relu Sigmoid Tanh Exp Softplus Softsign Floor Ceil Round Sign Erf Sin Cos Atan Elu "
    "LeakyRelu HardSigmoid HardSwish Identity Selu Celu Mish"
).split()
BINARY = "Add Sub Mul Max Min".split()
REDUCE = "ReduceSum ReduceMean ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceLogSumExp".split()


class Builder:
    """A graph that grows by one operator at a time; the batch axis of its input is free."""

    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)
        self.generator = np.random.default_rng(seed)
        rank = self.source.choice((2, 3, 4))
        self.shape = [self.source.randint(1, 5) for _ in range(rank)]
        self.nodes: list[bytes] = []
        self.constants: list[bytes] = []
        # names, and shapes in the first call
        self.values: list[tuple[str, list[int]]] = [("x", self.shape)]
        self.opset = self.source.choice((18, 19, 20, 21))

    def name(self) -> str:
        return f"v{len(self.nodes)}_{len(self.constants)}"

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(tensor(name, value))
        return name

    def add(self, op: str, inputs: list[str], shape: list[int], **attributes: Any) -> None:
        name = self.name()
        self.nodes.append(node(op, inputs, [name], **attributes))
        self.values.append((name, shape))

    def grow(self) -> None:
        """One more operator on some value. Axis 0 is never touched: its size is free."""
        name, shape = self.source.choice(self.values[-3:])
        rank = len(shape)
        axis = self.source.randrange(1, rank) if rank > 1 else 0
        kind = self.source.choice(
            ("unary", "binary", "constant", "reduce", "move", "slice", "pad", "softmax", "matmul",
             "gather", "concat", "norm", "compare", "split")
        )  # fmt: skip
        if rank < 2 or kind == "unary":
            self.add(self.source.choice(UNARY), [name], shape)
        elif kind == "binary":
            other = [n for n, s in self.values if s == shape]
            self.add(self.source.choice(BINARY), [name, self.source.choice(other)], shape)
        elif kind == "constant":
            sizes = [1, *[self.source.choice((1, n)) for n in shape[1:]]]
            value = self.generator.uniform(0.5, 2, sizes).astype(np.float32)
            op = self.source.choice((*BINARY, "Div"))
            self.add(op, [name, self.constant(value)], shape)
        elif kind == "reduce":
            axes = self.constant(np.array([axis - self.source.choice((0, rank))]))
            kept = [1 if i == axis else n for i, n in enumerate(shape)]
            op = self.source.choice(REDUCE)
            self.add(op, [name, axes], kept, keepdims=1)
        elif kind == "move":
            rest = list(range(1, rank))
            self.source.shuffle(rest)
            self.add("Transpose", [name], [shape[i] for i in (0, *rest)], perm=[0, *rest])
        elif kind == "slice":
            self.slice(name, shape, axis)
        elif kind == "pad":
            before, after = self.source.randint(0, 2), self.source.randint(0, 2)
            mode = self.source.choice(("constant", "edge"))
            pads = np.zeros(2 * rank, dtype=np.int64)
            pads[axis], pads[axis + rank] = before, after
            grown = [n + before + after if i == axis else n for i, n in enumerate(shape)]
            self.add("Pad", [name, self.constant(pads)], grown, mode=mode)
        elif kind == "softmax":
            op = self.source.choice(("Softmax", "LogSoftmax"))
            self.add(op, [name], shape, axis=axis)
        elif kind == "matmul":
            width = self.source.randint(1, 6)
            weight = self.generator.standard_normal((shape[-1], width)).astype(np.float32)
            self.add("MatMul", [name, self.constant(weight)], [*shape[:-1], width])
        elif kind == "gather":
            index = self.generator.integers(-shape[axis], shape[axis], self.source.randint(1, 4))
            sizes = [len(index) if i == axis else n for i, n in enumerate(shape)]
            self.add("Gather", [name, self.constant(index)], sizes, axis=axis)
        elif kind == "concat":
            sizes = [2 * n if i == axis else n for i, n in enumerate(shape)]
            self.add("Concat", [name, name], sizes, axis=axis)
        elif kind == "norm":
            scale = self.generator.uniform(0.5, 2, shape[-1]).astype(np.float32)
            self.add("LayerNormalization", [name, self.constant(scale)], shape, axis=-1)
        elif kind == "compare":
            flag = self.name()
            limit = self.constant(np.float32(0.25))
            self.nodes.append(node("Greater", [name, limit], [flag]))
            self.add("Where", [flag, name, limit], shape)
        else:
            self.split(name, shape, axis)

    def slice(self, name: str, shape: list[int], axis: int) -> None:
        step = self.source.choice((1, 1, 2, -1, -2))
        first, last = sorted((self.source.randint(0, shape[axis]), self.source.randint(0, 9)))
        start, end = (first, last) if step > 0 else (last, first)
        places = range(shape[axis])[start:end:step]
        if not len(places):
            self.add("Identity", [name], shape)
            return
        names = [self.constant(np.array([n])) for n in (start, end, axis, step)]
        sizes = [len(places) if i == axis else n for i, n in enumerate(shape)]
        self.add("Slice", [name, *names], sizes)

    def split(self, name: str, shape: list[int], axis: int) -> None:
        if shape[axis] < 2:
            self.add("Identity", [name], shape)
            return
        first = self.source.randint(1, shape[axis] - 1)
        sizes = self.constant(np.array([first, shape[axis] - first]))
        left, right = self.name(), self.name() + "r"
        self.nodes.append(node("Split", [name, sizes], [left, right], axis=axis))
        self.values.append((left, [first if i == axis else n for i, n in enumerate(shape)]))

    def build(self) -> bytes:
        for _ in range(self.source.randint(2, 8)):
            self.grow()
        name, shape = self.values[-1]
        graph = Graph(
            [("x", 1, ["n", *self.shape[1:]])],
            [(name, 1, None)],
            self.nodes,
            self.constants,
        )
        return model(graph, {"": self.opset})


def check(seed: int) -> bool:
    """Whether ONNX Runtime took the model; fails where the two differ."""
    runtime = need("onnxruntime")
    runtime.set_default_logger_severity(4)
    builder = Builder(seed)
    data = builder.build()
    try:
        session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    except Exception:
        return False
    runner = OnnxRunner(data)
    sizes = [builder.shape[0]] * 3 + [builder.shape[0] + 1, builder.shape[0] + 3]
    for size in sizes:
        x = builder.generator.standard_normal((size, *builder.shape[1:])).astype(np.float32)
        (wanted,) = session.run(None, {"x": x})
        (found,) = runner({"x": x}).values()
        assert found.shape == wanted.shape, (seed, found.shape, wanted.shape)
        np.testing.assert_allclose(found.numpy(), wanted, 2e-4, 2e-5, err_msg=f"seed {seed}")
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=5000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    taken, wrong = 0, []
    for seed in range(options.seed, options.seed + options.count):
        try:
            taken += check(seed)
        except Exception as error:
            wrong.append(seed)
            print(f"seed {seed}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
    print(f"{taken} models agree with ONNX Runtime, {len(wrong)} do not, of {options.count}")


if __name__ == "__main__":
    main()
