"""Replay: what the compiler makes of a corpus of programs, recorded and compared between commits."""
