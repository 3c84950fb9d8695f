"""The requests that clients make of a member, one module for each service.

    append      appends: collected, proposed together, answered once a quorum holds them
    idempotent  idempotent appends, and the registration of their producers
    get         committed entries, and the proof that a leader still leads
    ranges      committed entries as they are stored, also from the disk
    follow      entries as JSON, once the next one is committed
    commit_waits  reads that wait for an entry
    answer_pace   how often those are answered
    register    reads of the register, the example of a state machine
    transfer    leadership transfer
    membership  membership changes
    entries     entries as clients receive them
    pending_by_address  how many entries of each address wait for their quorum
    proposed    bodies on their way into the log
    waiting     requests that wait for an index of the log
    refusals    codes of requests that are refused before anything is written

A service answers at once, or when an entry is committed, or when the request's deadline passes.
"""
