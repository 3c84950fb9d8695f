"""The operator: runs a DLedger group for each `DLedgerGroup` object and keeps the group's Services
pointed at the leader.

All code that talks to the Kubernetes API belongs here, and the pure functions that decide what to
write to it. Elections, replication and storage belong to the node, which fails over without an
operator.
"""
