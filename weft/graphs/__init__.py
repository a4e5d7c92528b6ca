"""Graphs that other programs wrote: read, lowered to Tensor expressions, and run."""
