"""The table of lowerings: the operators of ONNX as Tensor expressions, one family a file."""
