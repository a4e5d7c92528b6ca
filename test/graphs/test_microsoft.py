"""The operators of com.microsoft against ONNX Runtime, whose operators they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from test.graphs.models import Graph, model, node
from test.optional import need
from weft.nn.onnx import OnnxRunner

RANDOM = np.random.default_rng(0)
TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9}


def real(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


def whole(low: int, high: int, *shape: int, kind: str = "int32") -> Any:
    return RANDOM.integers(low, high, shape).astype(kind)


def one(value: float, kind: str = "float32") -> Any:
    return np.array(value, dtype=kind)


def tables(length: int, width: int) -> tuple[Any, Any]:
    angles = np.outer(np.arange(length), 10000.0 ** (-np.arange(width // 2) / (width // 2)))
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


COS, SIN = tables(16, 8)
U8 = "uint8"
# name -> operator, number of outputs, inputs in order (None: left out), attributes
CASES: dict[str, tuple[str, int, list[Any], dict[str, Any]]] = {
    "Gelu": ("Gelu", 1, [real(3, 4)], {}),
    "FastGelu": ("FastGelu", 1, [real(3, 4), real(4)], {}),
    "BiasGelu": ("BiasGelu", 1, [real(3, 4), real(4)], {}),
    "QuickGelu": ("QuickGelu", 1, [real(3, 4)], {"alpha": 1.5}),
    "SkipLayerNormalization": (
        "SkipLayerNormalization",
        1,
        [real(2, 3, 8), real(2, 3, 8), real(8), real(8), real(8)],
        {"epsilon": 1e-5},
    ),
    "SkipSimplifiedLayerNormalization": (
        "SkipSimplifiedLayerNormalization",
        1,
        [real(2, 3, 8), real(2, 3, 8), real(8)],
        {"epsilon": 1e-5},
    ),
    "EmbedLayerNormalization": (
        "EmbedLayerNormalization",
        2,
        [
            whole(0, 9, 2, 3),
            whole(0, 2, 2, 3),
            real(9, 8),
            real(5, 8),
            real(2, 8),
            real(8),
            real(8),
            np.array([[1, 1, 0], [1, 1, 1]], dtype=np.int32),
        ],
        {"epsilon": 1e-5},
    ),
    "DynamicQuantizeLSTM": (
        "DynamicQuantizeLSTM",
        3,
        [
            *(real(3, 2, 8), whole(0, 256, 1, 8, 16, kind=U8), whole(0, 256, 1, 4, 16, kind=U8)),
            *(real(1, 32), None, real(1, 2, 4), real(1, 2, 4), None),
            *(np.full(1, 0.01, np.float32), np.full(1, 128, np.uint8)),
            *(np.full(1, 0.02, np.float32), np.full(1, 120, np.uint8)),
        ],
        {"hidden_size": 4},
    ),
    "DynamicQuantizeLSTM, two directions, a scale for each column": (
        "DynamicQuantizeLSTM",
        3,
        [
            *(real(3, 2, 8), whole(-128, 128, 2, 8, 16, kind="int8")),
            *(whole(-128, 128, 2, 4, 16, kind="int8"), real(2, 32)),
            *(None, None, None, real(2, 12)),
            *(real(2, 16) ** 2 * 0.01, np.zeros((2, 16), np.int8)),
            *(real(2, 16) ** 2 * 0.01, np.zeros((2, 16), np.int8)),
        ],
        {"hidden_size": 4, "direction": "bidirectional"},
    ),
    "FusedMatMul": (
        "FusedMatMul",
        1,
        [real(2, 4, 3), real(2, 5, 4)],
        {"alpha": 0.5, "transA": 1, "transB": 1},
    ),
    "FusedConv": (
        "FusedConv",
        1,
        [real(1, 2, 5, 5), real(3, 2, 3, 3), real(3)],
        {"activation": "LeakyRelu", "activation_params": [0.1], "pads": [1, 1, 1, 1]},
    ),
    "Attention": (
        "Attention",
        1,
        [real(2, 3, 8), real(8, 24), real(24), np.array([[1, 1, 0], [1, 1, 1]], dtype=np.int32)],
        {"num_heads": 2},
    ),
    "Attention, causal": (
        "Attention",
        1,
        [real(2, 3, 8), real(8, 24), real(24)],
        {"num_heads": 2, "unidirectional": 1},
    ),
    "MultiHeadAttention": (
        "MultiHeadAttention",
        1,
        [real(2, 3, 8), real(2, 4, 8), real(2, 4, 8), real(24)],
        {"num_heads": 2},
    ),
    "MultiHeadAttention with a past": (
        "MultiHeadAttention",
        3,
        [
            real(1, 2, 8),
            real(1, 2, 8),
            real(1, 2, 8),
            None,
            None,
            real(1, 2, 2, 5),
            real(1, 2, 3, 4),
            real(1, 2, 3, 4),
        ],
        {"num_heads": 2},
    ),
    "GroupQueryAttention, a prompt": (
        "GroupQueryAttention",
        3,
        [
            real(1, 3, 32),
            real(1, 3, 16),
            real(1, 3, 16),
            real(1, 2, 0, 8),
            real(1, 2, 0, 8),
            np.array([2], dtype=np.int32),
            one(3, "int32"),
        ],
        {"num_heads": 4, "kv_num_heads": 2},
    ),
    "GroupQueryAttention, one more token": (
        "GroupQueryAttention",
        3,
        [
            real(1, 1, 64),
            real(1, 1, 32),
            real(1, 1, 32),
            real(1, 2, 3, 16),
            real(1, 2, 3, 16),
            np.array([3], dtype=np.int32),
            one(4, "int32"),
            *tables(16, 16),
        ],
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1},
    ),
    "RotaryEmbedding": (
        "RotaryEmbedding",
        1,
        [real(2, 3, 16), whole(0, 8, 2, 3, kind="int64"), COS, SIN],
        {},
    ),
    "RotaryEmbedding, interleaved": (
        "RotaryEmbedding",
        1,
        [real(2, 2, 3, 8), np.array([4], dtype=np.int64), COS, SIN],
        {"interleaved": 1},
    ),
    "MatMulNBits": (
        "MatMulNBits",
        1,
        [real(2, 64), whole(0, 256, 5, 2, 16, kind=U8), real(10), whole(0, 256, 5, kind=U8)],
        {"K": 64, "N": 5, "bits": 4, "block_size": 32},
    ),
    "MatMulNBits without zero points": (
        "MatMulNBits",
        1,
        [real(2, 64), whole(0, 256, 5, 2, 16, kind=U8), real(10)],
        {"K": 64, "N": 5, "bits": 4, "block_size": 32},
    ),
    "DynamicQuantizeMatMul": (
        "DynamicQuantizeMatMul",
        1,
        [real(2, 6), whole(0, 256, 6, 3, kind=U8), one(0.02), one(120, U8), real(3)],
        {},
    ),
    "MatMulIntegerToFloat": (
        "MatMulIntegerToFloat",
        1,
        [
            whole(0, 256, 2, 6, kind=U8),
            whole(0, 256, 6, 3, kind=U8),
            one(0.03),
            one(0.02),
            one(100, U8),
            one(120, U8),
        ],
        {},
    ),
    "QLinearAdd": (
        "QLinearAdd",
        1,
        [
            whole(0, 256, 2, 6, kind=U8),
            one(0.03),
            one(100, U8),
            whole(0, 256, 2, 6, kind=U8),
            one(0.02),
            one(120, U8),
            one(0.04),
            one(110, U8),
        ],
        {},
    ),
    "QLinearMul": (
        "QLinearMul",
        1,
        [
            whole(0, 256, 2, 6, kind=U8),
            one(0.03),
            one(100, U8),
            whole(0, 256, 2, 6, kind=U8),
            one(0.02),
            one(120, U8),
            one(0.04),
            one(110, U8),
        ],
        {},
    ),
    "QLinearGlobalAveragePool": (
        "QLinearGlobalAveragePool",
        1,
        [whole(0, 256, 1, 2, 3, 3, kind=U8), one(0.03), one(100, U8), one(0.02), one(90, U8)],
        {},
    ),
    "QGemm": (
        "QGemm",
        1,
        [
            whole(0, 256, 2, 6, kind=U8),
            one(0.03),
            one(100, U8),
            whole(0, 256, 6, 3, kind=U8),
            one(0.02),
            one(120, U8),
            whole(-500, 500, 3),
            one(0.5),
            one(128, U8),
        ],
        {},
    ),
    "Inverse": ("Inverse", 1, [real(2, 4, 4)], {}),
}


@pytest.mark.parametrize("name", CASES)
def test_as_onnx_runtime(name: str) -> None:
    runtime = need("onnxruntime")
    op, count, values, attributes = CASES[name]
    names = [f"i{i}" if value is not None else "" for i, value in enumerate(values)]
    outputs = [f"o{i}" for i in range(count)]
    given = [(n, v) for n, v in zip(names, values, strict=True) if n]
    graph = Graph(
        [(n, TYPES[v.dtype.name], list(v.shape)) for n, v in given],
        [(o, TYPES[_output_type(op, values)] if o == "o0" else _second(op), None) for o in outputs],
        [node(op, names, outputs, "com.microsoft", **attributes)],
    )
    data = model(graph, {"": 17, "com.microsoft": 1})
    runtime.set_default_logger_severity(4)
    options = runtime.SessionOptions()
    # with more, it cuts a batch in parts before it quantises them
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    wanted = session.run(None, dict(given))
    found = list(OnnxRunner(data)(dict(given)).values())
    for got, want in zip(found, wanted, strict=True):
        array = got.numpy()
        assert array.shape == want.shape and array.dtype == want.dtype
        if want.dtype.kind == "f":
            np.testing.assert_allclose(array, want, rtol=1e-4, atol=1e-5)
        else:
            # a sum that lies halfway may be rounded either way: scales are multiplied in any order
            assert np.abs(array.astype(int) - want.astype(int)).max() <= 1


def _output_type(op: str, values: list[Any]) -> str:
    return "uint8" if op.startswith("Q") and op != "QuickGelu" else "float32"


def _second(op: str) -> int:
    return TYPES["int32"] if op == "EmbedLayerNormalization" else TYPES["float32"]
