"""A speech model: log-mel front end, encoder with convolutions, decoder with cross attention."""

import numpy as np
from tinygrad import Tensor, dtypes, nn
from tinygrad.nn.state import get_state_dict

from test.programs.weights import fill

RATE, N_FFT, HOP, N_MELS, DIM, HEADS, VOCAB = 1600, 64, 32, 8, 16, 2, 23


def mel_filters() -> np.ndarray:
    def to_mel(hertz):
        return 2595 * np.log10(1 + hertz / 700)

    edges = 700 * (10 ** (np.linspace(0, to_mel(RATE / 2), N_MELS + 2) / 2595) - 1)
    bins = np.linspace(0, RATE / 2, N_FFT // 2 + 1)
    rising = (bins[None] - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - bins[None]) / (edges[2:] - edges[1:-1])[:, None]
    return np.maximum(0, np.minimum(rising, falling)).astype(np.float32)


def log_mel(waveform: Tensor) -> Tensor:
    """A short-time Fourier transform as a convolution, then filters and a logarithm."""
    n, k = np.arange(N_FFT)[None], np.arange(N_FFT // 2 + 1)[:, None]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * n / N_FFT)
    basis = np.concatenate([np.cos(2 * np.pi * k * n / N_FFT), np.sin(2 * np.pi * k * n / N_FFT)])
    kernel = Tensor((basis * window).astype(np.float32)).unsqueeze(1)
    padded = waveform.unsqueeze(1).pad((N_FFT // 2, N_FFT // 2), mode="reflect")
    real, imaginary = padded.conv2d(kernel, stride=HOP).chunk(2, dim=1)
    power = (real.square() + imaginary.square())[..., :-1]
    mel = Tensor(mel_filters()) @ power
    log = mel.maximum(1e-10).log2() * 0.30102999566
    log = log.maximum(log.max((1, 2), keepdim=True) - 8.0)
    return (log + 4.0) / 4.0


class MultiHeadAttention:
    def __init__(self, n_state, n_head):
        self.n_head = n_head
        self.query = nn.Linear(n_state, n_state)
        self.key = nn.Linear(n_state, n_state, bias=False)
        self.value = nn.Linear(n_state, n_state)
        self.out = nn.Linear(n_state, n_state)

    def __call__(self, x: Tensor, xa: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = (
            self.query(x),
            self.key(x if xa is None else xa),
            self.value(x if xa is None else xa),
        )
        q, k, v = (t.reshape(*t.shape[:2], self.n_head, -1).permute(0, 2, 1, 3) for t in (q, k, v))
        attended = q.scaled_dot_product_attention(
            k, v, None if mask is None else mask[: x.shape[1], : x.shape[1]]
        )
        return self.out(attended.permute(0, 2, 1, 3).flatten(start_dim=2))


class Block:
    def __init__(self, n_state, n_head, cross=False):
        self.attn, self.attn_ln = MultiHeadAttention(n_state, n_head), nn.LayerNorm(n_state)
        self.cross_attn = MultiHeadAttention(n_state, n_head) if cross else None
        self.cross_attn_ln = nn.LayerNorm(n_state) if cross else None
        self.mlp = [nn.Linear(n_state, n_state * 2), Tensor.gelu, nn.Linear(n_state * 2, n_state)]
        self.mlp_ln = nn.LayerNorm(n_state)

    def __call__(self, x, xa=None, mask=None):
        x = x + self.attn(self.attn_ln(x), mask=mask)
        if self.cross_attn:
            x = x + self.cross_attn(self.cross_attn_ln(x), xa)
        return x + self.mlp_ln(x).sequential(self.mlp)


def sinusoids(length, channels):
    scale = np.log(10000) / (channels // 2 - 1)
    times = np.arange(length)[:, None] * np.exp(-scale * np.arange(channels // 2))[None]
    return Tensor(np.concatenate([np.sin(times), np.cos(times)], axis=1).astype(np.float32))


class Whisper:
    def __init__(self):
        self.conv1 = nn.Conv1d(N_MELS, DIM, kernel_size=3, padding=1)
        self.conv2 = nn.Conv1d(DIM, DIM, kernel_size=3, stride=2, padding=1)
        self.encoder = Block(DIM, HEADS)
        self.ln_post = nn.LayerNorm(DIM)
        self.token_embedding = nn.Embedding(VOCAB, DIM)
        self.positional_embedding = Tensor.empty(16, DIM)
        self.decoder = Block(DIM, HEADS, cross=True)
        self.ln = nn.LayerNorm(DIM)
        self.mask = Tensor.full((16, 16), -np.inf).triu(1).realize()

    def encode(self, mel):
        x = self.conv2(self.conv1(mel).gelu()).gelu().permute(0, 2, 1)
        x = x + sinusoids(x.shape[1], DIM)
        return self.ln_post(self.encoder(x)).realize()

    def decode(self, tokens, audio):
        x = self.token_embedding(tokens) + self.positional_embedding[: tokens.shape[1]]
        x = self.decoder(x, xa=audio, mask=self.mask)
        return self.ln(x) @ self.token_embedding.weight.T


model = Whisper()
fill({k: v for k, v in get_state_dict(model).items() if "mask" not in k}, seed=51)
time = np.arange(RATE // 4) / RATE
tones = np.stack([np.sin(2 * np.pi * 200 * time), np.sin(2 * np.pi * (100 + 900 * time) * time)])
mel = log_mel(Tensor(tones.astype(np.float32)))
audio = model.encode(mel)
tokens = Tensor([[1], [1]], dtype=dtypes.int32)
for _ in range(3):
    logits = model.decode(tokens, audio)[:, -1]
    logits[:, 0] = -float("inf")
    tokens = tokens.cat(logits.argmax(-1, keepdim=True).cast(dtypes.int32), dim=1).realize()
results = {
    "mel": mel.numpy(),
    "audio": audio.numpy(),
    "tokens": tokens.numpy(),
    "probabilities": logits.softmax(-1).numpy(),
}
