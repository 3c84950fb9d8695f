"""The client of a DLedger group, this project's or Java's.

`client` is the asyncio API, `sync` the blocking API and `cli` the command line.

Belongs here: finding and following the leader, keeping requests in flight, and reporting the
outcome of each. Does not belong here: encoding frames and bodies (`dledger_formats`), and any
decision of a node.
"""
