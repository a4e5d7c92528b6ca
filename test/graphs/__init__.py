"""Tests of weft.graphs: ONNX files and the table of lowerings."""
