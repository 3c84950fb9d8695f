"""One member of a DLedger group: election, heartbeats, push replication, store, client protocol,
status.
"""
