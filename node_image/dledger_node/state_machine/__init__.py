"""State machines: what the entries of a log add up to.

What belongs here: values that are the same on every member that applied the same entries. What does
not: files, threads and sockets, and when an entry is committed; `applying` and `store.snapshots`
see to those.
"""
