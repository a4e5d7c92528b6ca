"""Programs in tinygrad's API, as its users write them: they run on weft with the import changed."""
