"""Replay: what the compiler makes of a corpus of programs, compared between commits."""
