"""Layers that carry a state from token to token instead of looking back: Mamba, gated delta nets.

In: what comes into a block, (batch, length, width). Out: what the layer adds to it; the state of
each text is read from its slot and written back. Between `cache` and `model`.
Invariant: tokens that pad a step change no state.

Sources: Gu and Dao, "Mamba" (2023); Yang et al., "Gated Delta Networks" (2024); the form in chunks
is Yang et al., "Parallelizing Linear Transformers with the Delta Rule" (2024).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft.dtype import dtypes
from weft.llm.cache import Places
from weft.llm.config import TransformerConfig
from weft.llm.parts import Part, Tensors, taken
from weft.tensor import Tensor

# tokens whose part of a state is computed together
CHUNK = 32


class State:
    """What one layer carries of each text: some arrays, by slots."""

    def __init__(self, slots: int, shapes: Sequence[tuple[int, ...]]) -> None:
        self.memories = [Tensor.zeros(slots, *shape).contiguous().realize() for shape in shapes]

    def read(self, places: Places) -> list[Tensor]:
        """Of the texts of a step, (batch, ...); nothing, for texts that begin."""
        begins = places.positions[:, 0] == 0
        return [
            begins.reshape(-1, *[1] * (memory.ndim - 1)).where(0, memory[places.slots])
            for memory in self.memories
        ]

    def write(self, new: Sequence[Tensor], places: Places) -> None:
        """What the texts of a step carry from now on."""
        for memory, part in zip(self.memories, new, strict=True):
            memory[places.slots] = part.cast(memory.dtype)
        Tensor.realize(*self.memories)


class ShortConvolution:
    """Each channel's last few inputs, weighted."""

    def __init__(self, tensors: Tensors, name: str, channels: int, kernel: int) -> None:
        self.part = Part(tensors, name, (channels, kernel))
        self.kernel = kernel

    def __call__(self, x: Tensor, before: Tensor, places: Places) -> tuple[Tensor, Tensor]:
        """x (batch, length, channels) behind `before`; also what is before the next step."""
        length, behind = x.shape[1], self.kernel - 1
        both = before.cat(x, dim=1)
        taps = [both[:, i : i + length] * self.part.weight[:, i] for i in range(self.kernel)]
        found = sum(taps[1:], taps[0])
        if self.part.bias is not None:
            found = found + self.part.bias
        # the inputs in front of what comes next; those that pad the step are behind them
        rows = places.counts.reshape(-1, 1, 1) + Tensor.arange(behind).reshape(1, -1, 1)
        return found, both.gather(1, rows.expand(x.shape[0], behind, x.shape[2]))


class Mamba:
    """A state space whose steps and projections depend on the input."""

    theta = None  # it has no rotary positions

    def __init__(
        self, tensors: Tensors, prefix: str, layer: int, config: TransformerConfig
    ) -> None:
        sizes = config.ssm
        assert sizes is not None
        self.sizes = sizes
        inner, width, rank = sizes.inner_size, sizes.state_size, sizes.time_step_rank
        self.input = Part(tensors, f"{prefix}ssm_in", (2 * inner, config.dim))
        self.convolution = ShortConvolution(
            tensors, f"{prefix}ssm_conv1d", inner, sizes.conv_kernel
        )
        self.selected = Part(tensors, f"{prefix}ssm_x", (rank + 2 * width, inner))
        self.step = Part(tensors, f"{prefix}ssm_dt", (inner, rank))
        # negative: how fast each number of the state is forgotten
        self.rates = taken(tensors, f"{prefix}ssm_a", (inner, width))
        self.direct = taken(tensors, f"{prefix}ssm_d", (inner,))
        self.output = Part(tensors, f"{prefix}ssm_out", (config.dim, inner))

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of what it carries."""
        sizes = self.sizes
        return [
            (sizes.conv_kernel - 1, sizes.inner_size),
            (sizes.inner_size, sizes.state_size),
        ]

    def __call__(self, x: Tensor, state: State, angles: Tensor | None, places: Places) -> Tensor:
        before, carried = state.read(places)
        sizes = self.sizes
        inner, gate = self.input(x).cast(dtypes.float32).chunk(2, dim=-1)
        inner, before = self.convolution(inner, before, places)
        inner = inner.silu()
        widths = [sizes.time_step_rank, sizes.state_size, sizes.state_size]
        short, into, out = self.selected(inner).split(widths, dim=-1)
        step = places.is_text.unsqueeze(-1).where(self.step(short).softplus(), 0)
        decays = (step.unsqueeze(-1) * self.rates).exp()
        inputs = (step * inner).unsqueeze(-1) * into.unsqueeze(-2)
        states = scan(decays, inputs, carried)
        state.write((before, states[:, -1]), places)
        found = (states * out.unsqueeze(-2)).sum(-1) + inner * self.direct
        return self.output((found * gate.silu()).cast(x.dtype))


def scan(decays: Tensor, inputs: Tensor, first: Tensor) -> Tensor:
    """States along axis 1: each is decays times the one before, plus inputs; `first` is in front.

    By doubling: after each round a place has the sum over twice as many places.

    >>> scan(Tensor([[0.5, 0.5, 1.0]]), Tensor([[1.0, 0.0, 1.0]]), Tensor([2.0])).tolist()
    [[2.0, 1.0, 2.0]]
    """
    length = decays.shape[1]
    rest = (None,) * (decays.ndim - 2)
    reach = 1
    total = decays
    while reach < length:
        pad = (None, (reach, 0), *rest)
        moved = [t[:, :-reach].pad(pad, value=v) for t, v in ((inputs, 0.0), (total, 1.0))]
        inputs, total = (inputs + total * moved[0]).contiguous(), (total * moved[1]).contiguous()
        reach *= 2
    return inputs + total * first.unsqueeze(1)


class GatedDeltaNet:
    """A matrix a head that maps keys to values; what a key maps to is replaced, all else fades."""

    theta = None  # it has no rotary positions

    def __init__(
        self, tensors: Tensors, prefix: str, layer: int, config: TransformerConfig
    ) -> None:
        sizes = config.ssm
        assert sizes is not None
        self.sizes = sizes
        self.eps = config.norm_eps
        keys, values = sizes.key_heads * sizes.state_size, sizes.inner_size
        self.channels = 2 * keys + values
        self.qkv = Part(tensors, f"{prefix}attn_qkv", (self.channels, config.dim))
        self.gate = Part(tensors, f"{prefix}attn_gate", (values, config.dim))
        self.beta = Part(tensors, f"{prefix}ssm_beta", (sizes.value_heads, config.dim))
        self.alpha = Part(tensors, f"{prefix}ssm_alpha", (sizes.value_heads, config.dim))
        self.convolution = ShortConvolution(
            tensors, f"{prefix}ssm_conv1d", self.channels, sizes.conv_kernel
        )
        self.rates = taken(tensors, f"{prefix}ssm_a", (sizes.value_heads,))
        self.step = taken(tensors, f"{prefix}ssm_dt.bias", (sizes.value_heads,))
        self.norm = Part(tensors, f"{prefix}ssm_norm", (sizes.value_size,)).weight
        self.output = Part(tensors, f"{prefix}ssm_out", (config.dim, values))

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of what it carries."""
        sizes = self.sizes
        return [
            (sizes.conv_kernel - 1, self.channels),
            (sizes.value_heads, sizes.state_size, sizes.value_size),
        ]

    def __call__(self, x: Tensor, state: State, angles: Tensor | None, places: Places) -> Tensor:
        before, carried = state.read(places)
        sizes = self.sizes
        batch, length = x.shape[:2]
        mixed, before = self.convolution(self.qkv(x).cast(dtypes.float32), before, places)
        keys = sizes.key_heads * sizes.state_size
        q, k, v = mixed.silu().split([keys, keys, sizes.inner_size], dim=-1)
        q, k = (self._unit(t.reshape(batch, length, sizes.key_heads, -1)) for t in (q, k))
        v = v.reshape(batch, length, sizes.value_heads, sizes.value_size)
        is_text = places.is_text.unsqueeze(-1)
        beta = is_text.where(self.beta(x).cast(dtypes.float32).sigmoid(), 0)
        decay = self.rates * (self.alpha(x).cast(dtypes.float32) + self.step).softplus()
        decay = is_text.where(decay, 0)
        q, k, v, beta, decay = (t.transpose(1, 2) for t in (q, k, v, beta, decay))
        found, carried = delta_rule(q, k, v, beta, decay, carried)
        state.write((before, carried), places)
        found = found.transpose(1, 2)
        found = found * (found.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.norm
        gate = self.gate(x).cast(dtypes.float32).reshape(found.shape).silu()
        return self.output((found * gate).reshape(batch, length, -1).cast(x.dtype))

    def _unit(self, x: Tensor) -> Tensor:
        """Vectors of length 1, for each head of values."""
        x = x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()
        return x.repeat_interleave(self.sizes.value_heads // self.sizes.key_heads, dim=2)


def delta_rule(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor, first: Tensor
) -> tuple[Tensor, Tensor]:
    """What queries find, and the last state.

    q, k (batch, heads, length, key), v (.., value), beta and decay (batch, heads, length), the
    state `first` (batch, heads, key, value). One token after another it would be:
        state = exp(decay) * state
        state = state + k (beta * (v - state^T k))^T
        found = state^T q / sqrt(key)
    Of a chunk the differences d = beta * (v - state^T k) solve (1 + A) d = beta * (v - first^T k),
    where A is below the diagonal, as only earlier tokens of the chunk count.
    """
    batch, heads, length, width = q.shape
    size = min(CHUNK, length)
    short = -length % size
    if short:
        pad = (None, None, (0, short), None)
        q, k, v = q.pad(pad), k.pad(pad), v.pad(pad)
        beta, decay = beta.pad(pad[:3]), decay.pad(pad[:3])
    cut = [t.reshape(batch, heads, -1, size, *t.shape[3:]) for t in (q * width**-0.5, k, v)]
    q, k, v = cut
    beta = beta.reshape(batch, heads, -1, size, 1)
    fading = decay.reshape(batch, heads, -1, size).cumsum(-1).unsqueeze(-1)
    between = fading - fading.transpose(-1, -2)
    row, column = Tensor.arange(size).unsqueeze(1), Tensor.arange(size).unsqueeze(0)
    between = (column <= row).where(between, -math.inf).exp()
    below = (column < row).where(beta * between * (k @ k.transpose(-1, -2)), 0)
    solved = inverse_below(below)
    # of what is known before the state is: both times the inverse
    values = (solved @ (beta * v)).contiguous()
    keys = (solved @ (beta * fading.exp() * k)).contiguous()
    scores = (q @ k.transpose(-1, -2) * between).contiguous()
    queries = (q * fading.exp()).contiguous()
    last = fading[..., -1:, :]
    late = (k * (last - fading).exp()).contiguous()
    state, found = first, []
    for i in range(q.shape[2]):
        difference = (values[:, :, i] - keys[:, :, i] @ state).contiguous()
        found.append(queries[:, :, i] @ state + scores[:, :, i] @ difference)
        state = last[:, :, i].exp() * state + late[:, :, i].transpose(-1, -2) @ difference
        state = state.contiguous()
    whole = found[0] if len(found) == 1 else found[0].cat(*found[1:], dim=2)
    return whole[:, :, :length], state


def inverse_below(below: Tensor) -> Tensor:
    """The inverse of 1 + a matrix that is zero on and above the diagonal; sizes are powers of 2
    or less than CHUNK.

    Blocks on the diagonal are inverted, two and two of them joined: with X the inverse of both and
    M what is below them, the inverse of the whole is X - X M X. That is as exact as substitution.

    >>> inverse_below(Tensor([[0.0, 0.0], [3.0, 0.0]])).tolist()
    [[1.0, 0.0], [-3.0, 1.0]]
    """
    size = below.shape[-1]
    row, column = Tensor.arange(size).unsqueeze(1), Tensor.arange(size).unsqueeze(0)
    found = (row == column).where(1.0, 0.0).expand(below.shape)
    block = 1
    while block < size:
        is_joined = (row // block % 2 == 1) & (column // block == row // block - 1)
        joined = is_joined.where(below, 0)
        found = (found - found @ joined @ found).contiguous() if block > 1 else found - joined
        block *= 2
    return found
