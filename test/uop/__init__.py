"""Tests of weft/uop, one file per module."""
