"""The client of a DLedger group, ours or Java's: `client` for asyncio, `sync` for scripts, `cli`.

What belongs here: finding and following the leader, keeping requests in flight, and telling what
became of each. What does not: how a frame or a body is written (`dledger_formats`), and anything
that a node decides.
"""
