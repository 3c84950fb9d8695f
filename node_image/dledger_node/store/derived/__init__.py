"""State that is derived from the log and saved beside it: memberships and producers.

Both follow appends and truncations of the log, and are saved before a checkpoint or a removal of
old entries relies on them.
"""
