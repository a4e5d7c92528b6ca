"""Programs on top of weft."""
