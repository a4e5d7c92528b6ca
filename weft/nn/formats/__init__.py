"""File formats that hold tensors: safetensors, PyTorch checkpoints, archives, GGUF.

In: files, bytes or uint8 Tensors, perhaps of strangers. Out: lazy Tensors and plain data.
`source` reads pieces of any of them; `safetensors`, `torch_checkpoint` (with `pickled` and
`standins`), `archives` and `gguf` (with `blocks`, `dequantise`, `codebooks`, `relayout`) are the
formats; `atomic` writes. Invariant: a file is data: no class of it is looked up, nothing of it
runs, every size is checked before it is believed.
"""
