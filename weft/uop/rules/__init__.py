"""Simplification rules, one topic a file."""
