"""The requests that clients send to a member, one module for each service.

    append      appends: collected, proposed together, answered once a quorum holds them
    idempotent  idempotent appends, and the registration of their producers
    recent_entries  which entries are less than a minute old
    passed_on   appends that a follower passes on to its leader
    canary      appends that only test whether the group takes appends
    drafts      entries of a program that is built on this member, such as the broker
    draft_numbers  the numbers of such entries, each of which is in the log once
    get         committed entries
    read_proofs  the proof that a leader still leads, for all services that read
    read_index  linearizable reads on a member that does not lead
    ranges      committed entries as they are stored, also from the disk
    follow      entries as JSON, once the next one is committed
    held_reads  reads that wait for an entry
    answer_pace   how often those are answered
    register    reads of the register, the example of a state machine
    transfer    leadership transfer
    membership  membership changes
    entries     entries as clients receive them
    disk_reads  reads of what the page cache lacks, in a few threads
    program_reads  how long the disk takes for the reads of such a program
    pending_by_address  how many entries of each address wait for their quorum
    next_proposal  appends that wait to be proposed together
    proposed    bodies on their way into the log
    waiting     requests that wait for an index of the log
    quorum_waits  requests that wait until a quorum has their entries
    due_answers   answers that become due at the same time, sent over several turns
    quorum_progress  whether a leader's entries still get committed
    answering   answers to several appends, in one write for each connection
    refusals    codes of requests that are refused before anything is written

A service answers at once, or when an entry is committed, or when the request's deadline passes.
"""
