"""File formats that hold tensors: safetensors, PyTorch checkpoints, archives, GGUF."""
