"""Method families that UOp and Tensor share, one family a file."""
