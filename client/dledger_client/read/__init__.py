"""Reading entries: single entries, ranges with read-ahead, and following the end of the log.

log_reader    reads one entry or a range, or waits for the next entry
range_reader  many entries, with several requests in flight
missing       errors that say what the log holds
tail          the existing entries, then each new one
entry_batch   the entries of one answer, and the check that they are the requested ones
indexes       checks of indexes, before a request is sent
chunks        an async generator's items, for a caller in another thread
"""
