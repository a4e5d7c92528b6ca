"""Tests of weft/runtime."""
