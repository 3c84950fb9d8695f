"""The log: data and index segments together.

log_store        one member's log, the only writer of its files
writer           the log's end: append and truncate
front            the log's beginning: remove and replace
files            where an entry lies
recovery         from the files on disk to a known good end
block            entries that a leader pushed, checked before they are written
entry_runs       encoded entries, ready to be copied into a segment
checkpoints      what the last checkpoint said, and what the next one will say
flush_target     what one flush covers
retention        which segments may be removed: a pure decision
served_segments  what an auditor may read
"""
