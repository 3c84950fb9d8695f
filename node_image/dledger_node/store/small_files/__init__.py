"""The small files beside the log.

hard_state  term and vote, in DLedger's `currterm`
checkpoint  the durable and the committed index, in DLedger's `checkpoint`
group_file  which group the folder belongs to
properties  `key=value` lines as Java's Properties class reads and writes them
whole_file  atomic replacement of a file
lock        one process per store
ballast     blocks kept in reserve, so that term and vote can be saved on a full volume
"""
