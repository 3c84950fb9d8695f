"""Planted bugs, which `tests/sim/mutants` lists, and the hunt for them (`hunt`)."""
