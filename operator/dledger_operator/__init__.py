"""The operator: makes DLedger groups out of `DLedgerGroup` objects and keeps their Services on the
leader.

What belongs here: everything that speaks to the Kubernetes API, and the pure functions that decide
what to say to it. What a member of a group does by itself (elections, replication, storage) belongs
to the node, which needs no operator to fail over.
"""
