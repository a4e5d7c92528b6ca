"""Tests of the viewer: recording, the trace file, the server, and the page in a real browser."""
