"""Benchmarks: weft against its peers, the same inputs and threads, interleaved rounds, ratios."""
