"""weft.nn.torch: PyTorch's tensors and modules beside weft's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from test.optional import need
from weft import Tensor, nn
from weft.errors import ArgumentError, DataError, DTypeError
from weft.nn.torch import from_torch, load_module, state_dict

torch = need("torch")


@pytest.mark.parametrize("kind", ["float32", "float64", "bfloat16", "int64", "uint8", "bool"])
def test_memory_is_shared(kind: str) -> None:
    theirs = torch.tensor([[1, 0], [1, 1]]).to(getattr(torch, kind))
    ours = from_torch(theirs)
    assert ours.dtype.name == kind and ours.shape == (2, 2)
    theirs[0, 0] = 0
    assert ours.tolist() == [[0, 0], [1, 1]]
    back = torch.from_dlpack(ours)
    assert back.data_ptr() == theirs.data_ptr()


def test_parameters_and_views() -> None:
    theirs = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
    assert from_torch(theirs.T).tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]


class Net:
    def __init__(self) -> None:
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm(4)
        self.lstm = nn.LSTM(4, 5, bidirectional=True, batch_first=True)
        self.out = nn.Linear(10, 3)

    def __call__(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x)).relu().mean(3).transpose(1, 2)
        return self.out(self.lstm(x)[0])


def torch_net() -> Any:
    class Theirs(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(1, 4, 3)
            self.norm = torch.nn.BatchNorm2d(4)
            self.lstm = torch.nn.LSTM(4, 5, bidirectional=True, batch_first=True)
            self.out = torch.nn.Linear(10, 3)

        def forward(self, x: Any) -> Any:
            x = self.norm(self.conv(x)).relu().mean(3).transpose(1, 2)
            return self.out(self.lstm(x)[0])

    torch.manual_seed(0)
    return Theirs().eval()


def test_a_module_is_taken_over() -> None:
    theirs, ours = torch_net(), Net()
    load_module(ours, theirs)
    x = np.random.default_rng(0).standard_normal((2, 1, 6, 6)).astype("float32")
    with torch.no_grad():
        wanted = theirs(torch.tensor(x)).numpy()
    np.testing.assert_allclose(ours(Tensor(x)).numpy(), wanted, rtol=1.3e-6, atol=1e-5)
    # memory of its own: training one does not train the other
    ours.out.weight.assign(Tensor.zeros(3, 10)).realize()
    assert theirs.out.weight.abs().sum() > 0
    assert set(state_dict(theirs.state_dict())) == set(nn.state.get_state_dict(ours))


@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin"])
def test_a_checkpoint_gives_the_same_logits(tmp_path: Any, suffix: str, is_zip: bool) -> None:
    theirs, ours = torch_net(), Net()
    path = tmp_path / f"model{suffix}"
    torch.save(theirs.state_dict(), path, _use_new_zipfile_serialization=is_zip)
    nn.state.load_state_dict(ours, nn.state.torch_load(path), verbose=False)
    x = np.random.default_rng(1).standard_normal((2, 1, 6, 6)).astype("float32")
    with torch.no_grad():
        wanted = theirs(torch.tensor(x)).numpy()
    np.testing.assert_allclose(ours(Tensor(x)).numpy(), wanted, rtol=1.3e-6, atol=1e-5)


def test_a_saved_model_opens_in_pytorch(tmp_path: Any) -> None:
    """Through the safetensors library, and with the same logits."""
    safetensors = need("safetensors.torch")
    theirs, ours = torch_net(), Net()
    nn.state.safe_save(nn.state.get_state_dict(ours), tmp_path / "x.safetensors")
    theirs.load_state_dict(safetensors.load_file(tmp_path / "x.safetensors"))
    x = np.random.default_rng(2).standard_normal((2, 1, 6, 6)).astype("float32")
    with torch.no_grad():
        wanted = theirs(torch.tensor(x)).numpy()
    np.testing.assert_allclose(ours(Tensor(x)).numpy(), wanted, rtol=1.3e-6, atol=1e-5)


def test_mistakes_are_explained() -> None:
    with pytest.raises(ArgumentError, match="from_torch takes a PyTorch tensor"):
        from_torch([1.0])
    with pytest.raises(ArgumentError, match="state_dict takes a PyTorch module"):
        state_dict(3)
    with pytest.raises(DTypeError):
        from_torch(torch.zeros(2, dtype=torch.complex64))
    with pytest.raises(DataError, match="does not fit"):
        load_module(nn.Linear(2, 3), torch.nn.Linear(3, 3))
