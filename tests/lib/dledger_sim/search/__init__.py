"""Searches beyond seeds: every run of a small group, and random messages to one core.

- `exhaustive`: the search, and its command line
- `scope`, `result`: its bounds, its limits and its counts
- `members`, `moves`: the states of one member and everything that can happen there
- `crashes`: what a crash may leave of a disk
- `frozen`: a core as a key and as bytes
- `judge`: rules on a state of the group
- `way`: the path to a broken rule, for a reader
- `fuzz`: random messages to one core
"""
