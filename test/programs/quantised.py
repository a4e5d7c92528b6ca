"""Weights in 8 and 4 bits: rows of bytes with scales, unpacked by shifts inside the product."""

import numpy as np
from tinygrad import Tensor, TinyJit, dtypes, nn

GROUP = 8


class Int8Linear:
    def __init__(self, weight: Tensor):
        self.scale = (weight.abs().max(axis=1) / 127.0).realize()
        self.weight = (weight.T / self.scale).T.round().clip(-127, 127).cast(dtypes.int8).realize()

    def __call__(self, x):
        return x.dot(self.weight.cast(x.dtype).T * self.scale)


class Int4Linear:
    """Two numbers of 4 bits in a byte, a scale for each group."""

    def __init__(self, weight: Tensor):
        rows, columns = weight.shape
        groups = weight.reshape(rows, columns // GROUP, GROUP)
        self.scale = (groups.abs().max(-1, keepdim=True) / 7.0).realize()
        codes = ((groups / self.scale).round().clip(-7, 7) + 8).cast(dtypes.uint8)
        codes = codes.reshape(rows, columns // 2, 2)
        self.packed = (codes[..., 0] | (codes[..., 1] << 4)).realize()
        self.shape = (rows, columns)

    def dequantise(self):
        low, high = self.packed & 0xF, self.packed >> 4
        codes = Tensor.stack(low, high, dim=-1).cast(dtypes.int8) - 8
        groups = codes.reshape(self.shape[0], -1, GROUP)
        return (groups * self.scale).reshape(self.shape)

    def __call__(self, x):
        return x @ self.dequantise().T


random = np.random.default_rng(211)
weight = Tensor(random.standard_normal((12, 16)).astype(np.float32)).realize()
eight, four = Int8Linear(weight), Int4Linear(weight)


@TinyJit
def run(x):
    return eight(x).realize(), four(x).realize()


for _ in range(3):
    x = Tensor(random.standard_normal((3, 16)).astype(np.float32))
    by_eight, by_four = run(x.realize())
state = nn.state.get_state_dict(four)
whole = (x * 20).round().cast(dtypes.int8)
bits = weight.bitcast(dtypes.uint32)
results = {
    "eight": by_eight.numpy(),
    "four": by_four.numpy(),
    "packed": four.packed.numpy(),
    "codes": eight.weight.numpy(),
    "error": (four.dequantise() - weight).abs().max().numpy(),
    "integer product": whole.cast(dtypes.int32).matmul(eight.weight.cast(dtypes.int32).T).numpy(),
    "int8 sum": whole.sum().numpy(),
    "bytes": np.array([eight.weight.nbytes(), four.packed.nbytes(), weight.nbytes()]),
    "names": np.array(sorted(state)),
    "mantissa": (bits & 0x7FFFFF).numpy(),
    "exponent": ((bits >> 23) & 0xFF).cast(dtypes.int32).sub(127).numpy(),
    "wide bytes": weight[:1].bitcast(dtypes.uint8).numpy(),
}
