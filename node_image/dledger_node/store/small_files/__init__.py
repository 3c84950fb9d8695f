"""The small files beside the log.

hard_state  term and vote, in DLedger's `currterm`
checkpoint  how far the log is known to be sound, in DLedger's `checkpoint`
properties  `key=value` lines as Java's Properties read and write them
whole_file  files that are replaced as a whole
lock        one process per store
ballast     blocks kept in reserve, so that term and vote can be saved on a full volume
"""
