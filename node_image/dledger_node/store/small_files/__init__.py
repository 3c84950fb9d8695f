"""The small files beside the log.

hard_state  term and vote, in DLedger's `currterm`
checkpoint  the durable and the committed index, in DLedger's `checkpoint`
group_file  which group the folder belongs to
removals_file  the removals from the front of the log
scrub_file  the progress of a scrubbing pass
properties  `key=value` lines as Java's Properties class reads and writes them
formats     check whether a later release has written the folder in formats that this one lacks
whole_file  atomic replacement of a file, and its errors
lock        one process per store
ballast     blocks kept in reserve for small files that a full volume must not block
served_files  the small files and the snapshots that an auditor may read
"""
