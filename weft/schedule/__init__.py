"""From a tensor graph to ordered kernels and buffers, one pass a file."""
