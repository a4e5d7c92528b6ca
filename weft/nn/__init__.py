"""Neural nets: layers, optimisers, saved states, data sets.

In: Tensors. Out: `weft.nn.state` and `weft.nn.datasets`, loaded here so that `nn.state` just works.
A user of the public names below; nothing below imports it.
"""

from weft.nn import datasets, state

__all__ = ["datasets", "state"]
