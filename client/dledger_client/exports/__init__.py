"""Exports: a log, or a part of one, as a stream of bytes.

What belongs here: the format of the stream, reading and extending one, and where its entries come
from: a running group, or the folder of a member. What does not: the commands, and appending the
entries to another group.
"""
