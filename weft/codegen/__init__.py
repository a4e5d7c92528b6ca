"""From one kernel to a linear program, one pass a file."""
