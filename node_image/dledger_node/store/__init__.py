"""The files of one member: its log, its term and vote, its checkpoint.

What belongs here: bytes on this member's disk, what of them is durable, and what is left of them
after a crash. What does not: who may write what (`raft` decides), sockets, clocks and logging. The
layout of records is `dledger_formats.log.disk`; a page for people is `docs/disk-format.md`.

`MmapStore` is the store; `mmap_store` says which of its methods is for which thread. Below it:

    log_writer      the end of the log: append, truncate     recovery      files to a good end
    block           a leader's push, judged                  checkpoint    how far all is durable
    entry_runs      encoded entries, placed                  hard_state    term and vote
    log_files       where an entry lies                      properties    the two small files
    log_memberships who belongs to the group                 log_producers who has appended what
    mmap_file_list  segments as one address space            lock          one process per store
    mmap_file       one segment                              segment_files for auditors
    sound_part      what of a damaged log could be kept      set_aside     room for a sound one
"""
