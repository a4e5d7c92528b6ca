"""Tests of the rule sets, one file a set."""
