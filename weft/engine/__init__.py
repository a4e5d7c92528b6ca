"""Drivers and caches: schedule, realize, search, memory, jit."""
