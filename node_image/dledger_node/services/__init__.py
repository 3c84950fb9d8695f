"""The requests that clients send to a member, one module for each service.

Appends
    append         appends: collected, proposed together, answered once a quorum holds them
    next_proposal  the appends that wait to be proposed together
    idempotent     idempotent appends, and the registration of their producers
    recent_entries  which entries are less than a minute old
    passed_on      appends that a follower passes on to its leader
    canary         appends that only test whether the group takes appends
    drafts         entries of a program that is built on this member, such as the broker
    draft_numbers  the numbers of such entries, each of which is in the log once
    proposing      proposals to the core: which entries wait for room, and which are refused
    proposed       bodies on their way into the log
    pending_by_address  how many entries of each address wait for their quorum
    quorum_progress  whether a leader's entries still get committed
Reads
    get            committed entries
    follow         entries as JSON, once the next one is committed
    ranges         committed entries as they are stored, also from the disk
    entries        entries in the form that clients receive, from the page cache or the disk
    held_reads     reads that wait for an entry
    answer_pace    how often those are answered
    disk_reads     reads of what the page cache lacks, in a few threads
    read_proofs    the proof that a leader still leads, for all services that read
    read_index     linearizable reads on a member that does not lead
    register       reads of the register, the example of a state machine
    program_reads  how long the disk takes for the reads of a program on this member
Administration
    transfer       leadership transfer
    membership     membership changes
Waiting and answering
    waiting        requests that wait for an index of the log
    quorum_waits   requests that wait until a quorum has their entries
    due_answers    answers that become due at the same time, sent over several turns
    answering      answers to several appends, in one write for each connection
    refusals       codes of requests that are refused before anything is written

A service answers at once, or when an entry is committed, or when the request's deadline passes.
`append` and `drafts` both collect entries, let `proposing` propose them together, and follow them
to their end. They differ in whom they serve: `append` answers each append of a client on its
connection; `drafts` reports the end of a draft, whose entries the program completes while they are
written.
"""
