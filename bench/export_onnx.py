"""The convolutional nets of the export bench as ONNX, for ONNX Runtime: same layers, same weights.

In: a case of test/export/nets.py. Out: a function that runs it in ONNX Runtime on one thread, or
None where that, or a graph of the net, is not there. Sits beside bench/export.py.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np


class Builder:
    """Nodes of a graph, one after another."""

    def __init__(self, onnx: Any) -> None:
        self.helper, self.numpy_helper = onnx.helper, onnx.numpy_helper
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def constant(self, value: Any) -> str:
        """A weight."""
        name = f"w{len(self.weights)}"
        self.weights.append(self.numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """An operator."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def conv(self, x: str, layer: Any) -> str:
        """nn.Conv2d"""
        weight = layer.weight.numpy()
        inputs = [x, self.constant(weight)]
        if layer.bias is not None:
            inputs.append(self.constant(layer.bias.numpy()))
        size, pad = weight.shape[-1], layer.padding
        pads = [pad if isinstance(pad, int) else pad[0]] * 4
        stride = layer.stride if isinstance(layer.stride, int) else layer.stride[0]
        return self.node(
            "Conv",
            *inputs,
            kernel_shape=[size, size],
            pads=pads,
            strides=[stride, stride],
            group=layer.groups,
        )

    def norm(self, x: str, layer: Any) -> str:
        """nn.BatchNorm as it infers"""
        parts = (layer.weight, layer.bias, layer.running_mean, layer.running_var)
        return self.node(
            "BatchNormalization", x, *[self.constant(p.numpy()) for p in parts], epsilon=layer.eps
        )

    def linear(self, x: str, layer: Any) -> str:
        """nn.Linear"""
        weight, bias = self.constant(layer.weight.numpy()), self.constant(layer.bias.numpy())
        return self.node("Gemm", x, weight, bias, transB=1)

    def relu6(self, x: str) -> str:
        """Between 0 and 6."""
        low, high = (self.constant(np.float32(value)) for value in (0, 6))
        return self.node("Clip", x, low, high)


def digits(b: Builder, net: Any, x: str) -> str:
    """Digits of test/export/nets.py"""
    for layer in (net.conv1, net.conv2):
        x = b.node("Relu", b.conv(x, layer))
        x = b.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    return b.node("Softmax", b.linear(b.node("Flatten", x), net.linear))


def resnet18(b: Builder, net: Any, x: str) -> str:
    """ResNet18"""
    x = b.node("Relu", b.norm(b.conv(x, net.stem), net.norm))
    x = b.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for block in net.blocks:
        y = b.node("Relu", b.norm(b.conv(x, block.conv1), block.norm1))
        y = b.norm(b.conv(y, block.conv2), block.norm2)
        short = x if block.short is None else b.conv(x, block.short)
        x = b.node("Relu", b.node("Add", y, short))
    return b.linear(b.node("Flatten", b.node("GlobalAveragePool", x)), net.head)


def mobilenet(b: Builder, net: Any, x: str) -> str:
    """MobileNet"""
    x = b.relu6(b.norm(b.conv(x, net.stem), net.norm))
    for block in net.blocks:
        y = x if block.up is None else b.relu6(b.norm(b.conv(x, block.up), block.norm0))
        y = b.relu6(b.norm(b.conv(y, block.depth), block.norm1))
        y = b.norm(b.conv(y, block.down), block.norm2)
        x = b.node("Add", x, y) if block.is_added else y
    x = b.relu6(b.norm(b.conv(x, net.last), net.last_norm))
    return b.linear(b.node("Flatten", b.node("GlobalAveragePool", x)), net.head)


GRAPHS = {"digits": digits, "resnet18": resnet18, "mobilenet": mobilenet}


def onnx_session(name: str, case: Any) -> Callable[[], list[np.ndarray]] | None:
    """A call in ONNX Runtime."""
    make = GRAPHS.get(name.removesuffix("_small"))
    try:
        onnx, runtime = (importlib.import_module(n) for n in ("onnx", "onnxruntime"))
    except ImportError as error:
        print(f"  ONNX Runtime is left out: {error}")
        return None
    if make is None:
        return None
    builder = Builder(onnx)
    data = case.calls[0][0][0]
    result = make(builder, case.function.__self__, "x")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        builder.nodes,
        name,
        [helper.make_tensor_value_info("x", kind, data.shape)],
        [helper.make_tensor_value_info(result, kind, None)],
        builder.weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = runtime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, {"x": data})
