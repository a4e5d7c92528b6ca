"""Optimisations of a kernel: the actions, and the heuristic that picks them."""
