"""Exports: a log, or a part of one, as a stream of bytes.

What belongs here: the format of the stream, reading and extending one, and where its entries come
from. What does not: the commands, and appending the entries to another group.

    records  the format of the stream
    reading  reads an export piece by piece
    writing  writes an export, also after the beginning of one
    group    the entries of a running group, in order
    folder   the entries in the folder of a member that is not running
"""
