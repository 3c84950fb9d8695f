"""The files of one member.

What belongs here: bytes on this member's disk, which of them are durable, and what is left of them
after a crash. What does not: who may write what (`raft` decides), sockets, clocks and logging.
`dledger_formats.log.disk` has the layout of records; `docs/disk-format.md` describes it for people.

    log          the entries: appending, truncating, recovery, retention
    segments     the log's files
    derived      memberships and producers, derived from the log
    small_files  term and vote, the checkpoint, the lock
    snapshots    snapshots of a state machine
"""
