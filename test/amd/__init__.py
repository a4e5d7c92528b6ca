"""Tests of `weft.amd`: tables, decoder, printer, assembler, code objects."""
