"""The log: data and index segments together.

log_store        one member's log, the only writer of its files
log_reader       the readable half of it
writer           the end of the log: append and truncate
front            the beginning of the log: remove and replace
border           the last entry that is removed, and the first that is kept
removals         the record of removals, for auditors
files            where an entry lies
loading          list the files of a log that is to be opened or surveyed
stored_range     where a run of entries lies, and its bytes
recovery         find the end of the log after a start, and repair its files
damaged_ranges   find every damaged range of committed entries
entry_walk       walk over the sound entries of a log
block            pushed entries, validated before they are written
entry_runs       encoded entries, ready to be copied into a segment
segment_room     room for entries in the existing segments, and the allocation of more
checkpoints      the last checkpoint and the next one
flush_target     the entries that one flush makes durable
retention        decide which segments to remove; no IO
served_segments  the segments that an auditor may read
"""
