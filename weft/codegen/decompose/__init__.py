"""Ops and types that a target lacks, in terms of those that it has."""
