"""The parts that blocks are made of: projections, norms, feed-forward parts, experts.

In: the tensors of a file by GGUF's names, and a config. Out: callables over (batch, length, width).
Between `config` and `attention`. Invariant: what a file has no tensor for (a bias, a gate) is not
there, and is not computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from weft.dtype import dtypes
from weft.errors import DataError
from weft.llm.config import ExpertGating, TransformerConfig
from weft.tensor import Tensor

Tensors = Mapping[str, Tensor]


def taken(tensors: Tensors, name: str, shape: tuple[int, ...]) -> Tensor:
    """The tensor of a name, if it is of this shape."""
    if name not in tensors:
        raise DataError(f"there is no tensor {name}, which should be of shape {shape}")
    if tensors[name].shape != shape:
        raise DataError(
            f"the tensor {name} is of shape {tensors[name].shape}, not {shape} as the sizes of the "
            "model have it"
        )
    return tensors[name]


class Part:
    """The tensors of one name: a weight and perhaps a bias."""

    def __init__(self, tensors: Tensors, name: str, shape: tuple[int, ...]) -> None:
        self.weight = taken(tensors, f"{name}.weight", shape)
        self.bias = tensors.get(f"{name}.bias")

    def __call__(self, x: Tensor) -> Tensor:
        product = x @ self.weight.transpose(-1, -2)
        return product if self.bias is None else product + self.bias


class Norm(Part):
    """Root mean square, or mean and deviation; in float32."""

    def __init__(self, tensors: Tensors, name: str, width: int, config: TransformerConfig) -> None:
        super().__init__(tensors, name, (width,))
        self.centred = config.form.norm == "layer"
        self.eps = config.norm_eps

    def __call__(self, x: Tensor) -> Tensor:
        wide = x.cast(dtypes.float32)
        if self.centred:
            wide = wide - wide.mean(-1, keepdim=True)
        normal = wide * (wide.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.weight
        result = normal if self.bias is None else normal + self.bias
        return result.cast(x.dtype)


def pairwise_topk(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k greatest of the last axis and their places, by comparing all pairs: for short axes.

    >>> [t.tolist() for t in pairwise_topk(Tensor([3.0, 9.0, 1.0, 9.0]), 2)]
    [[9.0, 9.0], [1, 3]]
    """
    count = x.shape[-1]
    first, second = x.unsqueeze(-1), x.unsqueeze(-2)
    places = Tensor.arange(count)
    earlier = places.unsqueeze(0) < places.unsqueeze(1)
    # how many come before each: greater ones, and equal ones further in front
    rank = ((second > first) | ((second == first) & earlier)).sum(-1)
    chosen = rank.unsqueeze(-2) == Tensor.arange(k).unsqueeze(-1)
    index = (chosen * places).sum(-1).cast(dtypes.int32)
    return chosen.where(x.unsqueeze(-2), 0).sum(-1), index


class FeedForward:
    """Two or three projections around an activation."""

    def __init__(
        self, tensors: Tensors, prefix: str, config: TransformerConfig, suffix: str = ""
    ) -> None:
        up = tensors.get(f"{prefix}ffn_up{suffix}.weight")
        rows = up.shape[0] if up is not None and up.ndim == 2 else config.hidden_dim
        self.gate: Part | None = None
        self.fused = False
        hidden = rows
        if f"{prefix}ffn_gate{suffix}.weight" in tensors:
            self.gate = Part(tensors, f"{prefix}ffn_gate{suffix}", (rows, config.dim))
        elif config.form.gated:
            # gate and up are one tensor
            self.fused, hidden = True, rows // 2
        self.up = Part(tensors, f"{prefix}ffn_up{suffix}", (rows, config.dim))
        self.down = Part(tensors, f"{prefix}ffn_down{suffix}", (config.dim, hidden))
        self.activation = config.form.activation

    def __call__(self, x: Tensor) -> Tensor:
        up = self.up(x)
        if self.fused:
            gate, up = up.chunk(2, dim=-1)
            return self.down(activate(gate, self.activation) * up)
        if self.gate is None:
            return self.down(activate(up, self.activation))
        return self.down(activate(self.gate(x), self.activation) * up)


def activate(x: Tensor, name: str) -> Tensor:
    """The activation of a feed-forward part."""
    return x.silu() if name == "silu" else x.gelu()


class Experts:
    """A feed-forward part of which each token uses a few experts, and all the shared one."""

    def __init__(
        self, tensors: Tensors, prefix: str, config: TransformerConfig, gating: ExpertGating
    ) -> None:
        count, dim = gating.count, config.dim
        self.gating = gating
        self.choose = Part(tensors, f"{prefix}ffn_gate_inp", (count, dim))
        self.offset = tensors.get(f"{prefix}exp_probs_b.bias")
        gate = tensors.get(f"{prefix}ffn_gate_exps.weight")
        hidden = gate.shape[1] if gate is not None and gate.ndim == 3 else config.hidden_dim
        self.gate = Part(tensors, f"{prefix}ffn_gate_exps", (count, hidden, dim))
        self.up = Part(tensors, f"{prefix}ffn_up_exps", (count, hidden, dim))
        self.down = Part(tensors, f"{prefix}ffn_down_exps", (count, dim, hidden))
        self.activation = config.form.activation
        self.shared: FeedForward | None = None
        self.shared_gate = tensors.get(f"{prefix}ffn_gate_inp_shexp.weight")
        if f"{prefix}ffn_up_shexp.weight" in tensors:
            self.shared = FeedForward(tensors, prefix, config, "_shexp")

    def weights(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The weights of the chosen experts and which they are: (batch, length, used) each."""
        scores = self.choose(x.cast(dtypes.float32))
        kind = self.gating.gating
        if kind == "softmax_chosen":
            values, index = pairwise_topk(scores, self.gating.used)
            return values.softmax(-1), index
        if kind == "sigmoid_input":
            values, index = pairwise_topk(scores, self.gating.used)
            return values.sigmoid(), index
        odds = scores.sigmoid() if kind == "sigmoid" else scores.softmax(-1)
        wanted = odds if self.offset is None else odds + self.offset
        if self.gating.groups > 1:
            wanted = self._of_best_groups(wanted)
        _, index = pairwise_topk(wanted, self.gating.used)
        values = odds.gather(-1, index)
        if self.gating.normalised:
            values = values / values.sum(-1, keepdim=True)
        return values * self.gating.scale, index

    def _of_best_groups(self, wanted: Tensor) -> Tensor:
        """Experts of other groups than the best ones are not chosen.

        A group is as good as its two best experts together; with softmax, as its best one.
        """
        gating = self.gating
        groups = wanted.reshape(*wanted.shape[:-1], gating.groups, -1)
        counted = 2 if gating.gating == "sigmoid" else 1
        worth = pairwise_topk(groups, counted)[0].sum(-1)
        _, best = pairwise_topk(worth, gating.groups_used)
        numbers = Tensor.arange(gating.groups).unsqueeze(-1)
        is_best = (numbers == best.unsqueeze(-2)).any(-1).unsqueeze(-1)
        return is_best.where(groups, -math.inf).reshape(wanted.shape)

    def __call__(self, x: Tensor) -> Tensor:
        weights, index = self.weights(x)
        rows = x.unsqueeze(-2).unsqueeze(-2)
        if self.gating.gating == "sigmoid_input":
            rows = rows * weights.unsqueeze(-1).unsqueeze(-1).cast(x.dtype)
            weights = Tensor(1.0).expand(weights.shape)
        gate, up = (
            (rows @ part.weight[index].transpose(-1, -2)).squeeze(-2)
            for part in (self.gate, self.up)
        )
        inner = (activate(gate, self.activation) * up).unsqueeze(-2)
        outer = (inner @ self.down.weight[index].transpose(-1, -2)).squeeze(-2)
        result = (outer * weights.unsqueeze(-1)).sum(-2).cast(x.dtype)
        if self.shared is None:
            return result
        shared = self.shared(x)
        if self.shared_gate is not None:
            shared = shared * (x @ self.shared_gate.reshape(-1, 1)).sigmoid()
        return result + shared
