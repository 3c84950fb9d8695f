"""What clients ask of a member, one module for each service.

    append      appends: gathered, proposed as one batch, answered once a quorum holds them
    idempotent  appends that may be in the log already, and the registration of their producers
    get         committed entries, and the proof that a leader still leads
    follow      readers that wait for the next entry
    transfer    leadership transfer
    membership  membership changes
    entries     entries as clients get them
    pending     appends that wait for their quorum

A service answers at once, or when an entry is committed, or when its time is over.
"""
