"""An emulator of AMD's GPUs: instructions as records, each run by a helper compiled once."""
