"""The IR: the op table, the interned node, patterns, rewriting and simplification."""
