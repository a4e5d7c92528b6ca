"""Tests of `weft.torch`: PyTorch's programs compiled by weft."""
