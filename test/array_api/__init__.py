"""Tests of weft.array_api, and the judge that reads the text of the standard."""
