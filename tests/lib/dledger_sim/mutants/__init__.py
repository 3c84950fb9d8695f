"""Planted bugs, and the hunt for them. `tests/sim/mutants` has the bugs."""
