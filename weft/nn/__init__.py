"""Neural nets: layers, optimisers, saved states, data sets.

In: Tensors. Out: `weft.nn.state` and `weft.nn.datasets`, loaded here so that `nn.state` just works.
A user of the public names below; nothing below imports it.
"""

import weft.nn.datasets as datasets
import weft.nn.state as state

__all__ = ["datasets", "state"]
