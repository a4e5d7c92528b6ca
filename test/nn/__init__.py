"""Tests of weft.nn."""
