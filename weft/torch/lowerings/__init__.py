"""The table of lowerings, one file a family: each says what operators of PyTorch are in Tensors."""
