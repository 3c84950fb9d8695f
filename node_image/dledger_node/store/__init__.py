"""The files of one member.

What belongs here: the bytes on this member's disk, which of them are durable, and what a crash
leaves of them. What does not: the decision which entries to write (`raft`), sockets, clocks and
logging. `dledger_formats.log.disk` defines the layout of records; `docs/disk-format.md` documents
it.

    log          the entries: append, truncate, recovery, retention
    segments     the log's files
    derived      memberships and producers, derived from the log
    small_files  term and vote, the checkpoint, the lock
    snapshots    snapshots of a state machine
"""
