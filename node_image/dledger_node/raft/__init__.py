"""The Raft core: pure rules, driven by ticks and messages.

What belongs here: who may vote, lead, append and commit. What does not: clocks, sockets, files,
logging and randomness, which the shell passes in, and entries: the core deals in index ranges, so
its cost is per batch and not per message. The order in which a shell must do what the core asks is
written once, on `ready.Ready`.

Indexes start at 0 and an empty ledger ends at -1, as in DLedger; the Raft paper starts at 1.
"""
