"""A seed gives the same numbers: every constructor of random tensors, and layers made of them."""

import numpy as np
from tinygrad import Context, Tensor, dtypes, nn

results = {}
for seed in (0, 42, 2**31 + 1):
    Tensor.manual_seed(seed)
    for name, make in {
        "rand": lambda: Tensor.rand(5),
        "again": lambda: Tensor.rand(2, 3),
        "randn": lambda: Tensor.randn(3, 3),
        "randint": lambda: Tensor.randint(8, low=-4, high=9),
        "uniform": lambda: Tensor.uniform(4, low=-3, high=2),
        "half": lambda: Tensor.rand(5, dtype=dtypes.half),
        "double": lambda: Tensor.rand(3, dtype=dtypes.double),
        "normal": lambda: Tensor.normal(3, mean=2.0, std=0.5),
        "scaled": lambda: Tensor.scaled_uniform(2, 3),
        "glorot": lambda: Tensor.glorot_uniform(2, 3),
        "kaiming": lambda: Tensor.kaiming_uniform(2, 3, a=5**0.5),
        "kaiming normal": lambda: Tensor.kaiming_normal(2, 3),
        "permutation": lambda: Tensor.randperm(11),
        "like": lambda: Tensor.zeros(2, 2).rand_like(),
        "drawn": lambda: Tensor([[1.0, 2.0, 3.0]]).multinomial(4, replacement=True),
        "without": lambda: Tensor([1.0, 2.0, 3.0, 4.0]).multinomial(3),
        "linear": lambda: nn.Linear(3, 2).weight,
    }.items():
        results[f"{name} {seed}"] = make().numpy()

Tensor.manual_seed(7)
with Context(TRAINING=1):
    results["dropout"] = Tensor.ones(3, 5).dropout(0.4).numpy()
Tensor.manual_seed(7)
convolution = nn.Conv2d(2, 3, 3)
results["convolution"] = convolution.weight.numpy()
Tensor.manual_seed(9)
results["shuffled"] = Tensor.arange(6)[Tensor.randperm(6)].numpy()
assert len(np.unique(results["rand 0"])) == 5
