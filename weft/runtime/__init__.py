"""One device a file, found by file name; imported by nobody else."""
