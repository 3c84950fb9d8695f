"""State that is derived from the log and saved beside it: memberships and producers.

Both are kept true while the log grows and is truncated, and are saved before a checkpoint or a
removal of old entries relies on them.
"""
